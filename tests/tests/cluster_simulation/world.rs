//! The simulated cluster: servers, clients, the records that servers share, and the network between all of them, in virtual
//! time. Everything that happens follows from one seed.

mod chaos;
mod clients;
mod following;
mod losing;
mod member;
mod moving;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{AddAssign, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use db::cluster::metadata::{Metadata, MetadataError, ServerRun, Side};
use db::cluster::migration::Standing;
use db::cluster::records::{LeaseId, Revision};
use fastrand::Rng;
use net::Batch;
use tests::history::Operation;
use wire::Body;

use member::Member;

use chaos::is_running;

use crate::caller::Caller;
use crate::memory_records::{Fault as Failing, MemoryRecords};
use crate::mover::{Action as Moved, End, Fault, Moving};
use crate::node::{Node, TABLE};

/// By how much faster leases are counted than everything else: their ten seconds are 400 ms here.
const LEASES_PACE: u64 = 25;

/// What a simulated run has and does.
#[derive(Clone, Debug)]
pub struct Plan {
    pub servers: u32,
    pub workers: usize,
    pub clients: u32,
    pub keys: u64,
    /// Tablets of the table at first.
    pub tablets: usize,
    /// Objects beside those of the clients, so that a move takes several pulls.
    pub fill_objects: u64,
    /// For how long clients and operators are active.
    pub active_us: u64,
    pub loss_percent: u8,
    /// Mean time between two acts of the operator.
    pub act_every_us: u64,
    pub crashes: bool,
    pub outages: bool,
    /// The records do not answer a single server for a while.
    pub cut_offs: bool,
    /// Servers are drained, and all of them balanced.
    pub plans: bool,
    /// What is wrong on purpose.
    pub fault: Fault,
    /// Clients make requests elsewhere too early.
    pub hasty: bool,
}

/// What is about to happen.
pub enum Event {
    Frame {
        to: SocketAddr,
        from: SocketAddr,
        bytes: Vec<u8>,
    },
    Pass {
        run: ServerRun,
        worker: usize,
    },
    Follow(ServerRun),
    Act {
        run: ServerRun,
        id: u32,
        action: Moved,
    },
    Said {
        run: ServerRun,
        id: u32,
        end: End,
    },
    Message {
        run: ServerRun,
        id: u32,
        bytes: Vec<u8>,
    },
    Tick(ServerRun),
    Caller(u32),
    Begin(u32),
    Open {
        client: u32,
        server: u32,
    },
    Opened {
        client: u32,
        server: u32,
        token: u64,
        view: u64,
    },
    NotOpened(u32),
    Map {
        client: u32,
        server: u32,
    },
    MapTold {
        client: u32,
        server: u32,
        map: Option<Vec<u8>>,
    },
    Operator,
    /// A server says that it is there.
    Keep(ServerRun),
    /// A server looks who is there, and what is to be done about it.
    Look(ServerRun),
    /// What the records said to a machine, and under which lease they were read.
    Looked {
        run: ServerRun,
        id: u32,
        standing: Standing,
        lease: Option<LeaseId>,
    },
    CutOff(u32, bool),
    Return(u32),
    Outage(bool),
}

/// A server, or what is known of one that is dead.
pub struct Place {
    pub run: ServerRun,
    pub node: Option<Node>,
    pub movings: BTreeMap<u32, Moving>,
    pub member: Member,
    /// The commit that it has followed the records to.
    pub followed: Revision,
}

/// What has happened, to be told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub migrations: u64,
    pub aborts: u64,
    pub splits: u64,
    pub merges: u64,
    pub crashes: u64,
    pub outages: u64,
    pub cut_offs: u64,
    /// Migrations that ended because somebody was gone.
    pub taken: u64,
    pub plans: u64,
    /// Steps that coordinators have taken.
    pub steps: u64,
    pub frames: u64,
    pub events: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.migrations += other.migrations;
        self.aborts += other.aborts;
        self.splits += other.splits;
        self.merges += other.merges;
        self.crashes += other.crashes;
        self.outages += other.outages;
        self.cut_offs += other.cut_offs;
        self.taken += other.taken;
        self.plans += other.plans;
        self.steps += other.steps;
        self.frames += other.frames;
        self.events += other.events;
    }
}

/// See the file's head.
pub struct World {
    pub plan: Plan,
    pub random: Rng,
    pub now_us: u64,
    clock: Arc<AtomicU64>,
    /// When leases begin to be counted.
    began: Instant,
    events: BTreeMap<(u64, u64), Event>,
    thought_of: u64,
    pub records: Arc<MemoryRecords>,
    /// How the records fail now.
    pub failing: Failing,
    pub metadata: Metadata,
    pub table: u32,
    pub places: BTreeMap<u32, Place>,
    /// Where in the history it is said what was lost with a migration.
    losses: BTreeMap<u32, (Side, Range<usize>)>,
    pub callers: Vec<Caller>,
    pub keys: Vec<Vec<u8>>,
    pub history: Vec<Operation>,
    pub next_token: u64,
    next_value: i64,
    /// For how long values are there that were put for a while, in microseconds.
    ttls_us: BTreeMap<i64, u64>,
    /// The next key that is read in the end.
    pub next_read: u64,
    batch: Batch,
    pub tally: Tally,
    /// Of everything that has happened.
    pub digest: u64,
}

pub fn server_address(server: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, (server >> 8) as u8, server as u8)), 7000)
}

pub fn client_address(client: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, (client >> 8) as u8, client as u8)), 7000)
}

/// Whether it is a server's, and its number.
fn number_of(address: SocketAddr) -> (bool, u32) {
    match address.ip() {
        IpAddr::V4(ip) => {
            let [_, kind, high, low] = ip.octets();
            (kind == 0, u32::from(high) << 8 | u32::from(low))
        }
        IpAddr::V6(_) => unreachable!("all addresses here are short"),
    }
}

impl World {
    /// A cluster of this seed, whose servers have just been started.
    pub fn new(seed: u64, plan: Plan) -> World {
        let random = Rng::with_seed(seed);
        let clock = Arc::new(AtomicU64::new(0));
        let (began, shown) = (Instant::now(), Arc::clone(&clock));
        let now = move || began + Duration::from_micros(LEASES_PACE * shown.load(Ordering::Relaxed));
        let records = Arc::new(MemoryRecords::new(Box::new(now)));
        let metadata = Metadata::over(Box::new(Arc::clone(&records))).expect("empty records");
        let mut callers: Vec<Caller> = Vec::new();
        let keys = (0..plan.keys).map(|key| format!("key {key}").into_bytes()).collect();
        let mut world = World {
            random,
            now_us: 0,
            clock,
            began,
            events: BTreeMap::new(),
            thought_of: 0,
            records,
            failing: Failing::None,
            metadata,
            table: 0,
            places: BTreeMap::new(),
            losses: BTreeMap::new(),
            callers: Vec::new(),
            keys,
            history: Vec::new(),
            next_token: 1,
            next_value: 1,
            ttls_us: BTreeMap::new(),
            next_read: 0,
            batch: Batch::new(),
            tally: Tally::default(),
            digest: 0,
            plan,
        };
        for number in 0..world.plan.clients {
            let timeout_us = world.random.u64(200_000..3_000_000);
            let mut caller = Caller::new(TABLE, timeout_us);
            caller.is_hasty = world.plan.hasty;
            callers.push(caller);
            let at_us = world.random.u64(0..50_000);
            world.at(at_us, Event::Begin(number));
        }
        world.callers = callers;
        world.boot_cluster();
        world
    }

    pub fn at(&mut self, time_us: u64, event: Event) {
        self.thought_of += 1;
        self.events.insert((time_us.max(self.now_us), self.thought_of), event);
    }

    /// The time by which leases are counted.
    pub fn lease_now(&self) -> Instant {
        self.began + Duration::from_micros(LEASES_PACE * self.now_us)
    }

    /// Asks the records, whether they answer others or not.
    pub fn ask<T>(&self, ask: impl FnOnce(&Metadata) -> Result<T, MetadataError>) -> T {
        self.records.fail(Failing::None);
        let answer = ask(&self.metadata).expect("records answer");
        self.records.fail(self.failing);
        answer
    }

    /// Within so many microseconds.
    pub fn within(&mut self, most_us: u64, event: Event) {
        let time_us = self.now_us + self.random.u64(1..most_us);
        self.at(time_us, event);
    }

    pub fn is_active(&self) -> bool {
        self.now_us < self.plan.active_us
    }

    /// What a network does to what is sent: when it arrives, as often as it does.
    pub fn travel(&mut self) -> Vec<u64> {
        let copies = if self.random.u8(0..12) == 0 { 2 } else { 1 };
        let loss = if self.is_active() { self.plan.loss_percent } else { 0 };
        let mut due = Vec::new();
        for _ in 0..copies {
            if self.random.u8(0..100) >= loss {
                let delay_us = match self.random.u8(0..40) {
                    0 => self.random.u64(1_000..400_000),
                    1..=5 => self.random.u64(500..10_000),
                    _ => self.random.u64(50..500),
                };
                due.push(self.now_us + delay_us);
            }
        }
        due
    }

    pub fn send_frame(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        for due_us in self.travel() {
            self.at(due_us, Event::Frame { to, from, bytes: bytes.to_vec() });
        }
    }

    /// Lets everything happen, until it is quiet.
    ///
    /// # Panics
    /// When it does not get quiet.
    pub fn run(&mut self) {
        let patience_us = self.plan.active_us + 60_000_000;
        let mut last_reads = false;
        while let Some(((time_us, _), event)) = self.events.pop_first() {
            assert!(time_us < patience_us, "it comes to an end:\n{}", self.describe());
            self.now_us = time_us;
            self.clock.store(time_us, Ordering::Relaxed);
            self.tally.events += 1;
            self.happen(event);
            if !self.is_active() && self.callers.iter().all(Caller::is_idle) && self.is_quiet() {
                if last_reads {
                    break;
                }
                last_reads = self.read_more();
            }
        }
    }

    fn note(&mut self, what: u64) {
        let mixed = (self.digest ^ what ^ self.now_us).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.digest = mixed ^ (mixed >> 29);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Frame { to, from, bytes } => self.arrive(to, from, &bytes),
            Event::Pass { run, worker } => self.pass(run, worker),
            Event::Follow(run) => self.follow(run),
            Event::Act { run, id, action } => self.act(run, id, action),
            Event::Said { run, id, end } => self.said(run, id, end),
            Event::Message { run, id, bytes } => self.message(run, id, &bytes),
            Event::Tick(run) => self.tick(run),
            Event::Caller(client) => self.drive(client, |_, _, _| {}),
            Event::Begin(client) => self.begin_operation(client),
            Event::Open { client, server } => self.open(client, server),
            Event::Opened { client, server, token, view } => {
                self.drive(client, |caller, _, _| caller.opened(server, token, view));
            }
            Event::NotOpened(client) => self.drive(client, |caller, now_us, _| caller.not_opened(now_us)),
            Event::Map { client, server } => {
                let node = self.places.get(&server).and_then(|place| place.node.as_ref());
                let map = node.map(|node| node.map().encode());
                self.within(5_000, Event::MapTold { client, server, map });
            }
            Event::MapTold { client, server, map } => {
                self.drive(client, |caller, now_us, wishes| caller.hear_map(now_us, server, map, wishes));
            }
            Event::Operator => self.operate(),
            Event::Keep(run) => self.keep(run),
            Event::Look(run) => self.look(run),
            Event::Looked { run, id, standing, lease } => self.looked(run, id, standing, lease),
            Event::CutOff(server, begins) => self.places[&server].member.cut_off(begins),
            Event::Return(server) => self.come_back(server),
            Event::Outage(begins) => self.outage(begins),
        }
    }

    fn arrive(&mut self, to: SocketAddr, from: SocketAddr, bytes: &[u8]) {
        self.tally.frames += 1;
        let (is_server, number) = number_of(to);
        self.note(u64::from(number) << 32 | bytes.len() as u64);
        if !is_server {
            let (_, server) = number_of(from);
            return self.drive(number, |caller, now_us, wishes| caller.hear(now_us, server, bytes, wishes));
        }
        let workers = self.plan.workers;
        let worker = if self.random.bool() { 0 } else { self.random.usize(0..workers) };
        self.round(number, worker, Some((bytes, from)));
    }

    /// A round of a worker.
    pub fn round(&mut self, server: u32, worker: usize, frame: Option<(&[u8], SocketAddr)>) {
        let now_us = self.now_us;
        let Some(node) = self.places.get_mut(&server).and_then(|place| place.node.as_mut()) else { return };
        for (answer, peer) in node.serve((now_us, worker), frame, &mut self.batch) {
            self.send_frame(server_address(server), peer, &answer);
        }
    }

    fn is_quiet(&self) -> bool {
        self.places.values().all(|place| {
            place.movings.values().all(|moving| moving.is_over())
                && place.node.as_ref().is_some_and(|node| !node.is_changing())
        }) && self.metadata.migrations().is_ok_and(|rows| rows.is_empty())
            && self.metadata.plans().is_ok_and(|plans| plans.iter().all(|plan| !is_running(plan)))
            && self.is_owned_as_recorded()
    }

    fn describe(&self) -> String {
        let rows = self.metadata.migrations();
        let busy = self.callers.iter().filter(|caller| !caller.is_idle()).count();
        let open: Vec<_> = self
            .places
            .values()
            .flat_map(|place| place.movings.values().map(move |moving| (place.run, moving)))
            .filter(|(_, moving)| !moving.is_over())
            .map(|(run, moving)| (run, moving.id, moving.doing.clone()))
            .collect();
        let is_owned = self.is_owned_as_recorded();
        format!(
            "{:?}\n{rows:#?}\n{busy} clients wait, {open:?}, owned as recorded: {is_owned}\n{:?}",
            self.plan, self.tally
        )
    }
}
