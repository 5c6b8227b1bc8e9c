//! Objects outside of a log: their bytes as they lay in one, one behind the other.
//!
//! Whoever sends them copies them as they are; whoever receives them trusts none of them until it has seen that lengths
//! come out even and that each is what its writer's checksum says. The object's table number and version are under that
//! checksum too; the number is the source's own and means nothing here. See docs/formats.md.

use crate::checksum;
use crate::limits::{VALUE_BYTES_MAX, VERSION_MAX};
use crate::object::{EXPIRY_BYTES, Header, Kind, NEVER_MS, OBJECT_HEADER_BYTES};

/// An object at the front of such bytes, its lengths within them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried<'a> {
    /// `None` where it is no header of an object.
    header: Option<Header>,
    key_bytes: usize,
    /// Key, value, expiry.
    content: &'a [u8],
}

/// The bytes end within an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cut;

impl<'a> Carried<'a> {
    /// The first object of `bytes`, and what follows it.
    #[inline]
    pub(crate) fn split(bytes: &'a [u8]) -> Result<(Carried<'a>, &'a [u8]), Cut> {
        let head = bytes.first_chunk::<OBJECT_HEADER_BYTES>().ok_or(Cut)?;
        let lengths = Header::lengths(head);
        let (object, rest) = bytes.split_at_checked(lengths.object_bytes()).ok_or(Cut)?;
        let content = &object[OBJECT_HEADER_BYTES..OBJECT_HEADER_BYTES + lengths.content_bytes()];
        Ok((Carried { header: Header::decode(head), key_bytes: lengths.key_bytes, content }, rest))
    }

    /// The checksum of its content, if it is what was written. About 10 ns and 0.1 ns a byte.
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

    /// Its key.
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        &self.content[..self.key_bytes]
    }

    /// Its content: key, value, and the expiry if it has one.
    #[inline]
    pub(crate) fn content(&self) -> &'a [u8] {
        self.content
    }

    /// The header of one that was checked.
    #[inline]
    pub(crate) fn header(&self) -> Header {
        self.header.expect("it was checked")
    }

    /// When it expires, [`NEVER_MS`] where it does not. Of one that was checked.
    #[inline]
    pub(crate) fn expires_ms(&self) -> u64 {
        match self.content.last_chunk::<EXPIRY_BYTES>() {
            Some(expiry) if self.header().expires => u64::from_le_bytes(*expiry),
            _ => NEVER_MS,
        }
    }
}
