//! Ordered tables: scans, and the keys' ways into and out of the tree of a table (`ordered.rs`).
//!
//! ```text
//!   scan:      walk ─► key, hash: prefetch the bucket ─► 16 keys later: its object ─► 16 keys later: look up, visit
//!   new key:   enter the tree ─► lock the bucket ─► still in the tree? ─► into the index       not written after all: leave
//!   removed:   out of the index ─► unlock ─► make the leaf without it ─► lock the bucket ─► still not in the index? ─► leave
//! ```
//! A scan goes through the keys of a range in order and looks each up in the index. It meets every object that lived
//! throughout exactly once, and every object that it meets existed at some moment of the scan; it may or may not meet
//! objects that come or go meanwhile. A commit can rely on the result of a scan: `commit/ranges.rs`.
//!
//! Nothing is allocated under the lock of a bucket, and the writer waits for no thread there. Between the two locks of a
//! removal the tree has a key that the index does not have, which is harmless: scans look each key up. If a removal
//! meets a thread that has lost its core, the key is left for a background step.

use std::fmt;
use std::ops::ControlFlow;

use crate::index::NotLocked;
use crate::limits::LEAVE_TRIES;
use crate::object::Object;
use crate::ordered::{Entered, KeyRange, Leaving, NodeGarbage, OrderedKeys};
use crate::store::core::Pinned;
use crate::sync::Busy;
use crate::table::Table;

/// Prefetch distance of buckets, in keys before the look-up.
const BUCKETS_AHEAD: usize = 32;
/// Prefetch distance of objects: half of that, so that their buckets are cached by then.
const OBJECTS_AHEAD: usize = 16;
/// Keys in flight; a power of two, so that finding a key's place is free.
const RING_KEYS: usize = 32;
/// Prefetched bytes of the first object; for later ones, as many as the previous object had.
const OBJECT_BYTES_FIRST: usize = 160;
/// Maximum prefetched bytes; the processor prefetches the rest of a longer object automatically.
const OBJECT_BYTES_MAX: usize = 512;

const _: () = assert!(OBJECTS_AHEAD < BUCKETS_AHEAD && BUCKETS_AHEAD <= RING_KEYS);

/// An error: the table is not ordered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotOrdered;

impl fmt::Display for NotOrdered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the table is not ordered")
    }
}

impl std::error::Error for NotOrdered {}

impl Pinned<'_> {
    /// Calls `visit` with the keys of a range in order and their objects, until it breaks.
    ///
    /// A key that is just disappearing, or whose object cannot be found yet, comes without an object. `expected` is
    /// the approximate number of keys wanted. Key and object live as long as the pin. The misses of many look-ups
    /// overlap, and none waits for the end of a batch.
    pub fn scan<'p>(
        &'p self,
        table: &'p Table,
        range: KeyRange<'_>,
        expected: usize,
        mut visit: impl FnMut(&'p [u8], u64, Option<Object<'p>>) -> ControlFlow<()>,
    ) -> Result<(), NotOrdered> {
        self.assert_own(table);
        let keys = table.ordered.as_ref().ok_or(NotOrdered)?;
        let mut walk = keys.walk(&self.pin, range);
        let mut ring: [(u64, &[u8]); RING_KEYS] = [(0, &[]); RING_KEYS];
        let (mut fetched, mut located, mut visited, mut object_bytes) = (0, 0, 0, OBJECT_BYTES_FIRST);
        loop {
            let fetch_to = (visited + BUCKETS_AHEAD).min(expected.max(visited + 1));
            while fetched < fetch_to
                && let Some(key) = walk.next()
            {
                let hash = crate::hash(key);
                ring[fetched % RING_KEYS] = (hash, key);
                self.prefetch_bucket(table, hash);
                fetched += 1;
            }
            while located < fetched.min(visited + OBJECTS_AHEAD) {
                self.prefetch_scanned(table, ring[located % RING_KEYS].0, object_bytes);
                located += 1;
            }
            if visited == fetched {
                break;
            }
            let (hash, key) = ring[visited % RING_KEYS];
            visited += 1;
            let object = self.get(table, hash, key);
            object_bytes = object.map_or(object_bytes, |object| object.log_bytes().min(OBJECT_BYTES_MAX));
            if visit(key, hash, object).is_break() {
                break;
            }
        }
        if self.is_noted(table) {
            // Keys that were just removed are not met.
            self.note_seen_of(table);
        }
        Ok(())
    }

    /// Prefetches `bytes` bytes of the object of `hash`; expects the bucket to be cached.
    #[inline]
    fn prefetch_scanned(&self, table: &Table, hash: u64, bytes: usize) {
        let log = &self.core.store.log;
        table.index.candidates(&self.pin, hash, |location| log.prefetch_bytes(location, bytes));
    }

    /// Adds a key to the tree of an ordered table, before its bucket is locked.
    pub(crate) fn enter(&self, table: &Table, key: &[u8]) -> Result<Entered, Busy> {
        let Some(keys) = &table.ordered else { return Ok(Entered::ANEW) };
        // Taken before the entry, so that every later departure is noticed.
        let entered = keys.entered_now();
        self.edit_tree(table, |garbage| keys.insert(&self.pin, key, garbage))?;
        Ok(entered)
    }

    /// Removes a key from the tree if the index no longer has it. The caller owns no bucket.
    #[inline]
    pub(crate) fn leave(&self, table: &Table, hash: u64, key: &[u8]) {
        if let Some(keys) = &table.ordered {
            self.leave_tree(table, keys, (hash, key));
        }
    }

    #[inline(never)]
    fn leave_tree(&self, table: &Table, keys: &OrderedKeys, (hash, key): (u64, &[u8])) {
        for _ in 0..LEAVE_TRIES {
            match self.try_leave(table, keys, (hash, key)) {
                Ok(true) => return,
                Ok(false) => {}
                Err(Busy) => break,
            }
        }
        self.core.store.backlog.leaving.add(Leaving { table: table.id(), key: key.into() });
    }

    /// Returns false if the edit of another key in the leaf was faster.
    pub(crate) fn try_leave(
        &self,
        table: &Table,
        keys: &OrderedKeys,
        (hash, key): (u64, &[u8]),
    ) -> Result<bool, Busy> {
        let Some(removal) = keys.removal(&self.pin, key)? else { return Ok(true) };
        let bucket = match table.index.lock(&self.pin, hash) {
            Ok(bucket) => bucket,
            // The tree is dropped as a whole.
            Err(NotLocked::Gone) => return Ok(true),
            Err(NotLocked::Busy) => return Err(Busy),
        };
        if bucket.find(hash, |location| self.object_of(location, key)).is_some() {
            return Ok(true);
        }
        let removed = keys.remove(removal);
        drop(bucket);
        let Ok(done) = removed else { return Ok(false) };
        self.edit_tree(table, |garbage| Ok(keys.finish(&self.pin, key, done, garbage)))?;
        Ok(true)
    }

    /// Frees a part of the tree of a retired table whose index is dismantled. Returns whether it did.
    pub(crate) fn take_keys_apart(&self, table: &Table) -> bool {
        let Some(keys) = &table.ordered else { return false };
        let mut has_more = true;
        let edited = self.edit_tree(table, |garbage| {
            let bytes = keys.dismantle(&self.pin, garbage);
            has_more = bytes.is_some();
            Ok(bytes.unwrap_or(0))
        });
        edited.is_ok() && has_more
    }

    #[inline(never)]
    fn edit_tree(
        &self,
        table: &Table,
        edit: impl FnOnce(&mut NodeGarbage) -> Result<u64, Busy>,
    ) -> Result<(), Busy> {
        let mut garbage = self.core.garbage.borrow_mut();
        let bytes = edit(&mut garbage)?;
        table.quota().count(self.core.index, bytes);
        garbage.hand_over_when_due(&self.core.store.reclaimer);
        Ok(())
    }
}
