//! Enumeration of whole tables page by page, and verification of their checksums.
//!
//! The server keeps no state of an enumeration: its position is a [`Cursor`], which stays valid indefinitely, across
//! sessions and processes. The enumeration returns each object that is present throughout exactly once, in arbitrary
//! order.

use wire::limits::{ENUMERATE_BYTES_MAX, ENUMERATE_OBJECTS_MAX};
use wire::{Request, Status, reply};

use super::Client;
use super::data::unintelligible;
use crate::Error;

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
    pub(super) fn of(listed: &reply::Listed<'_>) -> Listed {
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

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Number of checked objects, corrupted ones included.
    pub objects: u64,
    /// Bytes of the intact objects.
    pub bytes: u64,
    /// Hashes of the keys of corrupted objects, as far as known.
    pub corrupted: Vec<u64>,
}

impl Client {
    /// Reads the next page of an enumeration. Small pages come in one datagram, others over the stream.
    ///
    /// # Errors
    /// `CursorInvalid` for a cursor of another table or not created by the server, `UnknownTable` for a table that was
    /// dropped, another refusal, or no reply.
    pub fn enumerate_page(&mut self, table: u32, from: &Cursor, size: PageSize) -> Result<Page, Error> {
        let objects_max = size.objects.clamp(1, ENUMERATE_OBJECTS_MAX) as u16;
        let bytes_max = size.bytes.clamp(1, ENUMERATE_BYTES_MAX) as u32;
        let (cursor, keys_only) = (from.as_bytes(), size.keys_only);
        self.call(&Request::Enumerate { table, cursor, keys_only, objects_max, bytes_max })?;
        let listing = reply::Listing::decode(&self.body).map_err(|_| unintelligible("a page of objects"))?;
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

    /// Iterates over all objects of a table.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), splinter_client::Error> {
    /// # let mut client = splinter_client::Client::connect("127.0.0.1:7700", "acme", "the secret")?;
    /// let table = client.table_open("visits")?;
    /// for object in client.enumerate(table) {
    ///     println!("{:?}", object?.key);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn enumerate(&mut self, table: u32) -> Enumeration<'_> {
        self.enumerate_from(table, Cursor::start(), PageSize::default())
    }

    /// Iterates as [`Client::enumerate`], from a cursor, with pages of this size.
    pub fn enumerate_from(&mut self, table: u32, from: Cursor, size: PageSize) -> Enumeration<'_> {
        let page = Page { next: Some(from), ..Page::default() };
        Enumeration { client: self, table, size, page, at: 0 }
    }

    /// Checks all objects of a table against their checksums, in several steps.
    ///
    /// # Errors
    /// `UnknownTable` for a table that was dropped, another refusal, or no reply.
    pub fn verify(&mut self, table: u32) -> Result<Verification, Error> {
        let (mut found, mut cursor) = (Verification::default(), Vec::new());
        loop {
            self.call(&Request::Verify { table, cursor: &cursor })?;
            let step = reply::Verified::decode(&self.body).map_err(|_| unintelligible("a verification"))?;
            found.objects += step.objects;
            found.bytes += step.bytes;
            found.corrupted.extend(step.corrupted());
            cursor = step.cursor.to_vec();
            if cursor.is_empty() {
                return Ok(found);
            }
        }
    }
}

/// An iterator over the objects of a table, from [`Client::enumerate`]. Ends after the first error.
pub struct Enumeration<'c> {
    client: &'c mut Client,
    table: u32,
    size: PageSize,
    page: Page,
    at: usize,
}

impl Enumeration<'_> {
    /// Returns the start of the next page. `None` at the end. Continuing there skips the
    /// objects of the current page that were not taken.
    #[must_use]
    pub fn cursor(&self) -> Option<&Cursor> {
        self.page.next.as_ref()
    }

    /// Returns the key hashes of the current page's corrupted objects.
    #[must_use]
    pub fn corrupted(&self) -> &[u64] {
        &self.page.corrupted
    }
}

impl Iterator for Enumeration<'_> {
    type Item = Result<Listed, Error>;

    fn next(&mut self) -> Option<Result<Listed, Error>> {
        while self.at == self.page.objects.len() {
            let from = self.page.next.take()?;
            match self.client.enumerate_page(self.table, &from, self.size) {
                Ok(page) => (self.page, self.at) = (page, 0),
                Err(error) => return Some(Err(error)),
            }
        }
        self.at += 1;
        Some(Ok(std::mem::take(&mut self.page.objects[self.at - 1])))
    }
}

impl std::fmt::Debug for Enumeration<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Enumeration {{ table: {}, cursor: {:?} }}", self.table, self.cursor())
    }
}
