//! A server whose log others recover, as a model, from seeds: it dies and returns at any moment, its cuts are under way to its disk
//! and its backups, others recover its tablets from whichever backups answer, and die as well. The metadata, the coordinator's
//! steps and the rule by which a log is found are the real ones.
//!
//! A cut writes a byte to each of two segments, one for each of two tablets. So what a tablet has is a list of cuts.

mod others;
mod owner;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::metadata::{
    DecidedCut, Metadata, MetadataError, RecoveryRow, ReplicasRow, ServerRow, ServerRun,
};
use cluster::migration::MigrationPhase;
use cluster::records::LeaseId;
use cluster::secret::SecretHash;
use control::{Durability, TableOptions};
use disk::Digest;
use fastrand::Rng;
use redb::Builder;
use redb::backends::InMemoryBackend;
use store::HashRange;

use crate::durability::replicas::gathered::{Gathered, SegmentReplica};
use crate::durability::tests::seeds;

/// The server whose log it is, and its backups, which are the others.
const OWNER: u32 = 1;
const BACKUPS: [u32; 3] = [2, 3, 4];
/// The backups of a tablet's segments.
const PLACES: [[u32; 2]; 2] = [[2, 3], [3, 4]];
const REPLICAS: usize = 2;
const TURNS: u32 = 400;
/// Turns in which all is served again once nobody dies any more.
const PATIENCE: u32 = 3_000;

/// What a disk has of the log: the newest digest, and bytes of each segment.
#[derive(Clone, Debug, Default)]
struct Disk {
    digest: Option<Digest>,
    segments: BTreeMap<u32, u32>,
}

#[derive(Debug, Default)]
struct Backup {
    is_up: bool,
    digests: Vec<Digest>,
    segments: BTreeMap<u32, Vec<SegmentReplica>>,
    /// The latest start of which nothing is taken any more, until it ends.
    fenced: u64,
    /// Whether the owner has a stream to it, and how many bytes came over it of each tablet's segment.
    stream: Option<[u32; 2]>,
}

/// How far a start of the owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerStage {
    Down,
    /// It has counted its start in the metadata.
    Begun,
    /// It leaves its log to others.
    Behind,
    /// It knows how much of its log counts.
    Judged,
    /// It writes its record.
    Claimed,
    Registered,
    Serving,
}

struct Owner {
    stage: OwnerStage,
    run: ServerRun,
    lease: Option<LeaseId>,
    /// The number of the log's start, as its digests have it.
    start: u64,
    disk: Disk,
    /// Cuts of this start, and those that are settled.
    cuts: Vec<u64>,
    settled: usize,
    /// The latest cut of earlier starts.
    base: u64,
    log: u64,
}

/// What a server that recovers has found.
struct Found {
    recovery: RecoveryRow,
    gathered: Gathered,
    as_of: DecidedCut,
    is_decided: bool,
}

struct Target {
    is_up: bool,
    lease: LeaseId,
    found: Option<Found>,
}

struct World {
    random: Rng,
    seed: u64,
    metadata: Metadata,
    tablets: [HashRange; 2],
    owner: Owner,
    backups: BTreeMap<u32, Backup>,
    targets: BTreeMap<u32, Target>,
    /// The cut of each byte of a segment.
    content: BTreeMap<u32, Vec<u64>>,
    next_cut: u64,
    now_ms: u64,
    /// Settled cuts, and what tablets the owner had then.
    acknowledged: Vec<(u64, [bool; 2])>,
    /// Of each cut the tablets that the owner had.
    written: BTreeMap<u64, [bool; 2]>,
    /// What recovered tablets have.
    recovered: [Option<BTreeSet<u64>>; 2],
    /// Recovered tablets, and returns of the owner that served something.
    outcomes: (u32, u32),
}

fn segment_of(start: u64, tablet: usize) -> u32 {
    (2 * start + tablet as u64) as u32
}

fn tablet_of(segment: u32) -> usize {
    (segment % 2) as usize
}

impl World {
    fn new(seed: u64) -> Self {
        let opener = || Builder::new().create_with_backend(InMemoryBackend::new());
        let metadata = Metadata::open_with(Box::new(opener)).expect("memory");
        let ann = metadata.tenant_create("ann", SecretHash { salt: [1; 16], digest: [2; 32] }).expect("room");
        let run = ServerRun { server: OWNER, start: 0 };
        let disk = Disk::default();
        let owner = Owner {
            stage: OwnerStage::Down,
            run,
            lease: None,
            start: 0,
            disk,
            cuts: Vec::new(),
            settled: 0,
            base: 0,
            log: 0,
        };
        let backup = |server| (server, Backup { is_up: true, ..Backup::default() });
        let mut world = Self {
            random: Rng::with_seed(seed),
            seed,
            metadata,
            tablets: [(0, u64::MAX / 2), (u64::MAX / 2 + 1, u64::MAX)]
                .map(|(first, last)| HashRange::new(first, last).expect("it is one")),
            owner,
            backups: BACKUPS.into_iter().map(backup).collect(),
            targets: BTreeMap::new(),
            content: BTreeMap::new(),
            next_cut: 1,
            now_ms: 1,
            acknowledged: Vec::new(),
            written: BTreeMap::new(),
            recovered: [None, None],
            outcomes: (0, 0),
        };
        for server in BACKUPS {
            let lease = world.register(server).1;
            world.targets.insert(server, Target { is_up: true, lease, found: None });
        }
        // The owner is there from the beginning, with an empty log.
        let (run, lease) = world.register(OWNER);
        let options = TableOptions { durability: Some(Durability::Synced), ..TableOptions::default() };
        world.metadata.table_create_at(ann, "data", options, &[OWNER, OWNER]).expect("room");
        let row = world.metadata.replicas_begin(OWNER, 1, true).expect("room");
        (world.owner.run, world.owner.lease, world.owner.start, world.owner.log) =
            (run, Some(lease), 1, row.log);
        world.owner.disk.digest = Some(world.digest(0));
        world.owner.stage = OwnerStage::Registered;
        world
    }

    fn register(&mut self, server: u32) -> (ServerRun, LeaseId) {
        let tcp = ([10, 0, 0, 1], server as u16).into();
        let run = self.metadata.member_start(server, tcp, true).expect("room");
        (run, self.register_run(run).expect("nobody has the number"))
    }

    fn register_run(&mut self, run: ServerRun) -> Result<LeaseId, MetadataError> {
        let lease = self.metadata.records().lease_grant(Duration::from_hours(1)).expect("a lease").lease;
        let row = ServerRow {
            id: run.server,
            start: run.start,
            tcp: ([10, 0, 0, 1], run.server as u16).into(),
            frame_ports: vec![1],
            view: 1,
            started_ms: 1,
            version: String::new(),
            backup_host: None,
        };
        self.metadata.server_register(&row, lease).map(|()| lease)
    }

    /// Returns which of the tablets a server owns.
    fn owned(&self, server: u32) -> [bool; 2] {
        let rows = self.metadata.snapshot().expect("an answer").tablets;
        let owned: Vec<HashRange> = rows.iter().flat_map(|row| row.owned_by(server)).collect();
        self.tablets.map(|tablet| owned.iter().any(|hashes| hashes.contains(tablet.first())))
    }

    fn turn(&mut self, is_harmed: bool) {
        self.now_ms += self.random.u64(0..3_000);
        match self.random.u32(0..if is_harmed { 24 } else { 20 }) {
            0..9 => self.owner_turn(),
            9..12 => self.coordinate(),
            12..19 => self.target_turn(),
            19 => self.restart_some(),
            20 => self.owner_dies(),
            21 if self.owner.stage == OwnerStage::Serving => self.owner_loses_its_lease(),
            22 => self.backup_dies(),
            _ => {}
        }
    }

    /// Checks that what is served has all that was acknowledged, and cuts wholly or not at all.
    fn check(&self) {
        let (seed, own) = (self.seed, self.owned(OWNER));
        let served = [0, 1].map(|tablet| match own[tablet] {
            false => self.recovered[tablet].clone(),
            true if self.owner.stage == OwnerStage::Serving => {
                let settled = self.owner.settled as u32;
                let cuts =
                    self.owner.disk.segments.iter().filter(|(segment, _)| tablet_of(**segment) == tablet);
                let cuts = cuts.flat_map(|(&segment, &bytes)| {
                    let is_own = segment == segment_of(self.owner.start, tablet);
                    let bytes = if is_own { bytes.min(settled) } else { bytes };
                    self.content.get(&segment).map(|cuts| cuts[..bytes as usize].to_vec()).unwrap_or_default()
                });
                Some(cuts.collect::<BTreeSet<u64>>())
            }
            true => None,
        });
        for (tablet, served) in served.iter().enumerate() {
            let Some(served) = served else { continue };
            for (cut, had) in &self.acknowledged {
                assert!(
                    !had[tablet] || served.contains(cut),
                    "seed {seed}: cut {cut} is lost in tablet {tablet}"
                );
            }
        }
        let [Some(one), Some(other)] = &served else { return };
        // What the owner has written and not settled it neither shows nor denies.
        let held = if own == [false; 2] { &[] } else { &self.owner.cuts[self.owner.settled..] };
        for (cut, had) in self.written.iter().filter(|(cut, _)| !held.contains(cut)) {
            let is_half = *had == [true; 2] && one.contains(cut) != other.contains(cut);
            assert!(!is_half, "seed {seed}: cut {cut} is in one tablet alone: {}", one.contains(cut));
        }
    }
}

#[test]
fn what_was_acknowledged_is_served_and_cuts_are_whole_whoever_dies_while_others_recover_a_log() {
    let (mut recovered, mut returned) = (0, 0);
    for seed in seeds("recoveries", 60, 500) {
        let mut world = World::new(seed);
        (0..TURNS).for_each(|_| world.turn(true));
        for turn in 0.. {
            let own = world.owned(OWNER);
            let waits = own != [false; 2] && world.owner.stage != OwnerStage::Serving;
            if !waits && world.metadata.migrations().expect("an answer").is_empty() {
                break;
            }
            let Owner { stage, run, start, .. } = &world.owner;
            assert!(
                turn < PATIENCE,
                "seed {seed}: {stage:?} {run:?} {start} owns {own:?}: {:?}, {:?}",
                world.metadata.recovery(OWNER),
                world.metadata.migrations()
            );
            world.turn(false);
        }
        world.check();
        (recovered, returned) = (recovered + world.outcomes.0, returned + world.outcomes.1);
    }
    println!("{recovered} tablets were recovered, {returned} times the owner served its own");
}

#[test]
fn a_recovery_of_an_earlier_start_makes_nobody_an_owner() {
    let mut world = World::new(1);
    while world.owner.stage != OwnerStage::Serving {
        world.owner_turn();
    }
    world.owner_dies();
    world.now_ms += 100_000;
    while world.metadata.migrations().expect("an answer").is_empty() {
        world.coordinate();
    }
    let found = std::iter::repeat_with(|| world.find()).flatten().next().expect("enough answer");
    let found = world.decide(found).expect("nobody else decides");
    let row = world.metadata.migrations().expect("an answer").remove(0);
    let ReplicasRow { start, .. } = found.recovery.replicas;
    let other = ReplicasRow { start: start + 1, ..found.recovery.replicas.clone() };
    let row = world.metadata.migration_recovered(&row, (&other, found.as_of)).expect("it is there");
    assert_eq!(row.phase, MigrationPhase::Ended);
}
