//! Pages of enumerations and scans.

use wire::limits::{ENUMERATE_BYTES_MAX, ENUMERATE_OBJECTS_MAX};
use wire::{KeyRange, Request, Status, reply};

use crate::Error;
use crate::answers::unintelligible;

/// The position of an enumeration. The server defines its bytes, which are valid only for their table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    bytes: Vec<u8>,
}

impl Cursor {
    /// Returns the cursor before the first object.
    #[must_use]
    pub fn start() -> Cursor {
        Cursor::default()
    }

    /// Restores a cursor from its bytes. The server refuses bytes that it did not create.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Cursor {
        Cursor { bytes: bytes.to_vec() }
    }

    /// Returns the bytes of the cursor; empty at the start.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The size and contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Maximum number of objects of a page; values above 512 mean 512.
    pub objects: usize,
    /// Bytes of keys and values after which a page ends. Values above 64 KiB mean 64 KiB.
    pub bytes: usize,
    /// Omits the values.
    pub keys_only: bool,
}

impl Default for PageSize {
    fn default() -> PageSize {
        PageSize { objects: ENUMERATE_OBJECTS_MAX, bytes: ENUMERATE_BYTES_MAX, keys_only: false }
    }
}

/// An object of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Key of the object.
    pub key: Vec<u8>,
    /// Value of the object; empty in a page of keys only.
    pub value: Vec<u8>,
    /// Version of the object.
    pub version: u64,
    /// Remaining time to live in milliseconds. `None` if the object does not expire.
    pub ttl_ms: Option<u64>,
}

impl Listed {
    fn of(listed: &reply::Listed<'_>) -> Listed {
        let (key, value) = (listed.key.to_vec(), listed.value.to_vec());
        Listed { key, value, version: listed.version, ttl_ms: listed.ttl_ms }
    }
}

/// A page of objects of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The objects; may be empty before the end.
    pub objects: Vec<Listed>,
    /// Hashes of the keys of damaged objects, as far as known.
    pub corrupted: Vec<u64>,
    /// Start of the next page; `None` at the end.
    pub next: Option<Cursor>,
}

impl PageSize {
    /// Returns the request for a page of an enumeration.
    pub(crate) fn enumeration(self, table: u32, from: &Cursor) -> Request<'_> {
        let (cursor, keys_only) = (from.as_bytes(), self.keys_only);
        let (objects_max, bytes_max) = self.limits();
        Request::Enumerate { table, cursor, keys_only, objects_max, bytes_max }
    }

    /// Returns the request for a page of a scan.
    pub(crate) fn scan<'r>(self, table: u32, range: KeyRange<'r>, from: &'r Cursor) -> Request<'r> {
        let (cursor, keys_only) = (from.as_bytes(), self.keys_only);
        let (objects_max, bytes_max) = self.limits();
        Request::Scan { table, range, cursor, keys_only, objects_max, bytes_max }
    }

    fn limits(self) -> (u16, u32) {
        let objects_max = self.objects.clamp(1, ENUMERATE_OBJECTS_MAX) as u16;
        (objects_max, self.bytes.clamp(1, ENUMERATE_BYTES_MAX) as u32)
    }
}

impl Page {
    /// Returns the page that a reply to an enumeration holds.
    pub(crate) fn enumerated(answer: Result<&[u8], Error>) -> Result<Page, Error> {
        let listing = reply::Listing::decode(answer?).map_err(|_| unintelligible("a page of objects"))?;
        let mut page = Page { next: listing.cursor().map(Cursor::from_bytes), ..Page::default() };
        for listed in listing {
            match listed.status {
                Status::Ok => page.objects.push(Listed::of(&listed)),
                Status::Corrupted => page.corrupted.push(listed.version),
                status => return Err(Error::of_answer(status, &[])),
            }
        }
        Ok(page)
    }

    /// Returns the page that a reply to a scan holds.
    pub(crate) fn scanned(answer: Result<&[u8], Error>) -> Result<Page, Error> {
        let listing = reply::Scanned::decode(answer?).map_err(|_| unintelligible("objects in order"))?;
        let next = listing.cursor().map(Cursor::from_bytes);
        let objects = listing.map(|listed| Listed::of(&listed)).collect();
        Ok(Page { objects, next, ..Page::default() })
    }
}
