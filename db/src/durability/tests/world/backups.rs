//! Backups of a world's log: they are killed and lose their files, streams break, the metadata answers late; whatever happens,
//! the log is found among their replicas.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use cluster::metadata::{DecidedCut, OwnLogEnd, OwnLogExtent};
use cluster::replication::message::{FromBackup, ToBackup};
use cluster::replication::{Backup, BackupId, Item, ReplicasRecord, Replication};
use disk::{BLOCK_BYTES, Digest, Fragment, SimulatedDisk};
use fastrand::Rng;
use net::Duplex;
use store::{Config, LogOnDisk, Store};

use super::super::model::Model;
use super::World;
use crate::durability::NumberedTables;
use crate::durability::replicas::file::{LogId, ReplicaFile};
use crate::durability::replicas::gathered::{GatherError, Gathered, SegmentReplica, gather};
use crate::durability::replicas::receiver::ReplicaReceiver;
use crate::durability::replicas::sender::{LinkEnded, ReplicaEvent, ReplicaLink, ReplicaSender};
use crate::durability::tests::running::{Completions, Held, KEYS_MAX, Key, contents_of, tables_of};

const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
const REPLICAS: usize = 2;
const LOG: LogId = LogId { server: 9, number: 77 };
const FRAME_BYTES: usize = 4 * BLOCK_BYTES;
const FRAMES_MAX: u32 = 8_000;

/// A backup.
struct Node {
    id: BackupId,
    disk: SimulatedDisk,
    receiver: ReplicaReceiver,
    /// Messages under way to it, and answers to the server, while a stream is open.
    stream: Option<(Receiver<Vec<u8>>, Sender<FromBackup>)>,
    frames_max: u32,
}

/// The server's end of a stream.
struct Link {
    messages: Sender<Vec<u8>>,
    answers: Receiver<FromBackup>,
}

impl ReplicaLink for Link {
    fn send(&mut self, message: &[u8]) -> Result<(), LinkEnded> {
        self.messages.send(message.to_vec()).map_err(|_| LinkEnded)
    }

    fn receive(&mut self) -> Result<Option<FromBackup>, LinkEnded> {
        match self.answers.try_recv() {
            Ok(answer) => Ok(Some(answer)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(LinkEnded),
        }
    }

    fn socket(&self) -> Option<&Duplex> {
        None
    }
}

fn receiver(disk: &SimulatedDisk, frames_max: u32) -> ReplicaReceiver {
    let file = ReplicaFile::open(Box::new(disk.clone()), frames_max).expect("a sound disk");
    ReplicaReceiver::new(file, 0, 1)
}

impl Node {
    fn new(server: u32, random: &mut Rng) -> Self {
        // All but the first one may be full now and then.
        let frames_max = if server > 0 && random.u32(0..4) == 0 { random.u32(20..120) } else { FRAMES_MAX };
        let disk = SimulatedDisk::new(random.u64(..), FRAME_BYTES, frames_max);
        let id = BackupId { server, file: random.u64(..) };
        Self { id, receiver: receiver(&disk, frames_max), disk, stream: None, frames_max }
    }

    fn answer(&self, answer: FromBackup) {
        // The server may have ended the stream.
        let _ = self.stream.as_ref().map(|(_, answers)| answers.send(answer));
    }

    /// Its machine loses power.
    fn crash(&mut self) {
        self.disk.crash();
        self.disk = self.disk.restart();
        (self.receiver, self.stream) = (receiver(&self.disk, self.frames_max), None);
    }

    /// Takes in the next message, and answers it; returns false if there is none.
    fn receive(&mut self) -> bool {
        match self.stream.as_ref().map(|(messages, _)| messages.try_recv()) {
            Some(Ok(record)) => {
                let message = ToBackup::decode(&record).expect("a message");
                let answer = self.receiver.receive(LOG, &message).expect("it is in order");
                answer.into_iter().for_each(|answer| self.answer(answer));
                true
            }
            None | Some(Err(TryRecvError::Empty)) => false,
            // It is to come again later.
            Some(Err(TryRecvError::Disconnected)) => {
                self.stream = None;
                false
            }
        }
    }
}

/// The backups of a log, and the metadata with the record of them.
pub(super) struct Backups {
    random: Rng,
    nodes: Vec<Node>,
    events: Sender<ReplicaEvent>,
    records: Receiver<ReplicasRecord>,
    record: ReplicasRecord,
    /// A record that the metadata has, and of which nobody knows.
    recorded: bool,
    is_harmed: bool,
    /// Whether one has lost what was in its memory, since somebody looked.
    pub(super) has_forgotten: bool,
    /// What backups may have that have less than the server's disk, or more, since a start that is not settled.
    pub(super) earlier: Vec<Model>,
    /// How often a log was found, and with how many segments in all.
    found: (u32, usize),
}

impl Backups {
    /// Lets something happen; returns false if it is time for something else.
    pub(super) fn turn(&mut self) -> bool {
        let at = self.random.usize(..self.nodes.len());
        let node = &mut self.nodes[at];
        match self.random.u32(0..40) {
            0..4 if node.stream.is_none() => self.connect(at),
            0..20 => _ = node.receive(),
            20..32 => {
                if let Some(&ticket) = node.receiver.flush().expect("a sound disk").get(&LOG) {
                    node.answer(FromBackup::Stable { ticket });
                }
                if node.receiver.with_room().contains(&LOG) {
                    node.answer(FromBackup::HasRoom);
                }
            }
            32..34 => self.take_record(),
            34..36 => {
                let is_news = std::mem::take(&mut self.recorded);
                if is_news {
                    self.tell(ReplicaEvent::Recorded(self.record.clone()));
                }
            }
            36 if self.is_harmed => self.harm(at),
            37 => return self.random.bool(),
            _ => {}
        }
        true
    }

    /// Lets the metadata have a record that is under way.
    fn take_record(&mut self) {
        if let Some(record) = self.records.try_iter().last() {
            (self.record, self.recorded) = (record, true);
        }
    }

    fn tell(&self, event: ReplicaEvent) {
        // The server may have crashed.
        let _ = self.events.send(event);
    }

    fn connect(&mut self, at: usize) {
        let ((to_node, messages), (to_server, answers)) = (channel(), channel());
        let node = &mut self.nodes[at];
        let begun = node.receiver.begin(LOG, 1).expect("a sound disk");
        let Some(FromBackup::Held { items: held, .. }) = begun else { unreachable!("nobody recovers it") };
        node.stream = Some((messages, to_server));
        let (id, speed) = (node.id, self.random.u32(1..1_000));
        let backup = Backup { id, host: HOSTS[at].to_owned(), speed };
        self.tell(ReplicaEvent::Joined { backup, held, link: Box::new(Link { messages: to_node, answers }) });
    }

    /// Harms a backup. A file is lost only if the record says that all is elsewhere, and none that says otherwise is under way.
    fn harm(&mut self, at: usize) {
        self.take_record();
        let id = self.nodes[at].id;
        match self.random.u32(0..6) {
            0..3 => {
                self.nodes[at].stream = None;
                self.nodes[at].receiver.end(LOG);
            }
            3..5 => {
                self.nodes[at].crash();
                self.has_forgotten = true;
            }
            _ if self.lacking(&[at]) < self.record.replicas => {
                self.nodes[at] = Node::new(at as u32, &mut self.random);
                self.tell(ReplicaEvent::Lost(id));
            }
            _ => {}
        }
    }

    /// Returns how many of the backups that count are gone, if these are away.
    fn lacking(&self, away: &[usize]) -> usize {
        let there =
            self.nodes.iter().enumerate().filter(|(at, _)| !away.contains(at)).map(|(_, node)| node.id);
        let there: BTreeSet<BackupId> = there.collect();
        self.record.backups.difference(&there).count()
    }

    /// The server has crashed: some of what is under way arrives, and some backups lose power. Returns the log as backups have
    /// it but for as many as may be missing, and as others of them have it as of the same cut; `None` if nothing is promised.
    fn gather(&mut self, seed: u64) -> Option<(FoundLog, Option<FoundLog>)> {
        let may_crash = self.random.bool();
        for node in &mut self.nodes {
            for _ in 0..self.random.u32(0..20) {
                if !node.receive() {
                    break;
                }
            }
            if may_crash && self.random.bool() {
                node.crash();
                self.has_forgotten = true;
            } else {
                node.receiver.file().flush().expect("a sound disk");
            }
            (node.stream, self.recorded) = (None, false);
            node.receiver.end(LOG);
        }
        // A commit under way has got there or not.
        if let Some(record) = self.records.try_iter().last().filter(|_| self.random.bool()) {
            self.record = record;
        }
        if self.record.replicas == 0 {
            return None;
        }
        let found = self.find(None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        self.found = (self.found.0 + 1, self.found.1 + found.1.len());
        let again = match self.find(Some(found.0.cut)) {
            Ok(again) => Some(again),
            // A cut that nobody was told of.
            Err(GatherError::LacksCut { .. }) => None,
            Err(error) => panic!("seed {seed}: {error}"),
        };
        Some((found, again))
    }

    /// Finds the log, as of this cut if that is `decided`, at all but as many as may be missing.
    fn find(&mut self, decided: Option<u64>) -> Result<FoundLog, GatherError> {
        let mut away = Vec::new();
        for at in 0..self.nodes.len() {
            if self.random.bool() && self.lacking(&[&away[..], &[at]].concat()) < self.record.replicas {
                away.push(at);
            }
        }
        let counts = |node: &Node| self.record.backups.contains(&node.id);
        let there = self.nodes.iter_mut().enumerate().filter(|(at, node)| !away.contains(at) && counts(node));
        let (mut digests, mut copies) = (Vec::new(), BTreeMap::<u32, Vec<Copied>>::new());
        for (_, node) in there {
            read_all(node.receiver.file(), &mut digests, &mut copies);
        }
        let fragments = |copies: &Vec<Copied>| copies.iter().map(|copied| copied.replica.clone()).collect();
        let replicas = copies.iter().map(|(&sequence, copies)| (sequence, fragments(copies))).collect();
        let found = gather(digests, &replicas, decided)?;
        let bytes = found.segments.iter().map(|(&sequence, &bytes)| {
            let whole = copies[&sequence].iter().find(|copied| copied.bytes.len() >= bytes as usize);
            (sequence, whole.expect("it was gathered").bytes[..bytes as usize].to_vec())
        });
        let bytes = bytes.collect();
        Ok((found, bytes))
    }
}

/// A log, and the bytes of its segments.
type FoundLog = (Gathered, BTreeMap<u32, Vec<u8>>);

/// A log as others have recovered it.
pub(super) struct Decided {
    cut: DecidedCut,
    objects: BTreeMap<Key, Held>,
    replies: Completions,
}

impl Decided {
    /// Returns up to which cut the server takes its own log, and notes how much of that counts.
    pub(super) fn up_to(&self, own: OwnLogEnd, extent: &Cell<OwnLogExtent>) -> Option<u64> {
        extent.set(self.cut.of_own(own).unwrap_or(OwnLogExtent::Behind));
        match extent.get() {
            OwnLogExtent::UpTo(cut) => Some(cut),
            // It would wait for the others; here there are none.
            OwnLogExtent::Whole | OwnLogExtent::Behind => None,
        }
    }
}

/// A replica with its bytes.
struct Copied {
    replica: SegmentReplica,
    bytes: Vec<u8>,
}

/// Reads what a backup has.
fn read_all(file: &mut ReplicaFile, digests: &mut Vec<Digest>, copies: &mut BTreeMap<u32, Vec<Copied>>) {
    let held = file.held(LOG).expect("a sound disk");
    let classes: BTreeMap<Item, u8> = held.into_iter().map(|held| (held.item, held.class)).collect();
    for (item, class) in classes {
        let mut digest = Vec::new();
        let mut visit = |fragment: Fragment, bytes: &[u8]| match item {
            Item::Digest => {
                if fragment.at == 0 {
                    digest.clear();
                }
                digest.extend_from_slice(bytes);
                if digest.len() == fragment.end as usize {
                    digests.extend(Digest::decode(&digest));
                }
            }
            Item::Segment(sequence) => {
                let of_segment = copies.entry(sequence).or_default();
                if fragment.at == 0 {
                    let replica = SegmentReplica { class, fragments: Vec::new() };
                    of_segment.push(Copied { replica, bytes: Vec::new() });
                }
                let copied = of_segment.last_mut().expect("it begins with the first byte");
                copied.replica.fragments.push((fragment, bytes.len() as u32));
                copied.bytes.extend_from_slice(bytes);
            }
        };
        file.read(LOG, item, &mut visit).expect("a sound disk");
    }
}

/// Rebuilds tables from a log; returns what they have.
fn recover(
    config: &Config,
    (found, segments): &FoundLog,
    (now_ms, keys): (u64, u64),
    known: impl Iterator<Item = Key>,
) -> (BTreeMap<Key, Held>, Completions) {
    let store = Store::new(Config { recovery_cores: 0, ..*config }).expect("a small store");
    store.advance_clock(now_ms.max(found.clock_ms));
    let tables = tables_of(&store);
    let numbered: NumberedTables = (1..).zip(&tables).map(|(id, table)| (id, Arc::clone(table))).collect();
    let core = store.core(0);
    let log = LogOnDisk {
        sequences: segments.keys().copied().collect(),
        last: segments.keys().next_back().copied().unwrap_or(0).max(found.digest.last),
        left_out: found.left_out.clone(),
        bytes: segments.values().map(|bytes| bytes.len() as u64).sum(),
        is_in_use: false,
    };
    let mut recovery = core.recover(&log);
    for (&sequence, bytes) in segments.iter().rev() {
        let table = |number: u32| numbered.get(&number).map(Arc::clone);
        recovery.segment(sequence, bytes, &[], table).expect("a sound segment");
    }
    let completions = recovery.completions().into_iter();
    let completions =
        completions.map(|found| ((found.request.client, found.request.sequence), found.reply)).collect();
    let recovered = recovery.finish();
    assert_eq!((recovered.dropped, &recovered.damaged), (0, &Vec::new()));
    (contents_of(&core, &tables, keys, known), completions)
}

impl World {
    /// Gives the log backups, and waits until it has its replicas.
    pub(in crate::durability::tests) fn with_backups(random: &mut Rng) -> Self {
        let mut world = Self::new(random);
        let random_of_world = &mut random.fork();
        let nodes =
            (0..random.u32(REPLICAS as u32..=HOSTS.len() as u32)).map(|server| Node::new(server, random));
        let nodes = nodes.collect();
        let (events, records) = (channel().0, channel().1);
        let random = random.fork();
        let (record, recorded, is_harmed, has_forgotten, found, earlier) = Default::default();
        world.backups = Some(Backups {
            random,
            nodes,
            events,
            records,
            record,
            recorded,
            is_harmed,
            has_forgotten,
            found,
            earlier,
        });
        while !world.connect_backups(random_of_world) {
            world.reopen(random_of_world, 0);
            world.begin_again();
        }
        world
    }

    /// The server has started: it finds its backups. Returns false if it crashes before it has its replicas.
    pub(super) fn connect_backups(&mut self, random: &mut Rng) -> bool {
        let Some(backups) = &mut self.backups else { return true };
        let writer = &mut self.running.as_mut().expect("it runs").writer;
        let items = writer.sequences().map(Item::Segment).chain([Item::Digest]);
        let own = ("own".to_owned(), REPLICAS);
        let machine = Replication::new(own, backups.record.clone(), items, backups.random.u64(..));
        let (events, to_server) = channel();
        let (from_server, records) = channel();
        (backups.events, backups.records, backups.is_harmed) = (events, records, false);
        let sender = ReplicaSender::new(machine, to_server, from_server, writer.store().stable_cut());
        writer.send_to(sender, REPLICAS);
        // Who counts and does not come is lost.
        for id in backups.record.backups.clone() {
            if backups.nodes.iter().all(|node| node.id != id) {
                backups.tell(ReplicaEvent::Lost(id));
            }
        }
        let (mut turns, before) = (0, self.told_to.stable);
        let turns_max = if random.u32(0..3) == 0 { random.u32(0..600) } else { 300_000 };
        let promised = |world: &Self| world.backups.as_ref().map_or(0, |backups| backups.record.replicas);
        while self.told_to.stable == before || promised(self) == 0 {
            self.sync();
            let backups = self.backups.as_mut().expect("it has some");
            backups.turn();
            turns += 1;
            assert!(turns < 300_000, "{:?}", backups.record);
            if turns == turns_max {
                self.running = None;
                self.disk.crash();
                return false;
            }
        }
        let backups = self.backups.as_mut().expect("it has some");
        backups.is_harmed = true;
        // What is shown from now on is settled.
        backups.earlier.clear();
        true
    }

    /// Returns how often backups were found to have the log, and with how many segments in all.
    pub(in crate::durability::tests) fn found_at_backups(&self) -> (u32, usize) {
        self.backups.as_ref().map_or((0, 0), |backups| backups.found)
    }

    /// Checks that what backups have is what clients know.
    pub(in crate::durability::tests) fn check_backups(&mut self, seed: u64) {
        self.decided = None;
        let Some(backups) = &mut self.backups else { return };
        let gathered = backups.gather(seed);
        let has_forgotten = std::mem::take(&mut backups.has_forgotten);
        let Some((log, again)) = gathered else { return };
        let (now_ms, keys) = (self.model.now_ms, self.keys.max(KEYS_MAX));
        let latest_ms = self.latest_ms.max(now_ms);
        let found = recover(&self.config, &log, (now_ms, keys), self.model.objects.keys().copied());
        let is = |model: &Model| model.is_as(&found.0, &found.1, latest_ms);
        if let Some(again) = again {
            let other = recover(&self.config, &again, (now_ms, keys), self.model.objects.keys().copied());
            let is_same = self.model.are_same((&found.0, &found.1), (&other.0, &other.1), latest_ms);
            assert!(is_same, "seed {seed}: others find another log as of cut {}", log.0.cut);
        }
        let Gathered { cut, is_on_own_disk, .. } = log.0;
        self.check_received((&found.0, has_forgotten), is, &format!("seed {seed}, as of cut {cut}"));
        if let Some(backups) = &mut self.backups {
            backups.earlier.extend([self.stable.clone(), self.begun.clone()]);
            backups.earlier.extend(self.sent.values().cloned());
        }
        let cut = DecidedCut { start: log.0.digest.start, cut, is_on_own_disk };
        self.decided = Some(Decided { cut, objects: found.0, replies: found.1 });
    }

    /// Checks that a server has the log that others have recovered, unless its own ended before.
    pub(super) fn check_decided(&mut self, decided: Option<Decided>, extent: OwnLogExtent, seed: u64) {
        self.kept_to_decided.1 += u32::from(extent == OwnLogExtent::Behind);
        if let (Some(Decided { objects, replies, .. }), OwnLogExtent::UpTo(_)) = (decided, extent) {
            self.kept_to_decided.0 += 1;
            let own = (&self.contents(self.keys.max(KEYS_MAX)), &self.found);
            let is_same = self.model.are_same(own, (&objects, &replies), self.latest_ms);
            assert!(is_same, "seed {seed}: others have recovered another log");
        }
    }
}
