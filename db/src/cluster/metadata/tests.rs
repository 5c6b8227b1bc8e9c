//! The metadata over restarts, and on a disk that fills up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::backends::InMemoryBackend;
use redb::{Builder, StorageBackend};

use super::{ExtensionRow, Metadata, MetadataError};
use crate::tenant::TenantId;
use crate::tenant::secret::SecretHash;

const SECRET: SecretHash = SecretHash { salt: [1; 16], digest: [2; 32] };

fn extension(id: u32, version: u32, package: &[u8]) -> ExtensionRow {
    let (tenant, name) = (TenantId(1), "tao".to_owned());
    ExtensionRow { id, tenant, name, version, installed_ms: 5, package: package.to_vec() }
}

#[test]
fn everything_survives_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.redb");
    let metadata = Metadata::open(&path).expect("a fresh file");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    let table = metadata.table_create(ann, "graph").expect("room");
    let (id, version) = metadata.extension_reserve(ann, "tao").expect("room");
    metadata.extension_store(&extension(id, version, b"source")).expect("room");
    drop(metadata);

    let metadata = Metadata::open(&path).expect("the file");
    assert_eq!(metadata.tenants().expect("rows").len(), 1);
    assert_eq!(
        metadata.tenant_find("ann").expect("a row").map(|row| (row.id, row.secret)),
        Some((ann, SECRET))
    );
    assert_eq!(metadata.tables().expect("rows")[0].id, table);
    assert_eq!(metadata.extensions().expect("rows"), vec![extension(id, 1, b"source")]);
    assert_eq!(metadata.extension_reserve(ann, "tao"), Ok((id, 2)));
}

#[test]
fn a_file_is_held_by_one_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.redb");
    let _first = Metadata::open(&path).expect("a fresh file");
    assert!(matches!(Metadata::open(&path), Err(MetadataError::Storage(_))));
}

#[test]
fn names_are_unique_and_numbers_are_not_reused() {
    let directory = tempfile::tempdir().expect("a directory");
    let metadata = Metadata::open(&directory.path().join("metadata.redb")).expect("a fresh file");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    let bob = metadata.tenant_create("bob", SECRET).expect("room");
    assert_eq!(metadata.tenant_create("ann", SECRET), Err(MetadataError::AlreadyExists));
    let first = metadata.table_create(ann, "graph").expect("room");
    let second = metadata.table_create(bob, "graph").expect("the name is bob's own");
    assert_ne!(first, second);
    assert_eq!(metadata.table_create(ann, "graph"), Err(MetadataError::AlreadyExists));
    assert_eq!(metadata.table_drop(ann, "graph"), Ok(first));
    assert_eq!(metadata.table_drop(ann, "graph"), Err(MetadataError::NotFound));
    let third = metadata.table_create(ann, "graph").expect("room");
    assert!(third > second);
}

#[test]
fn a_dropped_tenant_takes_its_things_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let metadata = Metadata::open(&directory.path().join("metadata.redb")).expect("a fresh file");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    let bob = metadata.tenant_create("bob", SECRET).expect("room");
    for tenant in [ann, bob] {
        metadata.table_create(tenant, "t").expect("room");
        let (id, version) = metadata.extension_reserve(tenant, "e").expect("room");
        let row =
            ExtensionRow { id, tenant, name: "e".to_owned(), version, installed_ms: 5, package: Vec::new() };
        metadata.extension_store(&row).expect("room");
    }
    assert_eq!(metadata.tenant_drop("ann"), Ok(ann));
    assert_eq!(metadata.tenant_drop("ann"), Err(MetadataError::NotFound));
    assert!(metadata.tables().expect("rows").iter().all(|row| row.tenant == bob));
    assert_eq!(metadata.extensions().expect("rows").len(), 1);
    let again = metadata.tenant_create("ann", SECRET).expect("room");
    assert!(again > bob);
}

/// A disk on which a file grows to `room` bytes and no further.
#[derive(Debug)]
struct SmallDisk {
    disk: Arc<InMemoryBackend>,
    room: Arc<AtomicU64>,
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
        self.disk.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write(offset, data)
    }
}

#[test]
fn a_full_disk_leaves_nothing_half_made_and_heals() {
    let disk = Arc::new(InMemoryBackend::new());
    let room = Arc::new(AtomicU64::new(4 << 20));
    let opened = (Arc::clone(&disk), Arc::clone(&room));
    let metadata = Metadata::open_with(Box::new(move || {
        let (disk, room) = (Arc::clone(&opened.0), Arc::clone(&opened.1));
        Builder::new().create_with_backend(SmallDisk { disk, room })
    }))
    .expect("room for an empty file");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");

    let package = vec![7; 8 << 20];
    let refused = metadata.extension_store(&extension(1, 1, &package));
    assert_eq!(refused, Err(MetadataError::StorageFull));
    assert_eq!(metadata.extensions().expect("rows"), Vec::new());
    assert_eq!(metadata.tenant_find("ann").expect("a row").map(|row| row.id), Some(ann));

    room.store(64 << 20, Ordering::Relaxed);
    metadata.extension_store(&extension(1, 1, &package)).expect("there is room now");
    assert_eq!(metadata.extensions().expect("rows").len(), 1);
}
