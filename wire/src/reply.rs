//! The contents of replies: typed readers and writers of the bodies behind a status.
//!
//! The status alone determines the form of a body, given the request; a status that is not listed carries UTF-8 text
//! for people, possibly empty:
//!
//! | status | body |
//! |---|---|
//! | `Ok` of get | [`Object`] |
//! | `Ok` of put, delete | [`decode_version`] |
//! | `Ok` of increment | [`Number`], of a float its bits |
//! | `Ok` of enumerate | [`Listing`] |
//! | `Ok` of scan | [`Scanned`] |
//! | `Ok` of verify | [`Verified`] |
//! | `Ok` of multi-get | [`Objects`] |
//! | `Ok` of invoke | the bytes that the function wrote |
//! | `Ok`, `NotFound`, `NotArrived` of get-now | [`Arrived`], then as of get, or the migration's number u32 |
//! | `Frozen` | [`StaleRead`] |
//! | `ConditionFailed` | [`decode_version`]: the current version, 0 when absent |
//! | `Retry` | [`decode_retry`] |
//! | `Throttled` | [`Throttled`] |
//! | `ExtensionError` | [`ExtensionFailure`] |
//! | `PushedBack` | [`PushedBack`] |
//!
//! A reply that does not fit a frame comes as several messages, each a [`Part`] of it, if the request allowed that.
//! Decoders return [`Status::Malformed`] and never panic. Writers fill the buffer that the frame lends.

mod listing;
mod part;
mod pushed_back;
mod stale_read;

pub use listing::{Listed, Listing, Scanned, Verified};
pub use part::Part;
pub use pushed_back::{PushedBack, ReadRecord};
pub use stale_read::{ARRIVED_BYTES_MAX, Arrived, Left, StaleRead};

use crate::limits::MULTI_GET_KEYS_MAX;
use crate::status::Status;

/// The reply of a get: version u64, of an object that expires with bit 63 and the milliseconds left u64, value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object<'a> {
    /// Version of the object.
    pub version: u64,
    /// Its remaining time to live, in milliseconds; `None` if it does not expire.
    pub ttl_ms: Option<u64>,
    /// Its value.
    pub value: &'a [u8],
}

/// Set in the version of an object that expires; versions have 54 bits.
const EXPIRES: u64 = 1 << 63;

impl<'a> Object<'a> {
    /// Bytes before the value of an object that does not expire.
    pub const HEAD_BYTES: usize = 8;

    /// Returns the length of the encoded body.
    #[inline]
    pub const fn body_bytes(&self) -> usize {
        Self::HEAD_BYTES + if self.ttl_ms.is_some() { 8 } else { 0 } + self.value.len()
    }

    /// Writes the body; copies the value once.
    ///
    /// # Panics
    /// Unless `body` has exactly [`Object::body_bytes`].
    #[inline]
    pub fn encode(&self, body: &mut [u8]) {
        let (head, rest) = body.split_at_mut(Self::HEAD_BYTES);
        let Some(ttl_ms) = self.ttl_ms else {
            head.copy_from_slice(&self.version.to_le_bytes());
            return rest.copy_from_slice(self.value);
        };
        head.copy_from_slice(&(self.version | EXPIRES).to_le_bytes());
        let (ttl, rest) = rest.split_at_mut(8);
        ttl.copy_from_slice(&ttl_ms.to_le_bytes());
        rest.copy_from_slice(self.value);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    #[inline]
    pub fn decode(body: &'a [u8]) -> Result<Object<'a>, Status> {
        let (version, value) = body.split_first_chunk().ok_or(Status::Malformed)?;
        let version = u64::from_le_bytes(*version);
        if version & EXPIRES == 0 {
            return Ok(Object { version, ttl_ms: None, value });
        }
        let (ttl_ms, value) = value.split_first_chunk().ok_or(Status::Malformed)?;
        Ok(Object { version: version & !EXPIRES, ttl_ms: Some(u64::from_le_bytes(*ttl_ms)), value })
    }
}

/// Bytes of a body that is a version.
pub const VERSION_BYTES: usize = 8;

/// Returns the body that is a version: `Ok` of put and delete, `ConditionFailed`.
#[inline]
pub const fn encode_version(version: u64) -> [u8; VERSION_BYTES] {
    version.to_le_bytes()
}

/// Reads a body that is a version.
///
/// # Errors
/// [`Status::Malformed`].
#[inline]
pub fn decode_version(body: &[u8]) -> Result<u64, Status> {
    Ok(u64::from_le_bytes(body.try_into().map_err(|_| Status::Malformed)?))
}

/// The reply of an increment: version u64, sum i64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    /// Version of the object.
    pub version: u64,
    /// The new sum.
    pub value: i64,
}

impl Number {
    /// Length of the encoded body.
    pub const BODY_BYTES: usize = 16;

    /// Returns the body.
    #[inline]
    pub fn encode(&self) -> [u8; Self::BODY_BYTES] {
        let mut body = [0; Self::BODY_BYTES];
        body[..8].copy_from_slice(&self.version.to_le_bytes());
        body[8..].copy_from_slice(&self.value.to_le_bytes());
        body
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    #[inline]
    pub fn decode(body: &[u8]) -> Result<Number, Status> {
        let (version, value) = body.split_first_chunk().ok_or(Status::Malformed)?;
        let value = value.try_into().map_err(|_| Status::Malformed)?;
        Ok(Number { version: u64::from_le_bytes(*version), value: i64::from_le_bytes(value) })
    }
}

/// Returns the body of `Retry`: the delay in microseconds.
#[inline]
pub const fn encode_retry(after_us: u32) -> [u8; 4] {
    after_us.to_le_bytes()
}

/// Reads the body of `Retry`.
///
/// # Errors
/// [`Status::Malformed`].
#[inline]
pub fn decode_retry(body: &[u8]) -> Result<u32, Status> {
    Ok(u32::from_le_bytes(body.try_into().map_err(|_| Status::Malformed)?))
}

/// The body of `Throttled`: microseconds to wait u32, then the name of the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttled<'a> {
    /// The delay before the request is sent again, in microseconds.
    pub after_us: u32,
    /// The tenant's limit that delays it, in UTF-8.
    pub limit: &'a [u8],
}

impl<'a> Throttled<'a> {
    /// Returns the length of the encoded body.
    #[inline]
    pub const fn body_bytes(&self) -> usize {
        4 + self.limit.len()
    }

    /// Writes the body.
    ///
    /// # Panics
    /// Unless `body` has exactly [`Throttled::body_bytes`].
    pub fn encode(&self, body: &mut [u8]) {
        let (head, rest) = body.split_at_mut(4);
        head.copy_from_slice(&self.after_us.to_le_bytes());
        rest.copy_from_slice(self.limit);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn decode(body: &'a [u8]) -> Result<Throttled<'a>, Status> {
        let (after_us, limit) = body.split_first_chunk().ok_or(Status::Malformed)?;
        Ok(Throttled { after_us: u32::from_le_bytes(*after_us), limit })
    }
}

/// The body of `ExtensionError`: the application's code u32, then the bytes that the function had written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtensionFailure<'a> {
    /// The number that the function chose.
    pub code: u32,
    /// The bytes that it wrote before.
    pub message: &'a [u8],
}

impl<'a> ExtensionFailure<'a> {
    /// Returns the length of the encoded body.
    pub const fn body_bytes(&self) -> usize {
        4 + self.message.len()
    }

    /// Writes the body.
    ///
    /// # Panics
    /// Unless `body` has exactly [`ExtensionFailure::body_bytes`].
    pub fn encode(&self, body: &mut [u8]) {
        let (head, rest) = body.split_at_mut(4);
        head.copy_from_slice(&self.code.to_le_bytes());
        rest.copy_from_slice(self.message);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn decode(body: &'a [u8]) -> Result<ExtensionFailure<'a>, Status> {
        let (code, message) = body.split_first_chunk().ok_or(Status::Malformed)?;
        Ok(ExtensionFailure { code: u32::from_le_bytes(*code), message })
    }
}

/// One key's part in the reply of a multi-get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// `Ok`, `NotFound`, or the reason why this one could not be read.
    pub status: Status,
    /// Version of the object, 0 unless `Ok`.
    pub version: u64,
    /// Its value, empty unless `Ok`.
    pub value: &'a [u8],
}

/// The reply of a multi-get: count u16, then per key status u8, value bytes u32, version u64, value; in the order of
/// the request. Checked when decoded, so iterating never fails.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Objects<'a> {
    /// Bytes before the entries.
    pub const HEAD_BYTES: usize = 2;
    /// Bytes of an entry before its value.
    pub const ENTRY_HEAD_BYTES: usize = 13;

    /// Returns the length of the encoded body of `count` entries whose values have `value_bytes` together.
    pub const fn body_bytes(count: usize, value_bytes: usize) -> usize {
        Self::HEAD_BYTES + count * Self::ENTRY_HEAD_BYTES + value_bytes
    }

    /// Writes the count; entries follow with [`Objects::encode_entry`].
    ///
    /// # Panics
    /// If `count` is beyond [`MULTI_GET_KEYS_MAX`] or `body` has no room for it.
    pub fn encode_count(body: &mut [u8], count: usize) -> &mut [u8] {
        assert!(count <= MULTI_GET_KEYS_MAX, "more entries than a multi-get has keys");
        let (head, rest) = body.split_at_mut(Self::HEAD_BYTES);
        head.copy_from_slice(&(count as u16).to_le_bytes());
        rest
    }

    /// Writes one entry and returns the place of the next; copies the value once. `None`, with nothing written, if it
    /// does not fit.
    pub fn encode_entry<'b>(place: &'b mut [u8], entry: &Entry<'_>) -> Option<&'b mut [u8]> {
        if place.len() < Self::ENTRY_HEAD_BYTES + entry.value.len() {
            return None;
        }
        let (head, rest) = place.split_at_mut(Self::ENTRY_HEAD_BYTES);
        head[0] = entry.status as u8;
        head[1..5].copy_from_slice(&(entry.value.len() as u32).to_le_bytes());
        head[5..].copy_from_slice(&entry.version.to_le_bytes());
        let (value, rest) = rest.split_at_mut(entry.value.len());
        value.copy_from_slice(entry.value);
        Some(rest)
    }

    /// Reads the body and checks every entry.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    pub fn decode(body: &'a [u8]) -> Result<Objects<'a>, Status> {
        let (count, bytes) = body.split_first_chunk().ok_or(Status::Malformed)?;
        let count = u16::from_le_bytes(*count) as usize;
        let mut rest = bytes;
        for _ in 0..count {
            (_, rest) = split_entry(rest).ok_or(Status::Malformed)?;
        }
        if !rest.is_empty() {
            return Err(Status::Malformed);
        }
        Ok(Objects { count, bytes })
    }
}

impl<'a> Iterator for Objects<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        self.count = self.count.checked_sub(1)?;
        let (entry, rest) = split_entry(self.bytes)?;
        self.bytes = rest;
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Objects<'_> {}

fn split_entry(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let (status, rest) = bytes.split_first_chunk::<1>()?;
    let (value_bytes, rest) = rest.split_first_chunk::<4>()?;
    let (version, rest) = rest.split_first_chunk::<8>()?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_bytes) as usize)?;
    let status = Status::from_u8(status[0])?;
    Some((Entry { status, version: u64::from_le_bytes(*version), value }, rest))
}
