//! Several locked buckets, each once, locked in the order of their addresses.
//!
//! An index may move a bucket between the look-up of its address and the lock; then all buckets are unlocked and the
//! procedure repeats. The core lends the memory, so that nothing is allocated.

use crate::epoch::EpochPin;
use crate::index::locked::LockedBucket;
use crate::sync::{Backoff, Busy};
use crate::table::Table;

/// The memory of lock sets.
#[derive(Default)]
pub(crate) struct LockMemory {
    addresses: Vec<usize>,
    order: Vec<u32>,
    locks: Vec<LockedBucket<'static>>,
}

/// Locked buckets. Unlocks all when dropped.
pub(crate) struct LockSet<'m, 'p> {
    memory: &'m mut LockMemory,
    locks: Vec<LockedBucket<'p>>,
}

/// Returns an empty vector of another lifetime in the same memory (`collect` reuses it if the layouts agree).
fn recycled<'a>(mut locks: Vec<LockedBucket<'_>>) -> Vec<LockedBucket<'a>> {
    locks.clear();
    locks.into_iter().map(|_| unreachable!("it was cleared")).collect()
}

impl<'m, 'p> LockSet<'m, 'p> {
    /// Locks the buckets of `count` places, each a table and a hash. Omits places in tables that are gone. Waits for
    /// the holder of each bucket, within a bound for each.
    pub(crate) fn lock<'t>(
        pin: &'p EpochPin<'_>,
        memory: &'m mut LockMemory,
        count: usize,
        place: impl Fn(usize) -> (&'t Table, u64),
    ) -> Result<LockSet<'m, 'p>, Busy> {
        let locks = recycled(std::mem::take(&mut memory.locks));
        let mut set = LockSet { memory, locks };
        // Allocates before the first bucket is locked.
        set.locks.reserve(count);
        let mut backoff = Backoff::new();
        while !set.try_lock(pin, count, &place)? {
            set.locks.clear();
            backoff.try_wait()?;
        }
        Ok(set)
    }

    fn try_lock<'t>(
        &mut self,
        pin: &'p EpochPin<'_>,
        count: usize,
        place: &impl Fn(usize) -> (&'t Table, u64),
    ) -> Result<bool, Busy> {
        let LockMemory { addresses, order, .. } = &mut *self.memory;
        addresses.clear();
        addresses.extend((0..count).map(|at| {
            let (table, hash) = place(at);
            table.index.bucket_address(pin, hash).unwrap_or_default()
        }));
        order.clear();
        order.extend(0..count as u32);
        order.sort_unstable_by_key(|&at| addresses[at as usize]);
        order.dedup_by_key(|&mut at| addresses[at as usize]);
        for &at in order.iter() {
            let address = addresses[at as usize];
            if address == 0 {
                continue;
            }
            let (table, hash) = place(at as usize);
            match table.index.lock_at(pin, hash, address)? {
                Some(lock) => self.locks.push(lock),
                None => return Ok(false),
            }
        }
        debug_assert!(
            self.locks.is_sorted_by(|before, next| before.address() < next.address()),
            "buckets are locked once each, in the order of their addresses"
        );
        Ok(true)
    }

    /// Returns whether a place was omitted.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.memory.addresses.contains(&0)
    }

    /// Returns the number of locked buckets.
    pub(crate) fn len(&self) -> usize {
        self.locks.len()
    }

    fn lock_of(&self, at: usize) -> usize {
        let address = self.memory.addresses[at];
        let found = self.locks.binary_search_by_key(&address, LockedBucket::address);
        found.expect("the bucket of every place is locked")
    }

    /// Returns the bucket of the place with that number.
    pub(crate) fn bucket(&self, at: usize) -> &LockedBucket<'p> {
        &self.locks[self.lock_of(at)]
    }

    /// Returns the bucket of the place with that number, and the number of the lock.
    pub(crate) fn bucket_mut(&mut self, at: usize) -> (usize, &mut LockedBucket<'p>) {
        let lock = self.lock_of(at);
        (lock, &mut self.locks[lock])
    }
}

impl Drop for LockSet<'_, '_> {
    fn drop(&mut self) {
        self.memory.locks = recycled(std::mem::take(&mut self.locks));
    }
}
