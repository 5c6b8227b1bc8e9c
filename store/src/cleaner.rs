//! The cleaner: makes free segments out of dead bytes.
//!
//! ```text
//!   closed, few live ──► cleaning: live objects are copied behind the survivor head, one index entry at a time
//!                              │ all dead
//!                              ▼
//!                            limbo ── no pin older ──► free
//! ```
//!
//! It starts when free segments run low and takes the segment with the most dead bytes, as long as that is
//! worth the copying. One core at a time cleans; each step is bounded. A segment is emptied only when every byte
//! of it has been buried (see `segment.rs`), so an object that its writer has yet to publish keeps its segment.
//! Two segments are the cleaner's alone, so that it can always copy before it frees. The full, two-level cleaner
//! (cost-benefit, tombstones: RAMCloud, TOCS'15 §5) is another matter.

use std::sync::Arc;

use crate::index::Location;
use crate::limits::{CLEAN_BYTES_PER_STEP, CLEAN_BYTES_PER_STEP_PRESSED, CLEAN_GARBAGE_DIVISOR};
use crate::log::Head;
use crate::pinned::Pinned;
use crate::segment::{SegmentId, State};
use crate::store::Store;
use crate::store::backlog::{Cleaner, Source};
use crate::sync::Ordering;
use crate::table::Table;

/// Entries whose index buckets are asked for together.
const PREFETCH_BATCH: usize = 16;

/// An entry of the source.
#[derive(Clone, Copy)]
struct Entry {
    location: Location,
    bytes: usize,
    table: u32,
    hash: u64,
}

impl Store {
    /// A bounded piece of cleaning. Returns whether it did something.
    pub(crate) fn clean_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(mut cleaner) = self.cleaner.try_lock() else { return false };
        let freed = self.free_limbo(&mut cleaner);
        let keep = self.keep_for_writers();
        if cleaner.source.is_none() {
            let free_wanted = keep + 1 + self.config.cores as u64 + u64::from(self.log.segments.count()) / 64;
            let free_soon = self.log.segments.free_count() + cleaner.limbo.len() as u64;
            if free_soon >= free_wanted || !self.choose_source(&mut cleaner) {
                return freed;
            }
        }
        let pressed = self.log.segments.free_count() <= keep;
        let budget = if pressed { CLEAN_BYTES_PER_STEP_PRESSED } else { CLEAN_BYTES_PER_STEP };
        self.clean_source(&mut cleaner, pinned, budget) || freed
    }

    /// Frees the dead segments that no reader can see any more.
    fn free_limbo(&self, cleaner: &mut Cleaner) -> bool {
        let mut freed = false;
        if cleaner.limbo.is_empty() {
            return false;
        }
        let oldest = self.epochs.oldest_pin();
        while let Some(&(tag, segment)) = cleaner.limbo.front()
            && tag < oldest
        {
            cleaner.limbo.pop_front();
            // The indexes have grown into the memory of this many segments.
            let index_bytes = self.index_bytes.load(Ordering::Relaxed);
            if self.log.segments.free_count() < index_bytes / self.log.segment_bytes() as u64 {
                self.log.give_back(segment);
            }
            self.log.segments.free(segment);
            self.segments_cleaned.fetch_add(1, Ordering::Relaxed);
            freed = true;
        }
        freed
    }

    fn send_to_limbo(&self, cleaner: &mut Cleaner, segment: SegmentId) {
        self.log.segments.set_state(segment, State::Limbo);
        cleaner.limbo.push_back((self.epochs.retire(), segment));
    }

    /// Takes the segment with the most dead bytes; those that are wholly dead go to limbo at once.
    fn choose_source(&self, cleaner: &mut Cleaner) -> bool {
        let segments = &self.log.segments;
        let mut best: Option<(u32, SegmentId)> = None;
        let mut found_dead = false;
        for (id, state) in segments.iter() {
            if state != State::Closed {
                continue;
            }
            let dead = segments.dead(id);
            if dead == segments.used(id) {
                self.send_to_limbo(cleaner, id);
                found_dead = true;
            } else if best.is_none_or(|(most, _)| dead > most) {
                best = Some((dead, id));
            }
        }
        let Some((dead, segment)) = best else { return false };
        let worth = u64::from(dead) >= self.log.segment_bytes() as u64 / CLEAN_GARBAGE_DIVISOR;
        if found_dead || !worth {
            return false;
        }
        segments.set_state(segment, State::Cleaning);
        let next = self.log.first(segment).offset();
        cleaner.source = Some(Source { segment, next, end: next + segments.used(segment) as usize });
        true
    }

    /// Goes on through the source for about `budget` bytes.
    fn clean_source(&self, cleaner: &mut Cleaner, pinned: &Pinned<'_>, budget: usize) -> bool {
        let Some(mut source) = cleaner.source.take() else { return false };
        let stop = source.end.min(source.next + budget);
        let mut batch = [const { None }; PREFETCH_BATCH];
        while source.next < stop {
            let mut ahead = source.next;
            for slot in &mut batch {
                *slot = (ahead < stop).then(|| self.read_entry(pinned, Location::from_offset(ahead)));
                ahead += slot.as_ref().map_or(0, |entry| entry.bytes);
            }
            for entry in batch.iter().flatten() {
                if !self.relocate(&mut cleaner.survivors, pinned, entry) {
                    // Not even the reserve: limbo will bring some.
                    cleaner.source = Some(source);
                    return false;
                }
                source.next += entry.bytes;
            }
        }
        if source.next < source.end {
            cleaner.source = Some(source);
        } else if self.log.segments.dead(source.segment) == self.log.segments.used(source.segment) {
            self.send_to_limbo(cleaner, source.segment);
        } else {
            // Somebody has staged an object here and not published it yet, or a replaced one is not buried yet.
            self.log.segments.set_state(source.segment, State::Closed);
        }
        true
    }

    /// Reads an entry and asks for what the look at its liveness will need.
    fn read_entry(&self, pinned: &Pinned<'_>, location: Location) -> Entry {
        let (header, key) = self.log.entry(location, &pinned.pin);
        let hash = crate::hash(key);
        for table in self.directory.listing(&pinned.pin).with_id(header.table) {
            table.index.prefetch_bucket(&pinned.pin, hash);
        }
        Entry { location, bytes: header.object_bytes(), table: header.table, hash }
    }

    /// Moves an entry to the survivors if something leads to it. `false`: there is no memory to move it to.
    fn relocate(&self, survivors: &mut Head, pinned: &Pinned<'_>, entry: &Entry) -> bool {
        let is_it = |location| (location == entry.location).then_some(());
        let leads_here = |table: &&Arc<Table>| table.index.find(&pinned.pin, entry.hash, is_it).is_some();
        let Some(table) = self.directory.listing(&pinned.pin).with_id(entry.table).find(leads_here) else {
            return true;
        };
        // The copy of the cleaner: as many bytes as the object has, checksum and all.
        let Ok(copy) = self.log.copy(survivors, entry.location, entry.bytes) else { return false };
        let moved = table.index.lock(&pinned.pin, entry.hash).is_some_and(|mut bucket| {
            let found = bucket.find(entry.hash, is_it);
            if let Some((place, ())) = found {
                bucket.replace(place, entry.hash, copy);
            }
            found.is_some()
        });
        if moved {
            self.log.bury(entry.location, entry.bytes as u32);
            self.bytes_relocated.fetch_add(entry.bytes as u64, Ordering::Relaxed);
        } else {
            self.log.uncopy(survivors, entry.bytes);
        }
        true
    }
}
