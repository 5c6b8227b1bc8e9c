//! Writes of one object: put. `removal.rs` has deletes.
//!
//! A put first copies the object to the log. Then it locks the bucket for the few instructions that compare the
//! version, finish the header and swap the location. A refused object is taken back from the log. A
//! new key of an ordered table enters the table's tree first (`ordered_table.rs`).
//!
//! No writer waits for a growth of the index: each insert moves a few buckets, and background steps do the rest. A
//! writer that finds no room in spite of that is told to retry.

use crate::error::{Condition, WriteError};
use crate::index::generation::Purpose;
use crate::index::growth::NoMemory;
use crate::index::locked::{LockedBucket, NoRoom, SlotPlace};
use crate::index::{Location, NotLocked};
use crate::limits::{
    GROWTH_BUCKETS_PER_INSERT, GROWTH_BUCKETS_PER_STEP, KEY_BYTES_MAX, LEAVE_TRIES, RETRY_AFTER_US,
    VALUE_BYTES_MAX, VERSION_MAX,
};
use crate::log::Staged;
use crate::object::{NEVER_MS, Object};
use crate::ordered::Entered;
use crate::store::core::Pinned;
use crate::sync::Busy;
use crate::table::{Service, Table};

/// The reason why a write under the lock of a bucket did not take place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unwritten {
    /// The table is ordered, and the key must enter its tree first.
    MustEnter,
    /// The write is refused.
    Refused(WriteError),
}

impl<E: Into<WriteError>> From<E> for Unwritten {
    fn from(error: E) -> Unwritten {
        Unwritten::Refused(error.into())
    }
}

impl From<NoRoom> for WriteError {
    /// A preliminary error, which [`Pinned::refused`] may replace.
    fn from(_: NoRoom) -> WriteError {
        WriteError::Collisions
    }
}

impl Pinned<'_> {
    /// Stores `value` under `key` if the condition holds; returns the new version.
    ///
    /// `hash` is the hash of the key ([`crate::hash`]), here and in every other function: the index recomputes it
    /// when it grows.
    pub fn put(
        &self,
        table: &Table,
        hash: u64,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<u64, WriteError> {
        self.put_until(table, hash, key, value, NEVER_MS, condition)
    }

    /// As [`Pinned::put`], for an object that exists until the store's clock ([`crate::Store::advance_clock`])
    /// reaches `expires_ms`. After that no reader finds it, and background steps remove it. A later put decides anew
    /// whether the object expires.
    pub fn put_until(
        &self,
        table: &Table,
        hash: u64,
        key: &[u8],
        value: &[u8],
        expires_ms: u64,
        condition: Condition,
    ) -> Result<u64, WriteError> {
        self.admit(table, key, value.len(), expires_ms)?;
        if condition != Condition::Always || table.is_replaying() {
            self.refuse_unknown(table, hash, key)?;
        }
        if condition != Condition::Always && !table.is_replaying() {
            // Saves the copy if the condition fails already; the decision that counts is made under the lock. Not while a
            // hash that was known above may be forgotten by now.
            let current = self.get(table, hash, key).map_or(0, |object| object.version());
            refuse_unless(condition, current)?;
        }
        self.make_room(table, (hash, key), table.lengths(key, value.len(), expires_ms).object_bytes())?;
        let staged = self.stage(table, key, value, expires_ms)?;
        self.stage_completion(table, Some(&staged), false)?;
        let place = (hash, key);
        let published = self.write_entering(
            table,
            place,
            |_| true,
            |entered| self.publish(table, place, &staged, condition, entered),
        );
        published.map_err(|error| {
            self.unstage(table, &staged);
            self.refused(table, hash, error)
        })
    }

    /// Refuses a write that depends on an object which may still arrive.
    #[inline]
    pub(crate) fn refuse_unknown(&self, table: &Table, hash: u64, key: &[u8]) -> Result<(), WriteError> {
        if self.knows(table, hash, key) { Ok(()) } else { Err(WriteError::NotArrived) }
    }

    /// Refuses a write to a durable table whose disk does not admit it.
    #[inline]
    pub(crate) fn refuse_without_disk(&self, table: &Table, removes: bool) -> Result<(), WriteError> {
        let durable = self.core.store.log.durable.as_ref().filter(|_| table.is_durable());
        durable.and_then(|durable| durable.refusal(removes)).map_or(Ok(()), Err)
    }

    /// Checks everything that can be checked before the write begins.
    #[inline]
    pub(crate) fn admit(
        &self,
        table: &Table,
        key: &[u8],
        value_bytes: usize,
        expires_ms: u64,
    ) -> Result<(), WriteError> {
        self.assert_own(table);
        match table.service() {
            Service::Open => {}
            Service::Held => return Err(WriteError::Retry { after_us: RETRY_AFTER_US }),
            Service::Retired => return Err(WriteError::TableRetired),
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(WriteError::KeyTooLarge);
        }
        let bytes_max = self.core.store.log.object_bytes_max();
        if value_bytes > VALUE_BYTES_MAX
            || table.lengths(key, value_bytes, expires_ms).object_bytes() > bytes_max
        {
            return Err(WriteError::ValueTooLarge);
        }
        Ok(())
    }

    /// Makes room for an object of the given size under `key` in a table with a budget.
    #[inline]
    pub(crate) fn make_room(
        &self,
        table: &Table,
        (hash, key): (u64, &[u8]),
        bytes: usize,
    ) -> Result<(), WriteError> {
        match &table.cache {
            Some(cache) => self.make_room_in(table, cache, (hash, key), bytes as u64),
            None => Ok(()),
        }
    }

    /// Copies an object to this core's log head.
    #[inline]
    pub(crate) fn stage(
        &self,
        table: &Table,
        key: &[u8],
        value: &[u8],
        expires_ms: u64,
    ) -> Result<Staged, WriteError> {
        self.refuse_without_disk(table, false)?;
        let store = &self.core.store;
        let mut head = self.core.head_of(table).borrow_mut();
        let keep = || store.keep_for_writers() + store.seglets_awaited();
        let staged = store.log.stage(&mut head, keep, table.entry_number(), (key, value), expires_ms);
        staged.map_err(|_| match store.seglets_awaited() {
            0 => self.no_room(table, table.lengths(key, value.len(), expires_ms).object_bytes()),
            // What a recovery does not need in the end is for writers.
            _ => WriteError::Retry { after_us: RETRY_AFTER_US },
        })
    }

    pub(crate) fn unstage(&self, table: &Table, staged: &Staged) {
        self.unstage_completion();
        let mut head = self.core.head_of(table).borrow_mut();
        self.core.store.log.unstage(self.core.index, &mut head, staged);
    }

    /// Executes a write, and repeats it after its key has entered the tree, if that is needed. The write is told
    /// whether the key has entered; `is_indexed` tells from its result whether the key is in the index now. (One call,
    /// so that it is compiled into its caller.)
    #[inline(always)]
    pub(crate) fn write_entering<T>(
        &self,
        table: &Table,
        (hash, key): (u64, &[u8]),
        is_indexed: impl Fn(&T) -> bool,
        mut write: impl FnMut(Option<Entered>) -> Result<T, Unwritten>,
    ) -> Result<T, WriteError> {
        let (mut entered, mut tries) = (None, 0);
        loop {
            let written = match write(entered) {
                // Other writers may remove the key each time before it is in the index.
                Err(Unwritten::MustEnter) if tries < LEAVE_TRIES => {
                    tries += 1;
                    match self.enter(table, key) {
                        Ok(now) => {
                            entered = Some(now);
                            continue;
                        }
                        Err(Busy) => Err(WriteError::Retry { after_us: RETRY_AFTER_US }),
                    }
                }
                Err(Unwritten::MustEnter) => Err(WriteError::Retry { after_us: RETRY_AFTER_US }),
                Err(Unwritten::Refused(error)) => Err(error),
                Ok(written) => Ok(written),
            };
            if entered.is_some() && !written.as_ref().is_ok_and(&is_indexed) {
                self.leave(table, hash, key);
            }
            return written;
        }
    }

    /// Checks whether a key, new or not, may enter the index; called by the owner of its bucket.
    #[inline(always)]
    pub(crate) fn admit_to_index(
        &self,
        table: &Table,
        key: &[u8],
        is_new: bool,
        entered: Option<Entered>,
    ) -> Result<(), Unwritten> {
        let must_enter = is_new && table.ordered.is_some() && !self.has_entered(table, key, entered);
        if must_enter { Err(Unwritten::MustEnter) } else { Ok(()) }
    }

    /// Returns whether a new key may enter the index; called by the owner of its bucket.
    #[inline]
    pub(crate) fn has_entered(&self, table: &Table, key: &[u8], entered: Option<Entered>) -> bool {
        let Some(keys) = &table.ordered else { return true };
        entered.is_some_and(|entered| keys.entered_now() == entered || keys.has(&self.pin, key))
    }

    #[inline(always)]
    fn publish(
        &self,
        table: &Table,
        (hash, key): (u64, &[u8]),
        staged: &Staged,
        condition: Condition,
        entered: Option<Entered>,
    ) -> Result<u64, Unwritten> {
        let bucket = table.index.lock(&self.pin, hash)?;
        let found = bucket.find(hash, |location| self.with_location(location, key));
        let before = found.as_ref().map(|(_, (_, object))| object);
        let visible = self.visible_version(before);
        if condition != Condition::Always && self.is_noted(table) {
            self.note_seen(table, hash, before);
        }
        refuse_unless(condition, visible)?;
        let version = next_version(table, before);
        hold_against_quota(table, key, u64::from(staged.bytes()), before)?;
        self.admit_to_index(table, key, found.is_none(), entered)?;
        Ok(self.publish_locked(table, hash, staged, bucket, found, (version, None))?)
    }

    /// Publishes a staged object with that version, and the number in it if its completion record names one, in place of
    /// the found one, and unlocks. A new key of an ordered
    /// table must have entered its tree ([`Pinned::admit_to_index`]).
    #[inline]
    pub(crate) fn publish_locked(
        &self,
        table: &Table,
        hash: u64,
        staged: &Staged,
        mut bucket: LockedBucket<'_>,
        found: Option<(SlotPlace, (Location, Object<'_>))>,
        (version, number): (u64, Option<[u8; 8]>),
    ) -> Result<u64, WriteError> {
        let log = &self.core.store.log;
        if version > VERSION_MAX {
            return Err(WriteError::Overflow);
        }
        debug_assert!(
            found.as_ref().is_none_or(|(_, (_, object))| object.version() < version),
            "versions of a key only grow"
        );
        let writing = self.begin_durable(table);
        if let Some(writing) = &writing {
            if found.is_none() {
                // After the position has moved nothing may be refused.
                bucket.make_room(1, Purpose::Insert)?;
            }
            let replaced = found.as_ref().map(|&(_, (location, _))| location);
            log.seal(staged, version, self.predecessor(staged.location, replaced));
            self.seal_completion(version, number);
            self.advance(writing, self.wait_of(table));
        } else {
            log.seal(staged, version, 0);
        }
        table.count_version(self.core.index, version);
        self.enter_index(table, hash, staged, bucket, found)?;
        Ok(version)
    }

    /// Makes a sealed object found in place of the one that was, and unlocks.
    #[inline]
    pub(crate) fn enter_index(
        &self,
        table: &Table,
        hash: u64,
        staged: &Staged,
        mut bucket: LockedBucket<'_>,
        found: Option<(SlotPlace, (Location, Object<'_>))>,
    ) -> Result<(), WriteError> {
        let log = &self.core.store.log;
        let bytes = u64::from(staged.bytes());
        let expired_before = found.as_ref().is_some_and(|(_, (_, object))| object.expires());
        if let Some((place, (location, object))) = found {
            let old_bytes = object.log_bytes() as u64;
            let changed = bucket.replace(place, hash, staged.location);
            table.note_write(hash, changed);
            self.count_replaced(table, &bucket, (place, staged.location), bytes, old_bytes);
            drop(bucket);
            log.bury(self.core.index, location, old_bytes as u32);
        } else {
            let changed = bucket.insert(hash, staged.location)?;
            table.note_write(hash, changed);
            drop(bucket);
            table.count_inserted(self.core.index, hash, bytes);
            self.help_growth(table);
        }
        table.count_expiring(self.core.index, expired_before, staged.expires_ms != NEVER_MS);
        self.note_expiry(table, staged);
        Ok(())
    }

    /// Counts an object that replaced another; in a table that evicts, also as a use.
    #[inline]
    pub(crate) fn count_replaced(
        &self,
        table: &Table,
        bucket: &LockedBucket<'_>,
        (place, location): (SlotPlace, Location),
        bytes: u64,
        old_bytes: u64,
    ) {
        let difference = bytes.wrapping_sub(old_bytes);
        table.count(self.core.index, 0, difference);
        if let Some(cache) = &table.cache {
            bucket.note_use(place, location);
            if !bucket.mark(place).is_main() {
                cache.count_small(self.core.index, difference);
            }
        }
    }

    /// Notes the expiry of a published object. The caller owns no bucket.
    #[inline]
    pub(crate) fn note_expiry(&self, table: &Table, staged: &Staged) {
        if staged.expires_ms != NEVER_MS && table.note_expiry(staged.expires_ms) {
            self.core.store.note_expiring(table);
        }
    }

    /// Sometimes checks the table's load after an insert, and moves a few buckets while the index grows or shrinks.
    #[inline]
    pub(crate) fn help_growth(&self, table: &Table) {
        self.look_at_load(table, false);
        if let Some(cache) = &table.cache {
            self.look_at_arrivals(table, cache);
        }
        if table.index.is_growing(&self.pin) {
            self.grow(table, GROWTH_BUCKETS_PER_INSERT);
        }
    }

    /// Sometimes checks, after an insert or a removal, whether the index has the right size. Inserts and background
    /// steps do the resulting work. Only removals make it shrink, so that one that was made for what is expected keeps its size
    /// while it is filled.
    #[inline]
    pub(crate) fn look_at_load(&self, table: &Table, is_removal: bool) {
        let Some(removals) = table.count_change(self.core.index, is_removal) else { return };
        let overloaded = table.index.is_overloaded(&self.pin, table.objects());
        let grows = overloaded && self.start_growth(table, 0) == Ok(true);
        if grows || removals > 0 && self.start_shrinking(table, removals) {
            self.core.store.note_growing(table);
        }
    }

    /// Returns the error for a writer that found no room in the bucket of `hash`. It means collisions only in an
    /// index of the right size: a thread that moves its buckets may have lost the processor while others inserted.
    #[cold]
    pub(crate) fn refused(&self, table: &Table, hash: u64, error: WriteError) -> WriteError {
        if error != WriteError::Collisions {
            return error;
        }
        let retry = WriteError::Retry { after_us: RETRY_AFTER_US };
        match self.hurry_growth(table, 1) {
            Ok(true) => return retry,
            Ok(false) => {}
            Err(NoMemory) => return WriteError::OutOfMemory,
        }
        // The growth may just have ended, or another one may just have begun.
        let has_room = match table.index.lock(&self.pin, hash) {
            Ok(mut bucket) => bucket.make_room(1, Purpose::Insert).is_ok(),
            Err(reason) => reason == NotLocked::Busy,
        };
        if has_room || self.hurry_growth(table, 1) != Ok(false) {
            return retry;
        }
        if self.hurry_arrival(table) { retry } else { error }
    }

    /// Immediately grows an index that is growing, or is due to with `more` objects. Returns whether it grows.
    pub(crate) fn hurry_growth(&self, table: &Table, more: u64) -> Result<bool, NoMemory> {
        let due = table.index.is_overloaded(&self.pin, table.objects() + more);
        if due && self.start_growth(table, more)? {
            self.core.store.note_growing(table);
        }
        let growing = table.index.is_growing(&self.pin);
        if growing {
            self.grow(table, GROWTH_BUCKETS_PER_STEP);
        }
        Ok(due || growing)
    }
}

/// Returns the version of an object that replaces `before`.
#[inline]
pub(crate) fn next_version(table: &Table, before: Option<&Object<'_>>) -> u64 {
    before.map_or_else(|| table.version_of_new(), |object| table.version_behind(object.version()))
}

/// Refuses `bytes` in place of `before` if the quota does not allow them.
#[inline]
pub(crate) fn hold_against_quota(
    table: &Table,
    key: &[u8],
    bytes: u64,
    before: Option<&Object<'_>>,
) -> Result<(), WriteError> {
    let (tree_bytes, old_bytes) = match before {
        Some(object) => (0, object.log_bytes() as u64),
        None => (table.bytes_in_tree(key), 0),
    };
    if table.quota().admits(bytes + tree_bytes, old_bytes) { Ok(()) } else { Err(WriteError::OverQuota) }
}

#[inline]
pub(crate) fn refuse_unless(condition: Condition, current: u64) -> Result<(), WriteError> {
    if condition.holds(current) { Ok(()) } else { Err(WriteError::ConditionFailed { current }) }
}
