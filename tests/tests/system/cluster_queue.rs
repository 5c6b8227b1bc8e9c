//! More moves at a time than servers have slots for, over real servers and a real etcd: all come to an end, those that wait
//! can be aborted and say what they wait for, and a server that has some of them stops when it is told to.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use client::{
    Durability, MigrationEntry, MigrationMode, MigrationPhase, MigrationProgress, MigrationWait,
    PlanProgress, Status, TableOptions, TabletEntry,
};
use tests::cluster::Cluster;
use tests::patience::{answered, comes};
use tests::server::{Server, Settings};

const TABLE: &str = "acme/data";

/// Servers with a table of empty tablets, which each owns as many of.
struct QueueCluster {
    cluster: Cluster,
    /// Of the servers, in the order in which they were started.
    numbers: Vec<u32>,
}

impl QueueCluster {
    fn start(servers: usize, tablets: u16) -> Self {
        let settings = Settings { memory: "128MiB".into(), ..Settings::default() };
        let cluster = Cluster::start(servers, &settings);
        let numbers = cluster.numbers();
        let acme = cluster.servers[0].tenant("acme");
        let mut client = cluster.servers[0].client(&acme);
        let options = TableOptions { durability: Some(Durability::Memory), ..TableOptions::default() };
        answered("the table", || match client.table_create_spread("data", options, tablets) {
            Err(error) if error.status() == Some(Status::AlreadyExists) => Ok(()),
            made => made.map(drop),
        });
        Self { cluster, numbers }
    }

    fn server(&self, index: usize) -> &Server {
        &self.cluster.servers[index]
    }

    fn tablets(&self) -> Vec<TabletEntry> {
        answered("the tablets", || self.server(0).admin().tablet_list())
    }

    fn tablets_of(&self, index: usize) -> Vec<TabletEntry> {
        let number = self.numbers[index];
        self.tablets().into_iter().filter(|tablet| tablet.server == number).collect()
    }

    fn migrations(&self, asked: usize) -> Vec<MigrationEntry> {
        answered("the migrations", || self.server(asked).admin().migration_list())
    }

    /// Asks a server to move a tablet.
    fn ask(&self, asked: usize, tablet: &TabletEntry, to: usize) -> MigrationEntry {
        let (hashes, target) = (tablet.first..=tablet.last, self.numbers[to]);
        let mut admin = self.server(asked).admin();
        comes("a move is accepted", || {
            admin.migration_begin(TABLE, hashes.clone(), target, MigrationMode::Cooperative).ok()
        })
    }

    /// Asks for moves of all tablets, half of them to the next server and half of them to the one behind that, at once; gives
    /// the server that each is to end at.
    fn ask_for_all(&self) -> BTreeMap<u64, u32> {
        let (tablets, servers) = (self.tablets(), self.numbers.len());
        let place = |tablet: &TabletEntry| self.numbers.iter().position(|it| *it == tablet.server).unwrap();
        let goal = |index: usize| (place(&tablets[index]) + 1 + index / servers % 2) % servers;
        thread::scope(|scope| {
            for asked in 0..servers {
                let tablets = &tablets;
                let own = (asked..tablets.len()).step_by(servers);
                scope
                    .spawn(move || own.for_each(|index| drop(self.ask(asked, &tablets[index], goal(index)))));
            }
        });
        let goals = tablets.iter().enumerate();
        goals.map(|(index, tablet)| (tablet.first, self.numbers[goal(index)])).collect()
    }

    /// What a server says that a move waits for, and how many get a slot before it; `None` where it knows of no such move.
    fn awaited(&self, asked: usize, id: u32) -> Option<(MigrationWait, u32)> {
        let all = answered("the progress", || self.server(asked).admin().migration_progress());
        let found = all.into_iter().find(|progress| !progress.is_over && progress.migration.id == id)?;
        Some((found.awaited, found.ahead))
    }

    fn phase(&self, asked: usize, id: u32) -> Option<MigrationPhase> {
        self.migrations(asked).into_iter().find(|entry| entry.id == id).map(|entry| entry.phase)
    }

    fn abort(&self, asked: usize, id: u32) {
        answered("the abort", || self.server(asked).admin().migration_abort(id));
    }

    /// Waits until nothing moves any more.
    fn settle(&self) {
        comes("the end of all moves", || self.migrations(0).is_empty().then_some(()));
    }
}

#[test]
fn twelve_moves_of_empty_ranges_from_one_server_to_another_all_end() {
    let cluster = QueueCluster::start(2, 24);
    let own = cluster.tablets_of(0);
    assert_eq!(own.len(), 12);
    thread::scope(|scope| {
        for tablet in &own {
            scope.spawn(|| cluster.ask(0, tablet, 1));
        }
    });
    cluster.settle();
    assert_eq!(cluster.tablets_of(1).len(), 24);
}

#[test]
fn a_hundred_moves_in_both_directions_among_three_servers_all_end() {
    let cluster = QueueCluster::start(3, 102);
    let goals = cluster.ask_for_all();
    cluster.settle();
    let owners: BTreeMap<u64, u32> =
        cluster.tablets().iter().map(|tablet| (tablet.first, tablet.server)).collect();
    assert_eq!(owners, goals);
}

#[test]
fn servers_end_when_they_are_told_to_while_moves_wait() {
    let mut cluster = QueueCluster::start(3, 60);
    cluster.ask_for_all();
    for server in &mut cluster.cluster.servers {
        assert!(server.stop().success());
    }
}

#[test]
fn moves_that_wait_end_when_one_of_their_servers_dies_and_returns() {
    let mut cluster = QueueCluster::start(3, 60);
    cluster.ask_for_all();
    cluster.cluster.servers[2].kill();
    cluster.cluster.servers[2].restart();
    cluster.settle();
}

#[test]
fn a_drain_is_done_behind_moves_that_were_asked_for_before() {
    let cluster = QueueCluster::start(3, 30);
    cluster.ask_for_all();
    let plan = comes("a drain", || cluster.server(1).admin().cluster_drain(cluster.numbers[2]).ok());
    let end = comes("the end of the drain", || {
        let plans = cluster.server(0).admin().cluster_status().ok()?.plans;
        let progress = plans.iter().find(|other| other.id == plan.id)?.progress;
        (progress != PlanProgress::Running).then_some(progress)
    });
    assert_eq!(end, PlanProgress::Done);
    assert!(cluster.tablets_of(2).is_empty());
}

#[test]
fn a_move_that_waits_at_its_target_says_so_and_can_be_aborted() {
    let cluster = QueueCluster::start(2, 8);
    let own = cluster.tablets_of(0);
    // Nobody answers the target: two moves have its slots, and others wait for one.
    cluster.server(0).pause(true);
    let moves: Vec<u32> = own.iter().map(|tablet| cluster.ask(1, tablet, 1).id).collect();
    for (index, id) in moves.iter().enumerate() {
        let expected = match index {
            0 | 1 => (MigrationWait::Peer, 0),
            behind => (MigrationWait::Slot, behind as u32 - 2),
        };
        comes("what a move waits for", || cluster.awaited(1, *id).filter(|it| *it == expected));
    }
    cluster.abort(1, moves[2]);
    comes("the end of a move that waited", || {
        (cluster.phase(1, moves[2]) == Some(MigrationPhase::Ended)).then_some(())
    });
    assert_eq!(cluster.phase(1, moves[0]), Some(MigrationPhase::Preparing));
    comes("the next is the one behind it", || {
        (cluster.awaited(1, moves[3]) == Some((MigrationWait::Slot, 0))).then_some(())
    });
    let refused = cluster.server(1).admin().tablet_merge(TABLE, own[2].first).unwrap_err();
    assert_eq!(refused.status(), Some(Status::WrongTablets), "a neighbour waits to be moved");
    cluster.server(0).pause(false);
    cluster.settle();
    let left: Vec<u64> = cluster.tablets_of(0).iter().map(|tablet| tablet.first).collect();
    assert_eq!(left, [own[2].first]);
}

#[test]
fn a_move_that_waits_at_its_source_says_so_and_can_be_aborted_and_the_server_ends_with_others() {
    let mut cluster = QueueCluster::start(3, 400);
    let own = cluster.tablets_of(0);
    let mut next = own.iter();
    let mut admin = cluster.server(0).admin();
    // The slots of the source, held by moves whose target does not go on.
    let held = comes("two moves in the middle", || {
        let held = [(); 2].map(|()| cluster.ask(0, next.next().expect("some are left"), 1).id);
        // By one connection and without a rest: they have slots for some milliseconds.
        let has_slot = |progress: &&MigrationProgress| {
            let is_waiting = matches!(progress.awaited, MigrationWait::Slot | MigrationWait::Peer);
            held.contains(&progress.migration.id) && !progress.is_over && !is_waiting
        };
        let until = Instant::now() + Duration::from_millis(500);
        let mut both_have = || {
            let all = answered("the progress", || admin.migration_progress());
            all.iter().filter(has_slot).count() == held.len()
        };
        while !both_have() && Instant::now() < until {}
        cluster.server(1).pause(true);
        // Both are there and have slots, or it was too late or too early.
        let has_slot = |id| {
            let awaited = cluster.awaited(0, id).map(|(awaited, _)| awaited);
            awaited.is_some_and(|it| !matches!(it, MigrationWait::Slot | MigrationWait::Peer))
        };
        let is_held =
            held.iter().all(|id| has_slot(*id) && cluster.phase(0, *id) == Some(MigrationPhase::Preparing));
        if !is_held {
            cluster.server(1).pause(false);
            cluster.settle();
        }
        is_held.then_some(held)
    });
    let moves = [(); 3].map(|()| cluster.ask(0, next.next().expect("some are left"), 2));
    let slot = |ahead| Some((MigrationWait::Slot, ahead));
    for (asked, index, expected) in [(0, 0, 0), (0, 1, 1), (2, 2, 0)] {
        comes("a move that waits", || {
            (cluster.awaited(asked, moves[index].id) == slot(expected)).then_some(())
        });
    }
    cluster.abort(0, moves[0].id);
    comes("the end of a move that waited", || {
        cluster.phase(0, moves[0].id).is_none_or(|it| it == MigrationPhase::Ended).then_some(())
    });
    comes("the third waits at its source", || (cluster.awaited(0, moves[2].id) == slot(1)).then_some(()));
    assert_eq!(cluster.phase(0, held[0]), Some(MigrationPhase::Preparing));
    assert!(cluster.tablets_of(0).iter().any(|tablet| tablet.first == moves[0].first));
    assert!(cluster.cluster.servers[0].stop().success());
    cluster.server(1).pause(false);
}
