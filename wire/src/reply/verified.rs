//! The reply of a verification: counts, corrupted objects, and the cursor to continue from.
//!
//! Cursor bytes u8, cursor (empty at the end), objects u64, bytes u64, then for each corrupted object the hash of its
//! key u64, if known.

use super::listing::split_cursor;
use crate::status::Status;

/// The result of a verification since the cursor of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified<'a> {
    /// The cursor to continue from; empty at the end.
    pub cursor: &'a [u8],
    /// Number of objects checked, corrupted ones included.
    pub objects: u64,
    /// Bytes of the sound objects in the log.
    pub bytes: u64,
    /// Hashes of the keys of corrupted ones, eight bytes each.
    corrupted: &'a [u8],
}

impl<'a> Verified<'a> {
    /// Returns the length of the encoded body with `corrupted` corrupted objects.
    #[must_use]
    pub const fn body_bytes(cursor: &[u8], corrupted: usize) -> usize {
        1 + cursor.len() + 16 + 8 * corrupted
    }

    /// Writes the body.
    ///
    /// # Panics
    /// Unless `body` has exactly [`Verified::body_bytes`].
    pub fn encode(body: &mut [u8], cursor: &[u8], (objects, bytes): (u64, u64), corrupted: &[u64]) {
        body[0] = u8::try_from(cursor.len()).expect("a cursor has at most 64 bytes");
        let (cursor_out, rest) = body[1..].split_at_mut(cursor.len());
        cursor_out.copy_from_slice(cursor);
        rest[..8].copy_from_slice(&objects.to_le_bytes());
        rest[8..16].copy_from_slice(&bytes.to_le_bytes());
        let (hashes, _) = rest[16..].as_chunks_mut::<8>();
        assert!(hashes.len() == corrupted.len(), "the body was sized for them");
        hashes.iter_mut().zip(corrupted).for_each(|(place, hash)| *place = hash.to_le_bytes());
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn decode(body: &'a [u8]) -> Result<Verified<'a>, Status> {
        let (cursor, rest) = split_cursor(body)?;
        let (objects, rest) = rest.split_first_chunk().ok_or(Status::Malformed)?;
        let (bytes, corrupted) = rest.split_first_chunk().ok_or(Status::Malformed)?;
        if !corrupted.len().is_multiple_of(8) {
            return Err(Status::Malformed);
        }
        let (objects, bytes) = (u64::from_le_bytes(*objects), u64::from_le_bytes(*bytes));
        Ok(Verified { cursor, objects, bytes, corrupted })
    }

    /// Returns the hashes of the keys of corrupted objects.
    pub fn corrupted(&self) -> impl Iterator<Item = u64> + 'a {
        self.corrupted.as_chunks::<8>().0.iter().map(|hash| u64::from_le_bytes(*hash))
    }
}
