//! The two sides' execution of their machines' actions, on a store that maps keys to versions and values.

use std::collections::{BTreeMap, BTreeSet};

use super::KEYS;
use crate::limits::{COPY_LEFT_BYTES, MIGRATION_PARTITIONS};
use crate::migration::{
    Gathered, Message, MigrationMode, MigrationPhase, PullCursor, PullSpan, Source, SourceAction, SourceEnd,
    Target, TargetAction, TargetEnd,
};

/// Objects of a pull and of a returned piece.
const PULL_OBJECTS: usize = 6;
const WIDTH: u64 = KEYS / MIGRATION_PARTITIONS as u64;

pub type Objects = BTreeMap<u64, (u64, u64)>;

fn encode<'a>(objects: impl Iterator<Item = (&'a u64, &'a (u64, u64))>) -> Vec<u8> {
    objects.flat_map(|(key, (version, value))| [*key, *version, *value]).flat_map(u64::to_le_bytes).collect()
}

fn decode(bytes: &[u8]) -> Vec<(u64, (u64, u64))> {
    let (words, _) = bytes.as_chunks::<8>();
    let (objects, _) = words.as_chunks::<3>();
    objects
        .iter()
        .map(|object| object.map(u64::from_le_bytes))
        .map(|[key, version, value]| (key, (version, value)))
        .collect()
}

pub struct SourceSide {
    pub machine: Source,
    pub objects: Objects,
    pub serves: bool,
    pub has_slot: bool,
    newest: u64,
    /// Keys that were written or removed since their marks were taken, if writes are marked.
    touched: Option<BTreeSet<u64>>,
    /// The current copying round, and the key at which it continues.
    copied: (u32, u64),
}

impl SourceSide {
    pub fn new(model: &BTreeMap<u64, u64>) -> SourceSide {
        let objects = model.iter().map(|(&key, &value)| (key, (1, value))).collect();
        let (machine, touched, copied) = (Source::default(), None, (0, 0));
        SourceSide { machine, objects, serves: true, has_slot: false, newest: 1, touched, copied }
    }

    pub fn read(&self, key: u64) -> Option<u64> {
        self.objects.get(&key).map(|object| object.1)
    }

    pub fn write(&mut self, key: u64, value: u64) {
        self.newest += 1;
        self.objects.insert(key, (self.newest, value));
        self.touched.iter_mut().for_each(|touched| touched.extend([key]));
    }

    pub fn remove(&mut self, key: u64) {
        self.objects.remove(&key);
        self.touched.iter_mut().for_each(|touched| touched.extend([key]));
    }

    /// Gathers the next piece of a round: any keys in round 0, later only touched ones.
    fn gather_copy(&mut self, round: u32) -> Gathered {
        let touched = self.touched.as_mut().expect("somebody watches");
        if self.copied.0 != round {
            self.copied = (round, 0);
        }
        let next = &mut self.copied.1;
        let mut keys: Vec<u64> = match round {
            0 => (*next..KEYS).collect(),
            _ => touched.range(*next..).copied().collect(),
        };
        let is_end = keys.len() <= PULL_OBJECTS;
        keys.truncate(PULL_OBJECTS);
        *next = keys.last().map_or(KEYS, |key| key + 1);
        if round > 0 {
            keys.iter().for_each(|key| assert!(touched.remove(key)));
        }
        let place = |hash, second| PullCursor { hash, second };
        let span = |&key: &u64| PullSpan { first: place(key, 0), last: place(key, u64::MAX) };
        Gathered {
            objects: encode(keys.iter().filter_map(|key| self.objects.get_key_value(key))),
            spans: keys.iter().map(span).collect(),
            left_bytes: is_end.then_some(touched.len() as u64 * COPY_LEFT_BYTES / 3),
        }
    }

    pub fn serve(&mut self, ceiling: u64) -> SourceEnd {
        self.serves = true;
        self.newest = self.newest.max(ceiling);
        SourceEnd::Served
    }

    pub fn act(&mut self, action: SourceAction) -> SourceEnd {
        assert!(self.has_slot || action == SourceAction::Cut, "it was admitted before {action:?}");
        match action {
            SourceAction::Count => SourceEnd::Counted(self.objects.len() as u64),
            SourceAction::Cut => {
                self.serves = false;
                SourceEnd::Cut(self.newest)
            }
            SourceAction::Gather { partition, number, from } => {
                let last = (u64::from(partition) + 1) * WIDTH - 1;
                let first = from.map_or(u64::from(partition) * WIDTH, |from| from.hash + 1);
                let found: Vec<_> = self.objects.range(first..last + 1).take(PULL_OBJECTS).collect();
                let next = (found.len() == PULL_OBJECTS)
                    .then(|| found.last().map(|(key, _)| PullCursor { hash: **key, second: u64::MAX }))
                    .flatten();
                let objects = encode(found.into_iter());
                SourceEnd::Gathered(Message::Pulled { partition, number, next, objects })
            }
            SourceAction::GatherHashes { number, hashes } => {
                // Answers only a part, as if the rest did not fit; sometimes that part is everything.
                let some = &hashes[..hashes.len().div_ceil(2)];
                let objects = encode(some.iter().filter_map(|hash| self.objects.get_key_value(hash)));
                let count = some.len() as u32;
                SourceEnd::Gathered(Message::PriorityPulled { number, count, objects })
            }
            SourceAction::Watch => {
                self.touched = Some(BTreeSet::new());
                SourceEnd::Watched
            }
            SourceAction::GatherCopy { round } => SourceEnd::GatheredCopy(self.gather_copy(round)),
            SourceAction::Discard => {
                assert!(!self.serves, "nobody discards what it serves");
                self.objects.clear();
                SourceEnd::Discarded
            }
            SourceAction::TakeBack { objects, removed } => {
                assert!(!self.serves);
                for (key, object) in decode(&objects) {
                    let before = self.objects.insert(key, object);
                    assert!(before.is_none_or(|before| before.0 <= object.0), "versions grow");
                }
                for place in removed {
                    self.objects.remove(&place.hash);
                }
                SourceEnd::TakenBack
            }
            SourceAction::TakeSlot
            | SourceAction::LookUp
            | SourceAction::Commit { .. }
            | SourceAction::Serve { .. } => unreachable!("the world does that"),
        }
    }
}

pub struct TargetSide {
    pub machine: Target,
    is_copied: bool,
    is_durable: bool,
    /// Whether its part is ready.
    is_ready: bool,
    pub objects: Objects,
    pub serves: bool,
    pub is_given_up: bool,
    removed: BTreeSet<u64>,
    /// The first key of each partition that has not arrived.
    arrived: Vec<u64>,
    ceiling: u64,
    newest: u64,
    given: usize,
}

impl TargetSide {
    pub fn new(mode: MigrationMode, is_durable: bool) -> TargetSide {
        TargetSide {
            machine: Target::new(mode, is_durable),
            is_copied: mode == MigrationMode::PreCopy,
            is_durable,
            is_ready: false,
            objects: Objects::new(),
            serves: false,
            is_given_up: false,
            removed: BTreeSet::new(),
            arrived: Vec::new(),
            ceiling: 0,
            newest: 0,
            given: 0,
        }
    }

    /// Returns whether a durable part may be served from: not before it is known to have everything on the disk.
    pub fn may_serve(&self) -> bool {
        self.is_ready && self.machine.phase() == MigrationPhase::Finished
    }

    fn has_arrived(&self, key: u64) -> bool {
        self.is_given_up || key < self.arrived[(key / WIDTH) as usize]
    }

    /// Returns whether the target can answer for the key without the source.
    pub fn knows(&self, key: u64) -> bool {
        self.objects.contains_key(&key) || self.removed.contains(&key) || self.has_arrived(key)
    }

    pub fn write(&mut self, key: u64, value: u64) {
        self.newest += 1;
        self.objects.insert(key, (self.newest, value));
        self.removed.remove(&key);
    }

    pub fn remove(&mut self, key: u64) {
        self.objects.remove(&key);
        self.removed.insert(key);
    }

    fn replay(&mut self, objects: &[u8]) {
        for (key, object) in decode(objects) {
            let is_older = self.objects.get(&key).is_some_and(|here| here.0 >= object.0);
            if !is_older && !self.removed.contains(&key) && !self.has_arrived(key) {
                self.objects.insert(key, object);
            }
        }
    }

    pub fn act(&mut self, action: TargetAction) -> Option<TargetEnd> {
        match action {
            TargetAction::MakePart { .. } => {
                let bounds = |at| (at * WIDTH, (at + 1) * WIDTH - 1);
                let partitions: Vec<_> = (0..MIGRATION_PARTITIONS as u64).map(bounds).collect();
                self.arrived = partitions.iter().map(|bounds| bounds.0).collect();
                Some(TargetEnd::PartMade(partitions))
            }
            TargetAction::Serve { ceiling } => {
                self.is_ready = true;
                self.serves = !self.is_durable || self.may_serve();
                if self.is_copied {
                    self.is_given_up = true;
                }
                if self.newest == 0 {
                    (self.ceiling, self.newest) = (ceiling, ceiling);
                }
                Some(TargetEnd::Served)
            }
            TargetAction::Replay { partition, next, objects } => {
                self.replay(&objects);
                let end = (u64::from(partition) + 1) * WIDTH;
                self.arrived[usize::from(partition)] = next.map_or(end, |next| next.hash + 1);
                Some(TargetEnd::Replayed { partition })
            }
            TargetAction::ReplayPriority { objects, .. } => {
                self.replay(&objects);
                Some(TargetEnd::PriorityReplayed)
            }
            TargetAction::StoreCopy(piece) => {
                assert!(!self.serves && self.is_copied);
                let objects = decode(&piece.objects);
                for span in &piece.spans {
                    let had: Vec<u64> =
                        self.objects.range(span.first.hash..=span.last.hash).map(|(key, _)| *key).collect();
                    assert!(piece.is_again || had.is_empty());
                    self.objects.retain(|key, _| !had.contains(key));
                }
                self.objects.extend(objects);
                Some(TargetEnd::CopyStored)
            }
            TargetAction::Cut => {
                (self.serves, self.is_ready) = (false, false);
                Some(TargetEnd::Cut(self.newest))
            }
            TargetAction::GatherBack => {
                assert!(!self.serves);
                let since = || self.objects.iter().filter(|(_, object)| object.0 > self.ceiling);
                let objects = encode(since().skip(self.given).take(PULL_OBJECTS));
                self.given += PULL_OBJECTS;
                let is_last = since().count() <= self.given;
                let place = |&hash: &u64| PullCursor { hash, second: 0 };
                let removed = if is_last { self.removed.iter().map(place).collect() } else { Vec::new() };
                Some(TargetEnd::GatheredBack { is_last, objects, removed })
            }
            TargetAction::DropPart => {
                assert!(!self.serves);
                self.objects.clear();
                None
            }
            TargetAction::Commit { .. }
            | TargetAction::LookUp
            | TargetAction::Sync
            | TargetAction::Wake { .. }
            | TargetAction::GiveUpRest => unreachable!("the world does that"),
        }
    }
}
