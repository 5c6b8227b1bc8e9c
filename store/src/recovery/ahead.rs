//! A recovery while its tables are in use: hashes that somebody waits for come ahead of their segments.
//!
//! ```text
//!   segment on the disk   [ .. a .. b .. c .. ]        memory, under the segment's number
//!     ahead:   b ─────────────────────────────────►   [ b ]                 a head that takes one seglet
//!     whole:   a, b (known already), c ───────────►   [ b a c .. ] [ .. ]   goes on with that head
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::{Arrived, Recovery, RecoveryError, Shared};
use crate::arrival::Arrival;
use crate::log::{Head, Role};
use crate::number_hash::NumberHash;
use crate::object::Entry;
use crate::sync::Ordering;
use crate::table::Table;

/// What was recovered ahead of its segments.
#[derive(Default)]
pub(super) struct Ahead {
    /// Numbers of segments that have come as a whole since.
    whole: HashSet<u32, NumberHash>,
    /// Heads of others, each with what came ahead of one.
    heads: HashMap<u32, Head, NumberHash>,
}

impl Ahead {
    /// Takes the head with what came ahead of a segment.
    pub(super) fn take_head(&mut self, sequence: u32) -> Option<Head> {
        self.heads.remove(&sequence)
    }
}

impl Table {
    /// Prepares a durable table for a recovery that brings its objects while it is in use: its keys are unknown at first.
    /// Hashes that are waited for are [taken](Table::take_wanted), brought ahead and [reported](Table::pulled).
    ///
    /// # Panics
    /// If it was called before.
    pub fn expect_replay(&self) {
        let expected = self.arrival.set(Arrival::new(self.hashes(), 1));
        assert!(expected.is_ok(), "a table arrives once");
        self.replaying.store(true, Ordering::Release);
    }

    /// Returns whether a recovery brings its objects while it is in use.
    #[inline]
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.replaying.load(Ordering::Relaxed)
    }

    /// Ends that: all objects are there.
    ///
    /// # Panics
    /// If it was not prepared.
    pub fn end_replay(&self) {
        self.arrived(0, self.hashes().last());
        self.replaying.store(false, Ordering::Release);
        self.end_notes();
    }
}

impl Shared {
    pub(super) fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recovery<'_> {
    /// Recovers one entry of a segment of so many bytes ahead of the segment; `entry` begins with it. Nothing happens if the
    /// segment has come meanwhile, the entry is damaged, or there is no `table`. Cost: a microsecond, and for the first
    /// entry of each segment the seglets that it needs, which the rest of the segment fills.
    ///
    /// # Errors
    /// [`RecoveryError::OutOfMemory`].
    pub fn ahead(
        &mut self,
        (sequence, segment_bytes): (u32, usize),
        entry: &[u8],
        table: impl FnOnce(u32) -> Option<Arc<Table>>,
    ) -> Result<(), RecoveryError> {
        let Some((entry, _)) = Entry::split(entry) else { return Ok(()) };
        let Some(content_checksum) = entry.check() else { return Ok(()) };
        if !entry.is_of_key() {
            return Ok(());
        }
        let Some(table) = table(entry.table()).filter(|table| !table.is_retired()) else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        // Held to the end: nothing comes to memory under the number of a segment that was released.
        let mut ahead = shared.ahead();
        if ahead.whole.contains(&sequence) {
            return Ok(());
        }
        self.begin(ahead.take_head(sequence), sequence, segment_bytes);
        self.is_ahead = true;
        let arrived = Arrived { entry, hash: crate::hash(entry.key()), content_checksum };
        let recovered = self.entry(sequence, &arrived, &table);
        self.is_ahead = false;
        ahead.heads.insert(sequence, std::mem::take(&mut self.head));
        recovered
    }

    /// Goes on with the head of a segment, or a new one.
    pub(super) fn begin(&mut self, head: Option<Head>, sequence: u32, segment_bytes: usize) {
        self.head = head.unwrap_or_default();
        self.head.role = Role::Compaction(sequence);
        self.head.disk_bytes = segment_bytes as u32;
    }

    /// Notes that a segment has come as a whole.
    pub(super) fn end_ahead(&self, sequence: u32) {
        let mut ahead = self.shared.ahead();
        ahead.whole.insert(sequence);
        if let Some(mut head) = ahead.take_head(sequence) {
            self.core.store.log.close(&mut head);
        }
    }

    /// Ends what came ahead of segments that are not going to come.
    pub(super) fn end_all_ahead(&self) {
        for mut head in std::mem::take(&mut self.shared.ahead().heads).into_values() {
            self.core.store.log.close(&mut head);
        }
        self.core.store.await_seglets(0);
    }
}
