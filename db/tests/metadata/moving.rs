//! What holds of tablets and of migrations when several servers change them, wherever the records are kept.

use std::thread;
use std::time::Duration;

use cluster::metadata::{
    CoordinatorStep, Metadata, MetadataError, MigrationRow, ServerRow, ServerRun, Side, TabletError,
    TabletsRow,
};
use cluster::migration::{MigrationMode, MigrationPhase};
use cluster::records::LeaseId;
use cluster::secret::SecretHash;
use control::{Durability, TableOptions};
use store::HashRange;
use wire::TenantId;

use super::place::Place;

const SECRET: SecretHash = SecretHash { salt: [1; 16], digest: [2; 32] };
const HALF: u64 = 1 << 63;
const QUARTER: u64 = 1 << 62;

/// A tenant, and a table of its whose tablets these servers own.
fn table(metadata: &Metadata, servers: &[u32]) -> (TenantId, u32) {
    let most = servers.iter().max().copied().unwrap_or_default();
    for server in 1..=most {
        metadata.member_start(server, ([10, 0, 0, server as u8], 7000).into(), false).expect("room");
    }
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    (ann, metadata.table_create_at(ann, "t", TableOptions::default(), servers).expect("room"))
}

fn range(first: u64, last: u64) -> HashRange {
    HashRange::new(first, last).expect("wide enough")
}

/// First hashes and owners.
fn owners(metadata: &Metadata) -> Vec<(u64, u32)> {
    let rows = metadata.tablets().expect("records answer");
    rows.iter().flat_map(|row| &row.tablets).map(|tablet| (tablet.hashes.first(), tablet.server)).collect()
}

fn refused<T>(error: TabletError) -> Result<T, MetadataError> {
    Err(MetadataError::Tablets(error))
}

pub fn tablets_have_all_hashes_once_however_they_are_cut(place: &Place) {
    let (one, other) = (place.metadata(), place.metadata());
    let (ann, t) = table(&one, &[1, 2, 1]);
    let third = ((1 << 32) / 3) << 32;
    assert_eq!(owners(&other), [(0, 1), (third, 2), (2 * third, 1)]);
    let check = |row: &TabletsRow| {
        let edges = row.tablets.windows(2);
        assert!(edges.into_iter().all(|pair| pair[0].hashes.last() + 1 == pair[1].hashes.first()));
        assert_eq!(
            (row.tablets[0].hashes.first(), row.tablets.last().map(|last| last.hashes.last())),
            (0, Some(u64::MAX))
        );
    };
    let cut = other.tablet_split(ann, t, 77 << 32).expect("room");
    check(&cut);
    assert_eq!(cut.tablets.len(), 4);
    assert_eq!(one.tablet_split(ann, t, 77 << 32), Ok(cut.clone()), "it begins there already");
    assert_eq!(one.tablet_split(ann, t, (77 << 32) + 5), refused(TabletError::Uneven((77 << 32) + 5)));
    assert_eq!(one.tablet_split(ann, t + 1, HALF), Err(MetadataError::NotFound));
    assert_eq!(one.tablet_merge(ann, t, HALF), refused(TabletError::NoEdge(HALF)));
    assert_eq!(one.tablet_merge(ann, t, 0), refused(TabletError::NoEdge(0)));
    assert_eq!(one.tablet_merge(ann, t, third), refused(TabletError::SeveralOwners));
    let joined = one.tablet_merge(ann, t, 77 << 32).expect("one owner");
    check(&joined);
    assert_eq!(joined.tablets.len(), 3);
    assert_eq!(cut.owned_by(1), joined.owned_by(1), "tablets beside each other are one range");
    assert_eq!(other.catalog(None).expect("records answer").tablets, [joined]);
}

pub fn the_owner_changes_in_the_commit_that_changes_the_standing(place: &Place) {
    let (one, other) = (place.metadata(), place.metadata());
    let (ann, t) = table(&one, &[1]);
    one.member_start(2, ([10, 0, 0, 2], 7000).into(), false).expect("room");
    let moved = range(QUARTER, HALF - 1);
    let begin = |target| one.migration_begin((ann, t), moved, target, MigrationMode::Rocksteady, 5);
    assert_eq!(begin(3), refused(TabletError::NoServer(3)));
    assert_eq!(begin(1), refused(TabletError::OwnedAlready(1)));
    let row = begin(2).expect("room");
    assert_eq!(
        (row.source, row.target),
        (ServerRun { server: 1, start: 1 }, ServerRun { server: 2, start: 1 })
    );
    assert_eq!(owners(&other), [(0, 1), (QUARTER, 1), (HALF, 1)], "cut where it moves, and not moved yet");
    assert_eq!(begin(2), refused(TabletError::OnTheMove(row.id)));
    assert_eq!(other.tablet_split(ann, t, HALF - QUARTER / 2), refused(TabletError::OnTheMove(row.id)));
    assert_eq!(other.tablet_merge(ann, t, HALF), refused(TabletError::OnTheMove(row.id)));
    other.tablet_split(ann, t, HALF + QUARTER).expect("nothing moves there");

    let owner = || one.tablets().expect("records answer")[0].tablets[1].server;
    let advance = |from, to| other.migration_advance(row.id, from, to).expect("it is there").phase;
    assert_eq!(
        advance(MigrationPhase::Moving, MigrationPhase::Finished),
        MigrationPhase::Preparing,
        "it is not so far"
    );
    assert_eq!(
        (advance(MigrationPhase::Preparing, MigrationPhase::Moving), owner()),
        (MigrationPhase::Moving, 2)
    );
    assert_eq!(
        (advance(MigrationPhase::Preparing, MigrationPhase::Ended), owner()),
        (MigrationPhase::Moving, 2)
    );
    assert!(other.migration_abort(row.id).expect("it is there").is_aborted);
    assert_eq!(
        (advance(MigrationPhase::Moving, MigrationPhase::Returning), owner()),
        (MigrationPhase::Returning, 1)
    );
    assert_eq!(
        (advance(MigrationPhase::Returning, MigrationPhase::Finished), owner()),
        (MigrationPhase::Finished, 2)
    );
    assert_eq!(
        (advance(MigrationPhase::Returning, MigrationPhase::Ended), owner()),
        (MigrationPhase::Finished, 2)
    );
    leave(&one, &row);
    assert_eq!(
        other.migration_advance(row.id, MigrationPhase::Moving, MigrationPhase::Finished),
        Err(MetadataError::NotFound)
    );
    let begin = |target| one.migration_begin((ann, t), moved, target, MigrationMode::StopAndCopy, 6);
    let back = begin(1).expect("nothing moves there");
    assert!(back.id > row.id);
    other.migration_advance(back.id, MigrationPhase::Preparing, MigrationPhase::Moving).expect("it is there");
    let ended =
        other.migration_advance(back.id, MigrationPhase::Moving, MigrationPhase::Ended).expect("it is there");
    assert_eq!((ended.phase, owner()), (MigrationPhase::Ended, 2), "the target was dead");
    assert_eq!(one.migration_find(back.id), Ok(Some(ended)));
}

/// Registers a server under a lease of its own.
fn register(metadata: &Metadata, server: u32) -> LeaseId {
    let lease = metadata.records().lease_grant(Duration::from_secs(60)).expect("records answer").lease;
    let tcp = ([10, 0, 0, server as u8], 7000).into();
    let row = ServerRow {
        id: server,
        start: 1,
        tcp,
        frame_ports: Vec::new(),
        view: 1,
        started_ms: 1,
        version: "1".to_owned(),
        backup_host: None,
    };
    metadata.server_register(&row, lease).expect("nobody else has the number");
    lease
}

pub fn nobody_is_taken_for_gone_who_is_registered_by_then(place: &Place) {
    use MigrationPhase::{Ended, Finished, Moving, Preparing};
    let metadata = place.metadata();
    let (ann, t) = table(&metadata, &[1, 2, 2]);
    let row = metadata
        .migration_begin((ann, t), range(0, QUARTER - 1), 2, MigrationMode::Rocksteady, 5)
        .expect("room");
    let without =
        |gone, from, to| metadata.migration_advance_without(gone, row.id, from, to).map(|row| row.phase);
    let leases = [1, 2].map(|server| register(&metadata, server));
    assert_eq!(without(Side::Target, Preparing, Ended), Ok(Preparing), "it is there");
    metadata.migration_advance(row.id, Preparing, Moving).expect("it is there");
    assert_eq!(without(Side::Source, Moving, Finished), Ok(Moving), "so is that");
    let settle = CoordinatorStep::Settle { migration: row.id, from: Moving, to: Finished };
    let leave = CoordinatorStep::Leave { migration: row.id, side: Side::Source };
    let find = || metadata.migration_find(row.id).expect("records answer").expect("it is kept");
    let term = metadata.coordinator_elect(2, leases[1]).expect("records answer").term;
    metadata.records().lease_revoke(leases[0]).expect("records answer");
    metadata.coordinate(term, &settle, 7).expect("records answer");
    assert_eq!(find().phase, Moving, "one of both is there");
    assert_eq!(without(Side::Source, Moving, Finished), Ok(Finished), "it is gone");
    let back = register(&metadata, 1);
    metadata.coordinate(term, &leave, 7).expect("records answer");
    assert!(!find().is_source_done, "it is back, and does so itself");
    assert_eq!(metadata.tablets_adopt(1, 5), refused(TabletError::IsThere(1)));
    // What it was before it was started again is gone for good.
    metadata.member_start(1, ([10, 0, 0, 1], 7000).into(), false).expect("room");
    metadata.coordinate(term, &leave, 7).expect("records answer");
    assert!(find().is_source_done);
    metadata.records().lease_revoke(back).expect("records answer");
}

pub fn a_start_ends_what_the_one_before_was_moving_and_can_still_have(place: &Place) {
    use MigrationPhase::{Ended, Moving, Preparing};
    let metadata = place.metadata();
    let start = |server: u32| {
        metadata.member_start(server, ([10, 0, 0, server as u8], 7000).into(), true).expect("room")
    };
    (1..=3).for_each(|server| _ = start(server));
    let ann = metadata.tenant_create("ann", SECRET).expect("room");
    let begin = |name: &str, durability, phase| {
        let options = TableOptions { durability: Some(durability), ..TableOptions::default() };
        let table = metadata.table_create_at(ann, name, options, &[1]).expect("room");
        let hashes = range(0, HALF - 1);
        let row =
            metadata.migration_begin((ann, table), hashes, 2, MigrationMode::Rocksteady, 5).expect("room");
        if phase == Moving {
            metadata.migration_advance(row.id, Preparing, Moving).expect("it is there");
        }
        row.id
    };
    let cases = [
        (Durability::Synced, Preparing, Ended),
        (Durability::Synced, Moving, Ended),
        (Durability::Memory, Preparing, Ended),
        (Durability::Memory, Moving, Moving),
    ];
    // More than one commit ends.
    let more = 150;
    for (restarted, expected) in [(3, 0), (1, 3 + more), (2, 0)] {
        if restarted == 3 {
            for (at, (durability, phase, _)) in cases.into_iter().enumerate() {
                begin(&format!("t{at}"), durability, phase);
            }
            (0..more).for_each(|at| _ = begin(&format!("m{at}"), Durability::Synced, Preparing));
        }
        assert_eq!(metadata.migrations_restarted(start(restarted)), Ok(expected), "server {restarted}");
    }
    let mut rows = metadata.migrations().expect("records answer");
    rows.sort_by_key(|row| row.id);
    assert!(rows.split_off(cases.len()).iter().all(|row| row.phase == Ended && row.owner().server == 1));
    let phases: Vec<_> = rows.iter().map(|row| row.phase).collect();
    assert_eq!(phases, cases.map(|(.., after)| after));
    let of_durable = rows.iter().filter(|row| row.is_durable);
    assert!(of_durable.clone().count() == 2 && of_durable.into_iter().all(|row| row.owner().server == 1));
}

fn leave(metadata: &Metadata, row: &MigrationRow) {
    metadata.migration_leave(row.id, Side::Source).expect("room");
    assert_eq!(metadata.migrations().expect("records answer").len(), 1, "the other side has not left");
    metadata.migration_leave(row.id, Side::Target).expect("room");
    assert_eq!(metadata.migrations(), Ok(Vec::new()));
}

pub fn hashes_are_in_one_migration_whoever_begins_it(place: &Place) {
    let servers = [place.metadata(), place.metadata(), place.metadata()];
    let (ann, t) = table(&servers[0], &[1]);
    for server in 2..=4 {
        servers[0].member_start(server, ([10, 0, 0, server as u8], 7000).into(), false).expect("room");
    }
    // Each two have hashes in common.
    let ranges = [range(0, HALF - 1 + QUARTER), range(QUARTER, HALF + QUARTER - 1), range(HALF, u64::MAX)];
    let begun: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = servers
            .iter()
            .zip(ranges)
            .zip(2..)
            .map(|((server, hashes), target)| {
                scope.spawn(move || {
                    server.migration_begin((ann, t), hashes, target, MigrationMode::Rocksteady, 5)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let (begun, refused): (Vec<_>, Vec<_>) = begun.into_iter().partition(Result::is_ok);
    assert_eq!((begun.len(), refused.len()), (1, 2), "{refused:?}");
    assert_eq!(servers[1].migrations().expect("records answer").len(), 1);
}

pub fn a_table_says_how_its_tablets_move_where_nobody_else_does(place: &Place) {
    let (one, other) = (place.metadata(), place.metadata());
    let (ann, t) = table(&one, &[1, 2]);
    let options = TableOptions { migration: MigrationMode::Rocksteady, ..TableOptions::default() };
    let r = one.table_create_at(ann, "r", options, &[1, 2]).expect("room");
    assert!(other.tables().expect("records answer").iter().any(|row| row.id == r && row.options == options));
    let (lower, upper) = (range(0, HALF - 1), range(HALF, u64::MAX));
    let mode = |table: u32, hashes: HashRange, to: u32, mode: Option<MigrationMode>| {
        other.migration_begin((ann, table), hashes, to, mode, 5).expect("nothing else moves").mode
    };
    assert_eq!(mode(t, lower, 2, None), MigrationMode::Cooperative, "unless it says otherwise");
    assert_eq!(mode(r, lower, 2, None), MigrationMode::Rocksteady);
    assert_eq!(mode(t, upper, 1, Some(MigrationMode::Rocksteady)), MigrationMode::Rocksteady);
    assert_eq!(mode(r, upper, 1, Some(MigrationMode::Cooperative)), MigrationMode::Cooperative);
}

pub fn tablets_and_migrations_go_with_their_table(place: &Place) {
    let (one, other) = (place.metadata(), place.metadata());
    let (ann, t) = table(&one, &[1, 2]);
    let u = one.table_create_at(ann, "u", TableOptions::default(), &[2]).expect("room");
    let left = one.migration_begin((ann, u), HashRange::ALL, 1, MigrationMode::Rocksteady, 5).expect("room");
    let gone =
        one.migration_begin((ann, t), range(0, HALF - 1), 2, MigrationMode::Rocksteady, 5).expect("room");
    other.table_drop(ann, "t").expect("a table");
    assert_eq!(one.migration_find(gone.id), Ok(None));
    assert_eq!(one.migrations(), Ok(vec![left.clone()]));
    assert_eq!(owners(&one), [(0, 2)]);
    let advanced = one.migration_advance(gone.id, MigrationPhase::Preparing, MigrationPhase::Moving);
    assert_eq!(advanced, Err(MetadataError::NotFound));
    other.tenant_drop("ann").expect("a tenant");
    assert_eq!((one.migrations(), one.tablets()), (Ok(Vec::new()), Ok(Vec::new())));
    let run = one.member_start(2, ([10, 0, 0, 7], 7000).into(), false).expect("room");
    assert_eq!(run, ServerRun { server: 2, start: 2 });
    assert_eq!(left.side_of(run), None, "a server that was started again is another one");
    let members = other.members().expect("records answer");
    assert_eq!(
        members.iter().map(|row| (row.run.server, row.run.start)).collect::<Vec<_>>(),
        [(1, 1), (2, 2)]
    );
}
