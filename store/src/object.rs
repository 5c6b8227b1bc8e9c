//! An object: header, key, value; immutable once it can be found. In a log, or carried outside one.
//!
//! ```text
//!    0  checksum u32       crc32c of key, value, expiry and predecessor if there are, then header bytes 4..20
//!    4  table u32
//!    8  u64                bits 0..54 version │ 54..57 kind │ 57 has an expiry │ 58 has a predecessor │ 59..64 value
//!                          length, high 5 bits
//!   16  key length u16
//!   18  value length u16   low 16 bits
//!   20  key, value, with bit 57: expiry u64 in milliseconds, with bit 58: predecessor u32; zeros up to a multiple of 8
//! ```
//!
//! The *predecessor* is the sequence number of the segment with the entry that this one ends, or 0: what a replay of the
//! log must not find alone. Objects of durable tables have room for it. `durable.rs` says how long it matters.
//!
//! The expiry follows the value, so that key and value have the same place in every object, and an object without an
//! expiry pays nothing for it. The header has only twenty bytes, since it is a large part of a small object. The
//! checksum covers the header last, because the version is known only when the bucket is locked, after the bytes have
//! been copied. This file works on slices and numbers; `log.rs` turns locations into slices. See docs/formats.md.

use crate::checksum;
use crate::limits::{VALUE_BYTES_MAX, VERSION_MAX};

/// Bytes of an object's header.
pub const OBJECT_HEADER_BYTES: usize = 20;
/// Alignment of objects in the log, in bytes.
pub(crate) const OBJECT_ALIGNMENT: usize = 8;

/// Bytes of an expiry after the value.
pub(crate) const EXPIRY_BYTES: usize = 8;
/// The expiry of an object that stays until it is deleted.
pub const NEVER_MS: u64 = u64::MAX;
/// The header bit for the presence of an expiry.
pub(crate) const EXPIRES: u64 = 1 << 57;
/// Bytes of a predecessor, at the end.
pub(crate) const PREDECESSOR_BYTES: usize = 4;
/// The header bit for its presence.
pub(crate) const PREDECESSOR: u64 = 1 << 58;

/// The kind of an entry of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// A key with its value.
    Object,
    /// The end of a key, in durable tables: entries of the key up to this version are gone. Without a value.
    Tombstone,
    /// The reply to a request: see `completion.rs`.
    Completion,
}

impl Kind {
    const fn code(self) -> u64 {
        match self {
            Kind::Object => 1,
            Kind::Tombstone => 2,
            Kind::Completion => 3,
        }
    }

    /// Returns the highest version that an entry of this version ends: an object those below it, as it may live on in a copy.
    pub(crate) fn ends_to(self, version: u64) -> u64 {
        match self {
            Kind::Object => version - 1,
            Kind::Tombstone | Kind::Completion => version,
        }
    }

    fn from_code(code: u64) -> Option<Kind> {
        match code {
            1 => Some(Kind::Object),
            2 => Some(Kind::Tombstone),
            3 => Some(Kind::Completion),
            _ => None,
        }
    }
}

/// The lengths that a header states, true or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Lengths {
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    /// Whether an expiry follows the value.
    pub(crate) expires: bool,
    /// Whether a predecessor follows.
    pub(crate) predecessor: bool,
}

impl Lengths {
    /// Returns the bytes of key, value and expiry.
    #[inline]
    pub(crate) fn content_bytes(self) -> usize {
        self.key_bytes + self.value_bytes + if self.expires { EXPIRY_BYTES } else { 0 }
    }

    /// Returns the bytes of the whole object in the log.
    #[inline]
    pub(crate) fn object_bytes(self) -> usize {
        let predecessor_bytes = if self.predecessor { PREDECESSOR_BYTES } else { 0 };
        (OBJECT_HEADER_BYTES + self.content_bytes() + predecessor_bytes).next_multiple_of(OBJECT_ALIGNMENT)
    }
}

/// The fields of a header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    pub(crate) checksum: u32,
    pub(crate) table: u32,
    pub(crate) version: u64,
    pub(crate) kind: Kind,
    pub(crate) lengths: Lengths,
}

impl Header {
    /// Returns bytes 8..16 as a number.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        let high = (self.lengths.value_bytes as u64 >> 16) << 59;
        let expires = if self.lengths.expires { EXPIRES } else { 0 };
        let predecessor = if self.lengths.predecessor { PREDECESSOR } else { 0 };
        (self.version & VERSION_MAX) | self.kind.code() << 54 | expires | predecessor | high
    }

    /// Returns the header in bytes.
    #[inline]
    pub(crate) fn encode(&self) -> [u8; OBJECT_HEADER_BYTES] {
        let mut bytes = [0; OBJECT_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.table.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.word().to_le_bytes());
        bytes[16..18].copy_from_slice(&(self.lengths.key_bytes as u16).to_le_bytes());
        bytes[18..20].copy_from_slice(&(self.lengths.value_bytes as u16).to_le_bytes());
        bytes
    }

    /// Returns the lengths in `bytes`, even if they are not a valid header.
    #[inline]
    pub(crate) fn lengths(bytes: &[u8; OBJECT_HEADER_BYTES]) -> Lengths {
        let [_, _, _, _, _, _, _, _, w @ .., k0, k1, v0, v1] = *bytes;
        let word = u64::from_le_bytes(w);
        Lengths {
            key_bytes: usize::from(u16::from_le_bytes([k0, k1])),
            value_bytes: usize::from(u16::from_le_bytes([v0, v1])) | ((word >> 59) as usize) << 16,
            expires: word & EXPIRES != 0,
            predecessor: word & PREDECESSOR != 0,
        }
    }

    /// Returns the header in `bytes`; `None` if they are not a header.
    #[inline]
    pub(crate) fn decode(bytes: &[u8; OBJECT_HEADER_BYTES]) -> Option<Header> {
        let [c0, c1, c2, c3, t0, t1, t2, t3, w @ .., _, _, _, _] = *bytes;
        let word = u64::from_le_bytes(w);
        Some(Header {
            checksum: u32::from_le_bytes([c0, c1, c2, c3]),
            table: u32::from_le_bytes([t0, t1, t2, t3]),
            version: word & VERSION_MAX,
            kind: Kind::from_code(word >> 54 & 7)?,
            lengths: Header::lengths(bytes),
        })
    }

    /// Returns the bytes of the whole object in the log.
    #[inline]
    pub(crate) fn object_bytes(&self) -> usize {
        self.lengths.object_bytes()
    }

    /// Returns the header with its checksum, given that of key, value and expiry, and the predecessor.
    #[inline]
    pub(crate) fn sealed(mut self, content_checksum: u32, predecessor: u32) -> Header {
        let content_checksum = match self.lengths.predecessor {
            true => checksum::append(content_checksum, &predecessor.to_le_bytes()),
            false => content_checksum,
        };
        self.checksum = checksum::append(content_checksum, &self.encode()[4..]);
        self
    }
}

/// Returns the checksum of the content after the header.
#[inline]
pub(crate) fn content_checksum(key: &[u8], value: &[u8], expires_ms: u64) -> u32 {
    let content = checksum::append(checksum::append(0, key), value);
    if expires_ms == NEVER_MS { content } else { checksum::append(content, &expires_ms.to_le_bytes()) }
}

/// An object in the log, valid and unchanged while its pin lives.
#[derive(Clone, Copy)]
pub struct Object<'p> {
    version_word: u64,
    key: &'p [u8],
    value: &'p [u8],
    expires_ms: u64,
    /// Its bytes, if it has one: read when needed, since writers seldom have the end of an object in the cache.
    predecessor: &'p [u8],
    header: &'p [u8; OBJECT_HEADER_BYTES],
}

impl<'p> Object<'p> {
    /// Creates the object whose bytes begin with `header`, followed by `key`, `value`, the expiry unless it is
    /// [`NEVER_MS`], and the bytes of the predecessor if it has one.
    #[inline]
    pub(crate) fn new(
        header: &'p [u8; OBJECT_HEADER_BYTES],
        version_word: u64,
        (key, value): (&'p [u8], &'p [u8]),
        expires_ms: u64,
        predecessor: &'p [u8],
    ) -> Object<'p> {
        Object { version_word, key, value, expires_ms, predecessor, header }
    }

    /// Returns the address of its header.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.header.as_ptr().addr()
    }

    /// Returns the key.
    #[inline]
    pub fn key(&self) -> &'p [u8] {
        self.key
    }

    /// Returns the value.
    #[inline]
    pub fn value(&self) -> &'p [u8] {
        self.value
    }

    /// Returns the version, never 0.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version_word & VERSION_MAX
    }

    /// Returns the expiry in milliseconds since the Unix epoch; [`NEVER_MS`] without one.
    #[inline]
    pub fn expires_ms(&self) -> u64 {
        self.expires_ms
    }

    /// Returns whether the object has an expiry.
    #[inline]
    pub(crate) fn expires(&self) -> bool {
        self.expires_ms != NEVER_MS
    }

    #[inline]
    pub(crate) fn lengths(&self) -> Lengths {
        let predecessor = self.version_word & PREDECESSOR != 0;
        let (key_bytes, value_bytes, expires) = (self.key.len(), self.value.len(), self.expires());
        Lengths { key_bytes, value_bytes, expires, predecessor }
    }

    /// Returns the number of its table, as the entry has it.
    pub(crate) fn table(&self) -> u32 {
        let [_, _, _, _, a, b, c, d, ..] = *self.header;
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns its bytes in the log.
    #[inline]
    pub fn log_bytes(&self) -> usize {
        self.lengths().object_bytes()
    }

    /// Returns whether the bytes are intact (crc32c; about 10 ns and 0.1 ns per byte).
    pub fn verify(&self) -> bool {
        let content = content_checksum(self.key, self.value, self.expires_ms);
        let predecessor = self.predecessor.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let is_sealed = |header: Header| header.sealed(content, predecessor).checksum == header.checksum;
        Header::decode(self.header).is_some_and(is_sealed)
    }
}

impl std::fmt::Debug for Object<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key_bytes, value_bytes) = (self.key.len(), self.value.len());
        write!(out, "Object {{ version: {}, key: {key_bytes} B, value: {value_bytes} B }}", self.version())
    }
}

/// The first object of bytes outside a log: objects as in a log, one after the other. Its lengths stay within them.
///
/// The sender copies its objects unchanged. The receiver trusts none of them until it has checked that the lengths match
/// and that each object agrees with its writer's checksum. The checksum also covers the object's table number and
/// version; the number is the source's own and means nothing here. See docs/formats.md.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried<'a> {
    /// `None` if the bytes are not an object's header.
    header: Option<Header>,
    key_bytes: usize,
    /// Key, value, expiry.
    content: &'a [u8],
    predecessor: u32,
}

/// An error: the bytes end within an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cut;

impl<'a> Carried<'a> {
    /// Returns the first object of `bytes` and the bytes after it.
    #[inline]
    pub(crate) fn split(bytes: &'a [u8]) -> Result<(Carried<'a>, &'a [u8]), Cut> {
        let head = bytes.first_chunk::<OBJECT_HEADER_BYTES>().ok_or(Cut)?;
        let lengths = Header::lengths(head);
        let (object, rest) = bytes.split_at_checked(lengths.object_bytes()).ok_or(Cut)?;
        let (content, behind) = object[OBJECT_HEADER_BYTES..].split_at(lengths.content_bytes());
        let predecessor = behind.first_chunk().filter(|_| lengths.predecessor);
        let predecessor = predecessor.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        Ok((
            Carried { header: Header::decode(head), key_bytes: lengths.key_bytes, content, predecessor },
            rest,
        ))
    }

    /// Checks the object; returns the checksum of its content if it is intact. About 10 ns and 0.1 ns per byte.
    #[inline]
    pub(crate) fn check(&self) -> Option<u32> {
        let header = self.header.filter(|header| {
            let versions = 1..=VERSION_MAX;
            header.kind == Kind::Object
                && header.lengths.value_bytes <= VALUE_BYTES_MAX
                && versions.contains(&header.version)
        })?;
        let content = checksum::append(0, self.content);
        (header.sealed(content, self.predecessor).checksum == header.checksum).then_some(content)
    }

    /// Returns the key.
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        &self.content[..self.key_bytes]
    }

    /// Returns the content: key, value, and the expiry if there is one.
    #[inline]
    pub(crate) fn content(&self) -> &'a [u8] {
        self.content
    }

    /// Returns the header of a checked object.
    #[inline]
    pub(crate) fn header(&self) -> Header {
        self.header.expect("it was checked")
    }

    /// Returns the expiry of a checked object, [`NEVER_MS`] if it has none.
    #[inline]
    pub(crate) fn expires_ms(&self) -> u64 {
        match self.content.last_chunk::<EXPIRY_BYTES>() {
            Some(expiry) if self.header().lengths.expires => u64::from_le_bytes(*expiry),
            _ => NEVER_MS,
        }
    }
}

/// Returns the bytes of the entry that begins a piece of a sealed log; `None` if none does.
pub fn entry_bytes(bytes: &[u8]) -> Option<usize> {
    Some(Header::lengths(bytes.first_chunk()?).object_bytes())
}

/// An entry of a segment as a disk held it: an object or a tombstone. Its lengths stay within the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    header: Header,
    /// Key, value, expiry.
    content: &'a [u8],
    predecessor: u32,
}

impl<'a> Entry<'a> {
    /// Returns the first entry of `bytes` and its length; `None` if they do not begin with one.
    pub(crate) fn split(bytes: &'a [u8]) -> Option<(Entry<'a>, usize)> {
        let header = Header::decode(bytes.first_chunk()?)?;
        let length = header.object_bytes();
        let (content, behind) =
            bytes.get(OBJECT_HEADER_BYTES..length)?.split_at(header.lengths.content_bytes());
        let predecessor = behind.first_chunk().filter(|_| header.lengths.predecessor);
        let predecessor = predecessor.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        Some((Entry { header, content, predecessor }, length))
    }

    /// Checks the entry; returns the checksum of its content if it is intact, or means nothing, as one that was never
    /// published.
    pub(crate) fn check(&self) -> Option<u32> {
        let content = checksum::append(0, self.content);
        let is_sound = self.header.version == 0
            || self.header.sealed(content, self.predecessor).checksum == self.header.checksum;
        is_sound.then_some(content)
    }

    pub(crate) fn lengths(&self) -> Lengths {
        self.header.lengths
    }

    /// Returns the content: key, value, and the expiry if there is one.
    pub(crate) fn content(&self) -> &'a [u8] {
        self.content
    }

    pub(crate) fn kind(&self) -> Kind {
        self.header.kind
    }

    /// Returns whether it is a completion record that counts.
    pub(crate) fn is_completion(&self) -> bool {
        self.version() != 0 && self.kind() == Kind::Completion
    }

    /// Returns whether it is a published object or the end of a key: not a completion record.
    pub(crate) fn is_of_key(&self) -> bool {
        self.version() != 0 && self.kind() != Kind::Completion
    }

    pub(crate) fn table(&self) -> u32 {
        self.header.table
    }

    pub(crate) fn version(&self) -> u64 {
        self.header.version
    }

    pub(crate) fn predecessor(&self) -> u32 {
        self.predecessor
    }

    /// Returns the version of a tombstone in place of this entry, see [`Kind::ends_to`].
    pub(crate) fn ends_to(&self) -> u64 {
        self.header.kind.ends_to(self.header.version)
    }

    /// Returns its bytes in the log.
    pub(crate) fn bytes(&self) -> usize {
        self.header.object_bytes()
    }

    pub(crate) fn key(&self) -> &'a [u8] {
        &self.content[..self.header.lengths.key_bytes]
    }

    pub(crate) fn value(&self) -> &'a [u8] {
        let Lengths { key_bytes, value_bytes, .. } = self.header.lengths;
        &self.content[key_bytes..key_bytes + value_bytes]
    }

    /// Returns the expiry, [`NEVER_MS`] if it has none.
    pub(crate) fn expires_ms(&self) -> u64 {
        match self.content.last_chunk::<EXPIRY_BYTES>() {
            Some(expiry) if self.header.lengths.expires => u64::from_le_bytes(*expiry),
            _ => NEVER_MS,
        }
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use super::{Header, Kind, Lengths, OBJECT_HEADER_BYTES};
    use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX, VERSION_MAX};

    #[test]
    fn header_round_trips_at_its_limits() {
        for kind in [Kind::Object, Kind::Tombstone, Kind::Completion] {
            for version in [1, 77, VERSION_MAX] {
                for (key_bytes, value_bytes) in
                    [(0, 0), (30, 100), (KEY_BYTES_MAX, VALUE_BYTES_MAX), (1, 65_536)]
                {
                    for (expires, predecessor) in [(false, false), (true, false), (false, true), (true, true)]
                    {
                        let lengths = Lengths { key_bytes, value_bytes, expires, predecessor };
                        let header =
                            Header { checksum: 0xdead_beef, table: u32::MAX, version, kind, lengths };
                        assert_eq!(Header::decode(&header.encode()), Some(header));
                    }
                }
            }
        }
    }

    #[test]
    fn zeros_are_no_header() {
        assert_eq!(Header::decode(&[0; OBJECT_HEADER_BYTES]), None);
    }

    #[test]
    fn an_object_of_130_bytes_takes_152_and_with_an_expiry_or_a_predecessor_160() {
        let bytes = |expires, predecessor| {
            Lengths { key_bytes: 30, value_bytes: 100, expires, predecessor }.object_bytes()
        };
        assert_eq!(bytes(false, false), 152);
        assert_eq!(bytes(true, false), 160);
        assert_eq!(bytes(false, true), 160);
        assert_eq!(bytes(true, true), 168);
    }
}
