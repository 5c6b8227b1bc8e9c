//! Tests that files of earlier layouts are upgraded at start, without loss.

use std::path::Path;

use control::{Actor, Placement, Right};
use redb::{Builder, ReadableDatabase, TableDefinition, TableHandle, WriteTransaction};
use wire::{BodyWriter, TenantId};

use crate::metadata::{LimitRow, Metadata, MetadataError, StoredVersion, VersionState};
use crate::records::RecordsError;
use crate::secret::SecretHash;

const FORMAT: TableDefinition<'_, &str, u64> = TableDefinition::new("format");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

fn file(path: &Path, version: u64, fill: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>) {
    let database = Builder::new().create(path).expect("a fresh file");
    let transaction = database.begin_write().expect("a transaction");
    transaction.open_table(FORMAT).expect("a table").insert("version", version).expect("room");
    fill(&transaction).expect("room");
    transaction.commit().expect("room");
}

#[test]
fn a_file_of_the_first_layout_is_brought_over() {
    type Row = (u32, u32, u64, &'static [u8]);
    const EXTENSIONS: TableDefinition<'_, (u32, &str), Row> = TableDefinition::new("extensions");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.redb");
    file(&path, 1, |transaction| {
        transaction.open_table(EXTENSIONS)?.insert((7, "tao"), (9, 4, 5, &b"source"[..]))?;
        Ok(())
    });

    let metadata = Metadata::open(&path).expect("the file");
    let ann = TenantId(7);
    let row = metadata.extension_find(ann, "tao").expect("a row").expect("brought over");
    assert_eq!((row.id, row.newest), (9, 4));
    let state = VersionState { current: 4, canary: None, pinned: false, kept: vec![4] };
    assert_eq!(row.state, state);
    let stored = metadata.extension_version(ann, "tao", 4).expect("a version");
    assert_eq!((stored.installed_ms, stored.package.as_slice()), (5, &b"source\0\0"[..]));
    drop(metadata);
    let again = Metadata::open(&path).expect("the file, now of this layout");
    assert_eq!(again.extensions().expect("rows").len(), 1);
}

/// Writes the file of a server with the second layout: two tenants with every kind of row of that time.
fn fill_second_layout(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    type Tenant = (u32, [u8; 16], [u8; 32]);
    type Head = (u32, u32, u32, u32, u8, bool);
    type GrantKey = (u32, u8, &'static str, u32);
    const TENANTS: TableDefinition<'_, &str, Tenant> = TableDefinition::new("tenants");
    const TABLES: TableDefinition<'_, (u32, &str), u32> = TableDefinition::new("tables");
    const ORDERED: TableDefinition<'_, u32, ()> = TableDefinition::new("ordered_tables");
    const LIMITS: TableDefinition<'_, (u32, &str), u64> = TableDefinition::new("limits");
    const HEADS: TableDefinition<'_, (u32, &str), Head> = TableDefinition::new("extension_heads");
    const VERSIONS: TableDefinition<'_, (u32, &str, u32), (u64, &[u8])> =
        TableDefinition::new("extension_versions");
    const GRANTS: TableDefinition<'_, GrantKey, (u32, bool, u64)> = TableDefinition::new("grants");
    const ACTS: TableDefinition<'_, u64, (u32, &[u8])> = TableDefinition::new("audit");
    const ACTS_OF: TableDefinition<'_, (u32, u64), ()> = TableDefinition::new("audit_of_tenant");
    for (counter, next) in [("tenant", 3), ("table", 12), ("extension", 9), ("client", 65_537), ("audit", 3)]
    {
        transaction.open_table(COUNTERS)?.insert(counter, next)?;
    }
    transaction.open_table(TENANTS)?.insert("bob", (1, [1; 16], [2; 32]))?;
    transaction.open_table(TENANTS)?.insert("ann", (2, [3; 16], [4; 32]))?;
    transaction.open_table(TABLES)?.insert((2, "graph"), 10)?;
    transaction.open_table(TABLES)?.insert((2, "names"), 11)?;
    transaction.open_table(ORDERED)?.insert(11, ())?;
    transaction.open_table(LIMITS)?.insert((2, "weight"), 300)?;
    transaction.open_table(LIMITS)?.insert((2, "of_another_version"), u64::MAX)?;
    transaction.open_table(HEADS)?.insert((2, "tao"), (7, 5, 3, 5, 20, true))?;
    let long: Vec<u8> = (0..1_500_000_u32).map(|number| number as u8).collect();
    transaction.open_table(VERSIONS)?.insert((2, "tao", 3), (50, &b"three"[..]))?;
    transaction.open_table(VERSIONS)?.insert((2, "tao", 5), (51, long.as_slice()))?;
    transaction.open_table(GRANTS)?.insert((2, 0, "graph", 1), (12, true, 60))?;
    transaction.open_table(GRANTS)?.insert((2, 1, "tao", 1), (8, false, 61))?;
    for (sequence, tenant) in [(1, 0), (2, 2)] {
        let mut act = BodyWriter::new();
        act.u64(sequence);
        act.u64(70);
        act.u8(1);
        act.text(&format!("act {sequence}"));
        act.u8(5);
        transaction.open_table(ACTS)?.insert(sequence, (tenant, act.into_bytes().as_slice()))?;
        transaction.open_table(ACTS_OF)?.insert((tenant, sequence), ())?;
    }
    Ok(())
}

#[test]
fn a_file_of_the_second_layout_is_brought_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.redb");
    file(&path, 2, fill_second_layout);
    drop(Metadata::open(&path).expect("the file"));

    let metadata = Metadata::open(&path).expect("the file, now of this layout");
    let tenants = metadata.tenants().expect("rows");
    let (ann, bob) = (TenantId(2), TenantId(1));
    let names: Vec<_> = tenants.iter().map(|row| (row.id, row.name.as_str())).collect();
    assert_eq!(names, [(ann, "ann"), (bob, "bob")]);
    assert_eq!(tenants[0].secret, SecretHash { salt: [3; 16], digest: [4; 32] });
    assert_eq!(metadata.tenant_find("bob").expect("a row").map(|row| row.id), Some(bob));
    let tables = metadata.tables().expect("rows");
    assert!(tables.iter().all(|row| row.durability() == control::Durability::Memory));
    let tables: Vec<_> =
        tables.iter().map(|row| (row.id, row.tenant, &*row.name, row.options.ordered)).collect();
    assert_eq!(tables, [(10, ann, "graph", false), (11, ann, "names", true)]);
    let limit = |name: &str, value| LimitRow { tenant: ann, name: name.to_owned(), value };
    assert_eq!(
        metadata.limits().expect("rows"),
        [limit("of_another_version", u64::MAX), limit("weight", 300)]
    );
    let tao = metadata.extension_find(ann, "tao").expect("a row").expect("brought over");
    let state = VersionState { current: 3, canary: Some((5, 20)), pinned: true, kept: vec![3, 5] };
    assert_eq!((tao.id, tao.newest, tao.state), (7, 5, state));
    let StoredVersion { installed_ms, package, .. } =
        metadata.extension_version(ann, "tao", 5).expect("kept");
    assert!(installed_ms == 51 && package.len() == 1_500_000 && package[1_499_999] == 1_499_999_u32 as u8);
    let grants = metadata.grants().expect("rows");
    let grants: Vec<_> = grants.iter().map(|row| (row.id, row.to, row.right, row.granted_ms)).collect();
    assert_eq!(grants, [(8, bob, Right::Invoke, 61), (12, bob, Right::Write, 60)]);
    let acts = metadata.audit_read(None, 0, 10).expect("rows");
    let acts: Vec<_> = acts.iter().map(|act| (act.sequence, act.act.as_str(), act.outcome)).collect();
    assert_eq!(acts, [(1, "act 1", 5), (2, "act 2", 5)]);
    assert_eq!(metadata.audit_read(Some(ann), 0, 10).expect("rows")[0].sequence, 2);
    // Counters continue at their old values.
    assert_eq!(metadata.tenant_create("eve", tenants[0].secret), Ok(TenantId(3)));
    assert_eq!(metadata.table_create(ann, "more", control::TableOptions::default()), Ok(12));
    let installed = metadata.extension_install(bob, "tao", Placement::Current, 5, b"").expect("room");
    assert_eq!(installed.id, 9);
    assert_eq!(metadata.reserve_client_ids().expect("room").start, 65_537);
    assert_eq!(metadata.audit_append(None, 71, Actor::Server, "act 3".to_owned(), 0), Ok(3));
}

#[test]
fn a_file_that_was_brought_over_has_no_tables_of_the_earlier_layout() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.redb");
    file(&path, 2, fill_second_layout);
    drop(Metadata::open(&path).expect("the file"));
    let database = Builder::new().open(&path).expect("the file");
    let transaction = database.begin_read().expect("a transaction");
    let tables = transaction.list_tables().expect("tables").map(|table| table.name().to_owned());
    let mut tables: Vec<String> = tables.collect();
    tables.sort();
    assert_eq!(tables, ["format", "leased", "records"]);
}

#[test]
fn a_file_of_a_later_layout_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metadata.redb");
    file(&path, 4, fill_second_layout);
    for _ in 0..2 {
        let refused = Metadata::open(&path).err();
        assert_eq!(refused, Some(MetadataError::Records(RecordsError::UnknownFormat(4))));
    }
}
