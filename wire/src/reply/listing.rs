//! The reply of an enumeration: some objects, and the cursor to continue from.
//!
//! Cursor bytes u8, cursor (empty at the end), count u16, then per object status u8, key bytes u16, value bytes u32,
//! version u64, key, value; of an object that expires bit 63 of the version is set, and the milliseconds left u64
//! precede the key. An object whose status is `Corrupted` has neither key nor value; its version field has the hash
//! of its key, if known. Checked when decoded, so iterating never fails.

use super::EXPIRES;
use crate::limits::{CURSOR_BYTES_MAX, ENUMERATE_OBJECTS_MAX};
use crate::status::Status;

/// One object of an enumeration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed<'a> {
    /// `Ok`, or `Corrupted`.
    pub status: Status,
    /// Version of the object; of a corrupted one the hash of its key.
    pub version: u64,
    /// Its remaining time to live, in milliseconds; `None` if it does not expire.
    pub ttl_ms: Option<u64>,
    /// Its key.
    pub key: &'a [u8],
    /// Its value, empty if only keys were requested.
    pub value: &'a [u8],
}

impl Listed<'_> {
    /// Bytes before the key of an object that does not expire.
    const HEAD_BYTES: usize = 15;

    /// Returns its bytes in the reply.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        Self::HEAD_BYTES + if self.ttl_ms.is_some() { 8 } else { 0 } + self.key.len() + self.value.len()
    }
}

/// The reply of an enumeration: an iterator over its objects.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    cursor: &'a [u8],
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Listing<'a> {
    /// Returns the length of the encoded body of objects that take `objects_bytes` together.
    #[must_use]
    pub const fn body_bytes(cursor: &[u8], objects_bytes: usize) -> usize {
        1 + cursor.len() + 2 + objects_bytes
    }

    /// Writes the part before the objects; they follow with [`Listing::encode_object`].
    ///
    /// # Panics
    /// If `body` has no room for it, or there are more objects, or a longer cursor, than a reply may have.
    pub fn encode_head<'b>(body: &'b mut [u8], cursor: &[u8], count: usize) -> &'b mut [u8] {
        assert!(cursor.len() <= CURSOR_BYTES_MAX && count <= ENUMERATE_OBJECTS_MAX);
        let (head, rest) = body.split_at_mut(1 + cursor.len() + 2);
        head[0] = cursor.len() as u8;
        head[1..1 + cursor.len()].copy_from_slice(cursor);
        head[1 + cursor.len()..].copy_from_slice(&(count as u16).to_le_bytes());
        rest
    }

    /// Writes one object and returns the place of the next; copies key and value once.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn encode_object<'b>(place: &'b mut [u8], object: &Listed<'_>) -> &'b mut [u8] {
        let (head, mut rest) = place.split_at_mut(Listed::HEAD_BYTES);
        head[0] = object.status as u8;
        head[1..3].copy_from_slice(&(object.key.len() as u16).to_le_bytes());
        head[3..7].copy_from_slice(&(object.value.len() as u32).to_le_bytes());
        let expires = if object.ttl_ms.is_some() { EXPIRES } else { 0 };
        head[7..].copy_from_slice(&(object.version | expires).to_le_bytes());
        if let Some(ttl_ms) = object.ttl_ms {
            let (ttl, behind) = rest.split_at_mut(8);
            ttl.copy_from_slice(&ttl_ms.to_le_bytes());
            rest = behind;
        }
        let (key, rest) = rest.split_at_mut(object.key.len());
        key.copy_from_slice(object.key);
        let (value, rest) = rest.split_at_mut(object.value.len());
        value.copy_from_slice(object.value);
        rest
    }

    /// Reads the body and checks every object.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn decode(body: &'a [u8]) -> Result<Listing<'a>, Status> {
        let (cursor, rest) = split_cursor(body)?;
        let (count, bytes) = rest.split_first_chunk().ok_or(Status::Malformed)?;
        Listing::of_objects(cursor, u16::from_le_bytes(*count).into(), bytes)
    }

    /// Reads exactly `count` objects, which must fill `bytes`.
    pub(super) fn of_objects(cursor: &'a [u8], count: usize, bytes: &'a [u8]) -> Result<Listing<'a>, Status> {
        let mut rest = bytes;
        for _ in 0..count {
            (_, rest) = split_object(rest).ok_or(Status::Malformed)?;
        }
        if !rest.is_empty() {
            return Err(Status::Malformed);
        }
        Ok(Listing { cursor, count, bytes })
    }

    /// Returns the cursor to continue from; `None` at the end.
    #[must_use]
    pub fn cursor(&self) -> Option<&'a [u8]> {
        (!self.cursor.is_empty()).then_some(self.cursor)
    }
}

impl<'a> Iterator for Listing<'a> {
    type Item = Listed<'a>;

    fn next(&mut self) -> Option<Listed<'a>> {
        self.count = self.count.checked_sub(1)?;
        let (object, rest) = split_object(self.bytes)?;
        self.bytes = rest;
        Some(object)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Listing<'_> {}

/// Splits a body into its cursor and the rest.
pub(super) fn split_cursor(body: &[u8]) -> Result<(&[u8], &[u8]), Status> {
    let (&cursor_bytes, rest) = body.split_first().ok_or(Status::Malformed)?;
    let (cursor, rest) = rest.split_at_checked(cursor_bytes.into()).ok_or(Status::Malformed)?;
    if cursor.len() > CURSOR_BYTES_MAX { Err(Status::Malformed) } else { Ok((cursor, rest)) }
}

fn split_object(bytes: &[u8]) -> Option<(Listed<'_>, &[u8])> {
    let (status, rest) = bytes.split_first_chunk::<1>()?;
    let (key_bytes, rest) = rest.split_first_chunk::<2>()?;
    let (value_bytes, rest) = rest.split_first_chunk::<4>()?;
    let (version, mut rest) = rest.split_first_chunk::<8>()?;
    let (status, mut version) = (Status::from_u8(status[0])?, u64::from_le_bytes(*version));
    let mut ttl_ms = None;
    if status == Status::Ok && version & EXPIRES != 0 {
        let (ttl, behind) = rest.split_first_chunk::<8>()?;
        (ttl_ms, version, rest) = (Some(u64::from_le_bytes(*ttl)), version & !EXPIRES, behind);
    }
    let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*key_bytes) as usize)?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_bytes) as usize)?;
    Some((Listed { status, version, ttl_ms, key, value }, rest))
}
