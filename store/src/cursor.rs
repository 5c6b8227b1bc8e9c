//! Where an enumeration of a table stands, and its bytes outside of the store.
//!
//! Objects have an order: by the hash of the key, which is the order of the buckets, then by a second hash, which tells
//! apart what shares the first. A cursor says up to where everything is done; since a key keeps its place for good, an
//! enumeration may rest as long as it likes, while objects come and go and the index changes its size.
//!
//! Outside of the store a cursor is sealed with a number of its table, so that one of another table, of a table that was
//! dropped, or of nobody's is refused. The seal is no secret: whoever makes a seal up enumerates his own table from a
//! place of his choice.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::index::Location;
use crate::position::Position;
use crate::table::Table;

/// Bytes of a cursor outside of the store: hash, second hash, seal; u64 each, little-endian.
pub const CURSOR_BYTES: usize = 24;

/// An entry of a bucket with its place. One that cannot be an object of its bucket comes last and has no location.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) position: Position,
    pub(crate) location: Option<Location>,
    /// The hash of its key, as far as that is known.
    pub(crate) hash: u64,
}

/// Where an enumeration or a verification goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cursor {
    /// Everything at this place and before is done; `None` where nothing is.
    pub(crate) done: Option<Position>,
    /// The last hash that it goes to.
    pub(crate) until: u64,
}

/// The bytes are not those of a cursor of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadCursor;

impl Cursor {
    /// Before the first object.
    pub const START: Cursor = Cursor { done: None, until: u64::MAX };

    /// The same place, from which it goes to the hash `last` and no further.
    #[must_use]
    pub fn until(self, last: u64) -> Cursor {
        Cursor { until: last, ..self }
    }

    /// The cursor of `bytes`, of which there are none for [`Cursor::START`].
    ///
    /// # Errors
    /// For everything but what [`Cursor::encode`] has made for the same table.
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

    /// The bytes of a cursor that is not [`Cursor::START`].
    ///
    /// # Panics
    /// For that one, which has none.
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
