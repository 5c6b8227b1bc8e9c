//! A file that is opened again, by others, after damage.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use disk::{BLOCK_BYTES, Buffer, Disk, DiskError, FileDisk, FrameId, Options, Read, Way, Write};

const FRAME_BYTES: usize = 4 * BLOCK_BYTES;

fn options() -> Options {
    Options {
        frame_bytes: FRAME_BYTES,
        bytes_max: 1 << 20,
        identity: *b"the first server",
        reserved_frames: 0,
        way: None,
    }
}

fn reason(path: &Path, options: &Options) -> String {
    match FileDisk::open(path, options) {
        Err(DiskError::Unsuitable { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_keeps_its_frames_and_its_identity() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let mut block = Buffer::new(BLOCK_BYTES);
    block.fill(9);
    let mut disk = FileDisk::open(&path, &options()).expect("created");
    (0..3).for_each(|_| assert!(disk.grow().is_ok(), "space"));
    disk.write(&[Write::of(FrameId(2), BLOCK_BYTES, &block)]).expect("written");
    drop(disk);
    let mut disk = FileDisk::open(&path, &Options { identity: [0; 16], ..options() }).expect("opened");
    assert_eq!((disk.frames(), disk.identity()), (3, *b"the first server"));
    let mut read = Buffer::new(BLOCK_BYTES);
    disk.read(&mut [Read::of(FrameId(2), BLOCK_BYTES, &mut read)]).expect("readable");
    assert_eq!(*read, *block);
}

#[test]
fn one_process_has_the_file_and_its_handles_share_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let disk = FileDisk::open(&path, &options()).expect("created");
    assert!(matches!(FileDisk::open(&path, &options()), Err(DiskError::InUse(of)) if of == path));
    let mut other = disk.another().expect("a handle");
    drop(disk);
    assert!(
        matches!(FileDisk::open(&path, &options()), Err(DiskError::InUse(_))),
        "the other handle holds it"
    );
    other.grow().expect("space");
    drop(other);
    assert_eq!(FileDisk::open(&path, &options()).expect("free again").frames(), 1);
}

#[test]
fn a_file_keeps_the_reserved_frames_that_it_was_created_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let [new, old] = ["new", "old"].map(|name| folder.path().join(name));
    let reserving = |reserved_frames| Options { reserved_frames, ..options() };
    drop(FileDisk::open(&new, &reserving(6)).expect("created"));
    assert_eq!(FileDisk::open(&new, &reserving(8)).expect("opened").reserved_frames(), 6);
    drop(FileDisk::open(&old, &reserving(0)).expect("created"));
    assert_eq!(FileDisk::open(&old, &reserving(8)).expect("opened").reserved_frames(), 0);
}

#[test]
fn a_start_waits_for_a_process_that_is_about_to_let_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let disk = FileDisk::open(&path, &options()).expect("created");
    let ending = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(disk);
    });
    FileDisk::open(&path, &options()).expect("it is waited for");
    ending.join().expect("it ends");
}

#[test]
fn a_file_of_other_sizes_or_formats_or_of_somebody_else_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    drop(FileDisk::open(&path, &options()).expect("created").grow());
    let other = Options { frame_bytes: 2 * FRAME_BYTES, ..options() };
    assert_eq!(
        reason(&path, &other),
        "its frames have 16384 bytes, not 32768; start with segments of that size"
    );
    let whole = fs::read(&path).expect("readable");
    for (at, expected) in
        [(0, "no log of this server"), (8, "start the release that wrote it"), (30, "is damaged")]
    {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(&path, &bytes).expect("writable");
        let said = reason(&path, &options());
        assert!(said.contains(expected), "{at}: {said}");
        assert_eq!(fs::read(&path).expect("readable"), bytes, "it is not touched");
    }
}

#[test]
fn a_creation_or_growth_that_was_interrupted_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    for bytes in [0, 100, BLOCK_BYTES] {
        let path = folder.path().join(format!("log of {bytes}"));
        fs::write(&path, vec![0; bytes]).expect("writable");
        let mut disk = FileDisk::open(&path, &options()).expect("created again");
        assert_eq!((disk.frames(), disk.grow().expect("space")), (0, FrameId(0)));
        drop(disk);
        // A second frame of which half was there before the power failed.
        let file = OpenOptions::new().write(true).open(&path).expect("writable");
        let end = (BLOCK_BYTES + FRAME_BYTES) as u64;
        file.write_all_at(&[1; FRAME_BYTES / 2], end).expect("writable");
        let mut disk = FileDisk::open(&path, &options()).expect("opened");
        assert_eq!((disk.frames(), disk.grow().expect("space")), (1, FrameId(1)));
        let mut read = Buffer::new(FRAME_BYTES);
        disk.read(&mut [Read::of(FrameId(1), 0, &mut read)]).expect("readable");
        assert!(read.iter().all(|byte| *byte == 0), "a new frame is zeros");
    }
}

#[test]
fn it_says_how_it_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let chosen = Options { way: Some(Way::SystemCalls), ..options() };
    let disk = FileDisk::open(&folder.path().join("log"), &chosen).expect("created");
    assert!(disk.to_string().starts_with("system calls, without io_uring: it was not asked for"), "{disk}");
}
