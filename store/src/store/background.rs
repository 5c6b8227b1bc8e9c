//! Background work, a bounded piece at a time, done by whichever worker has time for it.
//!
//! The kinds take turns, so that a large table that grows does not keep the cleaner waiting. Lists are behind
//! locks that are only tried; the work itself is done outside of them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::index::Location;
use crate::limits::GROWTH_BUCKETS_PER_STEP;
use crate::pinned::Pinned;
use crate::store::Store;
use crate::store::core::Core;
use crate::sync::{Exclusive, Ordering};
use crate::table::Table;

/// What waits to be done.
pub(crate) struct Background {
    /// Ids of tables whose index grows.
    growing: Exclusive<VecDeque<u32>>,
    /// Tables that are being taken apart; held by whoever takes one apart.
    retiring: Exclusive<VecDeque<Arc<Table>>>,
}

impl Background {
    pub(crate) fn new() -> Background {
        Background { growing: Exclusive::new(VecDeque::new()), retiring: Exclusive::new(VecDeque::new()) }
    }
}

const KINDS: u32 = 4;

impl Store {
    /// See [`Core::step`].
    pub(crate) fn background_step(&self, core: &Core) -> bool {
        let mut worked = false;
        for _ in 0..KINDS {
            let turn = core.turn.get();
            core.turn.set((turn + 1) % KINDS);
            worked = match turn {
                0 => self.reclaimer.step(),
                1 => self.clean_step(&core.pin()),
                2 => self.growth_step(&core.pin()),
                _ => self.retire_step(&core.pin()),
            };
            if worked {
                break;
            }
        }
        worked
    }

    /// Notes that the index of a table grows, so that it does even if nobody inserts.
    pub(crate) fn note_growing(&self, table: &Table) {
        self.background.growing.lock().push_back(table.id());
    }

    fn growth_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(id) = self.background.growing.try_lock().and_then(|mut growing| growing.pop_front()) else {
            return false;
        };
        let Some(table) = self.directory.listing(&pinned.pin).get(id) else { return true };
        pinned.grow(table, GROWTH_BUCKETS_PER_STEP);
        if table.index.is_growing(&pinned.pin) && !table.is_retired() {
            self.note_growing(table);
        }
        true
    }

    fn retire_step(&self, pinned: &Pinned<'_>) -> bool {
        if self.retired_count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let Some(mut retiring) = self.background.retiring.try_lock() else { return false };
        if retiring.is_empty() {
            let tables = self.directory.listing(&pinned.pin).iter();
            retiring.extend(tables.filter(|table| table.is_retired()).cloned());
        }
        let Some(table) = retiring.front() else { return false };
        let bury = |location: Location| {
            let bytes = self.log.object(location, &pinned.pin).log_bytes() as u32;
            table.count(pinned.core.index, 1_u64.wrapping_neg(), u64::from(bytes).wrapping_neg());
            self.log.bury(location, bytes);
        };
        if table.index.dismantle(&pinned.pin, GROWTH_BUCKETS_PER_STEP, &self.reclaimer, bury) {
            self.directory.remove(&self.reclaimer, table);
            self.retired_count.fetch_sub(1, Ordering::AcqRel);
            retiring.pop_front();
        }
        true
    }
}
