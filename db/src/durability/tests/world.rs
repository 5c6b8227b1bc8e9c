//! A store with its log on a simulated disk, and the model of what clients know.

mod archives;
mod backups;
mod directories;
mod full_disk;
mod receipts;
mod rest;
mod rot;
mod starts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{Disk, FrameId, SimulatedDisk};
use fastrand::Rng;
use store::{AwaitedCuts, CompletionReply, Condition, Config, NEVER_MS, RequestId, Write, WriteError};

use self::backups::{Backups, Decided};
use super::super::LogLayout;
use super::super::log_writer::{Step, frames_reserved};
use super::SMALL;
use super::model::{Fact, Model, UNANSWERED};
use super::running::{CORES, Completions, Held, KEYS_MAX, Key, Running, SYNCED, Seen, TABLES};

/// A server, its disk and its clients.
pub(super) struct World {
    pub(super) disk: SimulatedDisk,
    /// Writes that the store refused because the disk was full.
    pub(super) refused: u64,
    running: Option<Running>,
    config: Config,
    frames_max: u32,
    model: Model,
    /// The model as of the last stable cut, and as of the latest one that was begun.
    stable: Model,
    begun: Model,
    facts: Vec<Fact>,
    /// The last cuts that were reached.
    told_to: AwaitedCuts,
    /// The model as of each cut that went to backups and is not stable, and whether the disk did not have it; the first one that
    /// was received is behind this one, unless a backup has lost its memory since.
    sent: BTreeMap<u64, Model>,
    trusted_after: u64,
    /// What clients were told of written tables once backups had it; and how often that was looked for.
    received_facts: Vec<Fact>,
    pub(super) received_often: u32,
    /// For each core's client, the lowest sequence without an acknowledgement.
    acknowledged: [Arc<AtomicU64>; CORES],
    keys: u64,
    /// Whether requests ask for the disk.
    asks: bool,
    /// The completion records of the last start.
    found: Completions,
    /// What clients saw while the log was replayed: at the last start, and how often at all.
    seen: Vec<Seen>,
    pub(super) seen_often: usize,
    /// Directories that starts have found.
    pub(super) directories: usize,
    /// The latest time of the clock of any start: what had expired by then may be gone.
    latest_ms: u64,
    /// The latest archive of each table.
    archives: BTreeMap<u32, Vec<u8>>,
    backups: Option<Backups>,
    /// The log as its backups had it at the last crash: what its next start takes of its own.
    decided: Option<Decided>,
    /// Starts, and those that kept to what was decided, or had less of the log.
    starts: u64,
    pub(super) kept_to_decided: (u32, u32),
}

/// Numbers of segments that a start with backups passes over: more than the memory has.
const PASSED_OVER: u32 = 1_000;

/// Turns of a rest before a crash.
const REST_TURNS: u32 = 200;

impl World {
    pub(super) fn new(random: &mut Rng) -> World {
        Self::with_disk(random, |_, _| 4_000)
    }

    pub(super) fn with_small_disk(random: &mut Rng) -> World {
        // Of the memory, half fits besides what is kept.
        Self::with_disk(random, |memory_bytes, frame_bytes| {
            let kept =
                frames_reserved(CORES, 0).1 + 2 * LogLayout::of(frame_bytes, 400).digest_frames as usize;
            (kept + memory_bytes / 2 / frame_bytes) as u32
        })
    }

    fn with_disk(random: &mut Rng, frames_max: impl Fn(usize, usize) -> u32) -> World {
        let segment_bytes = 16384 << random.u32(0..2);
        let memory_bytes = segment_bytes * random.usize(9..20);
        let config = Config { memory_bytes, segment_bytes, cores: CORES, ..SMALL };
        let frame_bytes = LogLayout::frame_bytes_of(segment_bytes);
        let frames_max = frames_max(memory_bytes, frame_bytes);
        let disk = SimulatedDisk::new(random.u64(..), frame_bytes, frames_max);
        let running = Running::open(&config, &disk, frames_max, 0, random).expect("an empty disk").running;
        let acknowledged: [Arc<AtomicU64>; CORES] = Default::default();
        keep_unanswered(&running, &acknowledged);
        let keys = random.u64(20..KEYS_MAX.min(memory_bytes as u64 / 400));
        let (model, stable, begun, facts) = Default::default();
        World {
            disk,
            refused: 0,
            running: Some(running),
            config,
            frames_max,
            model,
            stable,
            begun,
            facts,
            told_to: AwaitedCuts::default(),
            sent: BTreeMap::new(),
            trusted_after: 0,
            received_facts: Vec::new(),
            received_often: 0,
            acknowledged,
            keys,
            asks: false,
            found: Completions::new(),
            seen: Vec::new(),
            seen_often: 0,
            directories: 0,
            latest_ms: 0,
            archives: BTreeMap::new(),
            backups: None,
            decided: None,
            starts: 1,
            kept_to_decided: (0, 0),
        }
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("it runs")
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.disk.frame_bytes()
    }

    /// Returns the frames of segments of which the disk knows how far they reach.
    pub(super) fn frames_of_fixed_segments(&mut self) -> Vec<FrameId> {
        self.running().writer.frames_of_fixed()
    }

    /// Takes turns until the disk has crashed or failed, or so many have passed: then it crashes, after a rest if there were
    /// any.
    pub(super) fn run_until_crash(&mut self, random: &mut Rng, turns: u32) {
        let rest = if turns == 0 { 0 } else { REST_TURNS };
        for turn in 0..turns + rest {
            if turn < turns {
                self.turn(random)
            } else {
                self.rest(random)
            }
            if self.running.is_none() {
                return;
            }
        }
        if self.backups.is_some() {
            self.write_ahead(random);
        }
        self.disk.crash();
        self.running = None;
    }

    pub(super) fn turn(&mut self, random: &mut Rng) {
        let core = random.usize(..CORES);
        self.asks = random.bool();
        match random.u32(0..100) {
            0..35 => self.put(random, core),
            35..50 => self.delete(random, core),
            50..58 => self.commit(random, core),
            58..66 => self.increment(random, core),
            66..82 => self.read(random, core),
            82..83 => self.restore(random, core),
            83..92 => {
                let running = self.running();
                (0..random.u32(1..20)).for_each(|_| _ = running.cores[core].step());
            }
            92..95 => self.sync(),
            95..99 => self.send_ahead(random),
            _ => self.pass_time(random),
        }
    }

    /// Lets the log's thread take a step; with backups, perhaps until they have what it wrote.
    pub(super) fn sync(&mut self) {
        if let Some(backups) = &mut self.backups {
            (0..3).for_each(|_| _ = backups.turn());
        }
        loop {
            if !self.running().writer.is_waiting() {
                self.begun = self.model.clone();
                self.note_sent();
            }
            let step = self.running().writer.step();
            self.note_received();
            match step {
                Ok(Step::Written | Step::Idle) => {
                    self.stable = self.begun.clone();
                    self.told_to.stable = self.running().store.stable_cut();
                    let stable = self.told_to.stable;
                    self.sent.retain(|cut, _| *cut > stable);
                }
                Ok(Step::Full) => {}
                Ok(Step::Waiting) if self.backups.as_mut().expect("it waits for them").turn() => continue,
                Ok(Step::Waiting) => {}
                Err(_) => self.running = None,
            }
            return;
        }
    }

    fn key(&self, random: &mut Rng) -> Key {
        let number = random.u64(..self.keys);
        // A part of the keys is hot.
        let number = if random.bool() { number } else { number % (self.keys / 8 + 1) };
        (random.u32(1..=TABLES), number)
    }

    /// Begins the next request of a core's client.
    fn begin_request(&mut self, core: usize) {
        self.model.sequences[core] += 1;
        let request = RequestId { client: core as u64, sequence: self.model.sequences[core] };
        self.acknowledged[core].store(request.sequence.saturating_sub(UNANSWERED), Ordering::Relaxed);
        let (asks, core) = (self.asks, &self.running().cores[core]);
        core.ask_for_disk(asks);
        core.begin_request(request, b"");
    }

    /// Ends a request with a reply, if it has changed anything.
    fn end_request(&mut self, core: usize, reply: Option<CompletionReply>) {
        self.running().cores[core].end_request();
        let sequence = self.model.sequences[core];
        if let Some(reply) = reply {
            self.model.replies.insert((core as u64, sequence), reply);
        }
        let is_old =
            |client: u64, other: u64| client == core as u64 && other < sequence.saturating_sub(UNANSWERED);
        self.model.replies.retain(|&(client, other), _| !is_old(client, other));
    }

    /// Notes what a client is told of a key. Returns the cuts that the answer waits for.
    fn tell(&mut self, core: usize, key: Key, version: u64) -> AwaitedCuts {
        let cuts = self.running().cores[core].take_seen();
        assert!(self.waits_for(key) || cuts == AwaitedCuts::default(), "nothing was promised of {key:?}");
        self.tell_with(cuts, key, version);
        cuts
    }

    /// As [`World::tell`], with the cuts that the answer waits for.
    fn tell_with(&mut self, cuts: AwaitedCuts, key: Key, version: u64) {
        self.note_fact(Fact { key, version, is_expiry: false, cuts });
    }

    fn note_fact(&mut self, fact: Fact) {
        if self.waits_for_receipt(fact.key) {
            self.received_facts.push(fact);
        } else if self.waits_for(fact.key) {
            self.facts.push(fact);
        }
    }

    /// Returns whether the answer to a request waits for what it shows of a key.
    fn waits_for(&self, key: Key) -> bool {
        self.asks || key.0 == SYNCED || self.waits_for_receipt(key)
    }

    fn wrote(&mut self, key: Key, held: Held) {
        let newest = self.model.newest.entry(key).or_default();
        assert!(held.0 > *newest, "versions of a key only grow");
        *newest = held.0;
        self.model.objects.insert(key, held);
    }

    /// Handles the refusal of a write.
    fn refuse(&mut self, core: usize, error: WriteError) {
        self.running().cores[core].take_seen();
        match error {
            WriteError::StorageFull => self.refused += 1,
            WriteError::Retry { .. } | WriteError::OutOfMemory => {}
            WriteError::NotANumber | WriteError::Overflow => return,
            error => panic!("{error}"),
        }
        self.sync();
        if let Some(running) = &mut self.running {
            (0..50).for_each(|_| _ = running.cores[core].step());
        }
    }

    fn put(&mut self, random: &mut Rng, core: usize) {
        let (key, value) = (self.key(random), value(random));
        self.begin_request(core);
        let expires_ms =
            if random.u32(0..8) == 0 { self.model.now_ms + random.u64(1..100) } else { NEVER_MS };
        let running = self.running();
        let (table, bytes) = (&running.tables[key.0 as usize - 1], key.1.to_be_bytes());
        let pin = running.cores[core].pin();
        let put = pin.put_until(table, store::hash(&bytes), &bytes, &value, expires_ms, Condition::Always);
        drop(pin);
        self.end_request(core, put.ok().map(CompletionReply::Version));
        match put {
            Ok(version) => {
                self.tell(core, key, version);
                self.wrote(key, (version, value, expires_ms));
            }
            Err(error) => self.refuse(core, error),
        }
    }

    fn delete(&mut self, random: &mut Rng, core: usize) {
        let key = self.key(random);
        self.begin_request(core);
        let running = self.running();
        let (table, bytes) = (&running.tables[key.0 as usize - 1], key.1.to_be_bytes());
        let deleted = running.cores[core].pin().delete(table, store::hash(&bytes), &bytes, Condition::Always);
        self.end_request(core, deleted.ok().flatten().map(CompletionReply::Version));
        match deleted {
            Ok(version) => {
                let known = self.model.visible(key).cloned();
                self.model.objects.remove(&key);
                assert_eq!(version, known.map(|(version, ..)| version), "a delete of {key:?}");
                let newest = self.model.newest.get(&key).copied().unwrap_or(0);
                self.tell(core, key, newest);
            }
            Err(error) => self.refuse(core, error),
        }
    }

    fn increment(&mut self, random: &mut Rng, core: usize) {
        let key = self.key(random);
        self.begin_request(core);
        let running = self.running();
        let (table, bytes) = (&running.tables[key.0 as usize - 1], key.1.to_be_bytes());
        let added = running.cores[core].pin().increment(table, store::hash(&bytes), &bytes, 1);
        let reply = |(version, sum): (u64, i64)| CompletionReply::Number(version, sum.to_le_bytes());
        self.end_request(core, added.ok().map(reply));
        match added {
            Ok((version, sum)) => {
                let expires_ms = self.model.visible(key).map_or(NEVER_MS, |&(.., expires_ms)| expires_ms);
                self.tell(core, key, version);
                self.wrote(key, (version, sum.to_le_bytes().to_vec(), expires_ms));
            }
            Err(error) => self.refuse(core, error),
        }
    }

    fn commit(&mut self, random: &mut Rng, core: usize) {
        let changes: Vec<(Key, [u8; 8], Option<Vec<u8>>)> = (0..random.usize(1..6))
            .map(|_| {
                let key = self.key(random);
                (key, key.1.to_be_bytes(), random.bool().then(|| value(random)))
            })
            .collect();
        self.begin_request(core);
        // Those of clients have no reply of their own.
        let said = if random.bool() { random.u64(..).to_le_bytes().to_vec() } else { Vec::new() };
        let request = RequestId { client: core as u64, sequence: self.model.sequences[core] };
        self.running().cores[core].begin_request(request, &said);
        let running = self.running();
        let writes: Vec<_> = changes
            .iter()
            .map(|(key, bytes, value)| Write {
                table: &running.tables[key.0 as usize - 1],
                hash: store::hash(bytes),
                key: bytes,
                value: value.as_deref(),
                expires_ms: NEVER_MS,
            })
            .collect();
        let committed = running.cores[core].pin().commit(&[], &writes);
        drop(writes);
        let reply = |version| match said.is_empty() {
            true => CompletionReply::Version(version),
            false => CompletionReply::Bytes(said.into()),
        };
        self.end_request(core, committed.as_ref().ok().copied().map(reply));
        match committed {
            Ok(version) => {
                let cuts = self.running().cores[core].take_seen();
                let last: BTreeMap<Key, _> =
                    changes.into_iter().map(|(key, _, value)| (key, value)).collect();
                for (key, value) in last {
                    match value {
                        Some(value) => self.wrote(key, (version, value, NEVER_MS)),
                        None => _ = self.model.objects.remove(&key),
                    }
                    let newest = self.model.newest.get(&key).copied().unwrap_or(0);
                    self.tell_with(cuts, key, newest);
                }
            }
            Err(store::CommitError::Write(error)) => self.refuse(core, error),
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&mut self, random: &mut Rng, core: usize) {
        let key = self.key(random);
        let (known, held) = (self.model.visible(key).cloned(), self.model.objects.get(&key).cloned());
        let newest = self.model.newest.get(&key).copied().unwrap_or(0);
        let asks = self.asks;
        let running = self.running();
        let (table, bytes) = (&running.tables[key.0 as usize - 1], key.1.to_be_bytes());
        running.cores[core].ask_for_disk(asks);
        let pin = running.cores[core].pin();
        let found = pin.get(table, store::hash(&bytes), &bytes);
        assert_eq!(
            found.map(|object| object.version()),
            known.as_ref().map(|(version, ..)| *version),
            "{key:?}"
        );
        drop(pin);
        let cuts = self.tell(core, key, newest);
        if let (None, Some((version, ..)), true) = (known, held, self.waits_for(key)) {
            self.note_fact(Fact { key, version, is_expiry: true, cuts });
        }
    }

    fn contents(&self, keys: u64) -> BTreeMap<Key, Held> {
        self.running.as_ref().expect("it runs").contents(keys, self.model.objects.keys().copied())
    }

    pub(super) fn check(&mut self, what: &str) {
        let found = self.contents(self.keys);
        let visible = self.model.objects.iter().filter(|(_, held)| held.2 > self.model.now_ms);
        assert!(found.iter().eq(visible), "{what}: not what was written");
    }
}

/// Makes the cleaner keep the completion records that clients have not acknowledged.
fn keep_unanswered(running: &Running, acknowledged: &[Arc<AtomicU64>; CORES]) {
    let acknowledged = acknowledged.clone();
    running.store.keep_completions(move |request| {
        acknowledged[request.client as usize].load(Ordering::Relaxed) <= request.sequence
    });
}

fn value(random: &mut Rng) -> Vec<u8> {
    let length = if random.u8(..) == 0 { 1500 } else { random.usize(0..150) };
    vec![random.u8(..); length]
}

fn brief(held: Option<&Held>) -> Option<(u64, usize, u64)> {
    held.map(|(version, value, expires_ms)| (*version, value.len(), *expires_ms))
}
