//! Seeded tests of plans over real records: servers die, migrations fail, and coordinators die or do not know that
//! they were replaced.

mod recoveries;

use std::collections::BTreeSet;
use std::time::Duration;

use control::{Durability, TableOptions};
use redb::Builder;
use redb::backends::InMemoryBackend;
use store::HashRange;
use wire::TenantId;

use super::steps;
use crate::limits::PLAN_MOVES_AT_ONCE;
use crate::metadata::{
    Coordinator, CoordinatorStep, Goal, Metadata, MetadataError, PlanProgress, ServerRow, ServerRun, Side,
    Snapshot, TabletError,
};
use crate::migration::{MigrationMode, MigrationPhase};
use crate::records::LeaseId;
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
