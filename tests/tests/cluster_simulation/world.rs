//! The simulated cluster: servers, clients, the records that servers share, and the network between all of them, in virtual
//! time. Everything that happens follows from one seed.

mod backups;
mod chaos;
mod clients;
mod event;
mod following;
mod lists;
mod log;
mod losing;
mod member;
mod moving;
mod plan;
mod promising;
mod recovering;
mod starting;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cluster::metadata::{Metadata, MetadataError, ServerRun, Side};
use cluster::migration::SlotAdmission;
use cluster::moment::Moment;
use cluster::records::Revision;
use db::durability::replicas::divided::DividedLog;
use fastrand::Rng;
use net::Batch;
use tests::history::Operation;

use backups::Stream;
use chaos::is_running;
pub use event::Event;
use lists::Lists;
use log::{Durable, Log};
use member::Member;
pub use plan::{Plan, Tally};
use recovering::Recovering;

use crate::caller::{Caller, Reads};
use crate::memory_records::{Fault as Failing, MemoryRecords};
use crate::mover::Moving;
use crate::node::{Node, TABLE};

/// By how much faster leases are counted than everything else: their three seconds are 120 ms here.
pub const LEASES_PACE: u64 = 25;

/// How often it is looked whether all is quiet.
const QUIET_LOOK_US: u64 = 1_000;

/// A server, or what is known of one that is dead.
pub struct Place {
    pub run: ServerRun,
    pub node: Option<Node>,
    pub movings: BTreeMap<u32, Moving>,
    /// Slots for them, as a source and as a target.
    pub admissions: [SlotAdmission; 2],
    pub member: Member,
    /// The commit that it has followed the records to.
    pub followed: Revision,
    /// The commit at which there was nothing more to do for it.
    settled: Revision,
    /// Of a server with a log.
    durable: Option<Durable>,
    /// Of one that is dead: whether its host says so.
    is_refusing: bool,
    /// Until then its processor gives it no time.
    frozen_until_us: u64,
}

impl Place {
    /// Whether nothing of its log is on its way.
    fn is_log_quiet(&self) -> bool {
        self.durable.as_ref().is_none_or(|durable| {
            durable.log.as_ref().is_some_and(Log::has_settled)
                && durable.recoveries.values().all(Recovering::is_over)
        })
    }

    fn describe_log(&self) -> Option<String> {
        let durable = self.durable.as_ref()?;
        let recovers = durable.recoveries.values().filter(|recovering| !recovering.is_over()).count();
        let log = durable.log.as_ref().map(Log::describe);
        Some(format!("{:?}: lives {}, {log:?}, recovers {recovers}", self.run, self.node.is_some()))
    }
}

/// See the file's head.
pub struct World {
    pub plan: Plan,
    pub random: Rng,
    pub now_us: u64,
    clock: Arc<AtomicU64>,
    /// When servers begin to be missed.
    began: Instant,
    events: BTreeMap<(u64, u64), Event>,
    thought_of: u64,
    pub records: Arc<MemoryRecords>,
    /// How the records fail now.
    pub failing: Failing,
    pub metadata: Metadata,
    pub table: u32,
    pub places: BTreeMap<u32, Place>,
    /// Streams of logs to backups.
    streams: BTreeMap<u64, Stream>,
    /// Logs that somebody recovers, by their numbers.
    divided: BTreeMap<u64, Weak<DividedLog>>,
    next_stream: u64,
    /// How many servers may die at present, and what has to be on the disks before more may, if tables are written.
    deaths_left: usize,
    to_be_stable: Option<BTreeMap<ServerRun, u64>>,
    /// Who coordinated last.
    coordinator: Option<ServerRun>,
    /// Where in the history it is said what was lost with a migration.
    losses: BTreeMap<u32, (Side, Range<usize>)>,
    pub callers: Vec<Caller>,
    pub keys: Vec<Vec<u8>>,
    pub history: Vec<Operation>,
    lists: Lists,
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

/// The time by which leases are counted.
fn lease_moment(now_us: u64) -> Moment {
    Moment::after_boot(Duration::from_micros(LEASES_PACE * now_us))
}

pub fn server_address(server: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, (server >> 8) as u8, server as u8)), 7000)
}

pub fn client_address(client: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, (client >> 8) as u8, client as u8)), 7000)
}

impl World {
    /// A cluster of this seed, whose servers have just been started.
    pub fn new(seed: u64, plan: Plan) -> World {
        let random = Rng::with_seed(seed);
        let clock = Arc::new(AtomicU64::new(0));
        let (began, shown) = (Instant::now(), Arc::clone(&clock));
        let now = move || lease_moment(shown.load(Ordering::Relaxed));
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
            streams: BTreeMap::new(),
            divided: BTreeMap::new(),
            next_stream: 1,
            deaths_left: 0,
            to_be_stable: None,
            coordinator: None,
            losses: BTreeMap::new(),
            callers: Vec::new(),
            keys,
            history: Vec::new(),
            lists: Lists::new(plan.lists),
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
            caller.sides.is_credulous = world.plan.credulous;
            caller.sides.patience_us = world.plan.patience_us;
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
    pub fn lease_now(&self) -> Moment {
        lease_moment(self.now_us)
    }

    /// The time of day in milliseconds, as fast as that of leases.
    pub fn wall_ms(&self) -> u64 {
        1 + self.now_us * LEASES_PACE / 1000
    }

    /// The time by which servers are missed.
    pub fn presence_now(&self) -> Instant {
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
        let patience_us =
            self.plan.active_us + if self.plan.durability.is_on_disk() { 20_000_000 } else { 60_000_000 };
        let (mut last_reads, mut look_us) = (false, 0);
        while let Some(((time_us, _), event)) = self.events.pop_first() {
            assert!(time_us < patience_us, "it comes to an end:\n{}", self.describe());
            self.now_us = time_us;
            self.clock.store(time_us, Ordering::Relaxed);
            self.tally.events += 1;
            self.happen(event);
            if self.now_us < look_us || self.is_active() {
                continue;
            }
            look_us = self.now_us + QUIET_LOOK_US;
            if self.callers.iter().all(Caller::is_idle) && self.is_quiet() {
                if last_reads {
                    break;
                }
                last_reads = self.read_more();
            }
        }
        self.tally.reads = self.callers.iter().fold(Reads::default(), |mut sum, caller| {
            sum += caller.sides.counts;
            sum
        });
    }

    pub fn note(&mut self, what: u64) {
        let mixed = (self.digest ^ what ^ self.now_us).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.digest = mixed ^ (mixed >> 29);
    }

    fn is_quiet(&self) -> bool {
        self.places.values().all(|place| {
            place.movings.values().all(|moving| moving.is_over())
                && place.node.as_ref().is_some_and(|node| !node.is_changing() && !node.holds())
                && place.is_log_quiet()
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
        let logs: Vec<String> = self.places.values().filter_map(Place::describe_log).collect();
        format!(
            "{:?}\n{rows:#?}\n{busy} clients wait, {open:?}, owned as recorded: {is_owned}\n{}\n{:?}",
            self.plan,
            logs.join("\n"),
            self.tally
        )
    }
}
