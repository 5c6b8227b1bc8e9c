//! What the rest of a log may need, judged by what has come of it: room in indexes, and memory that writers leave.

use std::sync::Arc;

use super::Recovery;
use crate::index::bucket::BUCKET_BYTES;
use crate::limits::{LOAD_DENOMINATOR, LOAD_NUMERATOR};
use crate::sync::Ordering;
use crate::table::Table;

/// Most objects, as a multiple of those that have come, for which an index gets room ahead.
const ROOM_AHEAD_FACTOR: u64 = 4;

/// Part of small objects that their index takes in addition.
const INDEX_DIVISOR: u64 = 4;

impl Recovery<'_> {
    /// Gives a table's index room for what the rest of the log may bring, judged by what has come; unless the memory
    /// might be needed for objects.
    pub(super) fn make_room_ahead(&self, segment_bytes: usize, current: &Option<(u32, Option<Arc<Table>>)>) {
        let (shared, log) = (&self.shared, &self.core.store.log);
        let done =
            shared.bytes_done.fetch_add(segment_bytes as u64, Ordering::Relaxed) + segment_bytes as u64;
        let left = shared.bytes.saturating_sub(done);
        let Some((_, Some(table))) = current else { return };
        let objects = table.objects();
        let expected = (u128::from(objects) * u128::from(left) / u128::from(done)) as u64;
        // Older segments hold fewer objects that count.
        let more = expected.min(objects.saturating_mul(ROOM_AHEAD_FACTOR));
        let index_bytes = (objects + more) * LOAD_DENOMINATOR / LOAD_NUMERATOR * BUCKET_BYTES as u64;
        let free = log.segments.free_count().saturating_sub(self.core.store.keep_for_writers());
        let has_memory = free * log.seglet_bytes() as u64 >= left + index_bytes;
        let pinned = self.core.pin();
        // Not for a little: an estimate that rises slightly is no reason to move all that has come.
        if has_memory && table.index.is_overloaded(&pinned.pin, objects + more / 4 * 3) {
            // An index without this room grows later.
            let _ = pinned.hurry_growth(table, more);
        }
    }

    /// Keeps memory from writers for all that the rest of the log may bring, with its share of indexes.
    pub(super) fn keep_for_rest(&self) {
        let shared = &self.shared;
        if shared.is_in_use {
            let left = shared.bytes.saturating_sub(shared.bytes_done.load(Ordering::Relaxed));
            self.core.store.await_seglets(
                (left + left / INDEX_DIVISOR).div_ceil(self.core.store.log.seglet_bytes() as u64),
            );
        }
    }
}
