//! Clusters from seeds: 3 to 200 servers with the real store, sessions, views, dispatcher, requesters, metadata and machines of
//! migrations, in virtual time, over a network that loses, doubles, delays and reorders, while tablets are split, merged,
//! moved and moved back, servers die and return, and the records do not answer. Servers with logs also write these to their disks
//! and to each other, and recover them. What clients were told is checked for linearizability; one seed replays exactly.
//!
//! `SPLINTER_SEED` runs one seed, `SPLINTER_FULL=1` thousands (with `--release`: in minutes).

#[path = "cluster_simulation/caller.rs"]
mod caller;
#[path = "cluster_simulation/copied.rs"]
mod copied;
#[path = "../../db/tests/support/memory_records.rs"]
mod memory_records;
#[path = "cluster_simulation/mover.rs"]
mod mover;
#[path = "cluster_simulation/node.rs"]
mod node;
#[path = "cluster_simulation/world.rs"]
mod world;

use control::Durability;
use fastrand::Rng;
use mover::Fault;
use tests::effort::{on_all_cores, rounds};
use tests::history::{Verdict, check, to_text};
use world::{Plan, Tally, World};

/// Seeds among which there are some with transactions of each kind.
const ENOUGH_SEEDS: usize = 10;

/// A cluster of three servers as the seed has it.
fn three(seed: u64) -> Plan {
    let mut random = Rng::with_seed(!seed);
    let plan = Plan {
        servers: 3,
        owners: 3,
        workers: random.usize(1..4),
        clients: random.u32(2..8),
        keys: random.u64(4..24),
        lists: 0,
        tablets: random.usize(1..5),
        fill_objects: *random.choice(&[0, 30, 100]).expect("there are some"),
        active_us: random.u64(1_000_000..5_000_000),
        loss_percent: *random.choice(&[0, 5, 20]).expect("there are some"),
        reads: random.bool(),
        rest_us: *random.choice(&[4_000, 20_000]).expect("there are some"),
        patience_us: *random.choice(&[3_000, 100_000]).expect("there are some"),
        act_every_us: random.u64(20_000..200_000),
        crashes: random.bool(),
        outages: random.bool(),
        cut_offs: random.bool(),
        plans: random.bool(),
        durability: Durability::Memory,
        away_us: 1_500_000,
        step_us: 10_000,
        moves: true,
        fault: Fault::None,
        hasty: false,
        careless: false,
        credulous: false,
    };
    let is_something_lost = plan.crashes || plan.cut_offs;
    Plan { lists: if is_something_lost { 0 } else { random.u64(2..8) }, ..plan }
}

/// Runs a seed. Whether the history is linearizable, and the world.
fn run(seed: u64, plan: Plan) -> (Verdict, World) {
    let mut world = World::new(seed, plan);
    world.run();
    (check(&world.history), world)
}

fn seeds(usual: usize, full: usize) -> Vec<u64> {
    let given = std::env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok());
    given.map_or_else(|| (0..rounds(usual, full) as u64).collect(), |seed| vec![seed])
}

/// Runs all seeds, prints what they had in them, and fails with a history that is not linearizable.
fn each_seed(seeds: &[u64], plan: impl Fn(u64) -> Plan + Sync) {
    let worlds = on_all_cores(seeds, |seed| {
        println!("SPLINTER_SEED={seed}");
        let (verdict, world) = run(seed, plan(seed));
        match verdict {
            Verdict::Linearizable => {
                let serializable = world.are_transactions_serializable();
                assert!(serializable.is_ok(), "seed {seed}: {}", serializable.unwrap_err());
                (world.history.len(), world.tally)
            }
            Verdict::Violated(key, history) => {
                panic!("seed {seed}, key {key}, {:?}\n{}", world.tally, to_text(&history))
            }
            Verdict::Undecided(key, operations) => {
                panic!("seed {seed}: no verdict on key {key}\n{}", to_text(&operations))
            }
        }
    });
    let (mut operations, mut total) = (0, Tally::default());
    for (count, tally) in worlds {
        operations += count;
        total += tally;
    }
    let is_something_appended = total.appended > 0 && total.appended_to_several > 0;
    assert!(is_something_appended || seeds.len() < ENOUGH_SEEDS, "transactions write: {total:?}");
    println!("{} histories of {operations} operations, all linearizable: {total:?}", seeds.len());
}

#[test]
fn histories_are_linearizable_while_three_servers_move_tablets_and_die() {
    each_seed(&seeds(50, 10_000), three);
}

/// A cluster of three servers or more whose table is on their disks. Nothing that was acknowledged is lost, whoever dies.
fn durable(seed: u64) -> Plan {
    let mut random = Rng::with_seed(seed ^ 0xd15c);
    Plan {
        servers: random.u32(3..6),
        fill_objects: *random.choice(&[0, 30]).expect("there are some"),
        durability: Durability::Synced,
        lists: random.u64(2..8),
        step_us: *random.choice(&[3_000, 10_000, 100_000]).expect("there are some"),
        moves: random.bool(),
        crashes: true,
        ..three(seed)
    }
}

#[test]
fn nothing_on_the_disk_is_lost_while_servers_die_and_others_recover_it() {
    each_seed(&seeds(50, 5_000), durable);
}

/// The same of a table that is in the memories of others before it is on disks: nothing is lost while no more servers die, until all
/// is on disks again, than have it.
fn written(seed: u64) -> Plan {
    let durability = Durability::Written;
    Plan { durability, act_every_us: 10_000 + durable(seed).act_every_us / 4, ..durable(seed) }
}

#[test]
fn nothing_written_is_lost_while_as_many_servers_die_as_have_it() {
    each_seed(&seeds(20, 3_500), written);
    each_seed(&seeds(10, 1_500), returning);
}

/// A cluster of many servers as the seed has it.
fn many(seed: u64) -> Plan {
    let mut random = Rng::with_seed(!seed);
    let servers = if random.bool() { random.u32(8..=40) } else { random.u32(40..=200) };
    // Where few own all of it there is much to balance and to drain.
    let owners = if random.bool() { servers } else { servers.div_ceil(8) };
    Plan {
        servers,
        owners,
        workers: 1,
        clients: random.u32(4..16),
        keys: random.u64(40..200),
        tablets: random.usize(20..200),
        fill_objects: 0,
        active_us: random.u64(1_000_000..3_000_000),
        act_every_us: random.u64(5_000..40_000),
        plans: true,
        lists: three(seed).lists.min(1) * u64::from(2 * owners),
        ..three(seed)
    }
}

#[test]
fn histories_are_linearizable_with_up_to_two_hundred_servers() {
    each_seed(&seeds(2, 300), many);
}

#[test]
fn nothing_on_the_disk_is_lost_with_many_servers() {
    each_seed(&seeds(1, 100), |seed| Plan {
        durability: Durability::Synced,
        step_us: 10_000,
        crashes: true,
        tablets: 20,
        servers: 8 + many(seed).servers % 25,
        owners: 6,
        lists: 12,
        ..many(seed)
    });
}

/// How many of these seeds have a history that the checker refuses.
fn caught(seeds: u64, plan: impl Fn(Plan) -> Plan) -> u64 {
    let is_caught = |&seed: &u64| {
        let quiet = Plan { crashes: false, cut_offs: false, loss_percent: 5, ..three(seed) };
        matches!(run(seed, plan(quiet)).0, Verdict::Violated(..))
    };
    let caught = (0..seeds).filter(is_caught).count() as u64;
    println!("{caught} of {seeds} seeds");
    caught
}

#[test]
fn a_source_that_says_it_has_cut_before_its_workers_have_passed_is_caught() {
    assert!(caught(40, |plan| Plan { fault: Fault::ServesAfterTheCut, workers: 3, ..plan }) > 0);
}

#[test]
fn a_target_that_forgets_the_version_ceiling_is_caught() {
    assert!(caught(12, |plan| Plan { fault: Fault::ForgetsTheCeiling, ..plan }) > 0);
}

#[test]
fn a_server_that_serves_what_moves_without_a_lease_is_caught() {
    let fault = Fault::ServesWithoutALease;
    let often = |plan| Plan {
        fault,
        cut_offs: true,
        active_us: 4_000_000,
        act_every_us: 20_000,
        clients: 8,
        keys: 6,
        ..plan
    };
    assert!(caught(60, often) > 0);
}

#[test]
fn a_client_that_takes_what_was_frozen_for_what_is_there_is_caught() {
    assert!(caught(24, |plan| Plan { credulous: true, ..plan }) > 0);
}

#[test]
fn a_client_that_asks_another_server_too_early_is_caught() {
    assert!(caught(12, |plan| Plan { hasty: true, ..plan }) > 0);
}

#[test]
fn clients_that_commit_whatever_has_become_of_what_they_read_are_caught() {
    let is_caught = |seed: &u64| {
        run(*seed, Plan { careless: true, ..durable(*seed) }).1.are_transactions_serializable().is_err()
    };
    assert!((0..8).any(|seed| is_caught(&seed)));
}

/// Servers with logs to which something happens all the time, and few keys.
fn harsh(seed: u64) -> Plan {
    Plan {
        active_us: 4_000_000,
        act_every_us: 30_000,
        keys: 6,
        clients: 8,
        outages: true,
        cut_offs: true,
        moves: seed.is_multiple_of(2),
        ..durable(seed)
    }
}

#[test]
fn nothing_on_the_disk_is_lost_while_everything_happens_at_once() {
    each_seed(&seeds(20, 500), harsh);
}

/// The same without crashes, outages, plans and moves: servers stand still, and cannot reach the records.
fn cut_off(seed: u64) -> Plan {
    Plan {
        act_every_us: 60_000,
        outages: false,
        crashes: false,
        plans: false,
        moves: false,
        step_us: 100_000,
        ..harsh(seed)
    }
}

/// Tablets move all the time between servers whose logs are slow to reach others, and that die.
fn moving(seed: u64) -> Plan {
    Plan {
        act_every_us: 12_000,
        outages: false,
        cut_offs: false,
        plans: false,
        moves: true,
        step_us: 100_000,
        ..harsh(seed)
    }
}

/// Servers whose disks are far behind what their backups have received die and return soon, before others have replaced them or just
/// behind.
fn returning(seed: u64) -> Plan {
    Plan {
        durability: Durability::Written,
        act_every_us: 8_000,
        away_us: 250_000,
        outages: false,
        cut_offs: false,
        plans: false,
        moves: false,
        step_us: 100_000,
        rest_us: 4_000,
        ..harsh(seed)
    }
}

/// The first of so many seeds of servers with logs in which this fault is noticed: by the checker, or as what is lost is never
/// served again.
fn noticed(seeds: u64, fault: Fault) -> Option<u64> {
    let plan = match fault {
        Fault::ServesWithoutALease | Fault::KeepsNoPromise | Fault::TakesFromTheRecovered => cut_off,
        Fault::FinishesBeforeItsBackups => moving,
        Fault::StartsWithoutItsBackups | Fault::BelievesThoseThatForgot => returning,
        _ => harsh,
    };
    let is_noticed = |&seed: &u64| {
        let verdict = std::panic::catch_unwind(|| {
            let (verdict, world) = run(seed, Plan { fault, ..plan(seed) });
            matches!(verdict, Verdict::Violated(..)) || world.are_transactions_serializable().is_err()
        });
        verdict.unwrap_or(true)
    };
    let noticed = (0..seeds).find(is_noticed);
    println!("{fault:?}: {noticed:?} of {seeds} seeds");
    noticed
}

#[test]
fn what_servers_with_logs_do_wrong_is_noticed() {
    let faults = [
        Fault::ForgetsEnds,
        Fault::AcknowledgesBeforeItFlushes,
        Fault::ServesWithoutALease,
        Fault::KeepsNoPromise,
        Fault::TakesFromTheRecovered,
        Fault::AsksTooFewBackups,
        Fault::OwnsBeforeItsBackups,
        Fault::DropsWhatItOwns,
        Fault::FinishesBeforeItsBackups,
        Fault::StartsWithoutItsBackups,
        Fault::BelievesThoseThatForgot,
    ];
    let faults = &faults[..rounds(2, faults.len())];
    let missed: Vec<&Fault> = faults.iter().filter(|fault| noticed(400, **fault).is_none()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in seeds(3, 30) {
        for plan in [three, durable, written] {
            let digests = [(); 2].map(|()| {
                let (_, world) = run(seed, plan(seed));
                (world.digest, world.now_us, world.history)
            });
            assert!(digests[0] == digests[1], "seed {seed}");
        }
    }
}
