//! Tests of the metadata across restarts and on a full disk.

mod restoration;
mod small_disk;
mod upgrade;

use std::sync::atomic::Ordering;
use std::time::Duration;

use control::{Placement, TableOptions};
use small_disk::SmallDisk;
use store::HashRange;

use super::{MemberRow, Metadata, MetadataError, ServerRow, TabletError, VersionState, VersionStateError};
use crate::limits::VERSIONS_RESERVED;
use crate::records::RecordsError;
use crate::secret::SecretHash;

const SECRET: SecretHash = SecretHash { salt: [1; 16], digest: [2; 32] };

#[test]
fn everything_survives_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.redb");
    let metadata = Metadata::open(&path).expect("a fresh file");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    let table = metadata.table_create(ann, "graph", TableOptions::default()).expect("room");
    let first = metadata.extension_install(ann, "tao", Placement::Current, 5, b"source").expect("room");
    let second = metadata.extension_install(ann, "tao", Placement::Canary(10), 6, b"newer").expect("room");
    assert_eq!((second.id, second.newest), (first.id, 2));
    drop(metadata);

    let metadata = Metadata::open(&path).expect("the file");
    assert_eq!(metadata.tenants().expect("rows").len(), 1);
    assert_eq!(
        metadata.tenant_find("ann").expect("a row").map(|row| (row.id, row.secret)),
        Some((ann, SECRET))
    );
    assert_eq!(metadata.tables().expect("rows")[0].id, table);
    assert_eq!(metadata.extensions().expect("rows"), vec![second.clone()]);
    assert_eq!(metadata.extension_find(ann, "tao").expect("a row"), Some(second));
    let stored = metadata.extension_version(ann, "tao", 1).expect("a version");
    assert_eq!((stored.installed_ms, stored.package.as_slice()), (5, &b"source"[..]));
    let promoted = metadata.extension_change(ann, "tao", VersionState::promote).expect("a canary");
    assert_eq!((promoted.state.current, promoted.state.canary), (2, None));
    let removed = metadata.extension_change(ann, "tao", |state| state.remove(1)).expect("kept");
    assert_eq!(removed.state.kept, [2]);
    assert_eq!(metadata.extension_version(ann, "tao", 1), Err(MetadataError::NotFound));
    let refused = metadata.extension_change(ann, "tao", |state| state.remove(2));
    assert_eq!(refused, Err(MetadataError::VersionState(VersionStateError::InUse(2))));
    let third = metadata.extension_install(ann, "tao", Placement::Current, 7, b"newest").expect("room");
    assert_eq!((third.newest, third.state.current), (3, 3));
}

#[test]
fn a_tagged_table_waits_for_servers_that_would_divide_it_by_hashes() {
    let directory = tempfile::tempdir().expect("a directory");
    let metadata = Metadata::open(&directory.path().join("metadata.redb")).expect("a fresh file");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    let start = |id: u32| {
        let tcp = ([10, 0, 0, 1], id as u16).into();
        let start = metadata.member_start(id, tcp, false).expect("room").start;
        let (frame_ports, version) = (vec![1], String::new());
        let row =
            ServerRow { id, start, tcp, frame_ports, view: 1, started_ms: 1, version, backup_host: None };
        let lease = metadata.records().lease_grant(Duration::from_hours(1)).expect("a lease").lease;
        metadata.server_register(&row, lease).expect("nobody has the number");
        lease
    };
    let options = TableOptions { tagged: true, ..TableOptions::default() };
    let create = |name| metadata.table_create_at(ann, name, options, &[1]);
    let (_, lease) = (start(1), start(2));
    let t = create("t").expect("room");
    // As an older release writes its record.
    let older = metadata.members().expect("records answer")[1];
    let older = MemberRow { knows_tags: false, ..older };
    metadata.write(|transaction| Ok(transaction.store(&older)?)).expect("room");
    let refused = MetadataError::Tablets(TabletError::NoTags(2));
    assert_eq!(create("u"), Err(refused.clone()));
    let begin = || metadata.migration_begin((ann, t), HashRange::ALL, 2, None, 5).map(drop);
    assert_eq!(begin(), Err(refused));
    metadata.records().lease_revoke(lease).expect("held");
    create("u").expect("the older one is gone");
    start(2);
    begin().expect("it was started with this release");
}

#[test]
fn versions_of_one_start_are_never_those_of_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.redb");
    let start = || Metadata::open(&path).expect("the file").reserve_versions().expect("room");
    assert_eq!([start(), start(), start()], [0, VERSIONS_RESERVED, 2 * VERSIONS_RESERVED]);
    // A server that has used all its reserved versions and more.
    let newest = 5 * VERSIONS_RESERVED + 7;
    let metadata = Metadata::open(&path).expect("the file");
    assert_eq!(metadata.reserved_versions(), Ok(2 * VERSIONS_RESERVED));
    metadata.reserve_versions_to(newest).expect("room");
    metadata.reserve_versions_to(1).expect("nothing is taken back");
    drop(metadata);
    assert!((newest..newest + VERSIONS_RESERVED).contains(&start()));
    // After the last distinct reservation there are still versions for writes, and servers can still start.
    let metadata = Metadata::open(&path).expect("the file");
    metadata.reserve_versions_to(store::VERSION_MAX).expect("room");
    drop(metadata);
    let last = start();
    assert_eq!(start(), last);
    assert!(last <= store::VERSION_MAX / 2 && last > store::VERSION_MAX / 2 - 2 * VERSIONS_RESERVED);
}

#[test]
fn a_tenant_gets_another_secret_and_stays_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.redb");
    let metadata = Metadata::open(&path).expect("a fresh file");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    let other = SecretHash { salt: [3; 16], digest: [4; 32] };
    assert_eq!(metadata.tenant_rotate("bob", other), Err(MetadataError::NotFound));
    assert_eq!(metadata.tenant_rotate("ann", other), Ok(ann));
    drop(metadata);
    let metadata = Metadata::open(&path).expect("the file");
    let row = metadata.tenant_find("ann").expect("a row").expect("ann");
    assert_eq!((row.id, row.secret), (ann, other));
}

#[test]
fn a_file_is_held_by_one_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.redb");
    let _first = Metadata::open(&path).expect("a fresh file");
    assert!(matches!(Metadata::open(&path), Err(MetadataError::Records(RecordsError::Storage(_)))));
}

#[test]
fn names_are_unique_and_numbers_are_not_reused() {
    let directory = tempfile::tempdir().expect("a directory");
    let metadata = Metadata::open(&directory.path().join("metadata.redb")).expect("a fresh file");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    let bob = metadata.tenant_create("bob", SECRET).expect("room");
    assert_eq!(metadata.tenant_create("ann", SECRET), Err(MetadataError::AlreadyExists));
    let first = metadata.table_create(ann, "graph", TableOptions::default()).expect("room");
    let second = metadata.table_create(bob, "graph", TableOptions::default()).expect("the name is bob's own");
    assert_ne!(first, second);
    assert_eq!(
        metadata.table_create(ann, "graph", TableOptions::default()),
        Err(MetadataError::AlreadyExists)
    );
    assert_eq!(metadata.table_drop(ann, "graph"), Ok(first));
    assert_eq!(metadata.table_drop(ann, "graph"), Err(MetadataError::NotFound));
    let third = metadata.table_create(ann, "graph", TableOptions::default()).expect("room");
    assert!(third > second);
}

#[test]
fn a_dropped_tenant_takes_its_things_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let metadata = Metadata::open(&directory.path().join("metadata.redb")).expect("a fresh file");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    let bob = metadata.tenant_create("bob", SECRET).expect("room");
    for tenant in [ann, bob] {
        metadata.table_create(tenant, "t", TableOptions::default()).expect("room");
        metadata.extension_install(tenant, "e", Placement::Current, 5, b"").expect("room");
    }
    assert_eq!(metadata.tenant_drop("ann"), Ok(ann));
    assert_eq!(metadata.tenant_drop("ann"), Err(MetadataError::NotFound));
    assert!(metadata.tables().expect("rows").iter().all(|row| row.tenant == bob));
    assert_eq!(metadata.extensions().expect("rows").len(), 1);
    assert!(metadata.extension_version(bob, "e", 1).is_ok());
    assert_eq!(metadata.extension_version(ann, "e", 1), Err(MetadataError::NotFound));
    let again = metadata.tenant_create("ann", SECRET).expect("room");
    assert!(again > bob);
}

#[test]
fn a_full_disk_leaves_nothing_half_made_and_heals() {
    let disk = SmallDisk::new(4 << 20);
    let metadata = Metadata::open_with(disk.opener()).expect("room for an empty file");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");

    let package = vec![7; 8 << 20];
    let install = || metadata.extension_install(ann, "tao", Placement::Current, 5, &package);
    let refused = install();
    assert_eq!(refused, Err(MetadataError::Records(RecordsError::StorageFull)));
    assert_eq!(metadata.extensions().expect("rows"), Vec::new());
    assert_eq!(metadata.tenant_find("ann").expect("a row").map(|row| row.id), Some(ann));

    disk.room.store(64 << 20, Ordering::Relaxed);
    install().expect("there is room now");
    assert_eq!(metadata.extensions().expect("rows").len(), 1);
}

#[test]
fn after_a_failed_sync_nobody_is_told_anything() {
    let disk = SmallDisk::new(64 << 20);
    let metadata = Metadata::open_with(disk.opener()).expect("room");
    metadata.tenant_create("ann", SECRET).expect("room");
    disk.fails.store(true, Ordering::Relaxed);
    let refused = metadata.tenant_create("bob", SECRET);
    assert!(matches!(refused, Err(MetadataError::Records(RecordsError::Uncertain(_)))), "{refused:?}");
    disk.fails.store(false, Ordering::Relaxed);
    assert!(metadata.records().has_failed());
    assert!(metadata.tenant_find("ann").is_err() && metadata.tenant_create("eve", SECRET).is_err());
    // Another process finds it whole, with the change or without.
    drop(metadata);
    let metadata = Metadata::open_with(disk.opener()).expect("it is sound");
    assert!(metadata.tenant_find("ann").expect("an answer").is_some());
    assert_eq!(metadata.tenant_find("eve").expect("an answer"), None);
}
