//! The choice of the segments to clean, and of the way to clean them.
//!
//! Segments are weighed by cost and benefit: the memory gained times the age of the live objects, over the bytes to
//! read and to copy (Rosenblum and Ousterhout, LFS; TOCS'15 §4.6). The cleaner therefore takes cold segments while
//! they are fuller than hot ones, whose objects die without cleaning if they are given time. As in RAMCloud's
//! correction of LFS, the age is the segment's, not its objects': cold objects are old forever, and full segments of
//! them would be copied again and again. The weight uses the square root of the age. Bytes copied per byte written
//! (`tests/utilization.rs`, windows of 1 MiB in 192), for Zipf 0.99 at 80 % and 90 % and uniformly at 90 %:
//!
//! ```text
//!   no age, one class of survivors        1.73  3.29  4.59        age of objects, its root, 3 classes   1.07  2.42  5.51
//!   age of the segment, 3 classes         1.15  2.50  4.66        its root, 3 classes                   0.98  2.23  4.66
//! ```
//!
//! A batch of segments is sorted by age, and survivors go to a few heads by the number of times they have survived,
//! so that hot and cold ones separate.

use crate::limits::{
    CLEAN_GAIN_DIVISOR, CLEAN_GARBAGE_DIVISOR, CLEAN_SEGLETS_PER_LOOK, CLEAN_SOURCES_MAX, RESERVE_WINDOWS,
    RUN_OBJECTS, SURVIVOR_CLASSES, SURVIVOR_RUN_DIVISOR,
};
use crate::segment::{Claim, SegmentId, State};
use crate::store::Store;
use crate::store::cleaning::{Chosen, Cleaner, Level, Source};
use crate::sync::Ordering;

use super::PRICE_UNIT;

/// What cleaning can provide for a writer that finds no room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cleanable {
    /// Segments become free as soon as no reader can see them.
    Retired,
    /// The dead and free bytes exceed what cleaning can lose.
    Enough,
    /// No cleaning provides enough.
    TooLittle,
}

impl Store {
    /// Chooses the next segments to clean. Returns whether it chose some, found dead ones, or has not yet looked at
    /// the whole log.
    pub(super) fn choose(&self, cleaner: &mut Cleaner, keep: u64) -> bool {
        let (segments, least) = (&self.log.segments, self.log.wanted());
        let free = segments.free_count() + cleaner.pending_seglets;
        let waiting = cleaner.pending_reclamation.len();
        if self.frees_disk(cleaner) || free < self.free_wanted(keep).max(keep + u64::from(least)) {
            let pressed = free <= keep;
            let everywhere = self.weigh(cleaner, pressed);
            if !cleaner.candidates.is_empty() {
                self.take_up(cleaner, pressed);
                return true;
            }
            if !everywhere {
                // After a fruitless search of the whole log, no core is kept awake for another one.
                return !cleaner.barren || cleaner.pending_reclamation.len() > waiting;
            }
        }
        if least > 0
            && cleaner.pending_reclamation.is_empty()
            && cleaner.window.is_none()
            && cleaner.unsettled.is_empty()
        {
            let claim = Claim { least, most: least, keep, windows_kept: RESERVE_WINDOWS };
            let exhausted = !segments.can_take(claim);
            if exhausted && self.choose_window(cleaner) {
                return true;
            }
            self.log.set_wanted(0);
            self.log.set_refused(if exhausted { least } else { 0 });
        }
        cleaner.pending_reclamation.len() > waiting
    }

    /// Returns whether a writer of `bytes` that finds no room will find some if it waits. While more is dead and free
    /// than can be lost in the end, the cleaner has to find out; it reports when it has done all it can.
    pub(crate) fn cleaning_brings(&self, bytes: usize) -> bool {
        let least = self.log.seglets_for(bytes);
        if self.log.wanted() >= least {
            // It has not found out yet. To look at all segments for each writer would take the time that it needs.
            return true;
        }
        match self.cleanable(least, 0) {
            Cleanable::Retired => true,
            Cleanable::Enough if !self.log.take_refused(least) => {
                self.log.set_wanted(least);
                true
            }
            Cleanable::Enough | Cleanable::TooLittle => false,
        }
    }

    /// Returns whether a writer of `bytes` would find room if `more_dead_bytes` were dead in addition.
    pub(crate) fn cleaning_would_bring(&self, bytes: usize, more_dead_bytes: u64) -> bool {
        self.cleanable(self.log.seglets_for(bytes), more_dead_bytes) != Cleanable::TooLittle
    }

    /// Returns what cleaning can bring: looks at all segments, but not again before as much was buried or freed as lacked.
    fn cleanable(&self, least: u32, more_dead_bytes: u64) -> Cleanable {
        let (segments, cleaning) = (&self.log.segments, &self.cleaning);
        if cleaning.retired.load(Ordering::Acquire) > 0 {
            return Cleanable::Retired;
        }
        let seglet_bytes = self.log.seglet_bytes() as u64;
        let asked = (self.keep_for_writers() + u64::from(least)) * seglet_bytes;
        // Before the look, so that what is buried meanwhile counts as buried since.
        let (buried, free) = (segments.buried(), segments.free_count() * seglet_bytes);
        let lost_bytes = cleaning.lost_bytes.load(Ordering::Relaxed);
        if buried + free + more_dead_bytes < asked.saturating_add(lost_bytes) {
            return Cleanable::TooLittle;
        }
        let (mut dead, mut dead_in_heads, mut used) = (0, 0, 0);
        for (id, state) in segments.iter() {
            match state {
                State::Closed | State::Cleaning => {
                    dead += u64::from(segments.garbage(id));
                    used += u64::from(segments.used(id));
                }
                State::Head => dead_in_heads += u64::from(segments.dead(id)),
                // Since the look began.
                State::Retired => return Cleanable::Retired,
                State::Free | State::Damaged => {}
            }
        }
        // Garbage that is not worth the copying.
        let lost = used / CLEAN_GARBAGE_DIVISOR;
        // Heads are closed some time.
        let lacks = (buried + lost).saturating_sub(dead + dead_in_heads);
        cleaning.lost_bytes.store(lacks, Ordering::Relaxed);
        // What became free meanwhile was passed as neither dead nor free.
        let free = segments.free_count() * seglet_bytes;
        if dead + more_dead_bytes + free >= lost + asked { Cleanable::Enough } else { Cleanable::TooLittle }
    }

    /// Weighs the kept candidates and a part of the log, and retires wholly dead segments at once. Returns whether the
    /// whole log was searched since the last find. Costs some 8 ns per segment and seglet.
    fn weigh(&self, cleaner: &mut Cleaner, pressed: bool) -> bool {
        let segments = &self.log.segments;
        let now = self.log.clock();
        for id in cleaner.candidates.take() {
            self.weigh_one(cleaner, id, now, pressed);
        }
        let mut looked = 0;
        // Each core has its own counts of dead bytes.
        let most = CLEAN_SEGLETS_PER_LOOK / self.config.cores as u32;
        while looked < most.max(segments.window_seglets()).min(segments.seglets()) {
            let id = SegmentId(cleaner.looked_to);
            let length = self.weigh_one(cleaner, id, now, pressed);
            looked += length;
            cleaner.looked_to = (id.0 + length) % segments.seglets();
        }
        if cleaner.candidates.is_empty() {
            cleaner.fruitless += looked;
        } else {
            (cleaner.fruitless, cleaner.barren) = (0, false);
        }
        let everywhere = cleaner.fruitless >= segments.seglets();
        if everywhere {
            (cleaner.fruitless, cleaner.barren) = (0, true);
        }
        everywhere
    }

    /// Weighs the segment that begins with this seglet, if any. Returns its number of seglets.
    #[inline]
    fn weigh_one(&self, cleaner: &mut Cleaner, id: SegmentId, now: u64, pressed: bool) -> u32 {
        let segments = &self.log.segments;
        if segments.state(id) != State::Closed {
            return 1;
        }
        let run = segments.run(id);
        let length = run.end - run.start;
        if !segments.is_settled(id, self.oldest_pin_for_disk()) {
            return length;
        }
        if segments.sequence_at(id.0) != 0 && self.disk_room(cleaner) == 0 {
            return length;
        }
        let used = segments.used(id);
        let dead = segments.garbage(id) + self.dead_tombstones(cleaner, id);
        if dead == used && segments.sequence_at(id.0) == 0 {
            self.retire_segment(cleaner, id);
            return length;
        }
        let frees_disk = self.frees_disk(cleaner);
        let (before, live, whole) = match segments.disk_bytes(id) {
            // What it takes on the disk is what can be gained there, but for what all segments of its number keep.
            disk_bytes if frees_disk && disk_bytes > 0 => {
                (disk_bytes, self.live_on_disk(cleaner, id), f64::from(disk_bytes))
            }
            _ => (used, used.saturating_sub(dead), f64::from(length) * self.log.seglet_bytes() as f64),
        };
        let gone = u64::from(before - live.min(before));
        if gone * CLEAN_GARBAGE_DIVISOR >= u64::from(before) {
            let live = f64::from(live.min(before));
            let age = now.saturating_sub(segments.closed_at(id)) as f64 + 1.0;
            let weight = if pressed || frees_disk { 1.0 } else { age.sqrt() };
            cleaner.candidates.offer((whole - live) * weight / (whole + live), id);
        }
        length
    }

    /// Returns how many durable segments may be chosen: their survivors must have room on the disk, which forgets a
    /// segment only after them. If the disk had no room for them, nothing would become stable any more. During a recovery
    /// survivors keep their number and need none.
    fn disk_room(&self, cleaner: &Cleaner) -> u32 {
        if cleaner.recovering {
            return u32::MAX;
        }
        let room = self.log.durable.as_ref().map_or(u32::MAX, |durable| durable.room.load(Ordering::Relaxed));
        room.saturating_sub(cleaner.on_disk.empty_count())
    }

    /// Returns the live bytes of all segments in memory with the number of this one.
    fn live_on_disk(&self, cleaner: &Cleaner, id: SegmentId) -> u32 {
        let segments = &self.log.segments;
        let same = cleaner.on_disk.segments(segments.sequence_at(id.0)).iter();
        same.map(|&same| {
            segments.used(same).saturating_sub(segments.garbage(same) + self.dead_tombstones(cleaner, same))
        })
        .sum()
    }

    /// Returns whether segments are to be cleaned for the frames of the disk that they free: none during a recovery.
    fn frees_disk(&self, cleaner: &Cleaner) -> bool {
        self.is_disk_short() && !cleaner.recovering
    }

    /// Returns whether cleaning must free frames of the disk.
    pub(super) fn is_disk_short(&self) -> bool {
        self.log.durable.as_ref().is_some_and(|durable| durable.is_short.load(Ordering::Relaxed))
    }

    /// Returns the oldest pin, if a disk holds segments, for [`crate::segment::Segments::is_settled`].
    fn oldest_pin_for_disk(&self) -> u64 {
        if self.log.durable.is_some() { self.epochs.oldest_pin() } else { u64::MAX }
    }

    /// Returns the estimated bytes of tombstones that are worth nothing any more. Each is as likely to be for any segment
    /// that was on the disk when its own was closed.
    fn dead_tombstones(&self, cleaner: &Cleaner, id: SegmentId) -> u32 {
        let (bytes, gone_before) = self.log.segments.tombstones(id);
        if bytes == 0 {
            return 0;
        }
        let gone = self.log.durable.as_ref().map_or(0, |durable| durable.gone_count());
        let gone = u64::from(gone.wrapping_sub(gone_before));
        let then = cleaner.on_disk.count() as u64 + gone;
        (u64::from(bytes) * gone / then.max(1)) as u32 / 8 * 8
    }

    /// Chooses the best candidates: a single one if memory is short and it frees seglets by itself, otherwise enough to
    /// free a quarter of a window.
    fn take_up(&self, cleaner: &mut Cleaner, pressed: bool) {
        let segments = &self.log.segments;
        debug_assert!(
            cleaner.source.is_none() && cleaner.chosen.is_empty(),
            "the segments in hand are done with before others are chosen"
        );
        let (mut used, mut dead) = (0, 0);
        for _ in 0..(self.disk_room(cleaner) as usize).clamp(1, CLEAN_SOURCES_MAX) {
            let Some(id) = cleaner.candidates.take_best() else { break };
            if segments.state(id) != State::Closed {
                // A writer buried its last object between two looks, the second of which has retired it.
                continue;
            }
            let (bytes, bytes_dead) = (u64::from(segments.used(id)), u64::from(segments.garbage(id)));
            (used, dead) = (used + bytes, dead + bytes_dead);
            segments.set_state(id, State::Cleaning);
            cleaner.chosen.push_back(Chosen { segment: id, again: false, combined: false });
            let run = segments.run(id);
            let alone = pressed
                && !self.frees_disk(cleaner)
                && self.log.seglets_for(bytes.saturating_sub(bytes_dead) as usize) < run.end - run.start;
            cleaner.level = if alone { Level::Compaction } else { Level::Combined };
            if alone || dead >= self.log.window_bytes() as u64 / CLEAN_GAIN_DIVISOR {
                break;
            }
        }
        if cleaner.chosen.is_empty() {
            return;
        }
        if cleaner.level == Level::Compaction && cleaner.chosen.len() > 1 {
            cleaner.level = Level::Combined;
        }
        cleaner.price =
            (used * PRICE_UNIT / dead.max(1)).clamp(PRICE_UNIT, CLEAN_GARBAGE_DIVISOR * PRICE_UNIT);
        cleaner.chosen.make_contiguous().sort_unstable_by_key(|chosen| segments.closed_at(chosen.segment));
        let counter = match cleaner.level {
            Level::Compaction => &self.cleaning.compactions,
            Level::Combined | Level::Evacuation => &self.cleaning.combinations,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Chooses the window with the fewest live bytes, to make it one free run. No head may be appending to it.
    fn choose_window(&self, cleaner: &mut Cleaner) -> bool {
        let segments = &self.log.segments;
        let seglets = segments.window_seglets();
        let oldest_pin = self.oldest_pin_for_disk();
        let mut best: Option<(u64, u32)> = None;
        for window in 0..segments.seglets() / seglets {
            let (mut live, mut count, mut settled) = (0, 0, true);
            for (id, state) in segments.within(window * seglets..(window + 1) * seglets) {
                settled &= state == State::Closed && segments.is_settled(id, oldest_pin);
                count += 1;
                live += u64::from(segments.used(id).saturating_sub(segments.garbage(id)));
            }
            if settled && count > 0 && best.is_none_or(|(least, _)| live < least) {
                best = Some((live, window));
            }
        }
        let Some((live, window)) = best else { return false };
        let bytes = self.log.window_bytes() as u64;
        if live + bytes / CLEAN_GARBAGE_DIVISOR > bytes {
            return false;
        }
        self.evacuate(cleaner, window);
        true
    }

    /// Begins to evacuate a window. Seglets that a writer has taken since the choice stay with the writer; then the
    /// window does not become one run.
    fn evacuate(&self, cleaner: &mut Cleaner, window: u32) {
        let segments = &self.log.segments;
        debug_assert!(cleaner.window.is_none(), "one window is emptied at a time");
        debug_assert!(cleaner.source.is_none(), "nothing is copied at another level");
        let seglets = segments.window_seglets();
        cleaner.window = Some((window, segments.withdraw(window)));
        cleaner.level = Level::Evacuation;
        let oldest_pin = self.oldest_pin_for_disk();
        let within = segments.within(window * seglets..(window + 1) * seglets);
        let closed =
            within.filter(|&(id, state)| state == State::Closed && segments.is_settled(id, oldest_pin));
        for (id, _) in closed {
            segments.set_state(id, State::Cleaning);
            cleaner.chosen.push_back(Chosen { segment: id, again: false, combined: false });
        }
        self.cleaning.evacuations.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees an evacuated window when its readers are gone. Returns whether it did.
    pub(super) fn end_evacuation(&self, cleaner: &mut Cleaner) -> bool {
        let Some((window, bits)) = cleaner.window else { return false };
        let segments = &self.log.segments;
        let seglets = segments.window_seglets();
        let busy = |state| matches!(state, State::Cleaning | State::Retired);
        if segments.within(window * seglets..(window + 1) * seglets).any(|(_, state)| busy(state)) {
            return false;
        }
        segments.restore(window, bits);
        cleaner.window = None;
        // The rest of the survivors' run may be the wanted run; otherwise the next window's survivors use it.
        if self.log.left(&cleaner.evacuated) >= self.log.wanted() {
            self.log.close(&mut cleaner.evacuated);
        }
        true
    }

    /// Handles a lack of memory to copy to. The chosen segments go back, but for those that are half moved to heads of
    /// survivors that go to the disk. If nothing is about to become free, it
    /// evacuates a window, or tells the writer that waits for a run that there is none. An evacuation waits as long
    /// as there is hope.
    pub(super) fn out_of_room(&self, cleaner: &mut Cleaner) {
        if cleaner.level == Level::Evacuation && !cleaner.pending_reclamation.is_empty() {
            return;
        }
        let begun = cleaner.source.take().map(|source| {
            let (segment, again, combined) = (source.segment, source.again, source.is_combined());
            Chosen { segment, again, combined }
        });
        self.log.close(&mut cleaner.compacted);
        for chosen in begun.into_iter().chain(cleaner.chosen.drain(..)) {
            if chosen.combined {
                cleaner.takes_reserve = true;
                cleaner.unsettled.push_back((self.epochs.retire(), chosen));
            } else {
                self.log.segments.set_state(chosen.segment, State::Closed);
            }
        }
        let stuck = cleaner.pending_reclamation.is_empty()
            && (cleaner.level == Level::Evacuation
                || cleaner.window.is_none() && !self.choose_window(cleaner));
        if stuck {
            self.log.set_refused(self.log.wanted());
            self.log.set_wanted(0);
        }
    }

    /// Returns the head for the survivors of a segment of this generation.
    pub(super) fn class_of(&self, generation: u32) -> usize {
        (generation as usize).min(SURVIVOR_CLASSES - 1)
    }

    /// Returns the claim of survivors for an object of `bytes`.
    pub(crate) fn claim_of_survivors(&self, source: &Source, takes_reserve: bool, bytes: usize) -> Claim {
        let window = self.log.segments.window_seglets();
        let least = self.log.seglets_for(bytes);
        let of_all = self.log.seglets_for(source.live_bytes).min(window);
        let (most, windows_kept) = match source.level {
            Level::Compaction => (of_all, RESERVE_WINDOWS),
            Level::Combined if takes_reserve => (of_all, 0),
            Level::Combined => (window / SURVIVOR_RUN_DIVISOR, RESERVE_WINDOWS),
            Level::Evacuation => (window, 0),
        };
        let most = most.max(least.saturating_mul(RUN_OBJECTS)).min(window);
        Claim { least, most, keep: 0, windows_kept }
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use crate::segment::State;
    use crate::tests::{delete_patiently, drain, put_patiently, store};

    /// A writer may bury the last object of a candidate before the cleaner looks at the segment again.
    #[test]
    fn a_candidate_that_a_second_look_retires_is_not_cleaned() {
        let store = store(1 << 20, 16 << 10, 1);
        let (core, table) = (store.core(0), store.table(1));
        for key in 0..500_u64 {
            put_patiently(&core, &table, &key.to_le_bytes(), &[7; 100]).expect("there is memory");
        }
        let segments = &store.log.segments;
        let (id, _) = segments.iter().find(|(_, state)| *state == State::Closed).expect("a full segment");
        let mut cleaner = store.cleaner.try_lock().expect("nobody cleans");
        cleaner.candidates.offer(1.0, id);
        for key in 0..500_u64 {
            delete_patiently(&core, &table, &key.to_le_bytes()).expect("it is there");
        }
        store.weigh_one(&mut cleaner, id, store.log.clock(), false);
        assert_eq!(segments.state(id), State::Retired);
        store.take_up(&mut cleaner, false);
        assert!(cleaner.chosen.is_empty());
        assert_eq!(segments.state(id), State::Retired);
    }

    #[test]
    fn a_segment_that_a_writer_has_begun_to_fill_is_not_emptied_with_its_window() {
        let store = store(1 << 20, 16 << 10, 1);
        let (core, table) = (store.core(0), store.table(1));
        let put = |key: u64| put_patiently(&core, &table, &key.to_le_bytes(), &[7; 100]).is_ok();
        assert!(put(0));
        let segments = &store.log.segments;
        let heads = || segments.iter().find(|(_, state)| *state == State::Head);
        let (head, _) = heads().expect("the writer's");
        store.evacuate(
            &mut store.cleaner.try_lock().expect("nobody cleans"),
            head.0 / segments.window_seglets(),
        );
        assert_eq!(segments.state(head), State::Head);
        assert!((1..2_000).all(put));
        drain(&core);
        let pin = core.pin();
        let exists = |key: u64| {
            let key = key.to_le_bytes();
            pin.get(&table, crate::hash(&key), &key).is_some_and(|object| object.value() == [7; 100])
        };
        assert!((0..2_000).all(exists));
    }
}
