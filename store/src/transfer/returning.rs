//! The return of a reversed move: objects written at the target since, identified by their versions, and keys removed
//! there, identified by their places.

use crate::carried::Carried;
use crate::cursor::Cursor;
use crate::enumerate::Gone;
use crate::hash_range::{HashRange, Position};
use crate::store::core::Pinned;
use crate::table::Table;

/// Returns the objects of a pull whose keys have these hashes.
#[must_use]
pub fn within(mut pull: &[u8], hashes: HashRange) -> Vec<u8> {
    let mut kept = Vec::new();
    while let Ok((carried, rest)) = Carried::split(pull) {
        if hashes.contains(crate::hash(carried.key())) {
            kept.extend_from_slice(&pull[..pull.len() - rest.len()]);
        }
        pull = rest;
    }
    kept
}

impl Table {
    /// Returns whether all writes and removals since the arrival began are known, so that it can go back.
    #[must_use]
    pub fn can_return(&self) -> bool {
        self.arrival.get().is_some_and(|arrival| arrival.knows_removals())
    }

    /// Makes the move final: removals need no longer be noted for a return.
    pub fn end_notes(&self) {
        self.arrival.get().inspect(|arrival| arrival.end_notes());
    }
}

impl Pinned<'_> {
    /// Appends objects after `from` whose version is above `version` to `pull`, in hash order.
    ///
    /// It ends when the pull has `bytes_max` or a bounded number of buckets was read; the first ones always come.
    /// Expired objects come too: without them, the objects that they replaced would reappear at the other side.
    /// Returns the cursor to continue with; `None` at the end.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn gather_since(
        &self,
        table: &Table,
        from: Cursor,
        version: u64,
        bytes_max: usize,
        pull: &mut Vec<u8>,
    ) -> Result<Option<Cursor>, Gone> {
        let log = &self.core.store.log;
        self.walk(table, from, |group| {
            let before = pull.len();
            for location in group.iter().filter_map(|placed| placed.location) {
                if log.object(location, &self.pin).version() > version {
                    pull.extend_from_slice(log.bytes_of(location, &self.pin).unwrap_or_default());
                }
            }
            let is_full = before > 0 && pull.len() > bytes_max;
            if is_full {
                pull.truncate(before);
            }
            !is_full
        })
    }

    /// Returns the keys, by their two hashes, that were removed here since the arrival began and are still absent.
    /// Call it while there are no writers.
    #[must_use]
    pub fn removals(&self, table: &Table) -> Vec<(u64, u64)> {
        let Some(arrival) = table.arrival.get() else { return Vec::new() };
        let mut removals = arrival.removals();
        removals.retain(|position| !self.has_position(table, *position));
        removals.into_iter().map(|position| (position.hash, position.second)).collect()
    }

    fn has_position(&self, table: &Table, position: Position) -> bool {
        let is_it = |location| {
            let object = self.core.store.log.object_within(location, &self.pin)?;
            (Position::of(object.key()) == position).then_some(())
        };
        table.index.find(&self.pin, position.hash, is_it).is_some()
    }

    /// Removes the key with these two hashes, if present. For a thread that may wait for writers.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn remove_placed(&self, table: &Table, (hash, second): (u64, u64)) -> Result<(), Gone> {
        self.assert_own(table);
        let position = Position { hash, second };
        let bucket = table.index.lock_patiently(&self.pin, hash).ok_or(Gone)?;
        let found = bucket.find(hash, |location| {
            let object = self.core.store.log.object_within(location, &self.pin)?;
            (Position::of(object.key()) == position).then_some(location)
        });
        if let Some((place, location)) = found {
            let object = self.core.store.log.object(location, &self.pin);
            table.lets_go_in_any_case(object.key());
            self.take_out(table, bucket, place, location, &object);
        }
        Ok(())
    }
}
