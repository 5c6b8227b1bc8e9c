//! Replaying a transfer at the target: bytes of another store become objects of this one.
//!
//! The whole pull is checked before any of it is stored: its length, each object's checksum, and whether its hash was
//! requested. Meanwhile its buckets are prefetched. Then each object is copied to the log head, and published
//! under the lock of its bucket if it is newer than the present one.

use std::fmt;

use crate::error::WriteError;
use crate::hash_range::HashRange;
use crate::limits::{EXPECTED_INDEX_DIVISOR, RETRY_AFTER_US, VERSION_MAX};
use crate::log::Staged;
use crate::object::{Carried, Cut};
use crate::store::core::Pinned;
use crate::table::Table;
use crate::write::hold_against_quota;

/// The result of replaying pulls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Replayed {
    /// Objects that were stored.
    pub stored: u64,
    /// Objects that were outdated: the present one is as new, the key was removed here, or its hash has arrived.
    pub late: u64,
    /// Objects with damaged bytes, which are omitted.
    pub corrupted: u64,
}

/// The reason why a pull was not replayed completely.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReplayError {
    /// It ends within an object. Nothing was stored.
    Cut,
    /// It has a sound object with an unrequested hash. Nothing was stored.
    Foreign,
    /// The store refuses the next object, as it refuses a put.
    Refused(WriteError),
}

/// The side from which objects come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// From the source of a move: objects here may be newer.
    There,
    /// From the target of a move, where they were written since.
    Back,
    /// From the source of a move that keeps using them: there are no writes here.
    Copied,
    /// From an archive: nobody has admitted them before.
    Archived,
}

impl Pinned<'_> {
    /// Stores returning objects that were written elsewhere since the table's hashes went there.
    ///
    /// Skips each object that the store has in a version as new. Otherwise as [`Pinned::replay`]; it does not matter
    /// whether the table itself once arrived.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn take_back(
        &self,
        table: &Table,
        hashes: HashRange,
        pull: &mut &[u8],
        replayed: &mut Replayed,
    ) -> Result<(), ReplayError> {
        self.store_all(table, (hashes, Way::Back), pull, replayed)
    }

    /// Stores the objects of a pull ([`Pinned::gather`]) whose hashes should lie in `hashes`.
    ///
    /// Skips an object if the present one is as new, the key was removed here, or its hash has arrived. No quota
    /// refuses them: they were admitted at their origin. Finished objects are taken off `pull` and counted in
    /// `replayed`, so that the caller can continue after a refusal.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn replay(
        &self,
        table: &Table,
        hashes: HashRange,
        pull: &mut &[u8],
        replayed: &mut Replayed,
    ) -> Result<(), ReplayError> {
        self.store_all(table, (hashes, Way::There), pull, replayed)
    }

    /// Stores objects of a table that is copied while in use elsewhere, and not in use here.
    ///
    /// Skips each object that the store has in a version as new. Otherwise as [`Pinned::replay`].
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn copy(
        &self,
        table: &Table,
        hashes: HashRange,
        pull: &mut &[u8],
        replayed: &mut Replayed,
    ) -> Result<(), ReplayError> {
        self.store_all(table, (hashes, Way::Copied), pull, replayed)
    }

    /// Stores objects of an archive with their versions and expiry, as puts are admitted: within the quota and what the
    /// disk has room for.
    ///
    /// Skips an object that has expired, or that the store has in a version as new, and counts it as late. One whose key may
    /// have ended in this table with a version as high gets a new one, since a replay would find that end. Finished
    /// objects are taken off `objects`. A version in the upper half of all versions is refused, so that the key's next
    /// ones have numbers left. While a recovery brings the table's objects, asks to retry.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn restore(
        &self,
        table: &Table,
        objects: &mut &[u8],
        restored: &mut Replayed,
    ) -> Result<(), ReplayError> {
        if table.is_replaying() {
            return Err(ReplayError::Refused(WriteError::Retry { after_us: RETRY_AFTER_US }));
        }
        self.store_all(table, (table.hashes(), Way::Archived), objects, restored)
    }

    fn store_all(
        &self,
        table: &Table,
        (hashes, way): (HashRange, Way),
        pull: &mut &[u8],
        replayed: &mut Replayed,
    ) -> Result<(), ReplayError> {
        self.assert_own(table);
        let mut arriving = std::mem::take(&mut self.core.scratch.borrow_mut().arriving);
        arriving.clear();
        let sound = self.look_through(table, hashes, pull, &mut arriving);
        let stored = sound.and_then(|()| {
            arriving.iter().try_for_each(|&known| self.replay_first(table, (known, way), pull, replayed))
        });
        self.core.scratch.borrow_mut().arriving = arriving;
        stored
    }

    /// Checks all objects, prefetches their buckets, and appends hash and checksum of each sound one to `arriving`.
    fn look_through(
        &self,
        table: &Table,
        hashes: HashRange,
        pull: &[u8],
        arriving: &mut Vec<Option<(u64, u32)>>,
    ) -> Result<(), ReplayError> {
        let mut rest = pull;
        while !rest.is_empty() {
            let (carried, behind) = Carried::split(rest).map_err(|Cut| ReplayError::Cut)?;
            let known = carried.check().map(|content| (crate::hash(carried.key()), content));
            if let Some((hash, _)) = known {
                if !hashes.contains(hash) || !table.hashes().contains(hash) {
                    return Err(ReplayError::Foreign);
                }
                table.index.prefetch_bucket(&self.pin, hash);
            }
            arriving.push(known);
            rest = behind;
        }
        Ok(())
    }

    /// Replays the first object of a checked pull, and takes it off.
    #[inline]
    fn replay_first(
        &self,
        table: &Table,
        (known, way): (Option<(u64, u32)>, Way),
        pull: &mut &[u8],
        replayed: &mut Replayed,
    ) -> Result<(), ReplayError> {
        let (carried, rest) = Carried::split(pull).map_err(|Cut| ReplayError::Cut)?;
        match known.map(|(hash, content)| self.replay_one(table, &carried, (hash, way), content)) {
            None => replayed.corrupted += 1,
            Some(Ok(true)) => replayed.stored += 1,
            Some(Ok(false)) => replayed.late += 1,
            Some(Err(error)) => return Err(ReplayError::Refused(error)),
        }
        *pull = rest;
        Ok(())
    }

    #[inline]
    fn stage_carried(
        &self,
        table: &Table,
        carried: &Carried<'_>,
        content_checksum: u32,
    ) -> Result<Staged, WriteError> {
        let store = &self.core.store;
        let mut head = self.core.head_of(table).borrow_mut();
        let keep = || store.keep_for_writers();
        let staged =
            store.log.stage_carried(&mut head, keep, table.entry_number(), carried, content_checksum);
        staged.map_err(|_| self.no_room(table, carried.header().object_bytes()))
    }

    #[inline]
    fn replay_one(
        &self,
        table: &Table,
        carried: &Carried<'_>,
        (hash, way): (u64, Way),
        content_checksum: u32,
    ) -> Result<bool, WriteError> {
        let (header, key) = (carried.header(), carried.key());
        if way == Way::Archived {
            if carried.expires_ms() <= self.core.store.now_ms() {
                return Ok(false);
            }
            if header.version > VERSION_MAX / 2 {
                return Err(WriteError::Overflow);
            }
        }
        if matches!(way, Way::Archived | Way::Copied) {
            self.refuse_without_disk(table, false)?;
        }
        self.admit(table, key, header.lengths.value_bytes, carried.expires_ms())?;
        self.make_room(table, (hash, key), header.object_bytes())?;
        let staged = self.stage_carried(table, carried, content_checksum)?;
        let arrival = table.arrival.get().filter(|_| way == Way::There);
        let publish = |entered| {
            let bucket = table.index.lock(&self.pin, hash)?;
            let found = bucket.find(hash, |location| self.with_location(location, key));
            let is_newer = found.as_ref().is_none_or(|(_, (_, object))| object.version() < header.version);
            if way == Way::Archived && !is_newer && self.is_noted(table) {
                // Perhaps it was stored before, for an answer that failed.
                self.note_seen(table, hash, found.as_ref().map(|(_, (_, object))| object));
            }
            if !is_newer || arrival.is_some_and(|arrival| arrival.is_late(key, hash)) {
                return Ok(false);
            }
            if way == Way::Archived {
                let before = found.as_ref().map(|(_, (_, object))| object);
                hold_against_quota(table, key, u64::from(staged.bytes()), before)?;
            }
            self.admit_to_index(table, key, found.is_none(), entered)?;
            let version = match (way, &found) {
                (Way::Archived, None) => table.version_of_restored(header.version),
                _ => header.version,
            };
            self.publish_locked(table, hash, &staged, bucket, found, (version, None))?;
            Ok(true)
        };
        let published = self.write_entering(table, (hash, key), |stored| *stored, publish);
        if published != Ok(true) {
            self.unstage(table, &staged);
        }
        let is_in_order = matches!(way, Way::Copied | Way::Archived);
        published.map_err(|error| match self.refused(table, hash, error) {
            WriteError::Collisions if is_in_order && self.hurry_in_order(table) => {
                WriteError::Retry { after_us: RETRY_AFTER_US }
            }
            error => error,
        })
    }

    /// As [`Pinned::hurry_in_order`], while objects arrive: they crowd the buckets of all writes near them.
    #[cold]
    pub(crate) fn hurry_arrival(&self, table: &Table) -> bool {
        !table.is_complete() && self.hurry_in_order(table)
    }

    /// Immediately grows an index that is large enough for the present objects: objects come in hash order, so they
    /// fill a few of its buckets. Returns whether it grows: not beyond the size allowed for expected objects.
    #[cold]
    pub(crate) fn hurry_in_order(&self, table: &Table) -> bool {
        let bytes_max = self.core.store.memory_bytes() / EXPECTED_INDEX_DIVISOR;
        table.index.bytes() * 2 <= bytes_max
            && self.hurry_growth(table, table.index.slots()).is_ok_and(|grows| grows)
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Cut => out.write_str("the pull ends within an object"),
            ReplayError::Foreign => out.write_str("the pull has an object with an unrequested hash"),
            ReplayError::Refused(error) => write!(out, "the store refuses an object of the pull: {error}"),
        }
    }
}

impl std::error::Error for ReplayError {}
