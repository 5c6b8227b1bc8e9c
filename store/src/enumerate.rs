//! Enumeration and verification: all objects of a table, in bounded steps, and the cursor between two steps.
//!
//! A step meets each object that is in the table from the first step to the last exactly once, whatever happens
//! meanwhile: growth, cleaning, other writes and deletions, any pause. It may or may not meet objects that come or go
//! meanwhile, and meets none twice. A step goes through buckets in hash order (`index.rs`) and through a bucket in the
//! order of positions (`hash_range.rs`), so it may end anywhere but between keys that share both hashes.
//!
//! Each object is checked against its checksum: a corrupted one is reported and not returned.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::hash_range::Position;
use crate::index::{Location, Reach};
use crate::limits::{VERIFY_BYTES_PER_STEP, VERIFY_CORRUPTED_PER_STEP, WALK_BUCKETS_PER_STEP};
use crate::object::Object;
use crate::store::core::{Pinned, Placed, Scratch};
use crate::table::Table;

/// Bytes of a cursor outside the store: hash, second hash, seal; each a little-endian u64.
pub const CURSOR_BYTES: usize = 24;

/// The position at which an enumeration or a verification continues: everything up to it is done.
///
/// A key keeps its place forever, so an enumeration may pause for any time while objects come and go and the index
/// changes its size. Outside the store a cursor is sealed with a number of its table, so that a cursor of another table,
/// of a dropped table, or an invented one is refused. The seal is not a secret: a forged seal only lets a tenant
/// enumerate its own table from a chosen place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cursor {
    /// The last finished place; `None` at the start.
    pub(crate) done: Option<Position>,
    /// The last hash of the walk.
    pub(crate) until: u64,
}

/// An error: the bytes are not a cursor of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadCursor;

/// The limits of one step of an enumeration.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    /// Maximum number of objects.
    pub objects: usize,
    /// Maximum bytes of keys, and of values unless `keys_only`. The first object always passes.
    pub bytes: usize,
    /// Values do not count.
    pub keys_only: bool,
}

/// An object met by an enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'p> {
    /// The hash of its key; of a corrupted object, the hash if known.
    pub hash: u64,
    /// The object, `None` if it is corrupted.
    pub object: Option<Object<'p>>,
}

/// The result of a step of an enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Number of objects returned.
    pub count: usize,
    /// Bytes of their keys, and of their values unless only keys were requested.
    pub bytes: usize,
    /// The cursor of the next step; `None` at the end.
    pub next: Option<Cursor>,
}

/// The result of a step of a verification.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    /// Number of objects checked, corrupted ones included.
    pub objects: u64,
    /// Bytes of the sound objects in the log.
    pub bytes: u64,
    /// The cursor of the next step; `None` at the end.
    pub next: Option<Cursor>,
}

/// An error: the table has been retired.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Gone;

impl Cursor {
    /// The cursor before the first object.
    pub const START: Cursor = Cursor { done: None, until: u64::MAX };

    /// Returns this cursor, limited to hashes up to `last`.
    #[must_use]
    pub fn until(self, last: u64) -> Cursor {
        Cursor { until: last, ..self }
    }

    /// Returns the cursor before all objects of `hash` and higher hashes.
    #[must_use]
    pub fn before(hash: u64) -> Cursor {
        Cursor { done: hash.checked_sub(1).map(Position::last_of), ..Cursor::START }
    }

    /// Returns the cursor after the object with these two hashes; see [`Cursor::hashes`].
    #[must_use]
    pub fn behind(hash: u64, second: u64) -> Cursor {
        Cursor { done: Some(Position { hash, second }), ..Cursor::START }
    }

    /// Returns the two hashes of the last finished object; `None` at the start.
    ///
    /// [`Cursor::behind`] continues from them in another store.
    #[must_use]
    pub fn hashes(&self) -> Option<(u64, u64)> {
        self.done.map(|done| (done.hash, done.second))
    }

    /// Returns the last hash that is completely done, if any.
    #[must_use]
    pub fn done_to(&self) -> Option<u64> {
        match self.done? {
            Position { hash, second: u64::MAX } => Some(hash),
            Position { hash, .. } => hash.checked_sub(1),
        }
    }

    /// Decodes a cursor; [`Cursor::START`] has no bytes.
    ///
    /// # Errors
    /// If [`Cursor::encode`] has not made the bytes for the same table.
    pub fn decode(table: &Table, bytes: &[u8]) -> Result<Cursor, BadCursor> {
        if bytes.is_empty() {
            return Ok(Cursor::START);
        }
        let bytes = <[u8; CURSOR_BYTES]>::try_from(bytes).map_err(|_| BadCursor)?;
        let ([hash, second, seal], _) = bytes.as_chunks::<8>() else { return Err(BadCursor) };
        if u64::from_le_bytes(*seal) != seal_of(table, &bytes[..16]) {
            return Err(BadCursor);
        }
        let (hash, second) = (u64::from_le_bytes(*hash), u64::from_le_bytes(*second));
        Ok(Cursor::behind(hash, second))
    }

    /// Returns the bytes of a cursor other than [`Cursor::START`].
    ///
    /// # Panics
    /// For [`Cursor::START`].
    pub fn encode(&self, table: &Table) -> [u8; CURSOR_BYTES] {
        let done = self.done.expect("the start has no bytes");
        let mut bytes = [0; CURSOR_BYTES];
        bytes[..8].copy_from_slice(&done.hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&done.second.to_le_bytes());
        let seal = seal_of(table, &bytes[..16]);
        bytes[16..].copy_from_slice(&seal.to_le_bytes());
        bytes
    }
}

impl fmt::Display for BadCursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the cursor is not one of this table")
    }
}

impl std::error::Error for BadCursor {}

impl Pinned<'_> {
    /// Continues an enumeration with the objects after `from`.
    ///
    /// Fills the front of `page`, which must have room for one object more than all that can share a bucket (512 is
    /// enough).
    ///
    /// # Errors
    /// [`Gone`].
    pub fn enumerate<'p>(
        &'p self,
        table: &Table,
        from: Cursor,
        limits: PageLimits,
        page: &mut [Option<Listed<'p>>],
    ) -> Result<Page, Gone> {
        let (mut count, mut bytes) = (0, 0);
        let weight = |listed: &Listed<'_>| {
            let value = |object: &Object<'_>| if limits.keys_only { 0 } else { object.value().len() };
            listed.object.as_ref().map_or(0, |object| object.key().len() + value(object))
        };
        let next = self.walk(table, from, |group| {
            if count >= limits.objects || bytes >= limits.bytes || count + group.len() > page.len() {
                return false;
            }
            let (mut end, mut end_bytes) = (count, bytes);
            for placed in group {
                let Some(listed) = self.listed(placed) else { continue };
                end_bytes += weight(&listed);
                page[end] = Some(listed);
                end += 1;
            }
            if count > 0 && (end > limits.objects || end_bytes > limits.bytes) {
                return false;
            }
            (count, bytes) = (end, end_bytes);
            true
        })?;
        if self.is_noted(table) {
            self.note_seen_of(table);
        }
        Ok(Page { count, bytes, next })
    }

    /// Continues a verification.
    ///
    /// Calls `corrupt` with the hash of the key of each corrupted object, if known, at most
    /// [`VERIFY_CORRUPTED_PER_STEP`] times.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn verify(&self, table: &Table, from: Cursor, mut corrupt: impl FnMut(u64)) -> Result<Checked, Gone> {
        let (mut objects, mut bytes, mut corrupted) = (0, 0, 0);
        let next = self.walk(table, from, |group| {
            if bytes >= VERIFY_BYTES_PER_STEP || corrupted + group.len() > VERIFY_CORRUPTED_PER_STEP {
                return false;
            }
            for listed in group.iter().filter_map(|placed| self.listed(placed)) {
                objects += 1;
                match listed.object {
                    Some(object) => bytes += object.log_bytes() as u64,
                    None => {
                        corrupted += 1;
                        corrupt(listed.hash);
                    }
                }
            }
            true
        })?;
        if self.is_noted(table) {
            self.note_seen_of(table);
        }
        Ok(Checked { objects, bytes, next })
    }

    /// Returns the listed object of an entry; `None` if it has expired.
    pub(crate) fn listed<'p>(&'p self, placed: &Placed) -> Option<Listed<'p>> {
        let log = &self.core.store.log;
        let found = placed.location.map(|location| log.object(location, &self.pin));
        let object = found.filter(Object::verify);
        if let Some(expired) = object.as_ref().filter(|object| self.is_expired(object)) {
            if let Some(durable) = &log.durable
                && log.sequence_at(log.location_of(expired)) != 0
            {
                durable.note_expiry(expired.expires_ms());
            }
            return None;
        }
        Some(Listed { hash: placed.hash, object })
    }

    /// Passes the entries after `from` to `accept`, all keys of one place at once. Ends when `accept` refuses, the
    /// table or the cursor ends, or enough buckets were read. Returns the cursor of the next step.
    pub(crate) fn walk(
        &self,
        table: &Table,
        from: Cursor,
        mut accept: impl FnMut(&[Placed]) -> bool,
    ) -> Result<Option<Cursor>, Gone> {
        self.assert_own(table);
        let Cursor { mut done, until } = from;
        let last = until.min(table.hashes().last());
        let Scratch { entries, placed, .. } = &mut *self.core.scratch.borrow_mut();
        for _ in 0..WALK_BUCKETS_PER_STEP {
            let next_hash = match done {
                None => Some(table.hashes().first()),
                Some(Position { hash, second: u64::MAX }) => hash.checked_add(1),
                Some(position) => Some(position.hash),
            };
            let Some(next_hash) = next_hash.filter(|&hash| hash <= last) else {
                return Ok(None);
            };
            let reach = table.index.read_bucket(&self.pin, next_hash, entries).ok_or(Gone)?;
            entries.iter().for_each(|&(_, location)| self.core.store.log.prefetch(location));
            placed.clear();
            placed.extend(entries.iter().filter_map(|&entry| self.place(entry, &reach)));
            let is_due = |position| done.is_none_or(|done| position > done);
            placed.retain(|placed| placed.position.hash <= last && is_due(placed.position));
            placed.sort_unstable_by_key(|placed| placed.position);
            for group in placed.chunk_by(|one, other| one.position == other.position) {
                if !accept(group) {
                    return Ok(Some(Cursor { done, until }));
                }
                done = Some(group[0].position);
            }
            // A cursor behind the last hash would be one of no table.
            if reach.end >= last {
                return Ok(None);
            }
            done = Some(Position::last_of(reach.end));
        }
        Ok(Some(Cursor { done, until }))
    }

    /// Returns the place of an entry of a bucket, if it is within reach. An entry that cannot belong there is
    /// corrupted, and gets the last place of the bucket.
    pub(crate) fn place(&self, (tag, location): (u16, Location), reach: &Reach) -> Option<Placed> {
        let object = self.core.store.log.object_within(location, &self.pin);
        if let Some(object) = object {
            let position = Position::of(object.key());
            if reach.hashes.contains(&position.hash) && position.hash as u16 == tag {
                let placed = Placed { position, location: Some(location), hash: position.hash };
                return (position.hash <= reach.end).then_some(placed);
            }
        }
        let last_hash = *reach.hashes.end();
        let hash = last_hash & !0xffff | u64::from(tag);
        let placed = Placed { position: Position::last_of(last_hash), location: None, hash };
        (last_hash == reach.end).then_some(placed)
    }
}

fn seal_of(table: &Table, place: &[u8]) -> u64 {
    xxh3_64_with_seed(place, table.cursor_seed())
}
