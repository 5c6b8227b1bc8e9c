//! A pinned core: the object through which all reads and writes go.
//!
//! Results are borrowed from it, so the compiler ensures that no reference outlives the pin. Reads are in `read.rs`,
//! writes in `write.rs`, commits in `commit.rs`; this file has their common parts.

use crate::epoch::{EpochPin, HeldPin};
use crate::error::WriteError;
use crate::index::Location;
use crate::index::growth::{Growth, NoMemory};
use crate::limits::{GROWTH_KEY_BYTES, RETRY_AFTER_US};
use crate::object::Object;
use crate::store::core::Core;
use crate::sync::Ordering;
use crate::table::Table;

/// A pin of a core. See [`Core::pin`].
pub struct Pinned<'c> {
    pub(crate) core: &'c Core,
    pub(crate) pin: EpochPin<'c>,
}

impl Core {
    /// Pins the core: objects found under the pin stay valid until it is dropped.
    ///
    /// Pins nest. A pin takes a few nanoseconds; it holds back memory that others replace meanwhile, so pin per
    /// batch, not for long.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        Pinned { core: self, pin: self.local.pin() }
    }
}

impl Pinned<'_> {
    /// Keeps this pin's epoch beyond the pin, for an invocation that yields: the objects it found stay valid until
    /// [`Core::release`].
    pub fn hold(&self) -> HeldPin {
        self.pin.hold()
    }

    #[inline(always)]
    pub(crate) fn assert_own(&self, table: &Table) {
        table.assert_of(self.core.store.log_address());
    }

    /// Returns the object at `location` if its key is `key`.
    #[inline(always)]
    pub(crate) fn object_of<'p>(&'p self, location: Location, key: &[u8]) -> Option<Object<'p>> {
        let object = self.core.store.log.object(location, &self.pin);
        (object.key() == key).then_some(object)
    }

    /// Returns whether the object has expired for all readers.
    #[inline(always)]
    pub(crate) fn is_expired(&self, object: &Object<'_>) -> bool {
        object.expires() && object.expires_ms() <= self.core.store.now_ms()
    }

    /// Returns the version that readers see for `object`: 0 if there is none or it has expired.
    #[inline]
    pub(crate) fn visible_version(&self, object: Option<&Object<'_>>) -> u64 {
        object.filter(|object| !self.is_expired(object)).map_or(0, Object::version)
    }

    /// Starts the growth of a table's index if it is due with `more` objects. Returns whether this call did.
    pub(crate) fn start_growth(&self, table: &Table, more: u64) -> Result<bool, NoMemory> {
        table.index.start_growth(&self.pin, table.objects() + more, self.core.store.config.huge_pages)
    }

    /// Starts the shrinking of a table's index if it is due after `changes` more changes. Returns whether this call
    /// did.
    pub(crate) fn start_shrinking(&self, table: &Table, changes: u64) -> bool {
        let objects = table.objects();
        table.is_complete()
            && table.index.is_due_to_shrink(&self.pin, objects, changes)
            && !table.is_retired()
            && table.index.start_shrinking(&self.pin, objects, self.core.store.config.huge_pages)
    }

    /// Moves a few buckets of a table whose index grows or shrinks.
    pub(crate) fn grow(&self, table: &Table, buckets: u64) -> Growth {
        let store = &self.core.store;
        let hash_of = |location| {
            let object = store.log.object_within(location, &self.pin);
            object.map_or(0, |object| crate::hash(object.key()))
        };
        let prefetch = |location| store.log.prefetch_key(location, GROWTH_KEY_BYTES);
        table.index.grow(&self.pin, buckets, &store.reclaimer, hash_of, prefetch)
    }

    /// Returns the error for a writer of `bytes` without a segment: retry if cleaning will bring one.
    #[cold]
    pub(crate) fn no_memory(&self, bytes: usize) -> WriteError {
        let store = &self.core.store;
        store.cleaning.refusals.fetch_add(1, Ordering::Relaxed);
        if store.cleaning_brings(bytes) || store.expects_expiry() {
            WriteError::Retry { after_us: RETRY_AFTER_US }
        } else {
            WriteError::OutOfMemory
        }
    }
}

impl std::fmt::Debug for Pinned<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Pinned {{ core: {} }}", self.core.index)
    }
}
