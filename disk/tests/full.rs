//! A file system without space, and writes that fail. The limit on file sizes makes the kernel answer so, in the middle of
//! a write; it is the whole process', so these tests have a process of their own and take turns.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use disk::{BLOCK_BYTES, Buffer, Disk, DiskError, FileDisk, FrameId, Options, Read, Way, Write};

const FRAME_BYTES: usize = 4 * BLOCK_BYTES;
const ONE_FRAME_BYTES: u64 = (BLOCK_BYTES + FRAME_BYTES) as u64;

static LIMIT: Mutex<()> = Mutex::new(());

fn open(path: &Path, way: Option<Way>) -> FileDisk {
    let options =
        Options { frame_bytes: FRAME_BYTES, bytes_max: 1 << 20, identity: [0; 16], reserved_frames: 0, way };
    FileDisk::open(path, &options).expect("opened")
}

#[test]
fn without_space_growth_says_so_and_goes_on_later() {
    let _turn = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let mut disk = open(&path, None);
    assert_eq!(disk.grow().expect("space"), FrameId(0));
    limit_file_bytes(ONE_FRAME_BYTES + BLOCK_BYTES as u64);
    assert!(matches!(disk.grow(), Err(DiskError::Full)));
    assert_eq!(fs::metadata(&path).expect("there").len(), ONE_FRAME_BYTES, "what was taken is given back");
    let block = Buffer::new(BLOCK_BYTES);
    disk.write(&[Write::of(FrameId(0), 0, &block)]).expect("what is there can be written");
    limit_file_bytes(libc::RLIM_INFINITY);
    assert_eq!(disk.grow().expect("space again"), FrameId(1));
}

#[test]
fn after_a_failed_write_no_handle_writes_until_the_file_is_opened_again() {
    let _turn = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let block = Buffer::new(BLOCK_BYTES);
    let write = |offset| Write::of(FrameId(0), offset, &block);
    for (way, several) in [(None, false), (None, true), (Some(Way::SystemCalls), true)] {
        let path = folder.path().join(format!("log {way:?} {several}"));
        let mut disk = open(&path, way);
        assert!(disk.grow().is_ok(), "space");
        let mut other = disk.another().expect("a handle");
        limit_file_bytes(BLOCK_BYTES as u64);
        let writes = [write(0), write(BLOCK_BYTES)];
        let failed = disk.write(&writes[usize::from(!several)..]);
        limit_file_bytes(libc::RLIM_INFINITY);
        match failed {
            Err(DiskError::Failed { operation: "write", path: of, error }) => {
                assert_eq!((of, error.kind()), (path.clone(), io::ErrorKind::FileTooLarge));
            }
            unexpected => panic!("{way:?}: {unexpected:?}"),
        }
        assert!(matches!(other.write(&writes[..1]), Err(DiskError::Stopped)), "{way:?}");
        assert!(matches!(disk.grow(), Err(DiskError::Stopped)), "{way:?}");
        let mut read = Buffer::new(FRAME_BYTES);
        other.read(&mut [Read::of(FrameId(0), 0, &mut read)]).expect("still readable");
        drop((disk, other));
        open(&path, way).write(&writes).expect("a new process starts afresh");
    }
}

fn limit_file_bytes(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this process, and the signal which would end it.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}
