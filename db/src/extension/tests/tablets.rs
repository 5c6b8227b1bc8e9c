//! Functions over a table that is cut into tablets: some in one part, some in another, some at another server.

use std::sync::Arc;

use sandstorm::Error;
use store::{HashRange, Quota, TableOptions};
use wire::{Status, TenantId};

use super::world::{SECOND, TABLE, World, function};
use crate::extension::CallMode;
use crate::tablet::{Parts, TableEntry};
use crate::tenant::account::Account;

/// The first hash of the upper half.
const MIDDLE: u64 = 1 << 63;

/// Replaces [`TABLE`] by one of two parts, halves of all hashes, of which these are owned.
fn cut(world: &mut World, owned: &[HashRange]) {
    let store = world.lent.core.store();
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let part = |id, hashes| store.table_with(id, TableOptions { hashes, ..TableOptions::default() }, &quota);
    let held = vec![part(101, lower()), part(102, upper())];
    let parts = Parts::new(TableOptions::default(), held, owned).expect("two halves");
    let (tenant, name) = (TenantId(1), "first".into());
    let owner = Account::native(tenant);
    world.lent.tables.insert(Arc::new(TableEntry {
        id: TABLE,
        tenant,
        name,
        writable: true,
        durability: control::Durability::Memory,
        owner,
        parts,
        map: None,
    }));
}

fn lower() -> HashRange {
    HashRange::new(0, MIDDLE - 1).expect("a half")
}

fn upper() -> HashRange {
    HashRange::new(MIDDLE, u64::MAX).expect("a half")
}

/// The first keys of each half.
fn keys(count: usize) -> [Vec<Vec<u8>>; 2] {
    let all = || (0..u32::MAX).map(|number| number.to_le_bytes().to_vec());
    let of = |is_upper: bool| all().filter(move |key| (store::hash(key) >= MIDDLE) == is_upper).take(count);
    [of(false).collect(), of(true).collect()]
}

/// The value of a key in whichever part has it.
fn value(world: &World, key: &[u8]) -> Option<Vec<u8>> {
    let entry = world.lent.tables.get(TenantId(1), TABLE).expect("the table");
    let hash = store::hash(key);
    let part = entry.parts.held().iter().find(|part| part.hashes().contains(hash)).expect("a part");
    let pin = world.lent.core.pin();
    pin.get(part, hash, key).map(|object| object.value().to_vec())
}

function!(moves_one, |db, args, reply| {
    let table = args.table();
    let mut records = [None; 2];
    db.get_many(table, &[args.key(), args.bytes()], &mut records).await?;
    reply.u8(records.iter().flatten().count() as u8)?;
    db.increment(table, args.key(), -1).await?;
    db.increment(table, args.bytes(), 1).await?;
    Ok(())
});

#[test]
fn one_commit_writes_to_several_parts() {
    let mut world = World::new();
    cut(&mut world, &[HashRange::ALL]);
    let [low, high] = keys(1);
    let extension = World::extension(moves_one, CallMode::Write);
    for round in 1..=3_i64 {
        let met = if round == 1 { 0 } else { 2 };
        assert_eq!(world.call(&extension, &low[0], &high[0]), (Status::Ok, vec![met]));
        assert_eq!(value(&world, &low[0]), Some((-round).to_le_bytes().to_vec()));
        assert_eq!(value(&world, &high[0]), Some(round.to_le_bytes().to_vec()));
    }
}

function!(reaches, |db, args, reply| {
    let (table, there) = (args.table(), args.bytes());
    assert_eq!(db.get(table, there).await.map(|_| ()), Err(Error::NotLocal));
    assert_eq!(db.put(table, there, b"v").await, Err(Error::NotLocal));
    assert_eq!(db.delete(table, there).await.map(|_| ()), Err(Error::NotLocal));
    assert_eq!(db.increment(table, there, 1).await, Err(Error::NotLocal));
    assert_eq!(db.get_many(table, &[args.key(), there], &mut [None; 2]).await, Err(Error::NotLocal));
    db.put(table, args.key(), b"v").await
});

#[test]
fn what_another_server_owns_is_not_local() {
    let mut world = World::new();
    cut(&mut world, &[lower()]);
    let [low, high] = keys(1);
    let extension = World::extension(reaches, CallMode::Write);
    assert_eq!(world.call(&extension, &low[0], &high[0]).0, Status::Ok);
    assert_eq!(value(&world, &low[0]), Some(b"v".to_vec()));
    assert_eq!(value(&world, &high[0]), None);
}

function!(goes_through_all, |db, args, reply| {
    let mut page = sandstorm::EntryPage::new().limit(4);
    db.enumerate(args.table(), sandstorm::Cursor::start(), &mut page).await.map(drop)
});

#[test]
fn a_table_in_several_parts_is_not_gone_through() {
    let mut world = World::new();
    assert_eq!(world.call_once(goes_through_all, CallMode::Read, b"").0, Status::Ok);
    cut(&mut world, &[HashRange::ALL]);
    assert_eq!(world.call_once(goes_through_all, CallMode::Read, b"").0, Status::NotLocal);
}

function!(waits_and_reads, |db, args, reply| {
    db.yield_now().await;
    let key = if args.bytes().is_empty() { args.key() } else { args.bytes() };
    db.get(args.table(), key).await.map(drop)
});

#[test]
fn one_whose_own_key_goes_away_comes_again_and_one_that_asks_for_anothers_does_not() {
    let mut world = World::new();
    cut(&mut world, &[HashRange::ALL]);
    let [low, high] = keys(1);
    let extension = World::extension(waits_and_reads, CallMode::Read);
    assert!(world.start(&extension, &low[0], b"", 1) && world.start(&extension, &high[0], &low[0], 2));
    assert!(world.turn().is_empty(), "they yield");
    cut(&mut world, &[upper()]);
    let ended = world.turn();
    let statuses = ended.iter().map(|(origin, (status, _))| (*origin, *status));
    assert_eq!(statuses.collect::<Vec<_>>(), [(1, Status::Retry), (2, Status::NotLocal)]);
}

function!(writes_and_waits, |db, args, reply| {
    db.increment(args.table(), args.key(), 1).await?;
    db.put(sandstorm::Table::from_id(SECOND), b"beside", b"v").await?;
    db.yield_now().await;
    Ok(())
});

#[test]
fn what_moves_away_before_the_commit_is_not_written() {
    let mut world = World::new();
    cut(&mut world, &[HashRange::ALL]);
    let [low, _] = keys(1);
    let extension = World::extension(writes_and_waits, CallMode::Write);
    assert!(world.start(&extension, &low[0], b"", 1));
    assert!(world.turn().is_empty(), "it yields");
    cut(&mut world, &[upper()]);
    let ended = world.turn();
    assert_eq!(ended.iter().map(|(_, (status, _))| *status).collect::<Vec<_>>(), [Status::Retry]);
    assert_eq!((value(&world, &low[0]), world.value(SECOND, b"beside")), (None, None));
    cut(&mut world, &[HashRange::ALL]);
    assert_eq!(world.call(&extension, &low[0], b"").0, Status::Ok, "it comes again when it can");
    assert_eq!(value(&world, &low[0]), Some(1_i64.to_le_bytes().to_vec()));
}
