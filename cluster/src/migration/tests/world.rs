//! A simulation of two servers, their records, their clients and the network between them.
//!
//! The records are a compare-and-swap, with leases that end for a side that is cut off. Clients read and write at the
//! serving side, and compare results with a model.

mod sides;

use std::collections::{BTreeMap, BTreeSet};

use sides::{Objects, SourceSide, TargetSide};

use crate::migration::{
    Message, MigrationMode, MigrationPhase, SourceAction, SourceEnd, SourceInput, SourceOutput, TargetAction,
    TargetEnd, TargetInput, TargetOutput,
};

/// Keys, which are their own hashes here.
pub const KEYS: u64 = 800;
/// Virtual time within which every migration must end.
const PATIENCE_US: u64 = 60_000_000;
/// A side without access to the records loses its registration after this time.
const LEASE_US: u64 = 300_000;
/// The other side declares it gone after this additional time.
const GONE_AFTER_US: u64 = 200_000;

/// An injected failure, with its times in microseconds.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    None,
    Abort(u64),
    SourceDies(u64),
    TargetDies(u64),
    /// The disk of the target fails before it has what was moved.
    DiskFails,
    /// An abort at a time, then after a delay the death of the source (true) or the target.
    AbortAndDeath(u64, u64, bool),
    /// The records do not answer one side from a time on, for a duration; possibly after an abort.
    CutOff {
        is_source: bool,
        from_us: u64,
        for_us: u64,
        aborts: bool,
    },
}

/// A scheduled event.
enum Event {
    ToSource(SourceInput),
    ToTarget(TargetInput),
    Wire(bool, Vec<u8>),
    AtSource(SourceAction),
    AtTarget(TargetAction),
    KillSource,
    KillTarget,
    /// The records stop answering this side (true), or answer again.
    CutOff(usize, bool),
    /// This side registers again (true), or its lease ends.
    Lease(usize, bool),
    /// The other side learns that this side is gone, possibly late.
    Gone(usize),
    /// A side receives the phase that it read from the records, and the lease under which it read.
    Read(usize, MigrationPhase, Option<u64>),
}

pub struct World {
    random: fastrand::Rng,
    now_us: u64,
    /// Ordered by time, then by the order of scheduling.
    events: BTreeMap<(u64, u64), Event>,
    thought_of: u64,
    /// When each side's store has finished its queued work, which it does in order.
    busy_until_us: [u64; 2],
    records: MigrationPhase,
    source: Option<SourceSide>,
    target: Option<TargetSide>,
    /// The expected value of every key.
    model: BTreeMap<u64, u64>,
    /// Keys written at the target.
    dirty: BTreeSet<u64>,
    loss_percent: u8,
    /// Whether the records do not answer each side.
    cut_off: [bool; 2],
    /// The number of the lease under which each side is registered.
    leases: [Option<u64>; 2],
    /// Whether the records were changed because a side was gone.
    pub is_lost: bool,
    /// How often a side stopped serving for lack of a lease.
    pub closed: u32,
    /// Whether the source may have served after the target.
    has_returned: bool,
    mode: MigrationMode,
    /// Whether a side that died returns with its objects.
    is_durable: bool,
    /// Whether the disk of the target works.
    has_disk: bool,
    /// The objects on the disk of each side that died.
    on_disk: [Option<Objects>; 2],
}

impl World {
    pub fn new(
        mut random: fastrand::Rng,
        trouble: Trouble,
        (mode, is_durable): (MigrationMode, bool),
    ) -> World {
        let mut model = BTreeMap::new();
        for key in (0..KEYS).filter(|key| key % 3 > 0) {
            model.insert(key, random.u64(..));
        }
        let loss_percent = *random.choice(&[0, 5, 30]).expect("there are some");
        let mut world = World {
            now_us: 0,
            events: BTreeMap::new(),
            thought_of: 0,
            busy_until_us: [0; 2],
            records: MigrationPhase::Preparing,
            source: Some(SourceSide::new(&model)),
            target: Some(TargetSide::new(mode, is_durable)),
            model,
            dirty: BTreeSet::new(),
            loss_percent,
            cut_off: [false; 2],
            leases: [Some(1); 2],
            is_lost: false,
            closed: 0,
            has_returned: false,
            mode,
            is_durable,
            has_disk: !matches!(trouble, Trouble::DiskFails),
            on_disk: [None, None],
            random,
        };
        world.admit(Event::ToTarget(TargetInput::Admitted));
        match trouble {
            Trouble::None | Trouble::DiskFails => {}
            Trouble::Abort(at) => world.at(at, Event::ToTarget(TargetInput::Abort)),
            Trouble::SourceDies(at) => world.at(at, Event::KillSource),
            Trouble::TargetDies(at) => world.at(at, Event::KillTarget),
            Trouble::AbortAndDeath(at, later, is_source) => {
                world.at(at, Event::ToTarget(TargetInput::Abort));
                world.at(at + later, if is_source { Event::KillSource } else { Event::KillTarget });
            }
            Trouble::CutOff { is_source, from_us, for_us, aborts } => {
                world.cut_off(usize::from(!is_source), from_us, for_us);
                if aborts {
                    let at = world.random.u64(0..2_500_000);
                    world.at(at, Event::ToTarget(TargetInput::Abort));
                }
            }
        }
        world
    }

    pub fn has_moved(&self) -> bool {
        self.records == MigrationPhase::Finished
    }

    pub fn run(&mut self) {
        while !self.is_over() {
            assert!(self.now_us < PATIENCE_US, "it comes to an end");
            self.now_us += self.random.u64(1..2_000);
            while let Some(entry) = self.events.first_entry()
                && entry.key().0 <= self.now_us
            {
                let event = entry.remove();
                self.happen(event);
                self.assert_one_owner();
            }
            for _ in 0..self.random.u8(0..4) {
                self.use_it();
            }
            let allowance_bytes = self.random.u64(0..400_000);
            self.tell_target(TargetInput::Tick { allowance_bytes });
            self.tell_source(SourceInput::Tick { now_us: self.now_us, allowance_bytes });
        }
        self.compare();
    }

    /// Returns whether both surviving sides have ended and no action is pending.
    fn is_over(&self) -> bool {
        self.source.as_ref().is_none_or(|source| source.machine.is_over())
            && self.target.as_ref().is_none_or(|target| target.machine.is_over())
            && !self.events.values().any(|event| matches!(event, Event::AtSource(_) | Event::AtTarget(_)))
    }

    fn assert_one_owner(&self) {
        let source_serves = self.source.as_ref().is_some_and(|source| source.serves);
        let target_serves = self.target.as_ref().is_some_and(|target| target.serves);
        assert!(!(source_serves && target_serves), "one owner at {} us", self.now_us);
    }

    fn at(&mut self, time_us: u64, event: Event) {
        self.thought_of += 1;
        self.events.insert((time_us, self.thought_of), event);
    }

    fn soon(&mut self, event: Event) {
        let time_us = self.now_us + self.random.u64(1..20_000);
        self.at(time_us, event);
    }

    /// Gives a side its slot, at once or after a long wait.
    fn admit(&mut self, event: Event) {
        let most_us = if self.random.bool() { 1_000 } else { 2_000_000 };
        let time_us = self.now_us + self.random.u64(1..most_us);
        self.at(time_us, event);
    }

    /// Schedules the end of an action of a side's store, after its earlier actions.
    fn in_turn(&mut self, side: usize, event: Event) {
        let start_us = self.busy_until_us[side].max(self.now_us);
        self.busy_until_us[side] = start_us + self.random.u64(1..4_000);
        self.at(self.busy_until_us[side], event);
    }

    fn send(&mut self, to_source: bool, message: &Message) {
        let bytes = message.encode();
        for _ in 0..if self.random.u8(0..10) == 0 { 2 } else { 1 } {
            if self.random.u8(0..100) >= self.loss_percent {
                self.soon(Event::Wire(to_source, bytes.clone()));
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToSource(input) => self.tell_source(input),
            Event::ToTarget(input) => self.tell_target(input),
            Event::Wire(true, bytes) => {
                self.tell_source(SourceInput::Message(Message::decode(&bytes).expect("as it was sent")));
            }
            Event::Wire(false, bytes) => {
                self.tell_target(TargetInput::Message(Message::decode(&bytes).expect("as it was sent")));
            }
            Event::AtSource(action) => self.act_at_source(action),
            Event::AtTarget(action) => self.act_at_target(action),
            Event::CutOff(side, is_cut_off) => {
                self.cut_off[side] = is_cut_off;
                self.follow_records(side);
            }
            Event::Lease(side, is_held) => self.lease(side, is_held),
            Event::Gone(0) => self.tell_target(TargetInput::SourceGone),
            Event::Gone(_) => self.tell_source(SourceInput::TargetGone),
            Event::Read(side, phase, lease) => self.has_read(side, phase, lease),
            Event::KillSource if self.target.is_some() => {
                self.on_disk[0] = self.source.take().map(|source| source.objects);
                self.leases[0] = None;
                self.soon(Event::ToTarget(TargetInput::SourceGone));
            }
            Event::KillTarget if self.source.is_some() => {
                self.on_disk[1] = self.target.take().map(|target| target.objects);
                self.leases[1] = None;
                self.soon(Event::ToSource(SourceInput::TargetGone));
            }
            Event::KillSource | Event::KillTarget => {}
        }
    }

    fn tell_source(&mut self, input: SourceInput) {
        let Some(source) = &mut self.source else { return };
        source.has_slot |= input == SourceInput::Admitted;
        let mut out = Vec::new();
        source.machine.step(input, &mut out);
        for output in out {
            match output {
                SourceOutput::Send(message) => self.send(false, &message),
                SourceOutput::Do(SourceAction::TakeSlot) => {
                    self.admit(Event::ToSource(SourceInput::Admitted));
                }
                SourceOutput::Do(action @ (SourceAction::Commit { .. } | SourceAction::LookUp)) => {
                    self.soon(Event::AtSource(action));
                }
                SourceOutput::Do(action) => self.in_turn(0, Event::AtSource(action)),
            }
        }
    }

    fn tell_target(&mut self, input: TargetInput) {
        let Some(target) = &mut self.target else { return };
        let mut out = Vec::new();
        target.machine.step(self.now_us, input, &mut out);
        target.serves |= self.is_durable && target.may_serve();
        for output in out {
            match output {
                TargetOutput::Send(message) => self.send(true, &message),
                TargetOutput::Do(action @ (TargetAction::Commit { .. } | TargetAction::LookUp)) => {
                    self.soon(Event::AtTarget(action));
                }
                TargetOutput::Do(action) => self.in_turn(1, Event::AtTarget(action)),
            }
        }
    }

    fn act_at_source(&mut self, action: SourceAction) {
        if self.source.is_none() {
            return;
        }
        if self.cut_off[0] && matches!(action, SourceAction::LookUp | SourceAction::Commit { .. }) {
            return self.soon(Event::AtSource(action));
        }
        let end = match action {
            SourceAction::LookUp => return self.read(0),
            SourceAction::Commit { from, to, is_peer_gone } => {
                Some(SourceEnd::Committed(self.commit(from, to, is_peer_gone.then_some(1))))
            }
            SourceAction::Serve { ceiling } => {
                if self.is_lost && self.records == MigrationPhase::Ended && !self.is_durable {
                    self.forget_what_died_with_the_target();
                }
                self.source.as_mut().map(|source| source.serve(ceiling))
            }
            action => self.source.as_mut().map(|source| source.act(action)),
        };
        if let Some(end) = end {
            self.soon(Event::ToSource(SourceInput::End(end)));
        }
    }

    fn act_at_target(&mut self, action: TargetAction) {
        if self.cut_off[1] && matches!(action, TargetAction::LookUp | TargetAction::Commit { .. }) {
            return self.soon(Event::AtTarget(action));
        }
        let Some(target) = &mut self.target else { return };
        let end = match action {
            TargetAction::LookUp => return self.read(1),
            TargetAction::Commit { from, to, is_peer_gone } => {
                Some(TargetEnd::Committed(self.commit(from, to, is_peer_gone.then_some(0))))
            }
            TargetAction::Sync if !self.has_disk => return self.tell_target(TargetInput::Abort),
            TargetAction::Sync if self.random.bool() => return self.soon(Event::AtTarget(action)),
            TargetAction::Sync => Some(TargetEnd::Synced),
            TargetAction::Wake { hashes } => {
                hashes.into_iter().for_each(|hash| self.read_at_target(hash));
                None
            }
            TargetAction::GiveUpRest => {
                assert!(!self.is_durable, "what is on a disk is waited for");
                target.is_given_up = true;
                if self.mode == MigrationMode::PreCopy {
                    // Objects that were not copied again are outdated.
                    assert!(!target.serves);
                    target.objects.clear();
                }
                if self.has_returned {
                    self.model = target.objects.iter().map(|(&key, object)| (key, object.1)).collect();
                }
                self.model.retain(|key, _| target.objects.contains_key(key));
                None
            }
            action => target.act(action),
        };
        if let Some(end) = end {
            self.soon(Event::ToTarget(TargetInput::End(end)));
        }
    }

    /// Schedules a time in which the records do not answer a side, and its consequences.
    fn cut_off(&mut self, side: usize, from_us: u64, for_us: u64) {
        self.at(from_us, Event::CutOff(side, true));
        self.at(from_us + for_us, Event::CutOff(side, false));
        if for_us <= LEASE_US {
            return;
        }
        self.at(from_us + LEASE_US, Event::Lease(side, false));
        let back_us = from_us + for_us + self.random.u64(1..30_000);
        self.at(back_us, Event::Lease(side, true));
        // The news may arrive late.
        for _ in 0..self.random.u8(0..4) {
            let gone_us = self.random.u64(0..for_us);
            if gone_us > LEASE_US + GONE_AFTER_US {
                let told_us = from_us + gone_us + self.random.u64(0..100_000);
                self.at(told_us, Event::Gone(side));
            }
        }
    }

    fn lease(&mut self, side: usize, is_held: bool) {
        let number = self.now_us;
        self.leases[side] = is_held.then_some(number);
        let serves = |world: &World| match side {
            0 => world.source.as_ref().is_some_and(|source| source.serves),
            _ => world.target.as_ref().is_some_and(|target| target.serves),
        };
        self.closed += u32::from(!is_held && serves(self));
        match side {
            0 => self.tell_source(SourceInput::Registered(is_held)),
            _ => self.tell_target(TargetInput::Registered(is_held)),
        }
    }

    /// Changes the phase by compare-and-swap, and returns the resulting phase.
    fn commit(&mut self, from: MigrationPhase, to: MigrationPhase, gone: Option<usize>) -> MigrationPhase {
        if self.records == from && gone.is_none_or(|side| self.leases[side].is_none()) {
            self.records = to;
            self.is_lost |= gone.is_some();
            self.has_returned |= to == MigrationPhase::Returning;
            (0..self.cut_off.len()).for_each(|side| self.follow_records(side));
        }
        self.records
    }

    /// Reports the phase to a side after a delay, unless it is cut off: then it is told at the end of that.
    fn follow_records(&mut self, side: usize) {
        let phase = self.records;
        match (self.cut_off[side], side) {
            (true, _) => {}
            (false, 0) => self.soon(Event::ToSource(SourceInput::Phase(phase))),
            (false, _) => self.soon(Event::ToTarget(TargetInput::Phase(phase))),
        }
    }

    fn read(&mut self, side: usize) {
        let event = Event::Read(side, self.records, self.leases[side]);
        self.soon(event);
    }

    fn has_read(&mut self, side: usize, phase: MigrationPhase, lease: Option<u64>) {
        let is_registered = lease.is_some() && lease == self.leases[side];
        match side {
            0 => self.tell_source(SourceInput::End(SourceEnd::LookedUp(phase, is_registered))),
            _ => self.tell_target(TargetInput::End(TargetEnd::LookedUp(phase, is_registered))),
        }
    }

    /// Makes a client's request to the side that serves.
    fn use_it(&mut self) {
        let (key, value, kind) = (self.random.u64(0..KEYS), self.random.u64(..), self.random.u8(0..3));
        if let Some(source) = self.source.as_mut().filter(|source| source.serves) {
            match kind {
                0 => assert_eq!(source.read(key), self.model.get(&key).copied()),
                1 => {
                    source.write(key, value);
                    self.model.insert(key, value);
                }
                _ => {
                    source.remove(key);
                    self.model.remove(&key);
                }
            }
        } else if let Some(target) = self.target.as_mut().filter(|target| target.serves) {
            match kind {
                1 => {
                    target.write(key, value);
                    self.model.insert(key, value);
                    self.dirty.insert(key);
                }
                2 if target.knows(key) => {
                    target.remove(key);
                    self.model.remove(&key);
                    self.dirty.insert(key);
                }
                _ => self.read_at_target(key),
            }
        }
    }

    fn read_at_target(&mut self, key: u64) {
        let Some(target) = self.target.as_ref().filter(|target| target.serves) else { return };
        if target.knows(key) {
            let found = target.objects.get(&key).map(|object| object.1);
            assert_eq!(found, self.model.get(&key).copied(), "key {key} at {} us", self.now_us);
        } else {
            self.tell_target(TargetInput::Want(key));
        }
    }

    fn forget_what_died_with_the_target(&mut self) {
        let source = self.source.as_ref().expect("it is about to serve");
        for key in (0..KEYS).filter(|key| !self.dirty.contains(key)) {
            assert_eq!(source.read(key), self.model.get(&key).copied(), "nobody has written to {key}");
        }
        self.model = source.objects.iter().map(|(&key, object)| (key, object.1)).collect();
    }

    /// Checks that the final owner has all objects and the other side none.
    fn compare(&self) {
        let values = |objects: &BTreeMap<u64, (u64, u64)>| -> BTreeMap<u64, u64> {
            objects.iter().map(|(&key, object)| (key, object.1)).collect()
        };
        match (self.records, &self.source, &self.target) {
            (MigrationPhase::Finished, source, Some(target)) => {
                assert!(target.serves);
                assert_eq!(values(&target.objects), self.model);
                assert!(source.as_ref().is_none_or(|source| !source.serves && source.objects.is_empty()));
            }
            (MigrationPhase::Ended, Some(source), target) => {
                assert!(source.serves);
                assert_eq!(values(&source.objects), self.model);
                assert!(target.as_ref().is_none_or(|target| !target.serves && target.objects.is_empty()));
            }
            // The owner is dead, before or after the migration.
            (MigrationPhase::Finished, _, None) | (MigrationPhase::Ended, None, _) => {
                let side = usize::from(self.records == MigrationPhase::Finished);
                let disk = self.on_disk[side].as_ref().filter(|_| self.is_durable);
                disk.iter().for_each(|objects| assert_eq!(values(objects), self.model, "it returns"));
            }
            (records, ..) => panic!("{records:?} is no end"),
        }
    }
}
