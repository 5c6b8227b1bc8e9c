//! Objects outside a log: their bytes as in the log, one object after the other.
//!
//! The sender copies them unchanged. The receiver trusts none of them until it has checked that the lengths match and
//! that each object agrees with its writer's checksum. The checksum also covers the object's table number and
//! version; the number is the source's own and means nothing here. See docs/formats.md.

use crate::checksum;
use crate::limits::{VALUE_BYTES_MAX, VERSION_MAX};
use crate::object::{EXPIRY_BYTES, Header, Kind, NEVER_MS, OBJECT_HEADER_BYTES};

/// The first object of such bytes, with lengths that stay within them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried<'a> {
    /// `None` if the bytes are not an object's header.
    header: Option<Header>,
    key_bytes: usize,
    /// Key, value, expiry.
    content: &'a [u8],
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
        let content = &object[OBJECT_HEADER_BYTES..OBJECT_HEADER_BYTES + lengths.content_bytes()];
        Ok((Carried { header: Header::decode(head), key_bytes: lengths.key_bytes, content }, rest))
    }

    /// Checks the object; returns the checksum of its content if it is intact. About 10 ns and 0.1 ns per byte.
    #[inline]
    pub(crate) fn check(&self) -> Option<u32> {
        let header = self.header.filter(|header| {
            let versions = 1..=VERSION_MAX;
            header.kind == Kind::Object
                && header.value_bytes <= VALUE_BYTES_MAX
                && versions.contains(&header.version)
        })?;
        let content = checksum::append(0, self.content);
        (header.sealed(content).checksum == header.checksum).then_some(content)
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
            Some(expiry) if self.header().expires => u64::from_le_bytes(*expiry),
            _ => NEVER_MS,
        }
    }
}
