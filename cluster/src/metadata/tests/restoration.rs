//! Metadata that is written anew from a copy.

use std::path::Path;
use std::time::Duration;

use control::{Placement, TableOptions};

use super::SECRET;
use crate::metadata::restoration::{age_of, all, is_copied, restore};
use crate::metadata::{Metadata, MetadataError, ServerRow, ServerRun, upgrade};
use crate::records::{CopiedRecords, Embedded, RecordChange, Records, RecordsError};

fn empty(path: &Path) -> Embedded {
    Embedded::open(path, upgrade::records_of).expect("a fresh file")
}

fn copy_of(metadata: &Metadata) -> CopiedRecords {
    let (records, revision) = all(metadata.records(), is_copied).expect("they are read");
    let records = records.into_iter().map(|record| (record.key, record.value)).collect();
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
    let package = vec![7; 300_000];
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
        age_of(&later).expect("a number") > age_of(&copy).expect("a number"),
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
