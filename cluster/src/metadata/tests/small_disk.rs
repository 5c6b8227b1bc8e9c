//! A disk that fills up, or fails. Tests of the server use it too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::backends::InMemoryBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend};

/// A disk on which a file can grow to at most `room` bytes.
#[derive(Clone, Debug)]
pub struct SmallDisk {
    disk: Arc<InMemoryBackend>,
    pub room: Arc<AtomicU64>,
    /// Syncs fail while it is set, though what was written can be read.
    pub fails: Arc<AtomicBool>,
}

impl SmallDisk {
    pub fn new(room: u64) -> Self {
        let (disk, room) = (Arc::new(InMemoryBackend::new()), Arc::new(AtomicU64::new(room)));
        Self { disk, room, fails: Arc::default() }
    }

    /// Opens the file on it, as often as it is called.
    pub fn opener(&self) -> Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync> {
        let disk = self.clone();
        Box::new(move || Builder::new().create_with_backend(disk.clone()))
    }
}

impl StorageBackend for SmallDisk {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        if bytes > self.disk.len()? && bytes > self.room.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.disk.set_len(bytes)
    }
    fn sync_data(&self) -> io::Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.disk.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write(offset, data)
    }
}
