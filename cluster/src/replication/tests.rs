//! A server and its backups over streams that break, from seeds: whatever the record allows to be missing, everything that
//! was acknowledged is found. Servers and backups are killed and started again, files are lost, and the metadata answers
//! late.
//!
//! `SPLINTER_SEED` selects one seed; `SPLINTER_FULL=1` runs many thousands.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Backup, BackupId, Item, ReplicasRecord, Replication};

mod holder;

use self::holder::Holder;

/// What a backup receives.
#[derive(Clone, Debug)]
enum Message {
    /// Of each item the bytes from one offset to another.
    Write {
        ticket: u64,
        parts: Vec<(Item, u64, u64)>,
    },
    /// A piece of a copy; the last one has a ticket.
    Copy {
        item: Item,
        from: u64,
        to: u64,
        ticket: Option<u64>,
    },
    /// All before is to be made stable.
    Flush(u64),
    Free(Vec<Item>),
}

#[derive(Clone, Debug)]
enum Answer {
    Received(u64),
    Acked(u64),
    Refused(Item),
}

/// A stream, if there is one: both directions.
#[derive(Default)]
struct Stream {
    to_backup: VecDeque<Message>,
    to_server: VecDeque<Answer>,
}

struct World {
    random: fastrand::Rng,
    machine: Replication,
    record: ReplicasRecord,
    /// A commit that the metadata has got or not.
    commit: Option<(ReplicasRecord, bool)>,
    holders: Vec<Holder>,
    streams: Vec<Option<Stream>>,
    /// The log: bytes of each item, those that were acknowledged as stable, and as received.
    log: BTreeMap<Item, u64>,
    acknowledged: BTreeMap<Item, u64>,
    received: BTreeMap<Item, u64>,
    /// The log as of each cut whose receipt is awaited, and as of what is being settled.
    cuts: VecDeque<(u64, BTreeMap<Item, u64>)>,
    settling: Option<BTreeMap<Item, u64>>,
    open: Vec<u32>,
    next: u32,
    digests: u64,
    copy: Option<(BackupId, Item, u64)>,
    cut: u64,
    writes: u32,
    /// How often each kind of event comes: other races in each seed.
    weights: [u32; 13],
}

const HOSTS: [&str; 3] = ["b", "c", "d"];

fn machine(record: ReplicasRecord, items: &BTreeMap<Item, u64>, random: &mut fastrand::Rng) -> Replication {
    let own = ("a".to_owned(), 2);
    Replication::new(own, record, items.keys().copied(), random.u64(..))
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let backups = random.usize(1..6);
        let weights = std::array::from_fn(|_| *random.choice(&[1, 5, 25]).expect("there are some"));
        let holder = |file| Holder { file, is_up: true, ..Holder::default() };
        Self {
            machine: machine(ReplicasRecord::default(), &BTreeMap::new(), &mut random),
            random,
            record: ReplicasRecord::default(),
            commit: None,
            holders: (0..backups as u64).map(holder).collect(),
            streams: (0..backups).map(|_| None).collect(),
            log: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            received: BTreeMap::new(),
            cuts: VecDeque::new(),
            settling: None,
            open: Vec::new(),
            next: 1,
            digests: 0,
            copy: None,
            cut: 0,
            writes: 0,
            weights,
        }
    }

    fn id(&self, at: usize) -> BackupId {
        BackupId { server: at as u32, file: self.holders[at].file }
    }

    fn send(&mut self, to: BackupId, message: Message) {
        let stream = self.streams[to.server as usize].as_mut().expect("the machine knows who is connected");
        stream.to_backup.push_back(message);
    }

    fn connect(&mut self, at: usize) {
        if !self.holders[at].is_up || self.streams[at].is_some() {
            return;
        }
        let id = self.id(at);
        let holder = &mut self.holders[at];
        let is_whole = |(item, bytes): &(&Item, &u64)| self.log.get(item).is_some_and(|all| *bytes >= all);
        let whole: Vec<Item> = holder.has.iter().filter(is_whole).map(|(item, _)| *item).collect();
        let counts = self.record.backups.contains(&id);
        let host = HOSTS[at % HOSTS.len()].to_owned();
        let speed = self.random.u32(1..1_000);
        if self.machine.joined(Backup { id, host, speed }, whole.iter().copied()) {
            // One that counts has to keep what was acknowledged.
            holder.has.retain(|item, _| whole.contains(item) || (counts && self.log.contains_key(item)));
            holder.copying.clear();
            holder.refused.clear();
            holder.make_stable();
            self.streams[at] = Some(Stream::default());
        }
    }

    fn disconnect(&mut self, at: usize) {
        if self.streams[at].take().is_some() {
            let id = self.id(at);
            self.machine.lost(id);
            self.copy.take_if(|(to, ..)| *to == id);
        }
    }

    fn write(&mut self) {
        if self.cuts.len() > 3 {
            return;
        }
        self.writes += 1;
        let mut items = Vec::new();
        if self.random.u8(0..4) == 0 {
            self.digests += 1;
            items.push((Item::Digest, 0, self.digests));
        }
        if self.open.len() < 3 && self.random.bool() {
            self.open.push(self.next);
            self.next += 1;
        }
        for number in self.open.clone() {
            if self.random.bool() {
                let item = Item::Segment(number);
                let from = self.log.get(&item).copied().unwrap_or(0);
                items.push((item, from, from + self.random.u64(1..5)));
            }
        }
        items.iter().for_each(|(item, _, to)| {
            self.log.insert(*item, *to);
        });
        let names: Vec<Item> = items.iter().map(|(item, ..)| *item).collect();
        for sending in self.machine.write(&names) {
            let parts = sending.items.iter().map(|index| items[*index]).collect();
            self.send(sending.to, Message::Write { ticket: sending.ticket, parts });
        }
        self.cut += 1;
        self.machine.await_receipt(self.cut);
        self.cuts.push_back((self.cut, self.log.clone()));
        if self.settling.is_none() && self.random.bool() {
            for (to, ticket) in self.machine.settle() {
                self.send(to, Message::Flush(ticket));
            }
            self.settling = Some(self.log.clone());
        }
    }

    /// Acknowledges what was written, if that is allowed.
    fn settle(&mut self) {
        if let Some(received) = self.machine.take_received() {
            let reached = self.cuts.iter().rfind(|(cut, _)| *cut <= received);
            self.received = reached.expect("it is awaited").1.clone();
            self.cuts.retain(|(cut, _)| *cut > received);
        }
        if self.settling.is_none() || !self.machine.is_settled() {
            return;
        }
        self.acknowledged = self.settling.take().expect("it was looked for");
        self.acknowledged.iter().for_each(|(item, bytes)| {
            let received = self.received.entry(*item).or_default();
            *received = (*bytes).max(*received);
        });
        for at in 0..self.holders.len() {
            let id = self.id(at);
            if self.streams[at].is_some() && self.random.bool() {
                self.holders[at].has.retain(|item, _| self.machine.has_replica(id, *item));
            }
        }
        let closed = |number: &u32| self.log.get(&Item::Segment(*number)).is_some_and(|bytes| *bytes > 12);
        let closed: Vec<u32> = self.open.iter().filter(|number| closed(number)).copied().collect();
        self.open.retain(|number| !closed.contains(number));
        if self.random.u8(0..6) == 0 {
            let whole = |item: &Item| matches!(item, Item::Segment(number) if !self.open.contains(number));
            let whole: Vec<Item> = self.log.keys().filter(|item| whole(item)).copied().collect();
            if let Some(item) = self.random.choice(whole) {
                self.log.remove(&item);
                self.acknowledged.remove(&item);
                self.received.remove(&item);
                self.cuts
                    .iter_mut()
                    .map(|(_, log)| log)
                    .chain(&mut self.settling)
                    .for_each(|log| _ = log.remove(&item));
                for (to, items) in self.machine.free(&[item]) {
                    self.send(to, Message::Free(items));
                }
                self.copy.take_if(|(_, copied, _)| *copied == item);
            }
        }
    }

    fn commit(&mut self) {
        match self.commit.take() {
            None => self.commit = self.machine.to_commit().map(|record| (record, false)),
            Some((record, false)) => {
                self.record = record.clone();
                self.commit = Some((record, true));
            }
            Some((record, true)) => self.machine.recorded(record),
        }
    }

    fn copy(&mut self) {
        let Some((to, item, from)) =
            self.copy.take().or_else(|| self.machine.to_copy().map(|(to, item)| (to, item, 0)))
        else {
            return;
        };
        let end = self.log[&item];
        if from + 4 < end && item != Item::Digest {
            self.send(to, Message::Copy { item, from, to: from + 4, ticket: None });
            self.copy = Some((to, item, from + 4));
        } else {
            let ticket = self.machine.copied();
            assert!(ticket.is_some(), "neither was lost");
            self.send(to, Message::Copy { item, from, to: end, ticket });
        }
    }

    fn receive(&mut self, at: usize) {
        let Some(stream) = &mut self.streams[at] else { return };
        let Some(message) = stream.to_backup.pop_front() else { return };
        let holder = &mut self.holders[at];
        let answer = match message {
            Message::Write { ticket, parts } => {
                for (item, from, to) in parts {
                    let has = holder.has.get(&item).copied();
                    if from == 0 && has.is_none() && holder.is_full && item != Item::Digest {
                        stream.to_server.push_back(Answer::Refused(item));
                        holder.refused.insert(item);
                        continue;
                    }
                    if from == 0 {
                        holder.refused.remove(&item);
                    }
                    if holder.refused.contains(&item) {
                        continue;
                    }
                    assert!(has.unwrap_or(0) >= from, "a gap in {item:?} at {at}");
                    holder.has.insert(item, to);
                }
                Some(Answer::Received(ticket))
            }
            Message::Flush(ticket) => {
                holder.make_stable();
                Some(Answer::Acked(ticket))
            }
            Message::Copy { item, from, to, ticket } => {
                assert_eq!(holder.copying.remove(&item).unwrap_or(0), from, "a gap in a copy");
                let whole = if ticket.is_some() { &mut holder.has } else { &mut holder.copying };
                whole.insert(item, to);
                holder.refused.remove(&item);
                if ticket.is_some() {
                    holder.make_stable();
                }
                ticket.map(Answer::Acked)
            }
            Message::Free(items) => {
                items.iter().for_each(|item| {
                    holder.has.remove(item);
                    holder.stable.remove(item);
                    holder.forgotten.remove(item);
                    holder.copying.remove(item);
                });
                None
            }
        };
        holder.forgotten.retain(|item, bytes| holder.has.get(item).is_none_or(|has| has < bytes));
        stream.to_server.extend(answer);
    }

    fn hear(&mut self, at: usize) {
        let id = self.id(at);
        let Some(answer) = self.streams[at].as_mut().and_then(|stream| stream.to_server.pop_front()) else {
            return;
        };
        match answer {
            Answer::Received(ticket) => self.machine.received(id, ticket),
            Answer::Acked(ticket) => self.machine.acked(id, ticket),
            Answer::Refused(item) => {
                if let Some((other, ticket)) = self.machine.refused(id, item) {
                    let parts = vec![(item, 0, self.log[&item])];
                    self.send(other, Message::Write { ticket, parts });
                    self.send(other, Message::Flush(ticket));
                }
            }
        }
    }

    fn harm(&mut self) {
        let at = self.random.usize(0..self.holders.len());
        match self.random.u8(0..12) {
            0..4 => self.disconnect(at),
            4..7 => {
                self.disconnect(at);
                self.holders[at].crash();
            }
            7 => {
                // It comes back with an empty file.
                self.disconnect(at);
                let file = self.random.u64(..);
                self.holders[at] = Holder { file, is_up: self.random.bool(), ..Holder::default() };
            }
            8..10 => self.holders[at].is_full = true,
            _ => self.restart(),
        }
    }

    /// The server is killed and comes back with its log, which may have more than was acknowledged, or not.
    fn restart(&mut self) {
        self.streams.iter_mut().for_each(|stream| *stream = None);
        if self.random.bool() {
            self.log = self.received.clone();
        }
        (self.settling, self.copy, self.commit) = (None, None, None);
        self.cuts.clear();
        self.open.clear();
        self.machine = machine(self.record.clone(), &self.log, &mut self.random);
    }

    /// Gives up backups of the record that are away.
    fn give_up(&mut self) {
        for id in self.record.backups.clone() {
            let at = id.server as usize;
            if (!self.holders[at].is_up || self.id(at) != id) && self.random.bool() {
                self.machine.lost(id);
            }
        }
    }

    /// Whatever may be missing, someone else has all that was acknowledged.
    fn check(&self) {
        let ReplicasRecord { backups, replicas } = &self.record;
        let there: BTreeSet<usize> =
            (0..self.holders.len()).filter(|at| backups.contains(&self.id(*at))).collect();
        let gone = backups.len() - there.len();
        for (item, bytes) in &self.acknowledged {
            let having = there
                .iter()
                .filter(|at| self.holders[**at].has.get(item).is_some_and(|has| has >= bytes))
                .count();
            assert!(
                having + gone >= *replicas,
                "{item:?} is at {having} of {backups:?}, and {replicas} are promised"
            );
        }
        for (item, bytes) in &self.received {
            let has = |holder: &Holder| {
                let [has, had] = [&holder.has, &holder.forgotten].map(|items| items.get(item).copied());
                has.max(had).is_some_and(|has| has >= *bytes)
            };
            let having = there.iter().filter(|at| has(&self.holders[**at])).count();
            assert!(
                having + gone >= *replicas,
                "{item:?} was received by {having} of {backups:?}, and {replicas} are promised"
            );
        }
    }

    fn step(&mut self, is_harmed: bool) {
        let at = self.random.usize(0..self.holders.len());
        let all: u32 = self.weights.iter().sum();
        let mut drawn = self.random.u32(0..all);
        let action = self.weights.iter().position(|weight| {
            let is_it = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_it
        });
        match action.expect("it is below the sum") {
            0 => self.write(),
            1 => self.settle(),
            2 => self.commit(),
            3 => self.copy(),
            4 | 5 => self.receive(at),
            6 | 7 => self.hear(at),
            8 => self.connect(at),
            9 => self.give_up(),
            10 if is_harmed => self.harm(),
            11 => {
                let id = self.id(at);
                self.holders[at].is_full = false;
                self.machine.has_room(id);
            }
            _ => self.holders[at].is_up = true,
        }
        self.check();
    }
}

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let is_full = std::env::var_os("SPLINTER_FULL").is_some();
    // Each long run has others.
    let (first, all) = if is_full { (fastrand::u64(..u64::MAX / 2), 10_000) } else { (0, 500) };
    given.map_or(first..first + all, |seed: u64| seed..seed + 1)
}

#[test]
fn what_was_acknowledged_is_at_as_many_backups_as_the_record_says() {
    let mut written = 0;
    for seed in seeds() {
        println!("SPLINTER_SEED={seed}");
        let mut world = World::new(seed);
        (0..1_000).for_each(|_| world.step(true));
        // Then all is well, and everything gets its replicas.
        world.writes = 0;
        let hosts = world.holders.len().min(HOSTS.len());
        let is_well = |world: &World| world.record.replicas == hosts.min(2) && world.writes > 20;
        let mut steps = 0;
        while !is_well(&world) {
            world.step(false);
            steps += 1;
            assert!(
                steps < 100_000,
                "it heals: {:?} of {hosts} hosts, {} writes",
                world.record,
                world.writes
            );
        }
        written += world.acknowledged.len();
    }
    assert!(written > 0, "something was acknowledged");
}

#[test]
fn replicas_spread_by_the_speed_of_disks_and_never_share_a_host() {
    let backup = |server: u32| Backup {
        id: BackupId { server, file: 7 },
        host: format!("host {}", server % 20),
        speed: if server < 20 { 100 } else { 300 },
    };
    let mut machine = Replication::new(("host 0".to_owned(), 2), ReplicasRecord::default(), Vec::new(), 3);
    (1..40).for_each(|server| assert!(machine.joined(backup(server), Vec::new())));
    let record = machine.to_commit().expect("backups to count");
    assert_eq!((record.backups.len(), record.replicas), (39, 2));
    machine.recorded(record);
    let mut held: BTreeMap<u32, usize> = BTreeMap::new();
    for number in 0..8_000 {
        let sendings = machine.write(&[Item::Segment(number)]);
        let [one, other] = &sendings[..] else { panic!("two replicas: {sendings:?}") };
        assert_ne!(one.to.server % 20, other.to.server % 20, "of one host");
        machine.settle();
        for sending in &sendings {
            *held.entry(sending.to.server).or_default() += 1;
            machine.acked(sending.to, sending.ticket);
        }
        assert!(machine.is_settled());
    }
    assert!(!held.contains_key(&20), "it is on the server's own host");
    // 19 hosts with a slow and a fast disk each share 16,000 replicas.
    for (server, replicas) in held {
        let mean = if server < 20 { 16_000 / 19 / 4 } else { 16_000 / 19 * 3 / 4 };
        assert!(replicas.abs_diff(mean) < mean / 5, "server {server} has {replicas}, {mean} would be even");
    }
}
