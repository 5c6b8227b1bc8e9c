//! Tests of which hashes a server must own, for records of all kinds.

use std::sync::Arc;

use cluster::metadata::{MemberRow, MigrationRow, ServerRun, Tablet, TabletsRow};
use cluster::migration::{MigrationMode, MigrationPhase};
use store::{Config, HashRange, Quota, Store, Table, TableOptions};
use wire::TenantId;

use super::{Due, due, map_of};
use crate::tablet::{Parts, Range};

const HALF: u64 = 1 << 63;
const ONE: ServerRun = ServerRun { server: 1, start: 4 };
const OTHER: ServerRun = ServerRun { server: 2, start: 1 };
const LOW: Range = (0, HALF - 1);
const HIGH: Range = (HALF, u64::MAX);

fn range((first, last): Range) -> HashRange {
    HashRange::new(first, last).expect("wide enough")
}

fn tablets(owners: [u32; 2]) -> TabletsRow {
    let tablet = |hashes, server| Tablet { hashes: range(hashes), server, emptied_ms: None };
    TabletsRow {
        tenant: TenantId(1),
        table: 7,
        tablets: vec![tablet(LOW, owners[0]), tablet(HIGH, owners[1])],
        is_tagged: false,
    }
}

/// Of the upper half.
fn migration(source: ServerRun, target: ServerRun, phase: MigrationPhase) -> MigrationRow {
    MigrationRow {
        id: 3,
        tenant: TenantId(1),
        table: 7,
        hashes: range(HIGH),
        source,
        target,
        mode: MigrationMode::Rocksteady,
        phase,
        is_durable: false,
        is_tagged: false,
        begun_ms: 5,
        is_aborted: false,
        is_source_done: false,
        is_target_done: false,
    }
}

fn part(store: &Store, id: u32, hashes: Range) -> Arc<Table> {
    let options = TableOptions { hashes: range(hashes), ..TableOptions::default() };
    store.table_with(id, options, &Arc::new(Quota::new(1, u64::MAX)))
}

/// Parts of these hashes, and what is owned of them.
fn parts(held: &[Range], owned: &[Range]) -> Parts {
    let config = Config {
        memory_bytes: 16 << 20,
        segment_bytes: 1 << 20,
        cores: 1,
        huge_pages: false,
        durable: false,
        recovery_cores: 0,
    };
    let store = Store::new(config).expect("a small store");
    let held = (0..).zip(held).map(|(id, &hashes)| part(&store, id, hashes)).collect();
    let owned: Vec<HashRange> = owned.iter().map(|&hashes| range(hashes)).collect();
    Parts::new(TableOptions::default(), held, &owned).expect("as told")
}

/// Every part keeps what it was made for.
const ALL: fn(&Table) -> Option<Vec<Range>> = |_| None;

/// Returns the hashes to leave, to take and without a part, and the hashes of parts to drop.
fn told(due: &Due) -> (Vec<Range>, Vec<Range>, Vec<Range>, Vec<Range>) {
    let bounds = |hashes: HashRange| (hashes.first(), hashes.last());
    let missing = due.missing.iter().map(|&hashes| bounds(hashes)).collect();
    let go = due.go.iter().map(|part| bounds(part.hashes())).collect();
    (due.leave.clone(), due.take.clone(), missing, go)
}

#[test]
fn tablets_that_come_get_a_part_and_those_that_go_leave_none() {
    let nothing = parts(&[], &[]);
    let come = told(&due((&nothing, &ALL), &tablets([1, 2]), [].iter(), ONE));
    assert_eq!(come, (vec![], vec![LOW], vec![LOW], vec![]));
    let both = parts(&[(0, u64::MAX)], &[(0, u64::MAX)]);
    assert_eq!(told(&due((&both, &ALL), &tablets([1, 1]), [].iter(), ONE)), Default::default());
    let split = told(&due((&both, &ALL), &tablets([2, 1]), [].iter(), ONE));
    assert_eq!(split, (vec![LOW], vec![], vec![], vec![]), "the part has objects that stay");
    let gone = told(&due((&both, &ALL), &tablets([2, 2]), [].iter(), ONE));
    assert_eq!(gone, (vec![(0, u64::MAX)], vec![], vec![], vec![(0, u64::MAX)]));
    let grown = told(&due((&parts(&[LOW], &[LOW]), &ALL), &tablets([1, 1]), [].iter(), ONE));
    assert_eq!(grown, (vec![], vec![HIGH], vec![HIGH], vec![]));
}

#[test]
fn what_is_on_the_move_here_is_left_as_it_is() {
    let source = parts(&[(0, u64::MAX)], &[(0, u64::MAX)]);
    let target = parts(&[LOW], &[LOW]);
    for phase in [
        MigrationPhase::Preparing,
        MigrationPhase::Moving,
        MigrationPhase::Returning,
        MigrationPhase::Finished,
        MigrationPhase::Ended,
    ] {
        let away = migration(ONE, OTHER, phase);
        let here = migration(OTHER, ONE, phase);
        for owners in [[1, 1], [1, 2]] {
            assert_eq!(
                told(&due((&source, &ALL), &tablets(owners), [away.clone()].iter(), ONE)),
                Default::default()
            );
            assert_eq!(
                told(&due((&target, &ALL), &tablets(owners), [here.clone()].iter(), ONE)),
                Default::default()
            );
        }
    }
    let done = MigrationRow { is_source_done: true, ..migration(ONE, OTHER, MigrationPhase::Finished) };
    let left = told(&due((&source, &ALL), &tablets([1, 2]), [done].iter(), ONE));
    assert_eq!(left.0, [HIGH], "this side has nothing to do any more");
}

#[test]
fn a_server_that_was_started_again_leaves_alone_what_its_earlier_self_moved() {
    let before = ServerRun { start: ONE.start - 1, ..ONE };
    let nothing = parts(&[], &[]);
    let coming = [migration(OTHER, before, MigrationPhase::Moving)];
    let due_then = told(&due((&nothing, &ALL), &tablets([1, 1]), coming.iter(), ONE));
    assert_eq!(due_then, (vec![], vec![LOW], vec![LOW], vec![]), "the source may have the upper half");
    let over = [migration(OTHER, before, MigrationPhase::Finished)];
    assert_eq!(told(&due((&nothing, &ALL), &tablets([1, 1]), over.iter(), ONE)).1, [(0, u64::MAX)]);
}

#[test]
fn clients_are_told_every_owner_and_where_it_is() {
    let member = |run, port| MemberRow {
        run,
        tcp: ([10, 0, 0, 1], port).into(),
        has_disk: false,
        knows_tags: true,
        ended: 0,
    };
    let members = [member(ONE, 7001), member(OTHER, 7002)];
    let told = |owners, moving: &[MigrationRow]| {
        map_of(&tablets(owners), moving.iter(), &members, 9).expect("a map")
    };
    let map = told([2, 1], &[]);
    let servers: Vec<_> = map.servers().iter().map(|place| (place.number, place.address.as_str())).collect();
    assert_eq!(servers, [(2, "10.0.0.1:7002"), (1, "10.0.0.1:7001")]);
    assert_eq!((map.server_of(0), map.server_of(HALF), map.version()), (0, 1, 9));
    let same = told([1, 1], &[]);
    assert_eq!(same.tablets().len(), 1, "tablets of one server beside each other are one entry");
    let numbers = |moving: &[MigrationRow]| -> Vec<u32> {
        told([1, 1], moving).servers().iter().map(|place| place.number).collect()
    };
    assert_eq!(
        numbers(&[migration(ONE, OTHER, MigrationPhase::Preparing)]),
        [1, 2],
        "who is about to get some is named"
    );
    assert_eq!(numbers(&[migration(ONE, OTHER, MigrationPhase::Ended)]), [1]);
}

#[test]
fn what_a_part_from_the_log_does_not_keep_gets_another_part() {
    let wide = parts(&[(0, u64::MAX)], &[]);
    let lower = |_: &Table| Some(vec![LOW]);
    let (leave, take, missing, go) = told(&due((&wide, &lower), &tablets([1, 1]), [].iter(), ONE));
    assert_eq!((leave, take, missing, go), (vec![], vec![(0, u64::MAX)], vec![HIGH], vec![]));
}

#[test]
fn a_part_from_the_log_is_held_until_a_move_with_its_server_is_over() {
    let upper = parts(&[HIGH], &[]);
    let earlier = ServerRun { start: ONE.start - 1, ..ONE };
    let row = |phase| [migration(earlier, OTHER, phase)];
    let moving = row(MigrationPhase::Moving);
    assert_eq!(told(&due((&upper, &ALL), &tablets([2, 2]), moving.iter(), ONE)), Default::default());
    let ended = row(MigrationPhase::Ended);
    let (_, take, missing, go) = told(&due((&upper, &ALL), &tablets([2, 1]), ended.iter(), ONE));
    assert_eq!((take, missing, go), (vec![HIGH], vec![], vec![]));
    let finished = row(MigrationPhase::Finished);
    let (_, take, missing, go) = told(&due((&upper, &ALL), &tablets([2, 2]), finished.iter(), ONE));
    assert_eq!((take, missing, go), (vec![], vec![], vec![HIGH]));
}
