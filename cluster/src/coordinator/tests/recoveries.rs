//! Recoveries in the metadata: who recovers what, as of which cut, and what becomes of it when servers return.

use std::collections::{BTreeMap, BTreeSet};

use store::HashRange;

use super::World;
use crate::coordinator::steps;
use crate::limits::{RETURN_MS, STOPPED_MS};
use crate::metadata::{
    CoordinatorStep, DecidedCut, MetadataError, MigrationRow, OwnLogEnd, OwnLogExtent, RecoveryRow,
    ReplicasRow, ServerRow, ServerRun, Side,
};
use crate::migration::{MigrationMode, MigrationPhase};
use crate::replication::{BackupId, ReplicasRecord};
use control::Durability;
use wire::limits::TABLETS_PER_TABLE_MAX;

/// A server with a table in memory and one on the disk, whose log two others have, and three others.
fn world_with_replicas() -> (World, ReplicasRecord) {
    let world = World::new(1, 4);
    world.table("memory", &[1]);
    world.table_with("disk", Durability::Synced, &[1]);
    let metadata = &world.metadata;
    assert_eq!(metadata.replicas_begin(1, 1, true).expect("room").record(), ReplicasRecord::default());
    let backups = [2, 3].map(|server| BackupId { server, file: 7 });
    let record = ReplicasRecord { backups: backups.into(), replicas: 2 };
    assert_eq!(metadata.replicas_record(1, 1, &record), Ok(Some(record.clone())));
    assert_eq!(metadata.replicas_record(1, 2, &record), Ok(None), "of another start");
    (world, record)
}

fn recoveries_due(world: &World) -> Vec<CoordinatorStep> {
    let is_recovery = |step: &CoordinatorStep| matches!(step, CoordinatorStep::Recover { .. });
    steps(&world.snapshot()).into_iter().filter(is_recovery).collect()
}

/// Makes all due recoveries begin; returns the migrations.
fn begin_recoveries(world: &mut World) -> Vec<MigrationRow> {
    let elected = world.elect();
    for step in recoveries_due(world) {
        world.metadata.coordinate(elected.term, &step, 5).expect("room");
    }
    world.snapshot().migrations
}

/// The end of a server's own log whose latest cut wrote something.
fn own_end(start: u64, cut: u64, is_whole: bool) -> OwnLogEnd {
    OwnLogEnd { start, cut, latest: cut, before: None, is_whole }
}

#[test]
fn what_a_dead_server_has_on_the_disk_is_recovered_by_all_others() {
    let (mut world, _) = world_with_replicas();
    assert_eq!(recoveries_due(&world), [], "it is there");
    world.kill(1);
    let recoveries = recoveries_due(&world);
    let tables: Vec<u32> = world.snapshot().tablets.iter().map(|row| row.table).collect();
    let to = |step: &CoordinatorStep, of: u32| match step {
        CoordinatorStep::Recover { table: (_, table), to, .. } if *table == of => Some(*to),
        _ => None,
    };
    let targets = recoveries.iter().filter_map(|step| to(step, tables[1]));
    assert_eq!(targets.collect::<BTreeSet<u32>>(), BTreeSet::from([2, 3, 4]));
    let elected = world.elect();
    for step in [&recoveries[..], &recoveries[..1]].concat() {
        world.metadata.coordinate(elected.term, &step, 5).expect("room");
    }
    assert_eq!(recoveries_due(&world), [], "all of it is under way");
    let begun = world.snapshot().migrations;
    let width: u128 = begun.iter().map(|row| row.hashes.width()).sum();
    assert_eq!((begun.len(), width), (3, 1 << 64));
    let in_memory = world.snapshot().tablets[0].tablets[0];
    assert!(in_memory.server != 1 && in_memory.emptied_ms == Some(5), "{in_memory:?}");
    assert!(begun.iter().all(|row| row.mode == MigrationMode::Recovery && row.source.server == 1));
}

#[test]
fn a_recovered_log_counts_as_was_decided_also_for_its_server() {
    let (mut world, record) = world_with_replicas();
    world.kill(1);
    let begun = begin_recoveries(&mut world);
    // Its log counts up to one cut for all, and what it has acknowledged is what it had.
    let metadata = &world.metadata;
    assert_eq!(metadata.replicas_record(1, 1, &record), Ok(None), "others recover it");
    let recovery = metadata.recovery(1).expect("an answer").expect("one");
    let basis = recovery.replicas.clone();
    assert_eq!(basis.record(), record);
    let cut = |cut, is_on_own_disk| DecidedCut { start: 1, cut, is_on_own_disk };
    let decide = |decided, found| {
        let seen = RecoveryRow { decided, ..recovery.clone() };
        metadata.recovery_decide(&seen, found).expect("it is recovered")
    };
    assert_eq!([decide(None, cut(6, false)), decide(None, cut(7, true))], [cut(6, false); 2]);
    let six = Some(cut(6, false));
    assert_eq!(
        [decide(six, cut(5, false)), decide(six, cut(7, false))],
        [cut(5, false); 2],
        "a backup has gone"
    );
    let earlier = RecoveryRow { replicas: ReplicasRow { start: 0, ..basis.clone() }, ..recovery.clone() };
    let late = metadata.recovery_decide(&earlier, cut(4, true));
    assert_eq!(late, Err(MetadataError::NotFound), "the log was written since");
    let recovered = |row: &MigrationRow, of: &ReplicasRow, cut: DecidedCut| {
        metadata.migration_recovered(row, (of, cut)).expect("it is there")
    };
    let first = recovered(&begun[0], &basis, cut(5, false));
    assert_eq!((first.phase, first.owner()), (MigrationPhase::Finished, begun[0].target));
    assert_eq!(decide(Some(cut(5, false)), cut(4, true)), cut(5, false), "a tablet is as of it");
    let as_of_another = recovered(&begun[1], &basis, cut(6, false));
    assert_eq!(as_of_another.phase, MigrationPhase::Ended);
    // It is back: what is not recovered is its own, and its log counts as the others have decided, also at the start after one
    // that has written nothing.
    world.start(1);
    let metadata = &world.metadata;
    assert_eq!(metadata.migrations_restarted(ServerRun { server: 1, start: 2 }), Ok(0), "it may be behind");
    let own = |cut, is_whole| metadata.owner_returns(1, own_end(1, cut, is_whole), 50).expect("room");
    let later = own_end(2, 9, true);
    assert_eq!([own(5, false), own(4, true)], [OwnLogExtent::Behind; 2]);
    assert_eq!(metadata.owner_returns(1, later, 50), Ok(OwnLogExtent::Behind), "it has acknowledged nothing");
    assert!(metadata.recovery(1).expect("an answer").is_some(), "the others go on");
    assert_eq!([own(5, true), own(6, false), own(6, true)], [OwnLogExtent::UpTo(5); 3]);
    assert_eq!(metadata.owner_returns(1, later, 50), Ok(OwnLogExtent::Whole));
    let (log, again) = (metadata.replicas().expect("an answer")[0].log, metadata.replicas_begin(1, 2, false));
    let again = again.expect("room");
    assert_eq!((again.log, again.start, again.record()), (log, 2, record));
    assert_eq!(metadata.recovery(1), Ok(None));
    let late = metadata.migration_recovered(&begun[2], (&basis, cut(5, false))).expect("it is there");
    assert_eq!(late.phase, MigrationPhase::Ended, "its owner was back");
    for row in begun {
        metadata.migration_leave(row.id, Side::Target).expect("room");
    }
    assert_eq!((recoveries_due(&world), world.snapshot().migrations), (vec![], vec![]));
}

/// The answers to commits that made others owners of what its server had are lost; it returns, and dies before its log goes on.
#[test]
fn a_recovery_that_hears_no_answer_and_one_of_the_same_log_hold_to_the_one_before() {
    let (mut world, _) = world_with_replicas();
    world.kill(1);
    let begun = begin_recoveries(&mut world);
    let seen = world.metadata.recovery(1).expect("an answer").expect("one");
    let cut = |cut| DecidedCut { start: 1, cut, is_on_own_disk: false };
    assert_eq!(world.metadata.recovery_decide(&seen, cut(5)), Ok(cut(5)));
    let recovered = |world: &World, row: &MigrationRow| {
        let row = world.metadata.migration_recovered(row, (&seen.replicas, cut(5)));
        row.expect("an owner").phase
    };
    assert_eq!(recovered(&world, &begun[0]), MigrationPhase::Finished);
    world.start(1);
    let own = own_end(1, 5, true);
    assert_eq!(world.metadata.owner_returns(1, own, 50), Ok(OwnLogExtent::UpTo(5)));
    assert_eq!(recovered(&world, &begun[1]), MigrationPhase::Ended, "its owner was back");
    for row in &begun[..2] {
        world.metadata.migration_leave(row.id, Side::Target).expect("room");
    }
    let known = [&begun[0], &begun[1]].map(|row| recovered(&world, row));
    assert_eq!(known, [MigrationPhase::Finished, MigrationPhase::Ended], "the tablets tell");
    // Its log counts as before, whoever answers.
    world.kill(1);
    let elected = world.elect();
    for step in recoveries_due(&world) {
        world.metadata.coordinate(elected.term, &step, 50 + RETURN_MS).expect("room");
    }
    let again = world.metadata.recovery(1).expect("an answer").expect("one");
    let decide = |decided, found| {
        let seen = RecoveryRow { decided, ..again.clone() };
        world.metadata.recovery_decide(&seen, found).expect("it is recovered")
    };
    assert_eq!([decide(None, cut(5)), decide(Some(cut(5)), cut(4))], [cut(5); 2]);
}

#[test]
fn a_server_that_was_stopped_may_return_before_others_recover_it() {
    let (mut world, _) = world_with_replicas();
    world.metadata.owner_stops(1, 50).expect("room");
    world.kill(1);
    let recoveries = recoveries_due(&world);
    assert!(!recoveries.is_empty());
    let elected = world.elect();
    let coordinate = |now_ms: u64| {
        recoveries.iter().for_each(|step| {
            world.metadata.coordinate(elected.term, step, now_ms).expect("room");
        });
        world.snapshot().migrations.len()
    };
    assert_eq!((coordinate(49 + STOPPED_MS), coordinate(50 + STOPPED_MS)), (0, 3));
    // What was begun is not held up.
    world.metadata.owner_stops(1, 60 + STOPPED_MS).expect("room");
    assert!(world.metadata.recovery(1).expect("an answer").is_some());
}

#[test]
fn a_log_whose_server_starts_is_left_alone_for_a_while() {
    let (mut world, _) = world_with_replicas();
    world.kill(1);
    // It dies while it starts: for a while it is left alone, then recovered, and its start does not go on.
    let own = own_end(1, 5, true);
    assert_eq!(world.metadata.owner_returns(1, own, 50), Ok(OwnLogExtent::Whole));
    let recoveries = recoveries_due(&world);
    assert!(!recoveries.is_empty());
    let elected = world.elect();
    let coordinate = |world: &World, now_ms: u64| {
        recoveries.iter().for_each(|step| {
            world.metadata.coordinate(elected.term, step, now_ms).expect("room");
        });
        world.snapshot().migrations.len()
    };
    assert_eq!((coordinate(&world, 49 + RETURN_MS), coordinate(&world, 50 + RETURN_MS)), (0, 3));
    assert_eq!(world.metadata.replicas_begin(1, 3, false), Err(MetadataError::Conflict));
    // A target that dies leaves its part to another one.
    let row = world.snapshot().migrations[0].clone();
    world.kill(row.target.server);
    let elected = world.elect();
    while let due = steps(&world.snapshot())
        && !due.is_empty()
    {
        due.iter().for_each(|step| world.metadata.coordinate(elected.term, step, 90_000).expect("room"));
    }
    assert!(world.snapshot().migrations.iter().all(|other| other.target != row.target), "{row:?}");
    let width: u128 = world.snapshot().migrations.iter().map(|row| row.hashes.width()).sum();
    let of_it = world.snapshot().tablets.iter().flat_map(|row| row.owned_by(1)).map(HashRange::width).sum();
    assert_eq!(width, of_it);
}

#[test]
fn who_has_ended_is_gone_at_once_and_is_not_there_again_before_another_start() {
    let mut world = World::new(2, 2);
    let run = ServerRun { server: 1, start: 1 };
    world.metadata.member_ended(ServerRun { start: 2, ..run }).expect("room");
    assert_eq!(world.snapshot().there.len(), 2, "another start is meant");
    world.metadata.member_ended(run).expect("room");
    assert_eq!(world.snapshot().there, [ServerRun { server: 2, start: 1 }]);
    let (_, lease) = world.leases.iter().find(|(id, _)| *id == 1).expect("it was started");
    let (tcp, frame_ports, version) = (([10, 0, 0, 1], 1).into(), vec![1], String::new());
    let row =
        ServerRow { id: 1, start: 1, tcp, frame_ports, view: 1, started_ms: 1, version, backup_host: None };
    assert_eq!(world.metadata.server_register(&row, *lease), Err(MetadataError::NotFound));
    world.leases.retain(|(id, _)| *id != 1);
    world.start(1);
    assert_eq!(world.snapshot().there.len(), 2);
}

/// A dead server's tablets are divided among all others, but not each of them among all.
#[test]
fn recoveries_of_a_server_with_several_tablets_divide_each_as_far_as_needed() {
    for (tablets, expected) in [(1, 3), (2, 4), (3, 3), (12, 12)] {
        let mut world = World::new(1, 4);
        world.table_with("disk", Durability::Synced, &vec![1; tablets]);
        world.metadata.replicas_begin(1, 1, true).expect("room");
        let backups = [2, 3].map(|server| BackupId { server, file: 7 });
        let record = ReplicasRecord { backups: backups.into(), replicas: 2 };
        world.metadata.replicas_record(1, 1, &record).expect("room");
        world.kill(1);
        let begun = begin_recoveries(&mut world);
        assert_eq!(begun.len(), expected, "of {tablets}");
        let mut widths = BTreeMap::<u32, u128>::new();
        begun.iter().for_each(|row| *widths.entry(row.target.server).or_default() += row.hashes.width());
        let most = widths.values().max().expect("somebody recovers it");
        assert!(widths.len() == 3 && *most <= (1 << 64) / 2, "{widths:?}");
    }
}

#[test]
fn tablets_are_merged_when_a_table_has_more_than_half_as_many_as_possible() {
    let mut world = World::new(1, 2);
    let elected = world.elect();
    let owners: Vec<u32> = (0..TABLETS_PER_TABLE_MAX as u32).map(|index| 1 + index / 4 % 2).collect();
    world.table("many", &owners);
    let shares = |world: &World| {
        let snapshot = world.snapshot();
        [1, 2].map(|server| snapshot.tablets[0].owned_by(server))
    };
    let before = shares(&world);
    let mut emptied = world.snapshot();
    for (tablet, ms) in emptied.tablets[0].tablets.iter_mut().zip(1..) {
        tablet.emptied_ms = Some(ms);
    }
    assert_eq!(steps(&emptied), [], "since when each has no objects stays known");
    while let [step] = &steps(&world.snapshot())[..] {
        assert!(matches!(step, CoordinatorStep::Merge { .. }), "{step:?}");
        world.metadata.coordinate(elected.term, step, 5).expect("room");
        // Twice does no harm.
        world.metadata.coordinate(elected.term, step, 5).expect("room");
    }
    assert_eq!(shares(&world), before, "nothing moves");
    assert_eq!(world.snapshot().tablets[0].tablets.len(), TABLETS_PER_TABLE_MAX / 2);
}
