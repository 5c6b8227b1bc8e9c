//! The list of tables, replaced as a whole, so that pinned readers need no lock.
//!
//! The cleaner finds tables by the id in an object's header. A retired table stays listed until its index is taken
//! apart, since its indexed objects must not count as unreachable before. Changes come from control threads and are
//! rare: each copies the listing (a few microseconds per hundred tables). Workers only remove tables, and try again
//! later if another thread is changing the listing.

use std::collections::HashMap;
use std::sync::Arc;

use crate::epoch::EpochPin;
use crate::number_hash::NumberHash;
use crate::reclaim::{Garbage, Reclaimer, Retired};
use crate::sync::{AtomicPtr, Exclusive, ExclusiveGuard, Ordering};
use crate::table::Table;

/// The tables at one moment.
#[derive(Clone, Default)]
pub(crate) struct Listing {
    tables: HashMap<u32, Arc<Table>, NumberHash>,
    /// Tables by further numbers that entries have for them.
    also: HashMap<u32, Arc<Table>, NumberHash>,
    /// Retired tables whose id has been reused.
    replaced: Vec<Arc<Table>>,
}

impl Listing {
    /// Returns the table of that id that new requests use.
    pub(crate) fn get(&self, id: u32) -> Option<&Arc<Table>> {
        self.tables.get(&id).or_else(|| self.also.get(&id))
    }

    /// Returns every table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values().chain(&self.replaced)
    }

    /// Returns the retired tables of that id.
    pub(crate) fn replaced(&self, id: u32) -> impl Iterator<Item = &Arc<Table>> {
        self.replaced.iter().filter(move |table| table.id() == id)
    }
}

/// The tables of a store.
pub(crate) struct Directory {
    listing: AtomicPtr<Listing>,
    changing: Exclusive<()>,
}

impl Directory {
    pub(crate) fn new() -> Directory {
        let listing = AtomicPtr::new(Box::into_raw(Box::default()));
        Directory { listing, changing: Exclusive::new(()) }
    }

    /// Returns the current listing.
    #[inline]
    pub(crate) fn listing<'p>(&self, _pin: &'p EpochPin<'_>) -> &'p Listing {
        // SAFETY: never null; a replaced listing is freed by the reclaimer after every pin that could have it.
        unsafe { &*self.listing.load(Ordering::Acquire) }
    }

    /// Calls `read` with the current listing; for threads that cannot pin.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Listing) -> T) -> T {
        let _changing = self.changing.lock();
        // SAFETY: never null, and no thread replaces it while this one holds `changing`.
        read(unsafe { &*self.listing.load(Ordering::Acquire) })
    }

    fn change<T>(
        &self,
        _changing: &ExclusiveGuard<'_, ()>,
        reclaimer: &Reclaimer,
        change: impl FnOnce(&mut Listing) -> T,
    ) -> T {
        // SAFETY: never null, and no thread replaces it while this one holds `changing`.
        let mut listing = unsafe { &*self.listing.load(Ordering::Acquire) }.clone();
        let result = change(&mut listing);
        let before = self.listing.swap(Box::into_raw(Box::new(listing)), Ordering::AcqRel);
        // SAFETY: it came from `Box::into_raw`, has just been replaced, and the reclaimer waits for its readers.
        if let Some(before) = unsafe { Retired::new(before) } {
            reclaimer.retire(Garbage::Boxed(Box::new(before)));
        }
        result
    }

    /// Adds `table`, unless one of its id is in service, which is returned then.
    pub(crate) fn add(&self, reclaimer: &Reclaimer, table: Arc<Table>) -> Arc<Table> {
        self.change(&self.changing.lock(), reclaimer, |listing| {
            if let Some(existing) = listing.get(table.id())
                && !existing.is_retired()
            {
                return Arc::clone(existing);
            }
            if let Some(retired) = listing.tables.insert(table.id(), Arc::clone(&table)) {
                listing.replaced.push(retired);
            }
            table
        })
    }

    /// Makes a table found by a further number, as long as it is listed.
    pub(crate) fn add_number(&self, reclaimer: &Reclaimer, number: u32, table: &Arc<Table>) {
        self.change(&self.changing.lock(), reclaimer, |listing| {
            listing.also.insert(number, Arc::clone(table));
        });
    }

    /// Removes a table that has been taken apart. Returns false if another thread is changing the listing.
    pub(crate) fn try_remove(&self, reclaimer: &Reclaimer, table: &Arc<Table>) -> bool {
        let Some(changing) = self.changing.try_lock() else { return false };
        self.change(&changing, reclaimer, |listing| {
            listing.tables.retain(|_, listed| !Arc::ptr_eq(listed, table));
            listing.also.retain(|_, listed| !Arc::ptr_eq(listed, table));
            listing.replaced.retain(|listed| !Arc::ptr_eq(listed, table));
        });
        true
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: it came from `Box::into_raw`, and no other thread has the directory any more.
        drop(unsafe { Box::from_raw(self.listing.load(Ordering::Acquire)) });
    }
}
