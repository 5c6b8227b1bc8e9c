//! Recovery: rebuilds the objects of durable tables from the segments that a disk held.
//!
//! ```text
//!   for each segment:  entries ──► newest of its key so far? ──► copied to memory, under the segment's number ──► index
//!                                    │ no, but it ends an older entry that the disk still holds: a tombstone
//!                                    └ no: nothing
//! ```
//! Segments may come in any order; the newest first costs least. What comes to memory is what compaction of the segment
//! would leave, so the disk need not be written: a segment on the disk has the same number as before. The end of a key is
//! remembered until all segments have come, since older entries may follow.
//!
//! *While tables are in use* ([`Table::expect_replay`]): a key is unknown until everything is there, or until what all segments
//! have of its hash was recovered ahead ([`Recovery::ahead`]); nobody reads or writes it before. From then on it belongs to
//! its writers, and whatever the segments bring again is older: than what is there, or than a removal, which is noted.
//!
//! Entries pass in batches, so that the buckets of a batch come from memory side by side. An index gets room early for
//! what the rest of the log may bring, as long as memory has room for all of that: else it would be moved four times.

mod ahead;
mod completions;
mod room;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::ahead::Ahead;
use crate::archived::next_start;
use crate::completion::FoundCompletions;
use crate::durable::RECOVERED;
use crate::error::WriteError;
use crate::limits::VERSION_MAX;
use crate::log::{Head, NoSegment, SEGMENT_HEADER_BYTES, read_segment_header};
use crate::number_hash::NumberHash;
use crate::object::{Entry, Kind, Lengths};
use crate::segment::Claim;
use crate::store::cleaning::Cleaner;
use crate::store::core::{Core, Pinned};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, ExclusiveGuard, Ordering};
use crate::table::Table;

/// Parts of what cores share with a lock each, so that cores rarely meet.
const SHARDS: usize = 64;

/// Entries that are replayed together.
const BATCH: usize = 32;

/// Background steps that may be needed to make room for a segment.
const STEPS_MAX: u32 = 100_000;
/// The same for an entry that comes ahead: whoever waits for it can wait for its segment.
const STEPS_AHEAD_MAX: u32 = 50;
/// Steps without room after which more is taken of the memory that is kept from writers.
const STEPS_PER_HALVING: u32 = 1_000;

/// The log as a disk held it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LogOnDisk {
    /// The numbers of its segments.
    pub sequences: Vec<u32>,
    /// The highest number ever used.
    pub last: u32,
    /// Segments of survivors that are left out, wholly or in part, with those that their objects came from.
    pub left_out: Vec<(u32, Vec<u32>)>,
    /// The bytes of all segments, if known: indexes then get room in time.
    pub bytes: u64,
    /// Whether tables are in use meanwhile ([`Table::expect_replay`]): then writers leave the memory that the rest needs.
    pub is_in_use: bool,
}

/// What was found in segments.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Recovered {
    /// Objects that can be found now, or could until a newer one came.
    pub objects: u64,
    /// Entries that newer ones have ended, or that have expired.
    pub dead: u64,
    /// Entries of tables that do not exist any more.
    pub dropped: u64,
    /// Damaged entries: the segment's number, offset and length, up to where the recovery went on.
    pub damaged: Vec<(u32, usize, usize)>,
}

/// The reason why a segment was not recovered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RecoveryError {
    /// The bytes are no segment of this number, or of another format.
    NotTheSegment,
    /// The objects need more memory than the store has.
    OutOfMemory,
}

/// Keys that have ended, with the highest version up to which they did, by table and key.
type Ended = HashMap<(u32, Box<[u8]>), u64>;

/// What all cores of a recovery share.
struct Shared {
    ahead: Mutex<Ahead>,
    /// By hash.
    ended: [Mutex<Ended>; SHARDS],
    /// Whether any has ended. Set before the first one is noted, and so before the bucket of its key is locked.
    any_ended: AtomicBool,
    /// By client.
    completions: [Mutex<FoundCompletions>; SHARDS],
    /// Bytes of all of these, about.
    completions_bytes: AtomicUsize,
    /// Segments that the disk holds, and those in place of which it holds others.
    sequences: HashSet<u32, NumberHash>,
    left_out: HashMap<u32, Vec<u32>, NumberHash>,
    /// Bytes of all segments, and of those that have come.
    bytes: u64,
    bytes_done: AtomicU64,
    /// Whether tables are in use meanwhile.
    is_in_use: bool,
}

/// An object or a tombstone of a segment, which is intact.
struct Arrived<'b> {
    entry: Entry<'b>,
    hash: u64,
    content_checksum: u32,
}

/// A recovery, for cores to take part in it.
#[derive(Clone)]
pub struct RecoveryHandle(Arc<Shared>);

/// A recovery in progress on one core; see [`Core::recover`].
pub struct Recovery<'c> {
    core: &'c Core,
    head: Head,
    shared: Arc<Shared>,
    found: Recovered,
    /// How often the memory that is kept from writers was halved: what comes was in memory before.
    halvings: u32,
    /// Whether the entry at hand comes ahead of its segment: then its head takes no more memory than it needs.
    is_ahead: bool,
    /// Whether no client asks any more for the replies of the segment at hand, as far as clocks tell.
    are_replies_old: bool,
}

impl Core {
    /// Begins to rebuild the durable tables of an empty store from what a disk held. The store's clock must have been
    /// advanced at least to the time of the last write, so that no expired object returns.
    pub fn recover(&self, log: &LogOnDisk) -> Recovery<'_> {
        self.store.log.open_above(log.last);
        let mut cleaner = cleaner_of(self);
        cleaner.on_disk.recover(&log.sequences, &log.left_out);
        cleaner.recovering = true;
        let shared = Shared {
            ahead: Mutex::default(),
            ended: std::array::from_fn(|_| Mutex::default()),
            any_ended: AtomicBool::new(false),
            completions: std::array::from_fn(|_| Mutex::default()),
            completions_bytes: AtomicUsize::new(0),
            sequences: log.sequences.iter().copied().collect(),
            left_out: log.left_out.iter().cloned().collect(),
            bytes: log.bytes,
            bytes_done: AtomicU64::new(0),
            is_in_use: log.is_in_use,
        };
        let recovery = Recovery::on(self, Arc::new(shared));
        recovery.keep_for_rest();
        recovery
    }
}

impl RecoveryHandle {
    /// Begins a core's part of the recovery.
    pub fn on<'c>(&self, core: &'c Core) -> Recovery<'c> {
        Recovery::on(core, Arc::clone(&self.0))
    }
}

impl Shared {
    /// Returns whether a replay would find the segment of this number: as the cleaner knows it, and without it.
    fn has(&self, sequence: u32) -> bool {
        let has_one = |sources: &Vec<u32>| sources.iter().any(|source| self.sequences.contains(source));
        sequence != 0
            && (self.sequences.contains(&sequence) || self.left_out.get(&sequence).is_some_and(has_one))
    }

    fn ended(&self, hash: u64) -> MutexGuard<'_, Ended> {
        self.ended[hash as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether an entry's key is known to have ended with a later one. Certain while the key's bucket is locked:
    /// who notes an end later finds the entry in the bucket.
    fn has_ended(&self, hash: u64, entry: &Entry<'_>) -> bool {
        if !self.any_ended.load(Ordering::Relaxed) {
            return false;
        }
        let ended = self.ended(hash);
        // A look-up by a borrowed pair would need a type for it; few keys have ended.
        !ended.is_empty()
            && ended
                .get(&(entry.table(), Box::from(entry.key())))
                .is_some_and(|&version| entry.version() <= version)
    }

    /// Notes that an entry has ended its key.
    fn note_ended(&self, hash: u64, entry: &Entry<'_>) {
        self.any_ended.store(true, Ordering::Relaxed);
        let mut ended = self.ended(hash);
        let version = ended.entry((entry.table(), Box::from(entry.key()))).or_default();
        *version = entry.version().max(*version);
    }
}

fn cleaner_of(core: &Core) -> ExclusiveGuard<'_, Cleaner> {
    loop {
        if let Some(cleaner) = core.store.cleaner.try_lock() {
            return cleaner;
        }
        std::thread::yield_now();
    }
}

impl<'c> Recovery<'c> {
    fn on(core: &'c Core, shared: Arc<Shared>) -> Self {
        let (head, found, halvings, is_ahead, are_replies_old) = Default::default();
        Recovery { core, head, shared, found, halvings, is_ahead, are_replies_old }
    }

    /// Returns a handle by which another core can take a part of the segments.
    pub fn handle(&self) -> RecoveryHandle {
        RecoveryHandle(Arc::clone(&self.shared))
    }

    /// Ends the part of a core; another one takes in what is returned, before it finishes.
    pub fn end_part(self) -> Recovered {
        self.found
    }

    /// Takes in what another core has found.
    pub fn join(&mut self, other: Recovered) {
        let Recovered { objects, dead, dropped, damaged } = other;
        let found = &mut self.found;
        (found.objects, found.dead, found.dropped) =
            (found.objects + objects, found.dead + dead, found.dropped + dropped);
        found.damaged.extend(damaged);
    }
}

impl<'c> Recovery<'c> {
    /// Recovers a segment: its bytes from the header on, as far as they count. Behind a damaged entry it goes on at the
    /// next of `starts`, offsets of entries in rising order. `table` finds a table by its number.
    ///
    /// # Errors
    /// [`RecoveryError`]. Damaged entries are no error: see [`Recovered::damaged`].
    pub fn segment(
        &mut self,
        sequence: u32,
        bytes: &[u8],
        starts: &[u32],
        mut table: impl FnMut(u32) -> Option<Arc<Table>>,
    ) -> Result<(), RecoveryError> {
        let is_it = read_segment_header(bytes) == Some(u64::from(sequence));
        if !is_it && starts.is_empty() {
            return Err(RecoveryError::NotTheSegment);
        }
        let begun = self.shared.ahead().take_head(sequence);
        self.begin(begun, sequence, bytes.len());
        let mut offset = SEGMENT_HEADER_BYTES;
        let mut batch = Vec::with_capacity(BATCH);
        // The table of the batch.
        let mut current: Option<(u32, Option<Arc<Table>>)> = None;
        while offset < bytes.len() {
            let split = Entry::split(&bytes[offset..]);
            let sound = split.and_then(|(entry, length)| Some((entry, length, entry.check()?)));
            let Some((entry, length, content_checksum)) = sound else {
                let next = next_start(starts, offset, bytes.len());
                self.found.damaged.push((sequence, offset, next - offset));
                offset = next;
                continue;
            };
            if entry.version() == 0 {
                // It was never published.
            } else if entry.kind() == Kind::Completion {
                self.completion(&entry)?;
            } else {
                let is_same = current.as_ref().is_some_and(|(id, _)| *id == entry.table());
                if batch.len() == BATCH || !is_same {
                    self.batch(sequence, &mut batch, &current)?;
                }
                if !is_same {
                    current = Some((entry.table(), table(entry.table())));
                }
                batch.push(Arrived { entry, hash: crate::hash(entry.key()), content_checksum });
            }
            offset += length;
        }
        self.batch(sequence, &mut batch, &current)?;
        self.make_room_ahead(bytes.len(), &current);
        self.keep_for_rest();
        self.end_ahead(sequence);
        self.core.store.log.close(&mut self.head);
        self.core.store.release(&mut cleaner_of(self.core), sequence, RECOVERED);
        Ok(())
    }

    /// Replays entries of one table, and forgets them.
    fn batch(
        &mut self,
        sequence: u32,
        batch: &mut Vec<Arrived<'_>>,
        current: &Option<(u32, Option<Arc<Table>>)>,
    ) -> Result<(), RecoveryError> {
        let Some(table) =
            current.as_ref().and_then(|(_, table)| table.as_ref().filter(|table| !table.is_retired()))
        else {
            self.found.dropped += batch.len() as u64;
            batch.clear();
            return Ok(());
        };
        {
            let pinned = self.core.pin();
            batch.iter().for_each(|arrived| table.index.prefetch_bucket(&pinned.pin, arrived.hash));
            for Arrived { entry, hash, .. } in &*batch {
                let prefetch = |location| {
                    self.core.store.log.prefetch_replaced(self.core.index, location, entry.key().len())
                };
                table.index.candidates(&pinned.pin, *hash, prefetch);
            }
        }
        batch.drain(..).try_for_each(|arrived| self.entry(sequence, &arrived, table))?;
        if self.shared.is_in_use {
            // The kernel looks who else waits for this CPU every few milliseconds only, and somebody waits for answers.
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Ends the recovery: what is empty leaves the disk. Returns what was found.
    pub fn finish(self) -> Recovered {
        self.end_all_ahead();
        let mut cleaner = cleaner_of(self.core);
        cleaner.recovering = false;
        self.core.store.hand_over_released(&mut cleaner);
        self.found
    }

    fn entry(&mut self, sequence: u32, arrived: &Arrived<'_>, table: &Table) -> Result<(), RecoveryError> {
        let Arrived { entry, hash, .. } = arrived;
        let hash = *hash;
        let matters = entry.predecessor() != sequence && self.shared.has(entry.predecessor());
        let is_expired = entry.expires_ms() <= self.core.store.now_ms();
        let may_live = entry.kind() == Kind::Object && !is_expired;
        let is_alive = may_live && !self.shared.has_ended(hash, entry) && {
            let placed = self.retrying(|this, pinned| this.place(pinned, arrived, table, matters))?;
            self.found.objects += u64::from(placed);
            placed
        };
        if is_alive {
            return Ok(());
        }
        self.found.dead += 1;
        if is_expired && let Some(durable) = &self.core.store.log.durable {
            durable.note_expired(hash, entry.expires_ms(), 0);
        }
        if entry.kind() == Kind::Tombstone || is_expired {
            self.end(hash, entry, table)?;
        }
        if matters {
            self.retrying(|this, _| this.leave_tombstone(entry, table))?;
        }
        Ok(())
    }

    /// Remembers that a key has ended with this entry, and removes what was found of it.
    fn end(&mut self, hash: u64, entry: &Entry<'_>, table: &Table) -> Result<(), RecoveryError> {
        self.shared.note_ended(hash, entry);
        table.remember_end(entry.version().min(VERSION_MAX / 2));
        let key = entry.key();
        self.retrying(|this, pinned| {
            let bucket = table.index.lock(&pinned.pin, hash)?;
            let found = bucket.find(hash, |location| pinned.with_location(location, key));
            if let Some((place, (location, object))) = found
                && object.version() <= entry.version()
            {
                pinned.take_out(table, bucket, place, location, &object);
                this.found.dead += 1;
            }
            Ok(())
        })
    }

    /// Copies an object to memory, and to the index unless that has one as new. Returns whether it did.
    fn place(
        &mut self,
        pinned: &Pinned<'_>,
        &Arrived { entry, hash, content_checksum }: &Arrived<'_>,
        table: &Table,
        matters: bool,
    ) -> Result<bool, WriteError> {
        let (store, shared, key) = (&self.core.store, &self.shared, entry.key());
        let claim = self.claim(store.keep_for_writers() >> self.halvings);
        let lengths = Lengths { predecessor: matters, ..entry.lengths() };
        let content = (entry.content(), content_checksum);
        let staged = store.log.stage_content(
            &mut self.head,
            claim,
            (table.id(), lengths),
            content,
            entry.expires_ms(),
        );
        let staged = staged.map_err(|NoSegment| pinned.no_room(table, entry.bytes()))?;
        let placed = pinned.write_entering(
            table,
            (hash, key),
            |placed| *placed,
            |entered| {
                let bucket = table.index.lock(&pinned.pin, hash)?;
                let found = bucket.find(hash, |location| pinned.with_location(location, key));
                let is_old =
                    found.as_ref().is_some_and(|(_, (_, object))| object.version() >= entry.version());
                // Another core may have noted its end after the look before; it removes what it finds once it has the bucket.
                if is_old || shared.has_ended(hash, &entry) || table.was_removed(key) {
                    return Ok(false);
                }
                pinned.admit_to_index(table, key, found.is_none(), entered)?;
                store.log.seal(&staged, entry.version(), entry.predecessor());
                pinned.enter_index(table, hash, &staged, bucket, found)?;
                Ok(true)
            },
        );
        if placed == Ok(true) {
            table.count_version(self.core.index, entry.version());
        } else {
            store.log.unstage(self.core.index, &mut self.head, &staged);
        }
        placed.map_err(|error| match pinned.refused(table, hash, error) {
            // What was pulled or rewritten lies in hash order in the log.
            WriteError::Collisions if pinned.hurry_in_order(table) => WriteError::Retry { after_us: 0 },
            error => error,
        })
    }

    /// Returns what an entry claims of the memory, of which so many seglets are kept.
    fn claim(&self, keep: u64) -> impl FnOnce(usize) -> Claim + use<'c> {
        let (core, is_ahead) = (self.core, self.is_ahead);
        move |bytes| {
            let claim = core.store.log.claim_of_writer(bytes, keep);
            if is_ahead { Claim { most: claim.least, ..claim } } else { claim }
        }
    }

    fn leave_tombstone(&mut self, entry: &Entry<'_>, table: &Table) -> Result<(), WriteError> {
        let log = &self.core.store.log;
        let claim = self.claim(0);
        let staged = log.stage_tombstone(&mut self.head, claim, table.id(), entry.key());
        let staged = staged.map_err(|NoSegment| WriteError::Retry { after_us: 0 })?;
        log.seal(&staged, entry.ends_to(), entry.predecessor());
        Ok(())
    }

    /// Repeats a write until there is room for it, with steps of background work.
    fn retrying<T: Default>(
        &mut self,
        mut write: impl FnMut(&mut Self, &Pinned<'_>) -> Result<T, WriteError>,
    ) -> Result<T, RecoveryError> {
        let steps_max = if self.is_ahead { STEPS_AHEAD_MAX } else { STEPS_MAX };
        for step in 1..=steps_max {
            let core = self.core;
            let written = write(self, &core.pin());
            match written {
                Ok(written) => return Ok(written),
                Err(WriteError::Retry { .. }) => {
                    core.step();
                    // What is hoped for may not come before the end: nothing expires, no frame is freed.
                    self.halvings =
                        (self.halvings + u32::from(step % STEPS_PER_HALVING == 0)).min(u64::BITS - 1);
                }
                // Nobody asks for it any more.
                Err(WriteError::TableRetired) => return Ok(T::default()),
                Err(WriteError::OutOfMemory) if self.halvings < u64::BITS - 1 => self.halvings += 1,
                Err(_) => return Err(RecoveryError::OutOfMemory),
            }
        }
        Err(RecoveryError::OutOfMemory)
    }
}

impl fmt::Debug for Recovery<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Recovery {{ found: {:?} }}", self.found)
    }
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            RecoveryError::NotTheSegment => "the bytes are not the segment that should be there",
            RecoveryError::OutOfMemory => "the objects need more memory than the store has",
        })
    }
}

impl std::error::Error for RecoveryError {}
