//! The replies of enumerations, scans and verifications: some objects, and the cursor to continue from.
//!
//! Enumeration: cursor bytes u8, cursor (empty at the end), count u16, then per object status u8, key bytes u16, value bytes u32,
//! version u64, key, value; of an object that expires bit 63 of the version is set, and the milliseconds left u64
//! precede the key. An object whose status is `Corrupted` has neither key nor value; its version field has the hash
//! of its key, if known. Checked when decoded, so iterating never fails.
//!
//! Scan: cursor bytes u32, cursor (empty at the end), count u16, then the objects as in an enumeration. Verification:
//! cursor bytes u8, cursor (empty at the end), objects u64, bytes u64, then for each corrupted object the hash of its
//! key u64, if known.

use super::EXPIRES;
use crate::limits::{CURSOR_BYTES_MAX, ENUMERATE_OBJECTS_MAX, SCAN_CURSOR_BYTES_MAX};
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

/// Writes and reads the reply; its objects are those of a [`Listing`].
#[derive(Clone, Copy, Debug)]
pub struct Scanned;

/// Bytes before the cursor of a scan.
const HEAD_BYTES: usize = 6;

impl Scanned {
    /// Returns the length of the encoded body of objects that take `objects_bytes` together.
    #[must_use]
    pub const fn body_bytes(cursor_bytes: usize, objects_bytes: usize) -> usize {
        HEAD_BYTES + cursor_bytes + objects_bytes
    }

    /// Writes the body; copies every key and value once.
    ///
    /// # Panics
    /// Unless `body` has exactly [`Scanned::body_bytes`], or if there are too many objects.
    pub fn encode<'o>(
        body: &mut [u8],
        cursor: [&[u8]; 2],
        count: usize,
        objects: impl Iterator<Item = Listed<'o>>,
    ) {
        let cursor_bytes = cursor[0].len() + cursor[1].len();
        assert!(cursor_bytes <= SCAN_CURSOR_BYTES_MAX && count <= ENUMERATE_OBJECTS_MAX);
        let (head, mut rest) = body.split_at_mut(HEAD_BYTES);
        head[..4].copy_from_slice(&(cursor_bytes as u32).to_le_bytes());
        head[4..].copy_from_slice(&(count as u16).to_le_bytes());
        for part in cursor {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
        for object in objects {
            rest = Listing::encode_object(rest, &object);
        }
        assert!(rest.is_empty(), "the body was made for these objects");
    }

    /// Reads the body and checks every object.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Listing<'_>, Status> {
        let (head, rest) = body.split_first_chunk::<HEAD_BYTES>().ok_or(Status::Malformed)?;
        let cursor_bytes = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let (cursor, objects) = rest.split_at_checked(cursor_bytes).ok_or(Status::Malformed)?;
        if cursor_bytes > SCAN_CURSOR_BYTES_MAX {
            return Err(Status::Malformed);
        }
        Listing::of_objects(cursor, u16::from_le_bytes([head[4], head[5]]).into(), objects)
    }
}

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
