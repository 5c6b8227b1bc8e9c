//! Removals: deletes, with the tombstone that a durable table needs, and what every way out of an index has in common.
//!
//! A delete needs no memory in a table that is in memory only, and in a durable one it may take what is kept from
//! writers: so a full store can be emptied.

use crate::error::{Condition, WriteError};
use crate::index::Location;
use crate::index::bucket::Mark;
use crate::index::locked::{LockedBucket, SlotPlace};
use crate::limits::RETRY_AFTER_US;
use crate::log::Staged;
use crate::object::{NEVER_MS, Object};
use crate::store::core::Pinned;
use crate::table::Table;
use crate::weakened;
use crate::write::refuse_unless;

impl Pinned<'_> {
    /// Removes `key` if the condition holds. Returns its former version, `None` if it was absent.
    pub fn delete(
        &self,
        table: &Table,
        hash: u64,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<u64>, WriteError> {
        self.admit(table, key, 0, NEVER_MS)?;
        self.refuse_unknown(table, hash, key)?;
        let staged = self.stage_removal(table, key)?;
        self.stage_completion(table, staged.as_ref(), false)?;
        let removed = self.delete_found(table, (hash, key), condition, staged.as_ref());
        if !matches!(removed, Ok(Some(_)))
            && let Some(staged) = &staged
        {
            self.unstage(table, staged);
        }
        // An expired object was removed, and nobody may learn of it.
        removed.map(|version| version.filter(|&version| version != 0))
    }

    /// Removes the object of a key, with the staged tombstone that a durable table needs for it. Returns the version
    /// that readers saw, 0 if it had expired.
    fn delete_found(
        &self,
        table: &Table,
        (hash, key): (u64, &[u8]),
        condition: Condition,
        staged: Option<&Staged>,
    ) -> Result<Option<u64>, WriteError> {
        let bucket = table.index.lock(&self.pin, hash)?;
        let found = bucket.find(hash, |location| self.with_location(location, key));
        let current = self.visible_version(found.as_ref().map(|(_, (_, object))| object));
        if self.is_noted(table) {
            self.note_seen(table, hash, found.as_ref().map(|(_, (_, object))| object));
        }
        refuse_unless(condition, current)?;
        let Some((place, (location, object))) = found else { return Ok(None) };
        if !table.lets_go(key) {
            return Err(WriteError::Retry { after_us: RETRY_AFTER_US });
        }
        if current == 0 {
            // The reply will be that nothing was there.
            self.unstage_completion();
        }
        let writing = self.begin_durable(table);
        if let (Some(writing), Some(staged)) = (&writing, staged) {
            let log = &self.core.store.log;
            log.seal(staged, object.version(), log.sequence_at(location));
            self.seal_completion(object.version(), None);
            let cut = self.advance(writing, self.wait_of(table));
            self.note_removed(hash, cut);
        }
        self.take_out(table, bucket, place, location, &object);
        Ok(Some(current))
    }

    /// Notes the removal of a key from a durable table, which this cut is the first to include, before anybody can miss
    /// the key.
    #[inline]
    pub(crate) fn note_removed(&self, hash: u64, cut: u64) {
        if let Some(durable) = self.core.store.log.durable.as_ref().filter(|_| !weakened::by("absence")) {
            durable.note_removed(hash, cut);
        }
    }

    /// Notes that an expired object of a durable table is about to go from memory: while the disk holds neither it nor a time
    /// of the clock behind its expiry, a crash would bring it back, or what it replaced.
    pub(crate) fn note_expired(&self, table: &Table, hash: u64, location: Location, expires_ms: u64) {
        let log = &self.core.store.log;
        if let Some(durable) = &log.durable
            && table.is_durable()
        {
            let object_cut = if log.is_stable(location) { 0 } else { durable.cuts.next() };
            durable.note_expired(hash, expires_ms, object_cut);
        }
    }

    /// Removes an object found in a locked bucket, whose key [`Table::lets_go`] admits.
    pub(crate) fn take_out(
        &self,
        table: &Table,
        mut bucket: LockedBucket<'_>,
        place: SlotPlace,
        location: Location,
        object: &Object<'_>,
    ) {
        table.remember_end(object.version());
        let (mark, changed) = bucket.remove(place);
        table.note_removal(object.key(), changed);
        drop(bucket);
        self.bury(table, location, object, mark);
        if table.ordered.is_some() {
            self.leave(table, crate::hash(object.key()), object.key());
        }
        self.look_at_load(table, true);
    }

    /// Counts an unreachable object as gone; `mark` is the mark of its entry.
    pub(crate) fn bury(&self, table: &Table, location: Location, object: &Object<'_>, mark: Mark) {
        let bytes = object.log_bytes() as u32;
        if let Some(cache) = &table.cache
            && !mark.is_main()
        {
            cache.count_small(self.core.index, u64::from(bytes).wrapping_neg());
        }
        self.core.store.log.bury(self.core.index, location, bytes);
        table.count(self.core.index, 1_u64.wrapping_neg(), u64::from(bytes).wrapping_neg());
        table.count_expiring(self.core.index, object.expires(), false);
    }

    /// Copies the key of a tombstone to the log head, for a removal from a durable table; nothing for another table. It
    /// may take what is kept from writers, so that a full store can be emptied.
    pub(crate) fn stage_removal(&self, table: &Table, key: &[u8]) -> Result<Option<Staged>, WriteError> {
        if !table.is_durable() {
            return Ok(None);
        }
        self.refuse_without_disk(table, true)?;
        let log = &self.core.store.log;
        let mut head = self.core.durable_head.borrow_mut();
        let claim = |bytes| log.claim_of_writer(bytes, 0);
        let staged = log.stage_tombstone(&mut head, claim, table.entry_number(), key);
        staged
            .map(Some)
            .map_err(|_| self.no_room_to_remove(table, table.lengths(key, 0, NEVER_MS).object_bytes()))
    }
}
