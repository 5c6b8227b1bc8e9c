//! Seeded tests of plans over real records: servers die, migrations fail, and coordinators die or do not know that
//! they were replaced.

use std::collections::BTreeSet;
use std::time::Duration;

use control::{Durability, TableOptions};
use redb::Builder;
use redb::backends::InMemoryBackend;
use store::HashRange;
use wire::TenantId;

use super::steps;
use crate::limits::{PLAN_MOVES_AT_ONCE, RETURN_MS, STOPPED_MS};
use crate::metadata::{
    Coordinator, CoordinatorStep, DecidedCut, Goal, Metadata, MetadataError, MigrationRow, OwnLogEnd,
    OwnLogExtent, PlanProgress, RecoveryRow, ReplicasRow, ServerRow, ServerRun, Side, Snapshot, TabletError,
};
use crate::migration::{MigrationMode, MigrationPhase};
use crate::records::LeaseId;
use crate::replication::{BackupId, ReplicasRecord};
use crate::secret::SecretHash;

const SEEDS: u64 = 12;
/// Rounds within which every plan must end.
const PATIENCE: usize = 3_000;

struct World {
    metadata: Metadata,
    random: fastrand::Rng,
    ann: TenantId,
    leases: Vec<(u32, LeaseId)>,
}

impl World {
    fn new(seed: u64, servers: u32) -> Self {
        let opener = || Builder::new().create_with_backend(InMemoryBackend::new());
        let metadata = Metadata::open_with(Box::new(opener)).expect("memory");
        let secret = SecretHash { salt: [1; 16], digest: [2; 32] };
        let ann = metadata.tenant_create("ann", secret).expect("room");
        let mut world = World { metadata, random: fastrand::Rng::with_seed(seed), ann, leases: Vec::new() };
        (1..=servers).for_each(|server| world.start(server));
        world
    }

    fn start(&mut self, id: u32) {
        let tcp = ([10, 0, 0, 1], id as u16).into();
        let start = self.metadata.member_start(id, tcp, true).expect("room").start;
        let held = self.metadata.records().lease_grant(Duration::from_hours(1)).expect("a lease");
        let row = ServerRow {
            id,
            start,
            tcp,
            frame_ports: vec![1],
            view: 1,
            started_ms: 1,
            version: String::new(),
            backup_host: None,
        };
        self.metadata.server_register(&row, held.lease).expect("nobody has the number");
        self.leases.push((id, held.lease));
    }

    fn kill(&mut self, server: u32) {
        let at = self.leases.iter().position(|(id, _)| *id == server).expect("it is there");
        let (_, lease) = self.leases.swap_remove(at);
        self.metadata.records().lease_revoke(lease).expect("held");
    }

    fn table(&self, name: &str, servers: &[u32]) {
        self.table_with(name, Durability::Memory, servers);
    }

    fn table_with(&self, name: &str, durability: Durability, servers: &[u32]) {
        let options = TableOptions { durability: Some(durability), ..TableOptions::default() };
        self.metadata.table_create_at(self.ann, name, options, servers).expect("room");
    }

    fn elect(&mut self) -> Coordinator {
        let (server, lease) = self.leases[self.random.usize(..self.leases.len())];
        self.metadata.coordinator_elect(server, lease).expect("records answer")
    }

    fn snapshot(&self) -> Snapshot {
        self.metadata.snapshot().expect("records answer")
    }

    /// Advances some migrations by one phase, as their servers would.
    fn move_some(&mut self, failing_percent: u32) {
        let snapshot = self.snapshot();
        for row in &snapshot.migrations {
            let is_present = |run: ServerRun| snapshot.there.contains(&run);
            let (source, target) = (is_present(row.source), is_present(row.target));
            let to = match row.phase {
                MigrationPhase::Preparing if !source || !target => Some(MigrationPhase::Ended),
                MigrationPhase::Moving if !source => Some(MigrationPhase::Finished),
                MigrationPhase::Moving if !target => Some(MigrationPhase::Ended),
                MigrationPhase::Preparing if self.random.u32(..100) < failing_percent => {
                    Some(MigrationPhase::Ended)
                }
                MigrationPhase::Preparing => Some(MigrationPhase::Moving),
                MigrationPhase::Moving => Some(MigrationPhase::Finished),
                _ => None,
            };
            if (!source && !target) || self.random.bool() {
                continue;
            }
            if let Some(to) = to {
                self.metadata.migration_advance(row.id, row.phase, to).expect("it is there");
            } else {
                let side = if self.random.bool() { Side::Source } else { Side::Target };
                if is_present(if side == Side::Source { row.source } else { row.target }) {
                    self.metadata.migration_leave(row.id, side).expect("room");
                }
            }
        }
    }

    /// Returns each server's share of the hashes, summed over all tables, in units of a whole table.
    fn shares(&self) -> Vec<f64> {
        let snapshot = self.snapshot();
        let share = |run: &ServerRun| {
            let own = snapshot.tablets.iter().flat_map(|row| row.owned_by(run.server));
            own.map(|hashes| hashes.width() as f64 / 2f64.powi(64)).sum()
        };
        snapshot.there.iter().map(share).collect()
    }

    /// Executes plans until none is running, and returns the final state of the last one.
    fn run(&mut self, failing_percent: u32, mut trouble: impl FnMut(&mut World, usize)) -> PlanProgress {
        let mut stale: Option<(Coordinator, Vec<CoordinatorStep>)> = None;
        for round in 0..PATIENCE {
            trouble(self, round);
            let elected = self.elect();
            let snapshot = self.snapshot();
            let running = snapshot.plans.iter().any(|plan| plan.state == PlanProgress::Running);
            if !running && snapshot.migrations.is_empty() {
                return snapshot.plans.last().expect("there is one").state;
            }
            let due = steps(&snapshot);
            // A coordinator that dies midway, and later one that does not know that it was replaced.
            let made = self.random.usize(..=due.len());
            for step in &due[..made] {
                self.coordinate(elected, step);
            }
            if let Some((elected, due)) = stale.take() {
                due.iter().for_each(|step| self.coordinate(elected, step));
            }
            if self.random.u32(..4) == 0 {
                stale = Some((elected, due));
            }
            self.move_some(failing_percent);
            let in_flight = self.snapshot().migrations.iter().filter(|row| !row.is_over()).count();
            assert!(in_flight <= PLAN_MOVES_AT_ONCE + 1, "{in_flight} at once");
        }
        panic!("a plan does not end: {:?}", self.snapshot());
    }

    fn coordinate(&self, elected: Coordinator, step: &CoordinatorStep) {
        let made = self.metadata.coordinate(elected.term, step, 5);
        let now = self.metadata.coordinator().expect("records answer");
        let is_leave = matches!(step, CoordinatorStep::Leave { .. });
        assert!(made.is_ok() == (is_leave || now == Some(elected)), "{made:?} of {step:?}");
    }
}

#[test]
fn a_server_is_drained_whatever_becomes_of_coordinators() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, 4);
        world.table("t", &[1, 2, 1, 3, 1, 1]);
        world.table("u", &[1]);
        let drained = world.snapshot().there[0];
        world.metadata.plan_begin(Goal::Drain(drained), 5).expect("none runs");
        let end = world.run(0, |world, round| {
            if round == 3 {
                // Kills the coordinator, unless it is the drained server.
                let elected = world.metadata.coordinator().expect("records answer");
                let victim = elected.map(|elected| elected.server).filter(|server| *server != 1);
                victim.into_iter().for_each(|victim| {
                    world.kill(victim);
                    world.start(victim);
                });
            }
        });
        // A move whose target died has failed, which stops the plan, so it is requested again.
        if end == PlanProgress::Stopped {
            world.metadata.plan_begin(Goal::Drain(drained), 5).expect("none runs");
            assert_eq!(world.run(0, |_, _| {}), PlanProgress::Done, "seed {seed}");
        }
        assert_eq!(world.shares()[0], 0.0, "seed {seed}");
        let created = world.metadata.table_create_spread(world.ann, "v", TableOptions::default(), (9, 1));
        created.expect("room");
        assert_eq!(world.shares()[0], 0.0, "new tables go elsewhere");
    }
}

#[test]
fn servers_own_the_same_after_a_balance() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, 3);
        world.table("t", &[1]);
        (0..seed % 4).for_each(|number| world.table(&format!("u{number}"), &[2, 2]));
        world.metadata.plan_begin(Goal::Balance, 5).expect("none runs");
        assert!(world.metadata.plan_begin(Goal::Balance, 5).is_err(), "one at a time");
        assert_eq!(world.run(0, |_, _| {}), PlanProgress::Done);
        let shares = world.shares();
        let fair = shares.iter().sum::<f64>() / 3.0;
        assert!(shares.iter().all(|share| (share - fair).abs() < fair / 8.0), "seed {seed}: {shares:?}");
        world.metadata.plan_begin(Goal::Balance, 5).expect("none runs");
        assert_eq!(world.run(0, |_, _| {}), PlanProgress::Done);
        assert_eq!(world.shares(), shares, "there was nothing left to do");
    }
}

#[test]
fn tablets_of_a_tagged_table_move_and_stay_as_they_were_created() {
    let mut world = World::new(3, 3);
    let tagged = |tagged| TableOptions { tagged, ..TableOptions::default() };
    let options = TableOptions { migration: MigrationMode::Cooperative, ..tagged(true) };
    let t = world.metadata.table_create_at(world.ann, "t", options, &[1; 24]).expect("room");
    world.metadata.table_create_at(world.ann, "u", tagged(false), &[2]).expect("room");
    let tablets_of = |world: &World| {
        let rows = world.snapshot().tablets;
        rows.into_iter().find(|row| row.table == t).expect("it is there").tablets
    };
    let bounds = |world: &World| tablets_of(world).iter().map(|tablet| tablet.hashes).collect::<Vec<_>>();
    let created = bounds(&world);
    assert_eq!(created.len(), 24);
    assert!(created.iter().all(|hashes| hashes.first().is_multiple_of(wire::TAG_WIDTH)));

    let table = (world.ann, t);
    let begin = |world: &World, hashes| {
        world.metadata.migration_begin(table, hashes, 2, MigrationMode::Cooperative, 5).map(|row| row.mode)
    };
    let refused = MetadataError::Tablets(TabletError::Tagged);
    let two = HashRange::new(created[0].first(), created[1].last()).expect("wide enough");
    let half = HashRange::new(created[2].first(), created[2].first() + (1 << 40) - 1).expect("wide enough");
    for wrong in [two, half] {
        assert_eq!(begin(&world, wrong), Err(refused.clone()));
    }
    let middle = created[5].first() + (1 << 48);
    assert_eq!(world.metadata.tablet_split(table.0, table.1, middle), Err(refused.clone()));
    assert_eq!(world.metadata.tablet_merge(table.0, table.1, created[6].first()), Err(refused));
    assert_eq!(begin(&world, created[0]), Ok(MigrationMode::Rocksteady), "nobody asks both servers");

    let drained = world.snapshot().there[0];
    for goal in [Goal::Balance, Goal::Drain(drained)] {
        world.metadata.plan_begin(goal, 5).expect("none runs");
        assert_eq!(world.run(0, |_, _| {}), PlanProgress::Done);
        assert_eq!(bounds(&world), created);
    }
    let owners: BTreeSet<u32> = tablets_of(&world).iter().map(|tablet| tablet.server).collect();
    assert_eq!(owners, [2, 3].into());
}

#[test]
fn plans_end_whatever_fails_and_whoever_dies() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, 3);
        world.table("t", &[1, 2, 3, 1, 2, 3]);
        let there = world.snapshot().there;
        let goal = if seed % 2 == 0 { Goal::Balance } else { Goal::Drain(there[2]) };
        world.metadata.plan_begin(goal, 5).expect("none runs");
        world.run(15, |world, round| {
            if round % 7 == 6 && round < 40 {
                let server = world.random.u32(1..=3);
                world.kill(server);
                world.start(server);
            }
        });
        let rows = world.snapshot().tablets;
        let all: u128 = rows[0].tablets.iter().map(|tablet| tablet.hashes.width()).sum();
        assert_eq!(all, 1 << 64, "every hash has an owner");
    }
}

#[test]
fn what_two_dead_servers_moved_is_settled_and_cleared_away() {
    let phases = [MigrationPhase::Preparing, MigrationPhase::Moving, MigrationPhase::Returning];
    let each =
        [Durability::Memory, Durability::Synced].map(|durability| phases.map(|phase| (durability, phase)));
    for (durability, phase) in each.into_iter().flatten() {
        let mut world = World::new(1, 3);
        world.table_with("t", durability, &[1]);
        let t = world.snapshot().tablets[0].table;
        let hashes = HashRange::ALL;
        let begun = world.metadata.migration_begin((world.ann, t), hashes, 2, None, 5);
        let id = begun.expect("room").id;
        for pair in phases.windows(2).take_while(|pair| pair[0] != phase) {
            world.metadata.migration_advance(id, pair[0], pair[1]).expect("it is there");
        }
        let owner = match durability {
            Durability::Memory => world.snapshot().tablets[0].tablets[0].server,
            // Its disk has everything, and the target's perhaps not.
            Durability::Written | Durability::Synced => 1,
        };
        world.kill(1);
        world.kill(2);
        let elected = world.elect();
        while let due = steps(&world.snapshot())
            && !due.is_empty()
        {
            due.iter().for_each(|step| world.coordinate(elected, step));
        }
        let snapshot = world.snapshot();
        let found = (snapshot.migrations.len(), snapshot.tablets[0].tablets[0].server);
        assert_eq!(found, (0, owner), "{durability:?}, {phase:?}");
    }
}

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
    let recovered = |id: u32, of: &ReplicasRow, cut: DecidedCut| {
        metadata.migration_recovered(id, (of, cut)).expect("it is there")
    };
    let first = recovered(begun[0].id, &basis, cut(5, false));
    assert_eq!((first.phase, first.owner()), (MigrationPhase::Finished, begun[0].target));
    assert_eq!(decide(Some(cut(5, false)), cut(4, true)), cut(5, false), "a tablet is as of it");
    let as_of_another = recovered(begun[1].id, &basis, cut(6, false));
    assert_eq!(as_of_another.phase, MigrationPhase::Ended);
    // It is back: what is not recovered is its own, and its log counts as the others have decided, also at the start after one
    // that has written nothing.
    world.start(1);
    let metadata = &world.metadata;
    assert_eq!(metadata.migrations_restarted(ServerRun { server: 1, start: 2 }), Ok(0), "it may be behind");
    let own =
        |cut, is_whole| metadata.owner_returns(1, OwnLogEnd { start: 1, cut, is_whole }, 50).expect("room");
    let later = OwnLogEnd { start: 2, cut: 9, is_whole: true };
    assert_eq!([own(5, false), own(4, true)], [OwnLogExtent::Behind; 2]);
    assert_eq!(metadata.owner_returns(1, later, 50), Ok(OwnLogExtent::Behind), "it has acknowledged nothing");
    assert!(metadata.recovery(1).expect("an answer").is_some(), "the others go on");
    assert_eq!([own(5, true), own(6, false), own(6, true)], [OwnLogExtent::UpTo(5); 3]);
    assert_eq!(metadata.owner_returns(1, later, 50), Ok(OwnLogExtent::Whole));
    let (log, again) = (metadata.replicas().expect("an answer")[0].log, metadata.replicas_begin(1, 2, false));
    let again = again.expect("room");
    assert_eq!((again.log, again.start, again.record()), (log, 2, record));
    assert_eq!(metadata.recovery(1), Ok(None));
    let late = metadata.migration_recovered(begun[2].id, (&basis, cut(5, false))).expect("it is there");
    assert_eq!(late.phase, MigrationPhase::Ended, "its owner was back");
    for row in begun {
        metadata.migration_leave(row.id, Side::Target).expect("room");
    }
    assert_eq!((recoveries_due(&world), world.snapshot().migrations), (vec![], vec![]));
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
    let own = OwnLogEnd { start: 1, cut: 5, is_whole: true };
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
