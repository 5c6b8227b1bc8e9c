//! Walking through an index in hash order, a bucket at a time.
//!
//! The position of a walk is a hash: everything below is done. Buckets may be moved, split and joined between two
//! steps without any effect on the position: the next step reads the bucket that owns the hash then, and a caller
//! that must not see an entry twice skips those below the hash. A bucket is read as of one moment, so an entry that
//! is there all the time is seen.

use std::ops::RangeInclusive;

use crate::epoch::EpochPin;
use crate::index::bucket::{COMMITTING, MOVED, SLOTS, is_locked, location_of, overflow_of};
use crate::index::{Index, Location};
use crate::limits::CHAIN_BUCKETS_HARD_MAX;
use crate::memory::prefetch;
use crate::sync::Backoff;

/// The hashes for which a bucket is read.
pub(crate) struct Reach {
    /// The hashes that the bucket can have.
    pub(crate) hashes: RangeInclusive<u64>,
    /// The last hash that it owns so far; while the index changes its size, older buckets own the rest.
    pub(crate) end: u64,
}

impl Index {
    /// Calls `visit` with the locations of the bucket `buckets` places after that of `hash`.
    ///
    /// Reads only the bucket's own slots. Prefetches the bucket as many places further on, which is read later.
    #[inline]
    pub(crate) fn look_ahead(
        &self,
        pin: &EpochPin<'_>,
        hash: u64,
        buckets: u64,
        mut visit: impl FnMut(Location),
    ) {
        let Some((generation, position)) = self.owner(pin, hash) else { return };
        let at = position + buckets;
        if at < generation.buckets() {
            let bucket = generation.bucket(at);
            (0..SLOTS).filter_map(|slot| location_of(bucket.slot(slot))).for_each(&mut visit);
        }
        if at + buckets < generation.buckets() {
            prefetch(std::ptr::from_ref(generation.bucket(at + buckets)).cast());
        }
    }

    /// Fills `entries` with the tags and locations in the bucket that owns `hash`; `None` if the table is gone.
    ///
    /// Waits only for a commit in the middle of its publication, as a lookup does. Under a writer's lock each entry
    /// changes by one store, and before one leaves a slot for another the version changes; an entry that moves may be
    /// met twice, and is returned once.
    pub(crate) fn read_bucket(
        &self,
        pin: &EpochPin<'_>,
        hash: u64,
        entries: &mut Vec<(u16, Location)>,
    ) -> Option<Reach> {
        entries.clear();
        let mut generation = self.current(pin)?;
        let mut end = u64::MAX;
        let mut backoff = Backoff::new();
        loop {
            let position = generation.position(hash);
            let first = generation.bucket(position);
            let control = first.control();
            if control & MOVED != 0 || position < generation.cursor() {
                end = end.min(*generation.hashes_of(position).end());
                generation = generation.next(pin)?;
                continue;
            }
            if control & COMMITTING == 0 {
                entries.clear();
                let (mut bucket, mut overflow) = (first, overflow_of(control));
                // A chain that a writer is changing may lead elsewhere, hence the bound; the control word tells.
                for _ in 0..=CHAIN_BUCKETS_HARD_MAX {
                    let slots = (0..SLOTS).map(|slot| bucket.slot(slot));
                    entries
                        .extend(slots.filter_map(|entry| Some(((entry >> 48) as u16, location_of(entry)?))));
                    let Some(next) = generation.overflow(overflow) else { break };
                    bucket = next;
                    overflow = overflow_of(bucket.control());
                }
                if first.control() == control {
                    if is_locked(control) {
                        entries.sort_unstable_by_key(|&(_, location)| location.offset());
                        entries.dedup();
                    }
                    let hashes = generation.hashes_of(position);
                    return Some(Reach { end: end.min(*hashes.end()), hashes });
                }
            }
            backoff.wait();
        }
    }
}
