//! Scans of ordered tables.
//!
//! A scan goes through the keys of a range in order and looks each up in the index. It meets every object that lived
//! throughout exactly once, and every object that it meets existed at some moment of the scan; it may or may not meet
//! objects that come or go meanwhile.
//!
//! ```text
//!   walk ─▶ key, hash: prefetch the bucket ─▶ 16 keys later: prefetch the object ─▶ 16 keys later: look up, visit
//! ```
//! So the misses of many lookups overlap, and none waits for the end of a batch; the next leaf is prefetched as well
//! (`ordered/walk.rs`). A commit can rely on the result of a scan: `commit/ranges.rs`.

use std::fmt;
use std::ops::ControlFlow;

use crate::object::Object;
use crate::ordered::KeyRange;
use crate::pinned::Pinned;
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
    /// the approximate number of keys wanted. Key and object live as long as the pin.
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
                return Ok(());
            }
            let (hash, key) = ring[visited % RING_KEYS];
            visited += 1;
            let object = self.get(table, hash, key);
            object_bytes = object.map_or(object_bytes, |object| object.log_bytes().min(OBJECT_BYTES_MAX));
            if visit(key, hash, object).is_break() {
                return Ok(());
            }
        }
    }

    /// Prefetches `bytes` bytes of the object of `hash`; expects the bucket to be cached.
    #[inline]
    fn prefetch_scanned(&self, table: &Table, hash: u64, bytes: usize) {
        let log = &self.core.store.log;
        table.index.candidates(&self.pin, hash, |location| log.prefetch_bytes(location, bytes));
    }
}
