//! The position of an enumeration of a table, and its bytes outside the store.
//!
//! Objects have an order: by the hash of the key, which is the order of the buckets, then by a second hash, which
//! separates keys that share the first. Everything up to the cursor is done. A key keeps its place forever, so an
//! enumeration may pause for any time while objects come and go and the index changes its size.
//!
//! Outside the store a cursor is sealed with a number of its table, so that a cursor of another table, of a dropped
//! table, or an invented one is refused. The seal is not a secret: a forged seal only lets a tenant
//! enumerate its own table from a chosen place.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::hash_range::Position;
use crate::index::Location;
use crate::table::Table;

/// Bytes of a cursor outside the store: hash, second hash, seal; each a little-endian u64.
pub const CURSOR_BYTES: usize = 24;

/// An entry of a bucket with its place; a corrupted entry comes last and has no location.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) position: Position,
    pub(crate) location: Option<Location>,
    /// The hash of its key, if known.
    pub(crate) hash: u64,
}

/// The position at which an enumeration or a verification continues.
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

fn seal_of(table: &Table, place: &[u8]) -> u64 {
    xxh3_64_with_seed(place, table.cursor_seed())
}
