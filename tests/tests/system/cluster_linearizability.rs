//! What clients of real servers were told while tablets were split, merged, moved and moved back, frames lost, doubled, late
//! and out of order, etcd stood still and servers were killed or stood still: it is linearizable, by porcupine and by our
//! checker.
//!
//! `SPLINTER_SEED` gives the faults of a run again, though not its timing; `SPLINTER_FULL=1` makes it long.

mod absences;
#[path = "../cluster_simulation/caller.rs"]
mod caller;
mod counting;
mod library;
mod path;
mod recording;
mod town;

use std::sync::atomic::AtomicBool;
use std::thread;

use client::Durability;
use counting::Counts;
use tests::effort::{rng, rounds};
use tests::history::{Operation, Outcome, Verdict, check, porcupine, to_text};
use tests::patience::Stopping;
use town::{FaultyCluster, Tally, Troubles};

use crate::cluster_backups;
use crate::serializability::Lists;

/// Both checkers say the same of it: whether it is linearizable.
fn judge(history: &[Operation]) -> bool {
    let ours = match check(history) {
        Verdict::Linearizable => true,
        Verdict::Violated(key, operations) => {
            println!("key {key}\n{}", to_text(&operations));
            false
        }
        Verdict::Undecided(key, operations) => panic!("no verdict on key {key}\n{}", to_text(&operations)),
    };
    assert_eq!(porcupine::judge(&[history]), [ours]);
    ours
}

fn tell(history: &[Operation], tally: Tally) {
    let unknown = history.iter().filter(|operation| operation.outcome == Outcome::Unknown).count();
    println!("{} operations, {unknown} without an answer, {tally:?}", history.len());
}

#[test]
fn a_single_server_is_linearizable_over_a_path_that_loses_doubles_and_reorders() {
    let cluster = FaultyCluster::start(1);
    let (history, tally) =
        cluster.run(&mut rng(), rounds(3, 20), (Troubles::None, Durability::Synced), false);
    tell(&history, tally);
    assert!(judge(&history) && history.len() > 100);
}

#[test]
fn a_single_server_is_linearizable_over_many_crashes() {
    let cluster = FaultyCluster::start(1);
    let troubles = (Troubles::Deaths, Durability::Synced);
    let (history, tally) = cluster.run(&mut rng(), rounds(4, 150), troubles, false);
    tell(&history, tally);
    assert!(judge(&history) && history.len() > 100);
    assert!(tally.deaths > 1, "it died");
}

/// What three servers tell of tables in memory, and of synced ones, is linearizable meanwhile; passes what happened to
/// `check`.
fn three_servers_are_linearizable(troubles: Troubles, check: impl Fn(Tally)) {
    let cluster = FaultyCluster::start(3);
    let mut random = rng();
    for durability in [Durability::Memory, Durability::Synced] {
        let (history, tally) = cluster.run(&mut random, rounds(6, 150), (troubles, durability), false);
        tell(&history, tally);
        assert!(judge(&history) && history.len() > 100, "{durability:?}");
        check(tally);
    }
}

#[test]
fn three_servers_are_linearizable_while_tablets_move_and_etcd_stands_still() {
    three_servers_are_linearizable(Troubles::Moves, |tally| assert!(tally.migrations > 0, "something moved"));
}

#[test]
fn what_survives_the_death_of_the_coordinator_is_linearizable_and_on_the_disk_that_is_everything() {
    three_servers_are_linearizable(Troubles::MovesAndDeaths, |tally| assert!(tally.deaths > 0, "it died"));
}

/// With backups nothing is lost of durable tables while one server at a time is away, and each write of known outcome is done once.
#[test]
fn servers_that_die_and_stand_still_in_turns_lose_nothing_and_do_nothing_twice() {
    const COUNTING: u64 = 2;
    const APPENDING: u64 = 2;
    let servers = cluster_backups::cluster(&["one", "two", "three", "four"]);
    cluster_backups::await_replicas(&servers.servers, 2);
    let mut cluster = FaultyCluster::of_cluster(servers);
    let counts = Counts::begin(cluster.addresses(), cluster.tenant().clone(), COUNTING);
    let lists = Lists::begin(&mut cluster.client(), Durability::Synced, 4);
    cluster.moved_beside = Some(format!("{}/{}", cluster.tenant().name, Lists::TABLE));
    let (mut random, is_over) = (rng(), AtomicBool::new(false));
    thread::scope(|scope| {
        let stopping = Stopping(&is_over);
        let workers: Vec<_> = (0..COUNTING)
            .map(|number| {
                let (counts, is_over, random) = (&counts, &is_over, random.fork());
                scope.spawn(move || counts.work(number, random, is_over))
            })
            .collect();
        let appending: Vec<_> = (0..APPENDING)
            .map(|_| {
                let (lists, is_over, random, client) = (&lists, &is_over, random.fork(), cluster.client());
                scope.spawn(move || lists.work(client, random, is_over))
            })
            .collect();
        // Many short histories: the more calls of one have no answer, the longer it takes to judge it.
        for _ in 0..rounds(1, 48) {
            let durability = if random.bool() { Durability::Written } else { Durability::Synced };
            println!("{durability:?} tables");
            let troubles = (Troubles::MovesAndAbsences, durability);
            let (history, tally) = cluster.run(&mut random, rounds(20, 25), troubles, false);
            tell(&history, tally);
            assert!(judge(&history) && history.len() > 100);
            assert!(
                tally.migrations > 0 && tally.deaths > 0 && tally.standstills > 0,
                "something moved, and servers died and stood still: {tally:?}"
            );
        }
        drop(stopping);
        for worker in workers {
            counts.check(&worker.join().expect("every answer is right"));
        }
        let observed = appending.into_iter().flat_map(|worker| worker.join().expect("no panic"));
        assert_eq!(lists.check(&mut cluster.client(), &observed.collect::<Vec<_>>()), Ok(()));
    });
}

#[test]
fn clients_that_ask_another_server_too_early_are_caught() {
    let cluster = FaultyCluster::start(3);
    let mut random = rng();
    // Nearly every run catches one; on a machine that is slow there may be too few answers in it.
    let is_caught = (0..20).any(|_| {
        let (history, tally) = cluster.run(&mut random, 4, (Troubles::Moves, Durability::Memory), true);
        tell(&history, tally);
        !judge(&history)
    });
    assert!(is_caught);
}
