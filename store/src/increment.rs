//! Additions to a number: eight bytes, little-endian, an integer or floating point as the caller chooses.
//!
//! An absent object counts as 0, which has the same bytes in both. A number keeps its expiry. The sum is known only
//! under the lock of the bucket, its length before. So it is staged as zeros and written again under the lock, with
//! room for an expiry only if a first try has found one.

use crate::error::WriteError;
use crate::log::Staged;
use crate::object::NEVER_MS;
use crate::ordered::Entered;
use crate::store::core::Pinned;
use crate::table::Table;
use crate::write::{Unwritten, hold_against_quota, next_version};

/// The outcome of an addition.
enum Added {
    /// The new version and number.
    Sum(u64, [u8; 8]),
    /// Not added: the number expires at this time, or never, and the staged object must have the same expiry.
    Expires(u64),
}

impl Pinned<'_> {
    /// Adds `delta` to the number under `key`; returns the new version and number.
    ///
    /// The number has eight little-endian bytes; an absent one counts as 0. The object keeps its expiry.
    pub fn increment(
        &self,
        table: &Table,
        hash: u64,
        key: &[u8],
        delta: i64,
    ) -> Result<(u64, i64), WriteError> {
        let sum = |before| i64::from_le_bytes(before).checked_add(delta).map(i64::to_le_bytes);
        let (version, number) = self.add(table, hash, key, sum)?;
        Ok((version, i64::from_le_bytes(number)))
    }

    /// As [`Pinned::increment`] for an IEEE 754 number of 64 bits. A sum that is not finite is
    /// [`WriteError::Overflow`].
    pub fn increment_float(
        &self,
        table: &Table,
        hash: u64,
        key: &[u8],
        delta: f64,
    ) -> Result<(u64, f64), WriteError> {
        let sum = |before| Some(f64::from_le_bytes(before) + delta).filter(|sum| sum.is_finite());
        let (version, number) = self.add(table, hash, key, |before| sum(before).map(f64::to_le_bytes))?;
        Ok((version, f64::from_le_bytes(number)))
    }

    /// Replaces the present eight bytes, zeros if the key is absent, by their `sum`.
    fn add(
        &self,
        table: &Table,
        hash: u64,
        key: &[u8],
        sum: impl Fn([u8; 8]) -> Option<[u8; 8]>,
    ) -> Result<(u64, [u8; 8]), WriteError> {
        self.refuse_unknown(table, hash, key)?;
        let mut expires_ms = NEVER_MS;
        loop {
            self.admit(table, key, size_of::<u64>(), expires_ms)?;
            self.make_room(
                table,
                (hash, key),
                table.lengths(key, size_of::<u64>(), expires_ms).object_bytes(),
            )?;
            let mut staged = self.stage(table, key, &[0; size_of::<u64>()], expires_ms)?;
            self.stage_completion(table, Some(&staged), true)?;
            let place = (hash, key);
            let is_indexed = |added: &Added| matches!(added, Added::Sum(..));
            let added = self.write_entering(table, place, is_indexed, |entered| {
                self.try_add(table, place, &sum, &mut staged, entered)
            });
            match added {
                Ok(Added::Sum(version, number)) => return Ok((version, number)),
                Ok(Added::Expires(at_ms)) => {
                    self.unstage(table, &staged);
                    expires_ms = at_ms;
                }
                Err(error) => {
                    self.unstage(table, &staged);
                    return Err(self.refused(table, hash, error));
                }
            }
        }
    }

    fn try_add(
        &self,
        table: &Table,
        (hash, key): (u64, &[u8]),
        sum: impl Fn([u8; 8]) -> Option<[u8; 8]>,
        staged: &mut Staged,
        entered: Option<Entered>,
    ) -> Result<Added, Unwritten> {
        let bucket = table.index.lock(&self.pin, hash)?;
        let found = bucket.find(hash, |location| self.with_location(location, key));
        if self.is_noted(table) {
            self.note_seen(table, hash, found.as_ref().map(|(_, (_, object))| object));
        }
        let visible = found.as_ref().map(|(_, (_, object))| object).filter(|object| !self.is_expired(object));
        let (before, expires_ms) = match visible {
            Some(object) => {
                let bytes = <[u8; 8]>::try_from(object.value()).map_err(|_| WriteError::NotANumber)?;
                (bytes, object.expires_ms())
            }
            None => ([0; 8], NEVER_MS),
        };
        if (expires_ms == NEVER_MS) != (staged.expires_ms == NEVER_MS) {
            return Ok(Added::Expires(expires_ms));
        }
        let number = sum(before).ok_or(WriteError::Overflow)?;
        self.core.store.log.restage(staged, key, &number, expires_ms);
        let before = found.as_ref().map(|(_, (_, object))| object);
        hold_against_quota(table, key, u64::from(staged.bytes()), before)?;
        let version = next_version(table, before);
        self.admit_to_index(table, key, found.is_none(), entered)?;
        self.publish_locked(table, hash, staged, bucket, found, (version, Some(number)))?;
        Ok(Added::Sum(version, number))
    }
}
