//! The cleaner: makes free seglets out of dead bytes (RAMCloud, TOCS'15 §4.4-4.6).
//!
//! ```text
//!   closed, few live ──► cleaning: live objects are copied to a head of survivors, one index entry at a time
//!                              │ all dead
//!                              ▼
//!                            pending_reclamation ── no pin older ──► free
//! ```
//!
//! `cleaner/choice.rs` chooses between three ways. *Combined cleaning* takes several segments by cost and benefit and
//! copies their live objects to fewer segments, old and young apart. *Compaction* gives one segment a run of exactly
//! the length that it needs: its dead bytes are free as soon as the readers are gone. *Evacuation* empties one
//! window, if memory is free but in runs too short for the next object; it may take the last whole window, and it
//! brings back another, so a full store can always clean. So may combined cleaning of durable segments that has begun,
//! since it cannot be given up. The index decides which objects live. Tombstones are for a replay alone: they and what
//! dead entries of durable segments end stay until the disk has forgotten the older entries.
//!
//! One core at a time cleans, a bounded step at a time. A core pays for the bytes that it has written, at the price
//! of the segments in hand and more as memory gets short. Without debts a step is small, and while enough is free
//! there is no step. Readers never wait: they find the old copy or the new one.

mod choice;
mod relocation;

#[cfg(all(test, loom_model))]
mod loom_tests;

use crate::durable::Released;
use crate::limits::{
    CLEAN_BYTES_PER_STEP, CLEAN_BYTES_PER_STEP_MAX, FREE_WANTED_DIVISOR, FREE_WANTED_PER_CORE_DIVISOR,
    RESERVE_WINDOWS,
};
use crate::segment::{SegmentId, State};
use crate::store::Store;
use crate::store::cleaning::{Chosen, Cleaner, Level, Source};
use crate::store::core::Pinned;
use crate::sync::Ordering;

/// The unit of a price: parts of a byte.
const PRICE_UNIT: u64 = 16;

impl Store {
    /// Does a bounded step of cleaning; returns whether it did something.
    ///
    /// The step pays for the bytes that the core has written since its last one; they stay owed if another core is
    /// cleaning, unless enough is free.
    pub(crate) fn clean_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(mut cleaner) = self.cleaner.try_lock() else { return false };
        let worked = self.work_off(&mut cleaner, pinned);
        self.cleaning.in_hand.store(cleaner.has_in_hand(), Ordering::Relaxed);
        worked
    }

    /// Returns true if a step would find nothing to do, and so end all debts: nothing is in hand, enough is free, and
    /// no writer lacks a run. Cost: four loads, without the cleaner's lock.
    pub(crate) fn cleaner_rests(&self) -> bool {
        !self.cleaning.in_hand.load(Ordering::Relaxed)
            && self.log.wanted() == 0
            && !self.is_disk_short()
            && self.log.segments.free_count() >= self.free_wanted(self.keep_for_writers())
    }

    fn work_off(&self, cleaner: &mut Cleaner, pinned: &Pinned<'_>) -> bool {
        if let Some(durable) = &self.log.durable {
            cleaner.on_disk.update(durable);
        }
        let freed = self.reclaim_pending(cleaner) | self.end_evacuation(cleaner);
        self.drain(cleaner);
        cleaner.takes_reserve = cleaner.takes_reserve && cleaner.is_combining();
        self.hand_over_released(cleaner);
        let keep = self.keep_for_writers();
        if cleaner.source.is_none() && cleaner.chosen.is_empty() {
            let looked = self.choose(cleaner, keep);
            if cleaner.chosen.is_empty() {
                if !looked {
                    pinned.core.owed.set(0);
                }
                return looked || freed;
            }
        }
        let owed = pinned.core.owed.take();
        let budget = self.budget(cleaner, keep, owed);
        let cleaned = self.clean(cleaner, pinned, budget);
        self.hand_over_released(cleaner);
        cleaned || freed
    }

    /// Returns the number of free seglets that the cleaner aims for.
    fn free_wanted(&self, keep: u64) -> u64 {
        let segments = &self.log.segments;
        let cores =
            self.config.cores as u64 * u64::from(segments.window_seglets()) / FREE_WANTED_PER_CORE_DIVISOR;
        keep + cores + u64::from(segments.seglets()) / FREE_WANTED_DIVISOR + 1
    }

    /// Returns the bytes that a step examines: the cost of freeing `owed` bytes, half of it while much memory is free
    /// and up to four times as much when none is.
    fn budget(&self, cleaner: &Cleaner, keep: u64, owed: u64) -> usize {
        if owed == 0 {
            return CLEAN_BYTES_PER_STEP;
        }
        let wanted = self.free_wanted(keep);
        let free = self.log.segments.free_count() + cleaner.pending_seglets;
        let short = wanted.saturating_sub(free).min(wanted - keep);
        let urgency = PRICE_UNIT / 2 + PRICE_UNIT * 7 / 2 * short / (wanted - keep);
        let bytes = owed.saturating_mul(cleaner.price) / PRICE_UNIT * urgency / PRICE_UNIT;
        bytes.min(CLEAN_BYTES_PER_STEP_MAX as u64) as usize
    }

    /// Frees the dead segments that no reader can see any more.
    fn reclaim_pending(&self, cleaner: &mut Cleaner) -> bool {
        let mut freed = false;
        if cleaner.pending_reclamation.is_empty() {
            return false;
        }
        let oldest = self.epochs.oldest_pin();
        while let Some(&(tag, segment)) = cleaner.pending_reclamation.front()
            && tag < oldest
        {
            cleaner.pending_reclamation.pop_front();
            debug_assert_eq!(
                self.log.segments.dead(segment),
                self.log.segments.used(segment),
                "nothing leads to what is freed, and nothing was buried twice"
            );
            let run = self.log.segments.run(segment);
            cleaner.pending_seglets -= u64::from(run.end - run.start);
            // The indexes have grown into this much of the log's memory.
            let index_bytes = self.index_bytes.load(Ordering::Relaxed);
            if self.log.segments.free_count() < index_bytes / self.log.seglet_bytes() as u64 {
                self.log.give_back(segment);
            }
            match &mut cleaner.window {
                // No piece of an evacuated window may be taken before the window is one free run.
                Some((window, bits)) if *window == run.start / self.log.segments.window_seglets() => {
                    *bits |= self.log.segments.end_withdrawn(segment);
                }
                _ => self.log.segments.free(segment),
            }
            // Only now, so that whoever looks for room finds it as retired or as free.
            self.cleaning.retired.fetch_sub(1, Ordering::Release);
            freed = true;
        }
        debug_assert!(
            cleaner.pending_seglets >= cleaner.pending_reclamation.len() as u64
                && (cleaner.pending_seglets == 0) == cleaner.pending_reclamation.is_empty(),
            "every waiting segment counts with its seglets"
        );
        freed
    }

    fn retire_segment(&self, cleaner: &mut Cleaner, segment: SegmentId) {
        self.log.segments.set_state(segment, State::Retired);
        let sequence = self.log.segments.sequence_at(segment.0);
        if sequence != 0 {
            self.release(cleaner, sequence, segment);
        }
        let run = self.log.segments.run(segment);
        cleaner.pending_seglets += u64::from(run.end - run.start);
        let tag = self.epochs.retire();
        debug_assert!(
            cleaner.pending_reclamation.back().is_none_or(|&(last, _)| last < tag),
            "segments wait in the order of their tags"
        );
        cleaner.pending_reclamation.push_back((tag, segment));
        self.cleaning.retired.fetch_add(1, Ordering::Relaxed);
        self.cleaning.segments_cleaned.fetch_add(1, Ordering::Relaxed);
        let bytes = u64::from(run.end - run.start) * self.log.seglet_bytes() as u64;
        self.cleaning.emptied_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that a number on the disk has one segment in memory less.
    pub(crate) fn release(&self, cleaner: &mut Cleaner, sequence: u32, segment: SegmentId) {
        let Some(durable) = &self.log.durable else { return };
        // The segments of its survivors count, too.
        cleaner.on_disk.update(durable);
        if cleaner.on_disk.leave(sequence, segment) {
            cleaner.released.push(sequence);
        }
    }

    /// Lets the disk forget the empty segments, unless a recovery still reads some, or some object would then be found at two
    /// places: what has moved to a head of survivors, in the segment that it comes from and is half empty, for now or because
    /// it is damaged.
    pub(crate) fn hand_over_released(&self, cleaner: &mut Cleaner) {
        let Some(durable) = &self.log.durable else { return };
        let holds = cleaner.is_combining() || cleaner.recovering || cleaner.forgets_nothing;
        if !cleaner.released.is_empty() && !holds {
            let survivors = cleaner.durable_survivors.each_ref().map(|head| self.log.position(head));
            durable.release(Released { sequences: std::mem::take(&mut cleaner.released), survivors });
        }
    }

    /// Continues with the chosen segments for about `budget` bytes.
    fn clean(&self, cleaner: &mut Cleaner, pinned: &Pinned<'_>, budget: usize) -> bool {
        let mut left = budget;
        let mut worked = false;
        while left > 0 {
            let source = cleaner.source.take().or_else(|| self.next_source(cleaner));
            let Some(mut source) = source else { return worked };
            let before = source.next;
            let all = self.copy_survivors(cleaner, pinned, &mut source, left);
            let examined = source.next - before;
            self.cleaning.examined_bytes.fetch_add(examined as u64, Ordering::Relaxed);
            worked |= examined > 0;
            left = left.saturating_sub(examined.max(1));
            if source.next >= source.end {
                self.end_source(cleaner, &source);
            } else {
                cleaner.source = Some(source);
                if !all {
                    self.out_of_room(cleaner);
                    return worked;
                }
            }
        }
        worked
    }

    fn next_source(&self, cleaner: &mut Cleaner) -> Option<Source> {
        let Chosen { segment, again, combined } = cleaner.chosen.pop_front()?;
        let segments = &self.log.segments;
        debug_assert_eq!(segments.state(segment), State::Cleaning, "a chosen segment is the cleaner's");
        let next = self.log.first(segment).offset();
        let used = segments.used(segment);
        debug_assert_eq!(
            self.log.seglets_for(used as usize) as usize,
            segments.run(segment).len(),
            "a closed segment has the seglets of its bytes"
        );
        let generation = segments.generation(segment);
        let class = self.class_of(generation);
        let live_bytes = used.saturating_sub(segments.garbage(segment)) as usize;
        let end = next + used as usize;
        let (damaged, busy) = (false, false);
        let sequence = segments.sequence_at(segment.0);
        let level = match cleaner.level {
            _ if combined => Level::Combined,
            Level::Combined if sequence != 0 => self.begin_to_empty(cleaner, sequence, segment),
            level => level,
        };
        Some(Source {
            segment,
            sequence,
            disk_bytes: segments.disk_bytes(segment),
            level,
            again,
            next,
            end,
            generation,
            live_bytes,
            class,
            damaged,
            busy,
        })
    }

    /// Begins to move the objects of a number on the disk to heads of survivors: those of all its segments in memory, since
    /// the disk forgets the number only when all are empty. If that cannot be, they keep the number.
    fn begin_to_empty(&self, cleaner: &mut Cleaner, sequence: u32, first: SegmentId) -> Level {
        let (Some(durable), false) = (&self.log.durable, cleaner.recovering) else {
            return Level::Compaction;
        };
        let segments = &self.log.segments;
        cleaner.on_disk.update(durable);
        let others: Vec<_> =
            cleaner.on_disk.segments(sequence).iter().copied().filter(|&other| other != first).collect();
        if others.iter().any(|&other| !matches!(segments.state(other), State::Closed | State::Cleaning)) {
            return Level::Compaction;
        }
        let used: u64 = others.iter().chain([&first]).map(|&segment| u64::from(segments.used(segment))).sum();
        let kept = u64::from(RESERVE_WINDOWS) * u64::from(segments.window_seglets());
        if segments.free_count() < kept + u64::from(self.log.seglets_for(used as usize)) {
            return Level::Compaction;
        }
        durable.empty(sequence);
        for segment in others {
            if segments.state(segment) == State::Closed {
                segments.set_state(segment, State::Cleaning);
                cleaner.chosen.push_back(Chosen { segment, again: false, combined: true });
            }
            let waiting = cleaner.unsettled.iter_mut().map(|(_, chosen)| chosen);
            let mut waiting = cleaner.chosen.iter_mut().chain(waiting);
            waiting
                .by_ref()
                .filter(|chosen| chosen.segment == segment)
                .for_each(|chosen| chosen.combined = true);
        }
        Level::Combined
    }

    /// Ends the walk through a source. If it is not all dead, a thread has staged an object that it has not published,
    /// has an object left to bury, or held a bucket for too long. So the source is walked through again after all
    /// current pins have ended; whatever remains then was not left by a writer.
    fn end_source(&self, cleaner: &mut Cleaner, source: &Source) {
        let segments = &self.log.segments;
        debug_assert_eq!(source.next, source.end, "a source is walked through up to its end");
        debug_assert_eq!(segments.state(source.segment), State::Cleaning, "a source is the cleaner's");
        self.log.close(&mut cleaner.compacted);
        if segments.dead(source.segment) == segments.used(source.segment) {
            self.retire_segment(cleaner, source.segment);
        } else if source.again && !source.busy {
            segments.set_state(source.segment, State::Damaged);
            cleaner.forgets_nothing |= source.is_combined();
            self.cleaning.damaged_segments.fetch_add(1, Ordering::Relaxed);
        } else {
            let tag = self.epochs.retire();
            debug_assert!(
                cleaner.unsettled.back().is_none_or(|&(last, _)| last < tag),
                "segments come again in the order of their tags"
            );
            let (segment, combined) = (source.segment, source.is_combined());
            cleaner.unsettled.push_back((tag, Chosen { segment, again: true, combined }));
        }
    }

    /// Chooses again the sources that were not all dead, once all pins of that time have ended.
    fn drain(&self, cleaner: &mut Cleaner) {
        if cleaner.unsettled.is_empty() {
            return;
        }
        let oldest = self.epochs.oldest_pin();
        while let Some(&(tag, chosen)) = cleaner.unsettled.front()
            && tag < oldest
        {
            cleaner.unsettled.pop_front();
            cleaner.chosen.push_back(chosen);
        }
    }
}
