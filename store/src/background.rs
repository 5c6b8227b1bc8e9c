//! Background work, in bounded steps, done by any worker that has time.
//!
//! The kinds of work take turns, so that a large growing table does not delay the cleaner. No worker waits for a list
//! of work; it skips the list while another worker has it.

use std::collections::VecDeque;

use crate::index::Location;
use crate::index::bucket::Mark;
use crate::limits::GROWTH_BUCKETS_PER_STEP;
use crate::pinned::Pinned;
use crate::store::Store;
use crate::store::core::Core;
use crate::sync::Ordering;

const KINDS: u32 = 7;

impl Core {
    /// Does one bounded step of background work. Returns whether more is due now.
    ///
    /// A step frees memory that readers have left, cleans a segment, grows or shrinks an index, removes expired
    /// objects, evicts, or takes a retired table apart. It takes a few microseconds, 20 if memory runs out. Call it
    /// without a pin, which would hold back the memory that it frees.
    pub fn step(&self) -> bool {
        let store = &self.store;
        self.owed.set(self.owed.get().saturating_add(store.log.take_appended(&mut self.head.borrow_mut())));
        let mut worked = false;
        for _ in 0..KINDS {
            let turn = self.turn.get();
            self.turn.set((turn + 1) % KINDS);
            worked = match turn {
                0 => store.reclaimer.step(),
                1 => store.clean_step(&self.pin()),
                2 => !store.backlog.growing.is_empty() && store.growth_step(&self.pin()),
                3 => !store.backlog.expiring.is_empty() && store.expiry_step(&self.pin()),
                4 => !store.backlog.evicting.is_empty() && store.eviction_step(&self.pin()),
                5 => !store.backlog.leaving.is_empty() && store.leaving_step(&self.pin()),
                _ => store.retired_count.load(Ordering::Acquire) > 0 && store.retire_step(&self.pin()),
            };
            if worked {
                break;
            }
        }
        worked
    }
}

impl Store {
    fn growth_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(id) = self.backlog.growing.try_with(VecDeque::pop_front).flatten() else { return false };
        let Some(table) = self.directory.listing(&pinned.pin).get(id) else { return true };
        pinned.grow(table, GROWTH_BUCKETS_PER_STEP);
        // More objects may have disappeared while the index shrank.
        if !table.index.is_growing(&pinned.pin) {
            pinned.start_shrinking(table, 0);
        }
        if table.index.is_growing(&pinned.pin) && !table.is_retired() {
            self.note_growing(table);
        }
        true
    }

    fn retire_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(mut retiring) = self.backlog.retiring.try_lock() else { return false };
        if retiring.is_empty() {
            let tables = self.directory.listing(&pinned.pin).iter();
            retiring.extend(tables.filter(|table| table.is_retired()).cloned());
        }
        let Some(table) = retiring.front() else { return false };
        let bury = |location: Location| {
            // The object's queue no longer matters.
            pinned.bury(table, location, &self.log.object(location, &pinned.pin), Mark::MAIN);
        };
        let prefetch = |location| self.log.prefetch_head(location);
        if table.index.dismantle(&pinned.pin, GROWTH_BUCKETS_PER_STEP, &self.reclaimer, prefetch, bury)
            && !pinned.take_keys_apart(table)
            && !table.take_queues_apart()
            && self.directory.try_remove(&self.reclaimer, table)
        {
            self.retired_count.fetch_sub(1, Ordering::AcqRel);
            retiring.pop_front();
        }
        true
    }
}
