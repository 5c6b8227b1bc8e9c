//! Gathering the objects of a transfer at the source: bytes out of the log into a buffer, one copy each.
//!
//! Buckets are read in hash order (`index.rs`), and the objects of later buckets are prefetched early. A bucket
//! is taken as a whole if possible, so that no key is hashed: its objects come in any order. They are sorted only if
//! a pull begins or ends within a bucket, or the index is changing its size.

use crate::enumerate::{Cursor, Gone};
use crate::hash_range::Position;
use crate::index::{Location, Reach};
use crate::limits::{GATHER_AHEAD_BYTES_MAX, GATHER_BUCKETS_AHEAD, WALK_BUCKETS_PER_STEP};
use crate::store::core::{Pinned, Placed, Scratch};
use crate::table::Table;

/// An error: the pull has reached its maximum length.
struct Full;

impl Pinned<'_> {
    /// Appends objects after `from` and up to the hash `last` to `pull`, roughly in hash order.
    ///
    /// It ends when the pull has `bytes_max` or a bounded number of buckets was read; the first object always comes.
    /// Expired objects are omitted, damage is not checked. Returns the cursor to continue with; `None` at the end.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn gather(
        &self,
        table: &Table,
        from: Cursor,
        last: u64,
        bytes_max: usize,
        pull: &mut Vec<u8>,
    ) -> Result<Option<Cursor>, Gone> {
        self.assert_own(table);
        let last = last.min(table.hashes().last());
        let Scratch { entries, placed, .. } = &mut *self.core.scratch.borrow_mut();
        let mut done = from.done;
        let ahead_bytes = mean_bytes(table).min(GATHER_AHEAD_BYTES_MAX);
        let look_ahead = |hash: u64, buckets: u64| {
            let ask = |location| self.core.store.log.prefetch_bytes(location, ahead_bytes);
            table.index.look_ahead(&self.pin, hash, buckets, ask);
        };
        if let Some(first) = next_hash(table, done) {
            (0..GATHER_BUCKETS_AHEAD).for_each(|buckets| look_ahead(first, buckets));
        }
        for _ in 0..WALK_BUCKETS_PER_STEP {
            let Some(next) = next_hash(table, done).filter(|&next| next <= last) else { return Ok(None) };
            look_ahead(next, GATHER_BUCKETS_AHEAD);
            let reach = table.index.read_bucket(&self.pin, next, entries).ok_or(Gone)?;
            let is_begun = done.is_some_and(|done| done.second != u64::MAX);
            let is_whole = !is_begun && *reach.hashes.start() >= next && reach.end == *reach.hashes.end();
            let taken = match is_whole && reach.end <= last {
                true if self.fits(entries, bytes_max.saturating_sub(pull.len())) => {
                    entries.iter().for_each(|&(_, location)| self.append(location, pull));
                    Ok(())
                }
                true if !pull.is_empty() => Err(Full),
                _ => {
                    self.sort(entries, &reach, done, last, placed);
                    self.append_in_order(placed, bytes_max, pull, &mut done)
                }
            };
            if taken.is_err() {
                return Ok(Some(Cursor { done, ..Cursor::START }));
            }
            done = Some(Position::last_of(reach.end));
        }
        Ok(Some(Cursor { done, ..Cursor::START }))
    }

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

    /// Appends all objects of one hash to `pull`.
    pub fn gather_hash(&self, table: &Table, hash: u64, pull: &mut Vec<u8>) {
        self.assert_own(table);
        let log = &self.core.store.log;
        table.index.find(&self.pin, hash, |location| {
            let object = log.object_within(location, &self.pin)?;
            if crate::hash(object.key()) == hash {
                self.append(location, pull);
            }
            None::<()>
        });
    }

    /// Returns whether all these objects take at most `bytes_max`.
    fn fits(&self, entries: &[(u16, Location)], bytes_max: usize) -> bool {
        let bytes_of = |location| self.core.store.log.bytes_of(location, &self.pin).map_or(0, <[u8]>::len);
        entries.iter().map(|&(_, location)| bytes_of(location)).sum::<usize>() <= bytes_max
    }

    /// Appends an object, unless it has expired or its lengths are damaged.
    #[inline]
    fn append(&self, location: Location, pull: &mut Vec<u8>) {
        let log = &self.core.store.log;
        let Some(bytes) = log.bytes_of(location, &self.pin) else { return };
        if !self.is_expired(&log.object(location, &self.pin)) {
            pull.extend_from_slice(bytes);
        }
    }

    /// Collects the entries of a bucket after `done` and up to `last`, in order.
    fn sort(
        &self,
        entries: &[(u16, Location)],
        reach: &Reach,
        done: Option<Position>,
        last: u64,
        placed: &mut Vec<Placed>,
    ) {
        placed.clear();
        placed.extend(entries.iter().filter_map(|&entry| self.place(entry, reach)));
        let is_wanted = |position: Position| position.hash <= last && done.is_none_or(|done| position > done);
        placed.retain(|placed| is_wanted(placed.position));
        placed.sort_unstable_by_key(|placed| placed.position);
    }

    /// Appends the sorted objects, all with the same two hashes together, and updates `done`.
    fn append_in_order(
        &self,
        placed: &[Placed],
        bytes_max: usize,
        pull: &mut Vec<u8>,
        done: &mut Option<Position>,
    ) -> Result<(), Full> {
        for group in placed.chunk_by(|one, other| one.position == other.position) {
            let before = pull.len();
            group.iter().filter_map(|placed| placed.location).for_each(|at| self.append(at, pull));
            if before > 0 && pull.len() > bytes_max {
                pull.truncate(before);
                return Err(Full);
            }
            *done = Some(group[0].position);
        }
        Ok(())
    }
}

/// Returns the first unfinished hash; `None` after the last one.
fn next_hash(table: &Table, done: Option<Position>) -> Option<u64> {
    let next = match done {
        None => Some(table.hashes().first()),
        Some(Position { hash, second: u64::MAX }) => hash.checked_add(1),
        Some(position) => Some(position.hash),
    };
    next.filter(|&hash| hash <= table.hashes().last())
}

/// Returns the approximate mean bytes of the table's objects.
fn mean_bytes(table: &Table) -> usize {
    (table.bytes() / table.objects().max(1)) as usize
}
