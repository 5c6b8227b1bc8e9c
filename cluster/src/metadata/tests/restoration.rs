//! Metadata that is written anew from a copy.

use std::path::Path;
use std::time::Duration;

use control::{Placement, TableOptions};

use super::SECRET;
use crate::metadata::restoration::{marks, newness_of, read_all, restore, why_not_later};
use crate::metadata::{Metadata, MetadataError, ServerRow, ServerRun, upgrade};
use crate::records::{CopiedRecords, Embedded, RecordChange, Records, RecordsError};

fn empty(path: &Path) -> Embedded {
    Embedded::open(path, upgrade::records_of).expect("a fresh file")
}

fn copy_of(metadata: &Metadata) -> CopiedRecords {
    let mut records = Vec::new();
    let revision = read_all(metadata.records(), |some| {
        records.extend(some.into_iter().map(|record| (record.key, record.value)));
        Ok(())
    });
    let revision = revision.expect("they are read");
    CopiedRecords { revision, made_ms: 0, records }
}

#[test]
fn restored_metadata_is_what_was_copied_and_gives_out_later_numbers() {
    let directory = tempfile::tempdir().expect("a directory");
    let [lost, new, other] = ["lost", "new", "other"].map(|name| directory.path().join(name));
    let metadata = Metadata::open(&lost).expect("a fresh file");
    let cluster = metadata.cluster_id().expect("it is drawn");
    let secret = metadata.cluster_secret().expect("it is drawn");
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    // More than fit one commit, and one that is stored by itself.
    let names = || (0..150).map(|number| format!("table-{number}"));
    let tables: Vec<u32> = names()
        .map(|name| metadata.table_create(ann, &name, TableOptions::default()).expect("room"))
        .collect();
    // More pieces than are read at once.
    let package = vec![7; 5_000_000];
    metadata.extension_install(ann, "tao", Placement::Current, 5, &package).expect("room");
    let version = metadata.reserve_versions().expect("room");
    assert_eq!(metadata.log_start(1, 0), Ok(Some(1)));
    let lease = metadata.records().lease_grant(Duration::from_secs(60)).expect("a lease").lease;
    let run = ServerRun { server: 1, start: 1 };
    assert_eq!(metadata.member_start(1, ([10, 0, 0, 1], 1).into(), true), Ok(run));
    let row = ServerRow {
        id: 1,
        start: 1,
        tcp: ([10, 0, 0, 1], 1).into(),
        frame_ports: vec![1],
        view: 1,
        started_ms: 0,
        version: "1".into(),
        backup_host: None,
    };
    metadata.server_register(&row, lease).expect("nobody has the number");
    let copy = copy_of(&metadata);

    restore(&empty(&new), &copy).expect("there is room");
    let restored = Metadata::open(&new).expect("the file");
    assert_eq!((restored.cluster_id(), restored.cluster_secret()), (Ok(cluster), Ok(secret)));
    assert_eq!(restored.tables(), metadata.tables());
    assert_eq!(restored.extension_version(ann, "tao", 1).expect("a version").package, package);
    assert!(!copy.records.iter().any(|(key, _)| key.starts_with("servers/")), "leases have ended");
    // What was made after the copy has numbers that are not given out again.
    let unknown = metadata.table_create(ann, "unknown", TableOptions::default()).expect("room");
    let next = restored.table_create(ann, "next", TableOptions::default()).expect("room");
    assert!(next > unknown && unknown > tables[149]);
    assert!(restored.reserve_versions().expect("room") > version + 1);
    // A log whose last start the copy does not know is noticed.
    assert_eq!(metadata.log_start(1, 1), Ok(Some(2)));
    assert_eq!((restored.log_start(1, 2), restored.log_start(1, 1)), (Ok(None), Ok(Some(2))));

    let later = copy_of(&restored);
    assert!(
        newness_of(&later).expect("a number") > newness_of(&copy).expect("a number"),
        "also where numbers of commits begin anew"
    );
    let taken = restore(restored.records(), &copy);
    assert_eq!(taken, Err(MetadataError::AlreadyExists));
    drop(Metadata::open(&other).expect("a fresh file"));
    assert_eq!(restore(&empty(&other), &copy), Err(MetadataError::AlreadyExists));
}

#[test]
fn a_restoration_that_was_interrupted_lets_no_server_start_and_can_be_begun_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let [lost, new] = ["lost", "new"].map(|name| directory.path().join(name));
    let metadata = Metadata::open(&lost).expect("a fresh file");
    metadata.tenant_create("ann", SECRET).expect("room");
    let copy = copy_of(&metadata);
    let records = empty(&new);
    let left = [RecordChange::put("restoring", "1"), RecordChange::put("catalog/names/eve", "{}")];
    records.commit(&[], &left).expect("there is room");
    drop(records);
    let refused = Metadata::open(&new).expect_err("a part is there");
    assert!(
        matches!(&refused, MetadataError::Records(RecordsError::Storage(text)) if text.contains("begin it anew"))
    );
    restore(&empty(&new), &copy).expect("there is room");
    let restored = Metadata::open(&new).expect("the file");
    assert_eq!(restored.tenants(), metadata.tenants());
    assert_eq!(restored.tenant_find("eve"), Ok(None));
}

#[test]
fn older_metadata_and_that_of_another_cluster_are_no_later_state_of_a_copy() {
    let directory = tempfile::tempdir().expect("a directory");
    let marks_of = |metadata: &Metadata| {
        let marked = |key: &str| marks().iter().any(|span| span.holds(key));
        let records = copy_of(metadata).records.into_iter();
        records.filter(|(key, _)| marked(key)).collect::<Vec<_>>()
    };
    let why = |copied: &[_], now: &[_]| why_not_later(copied, now).expect("whole records");
    let metadata = Metadata::open(&directory.path().join("one")).expect("a fresh file");
    metadata.cluster_id().expect("it is drawn");
    let first = marks_of(&metadata);
    metadata.tenant_create("ann", SECRET).expect("room");
    assert_eq!(metadata.log_start(1, 0), Ok(Some(1)));
    let second = marks_of(&metadata);
    assert_eq!(why(&first, &second), None);
    assert_eq!(why(&second, &second), None);
    assert_eq!(why(&[], &second), None);
    assert!(why(&second, &first).expect("a reason").contains("counters/"));
    assert!(why(&second, &[]).expect("a reason").contains("another cluster"));
    let other = Metadata::open(&directory.path().join("other")).expect("a fresh file");
    other.cluster_id().expect("it is drawn");
    assert!(why(&first, &marks_of(&other)).expect("a reason").contains("another cluster"));
}
