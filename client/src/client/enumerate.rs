//! Whole tables: their objects page by page, and their checksums.
//!
//! The server remembers nothing of an enumeration: where it stands is a [`Cursor`], which may be kept as long as one
//! likes, over sessions and processes. Each object that is there all the time is met exactly once, in no order that has
//! a meaning.

use wire::limits::{ENUMERATE_BYTES_MAX, ENUMERATE_OBJECTS_MAX};
use wire::{Request, Status, reply};

use super::Client;
use super::data::unintelligible;
use crate::Error;

/// Where an enumeration goes on. Its bytes are the server's; they mean something for their table alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    bytes: Vec<u8>,
}

impl Cursor {
    /// Before the first object.
    #[must_use]
    pub fn start() -> Cursor {
        Cursor::default()
    }

    /// The cursor that was kept as these bytes. The server refuses what it has not made.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Cursor {
        Cursor { bytes: bytes.to_vec() }
    }

    /// Its bytes; none at the start.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What an enumeration is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Objects of a page at most; 512 where it is more.
    pub objects: usize,
    /// Bytes of keys and values after which a page ends; 64 KiB where it is more.
    pub bytes: usize,
    /// Leave out the values.
    pub keys_only: bool,
}

impl Default for PageSize {
    fn default() -> PageSize {
        PageSize { objects: ENUMERATE_OBJECTS_MAX, bytes: ENUMERATE_BYTES_MAX, keys_only: false }
    }
}

/// An object that was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value; empty where only keys were asked for.
    pub value: Vec<u8>,
    /// Its version.
    pub version: u64,
    /// How long it will be there yet, in milliseconds; `None` where it stays.
    pub ttl_ms: Option<u64>,
}

impl Listed {
    pub(super) fn of(listed: &reply::Listed<'_>) -> Listed {
        let (key, value) = (listed.key.to_vec(), listed.value.to_vec());
        Listed { key, value, version: listed.version, ttl_ms: listed.ttl_ms }
    }
}

/// Some objects of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The objects. May be none before the end, too.
    pub objects: Vec<Listed>,
    /// Hashes of the keys, as far as they are known, of objects whose bytes are not those that were written.
    pub corrupted: Vec<u64>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
}

/// What a verification has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Objects that were checked, corrupted ones included.
    pub objects: u64,
    /// Bytes that the sound ones take.
    pub bytes: u64,
    /// Hashes of the keys of corrupted ones, as far as they are known.
    pub corrupted: Vec<u64>,
}

impl Client {
    /// Reads the next page of an enumeration. Small pages come in one datagram, others over the stream.
    ///
    /// # Errors
    /// `CursorInvalid` for a cursor of another table or of nobody, `UnknownTable` for a table that was dropped, another
    /// refusal, or no answer.
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

    /// Goes through all objects of a table.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), client::Error> {
    /// # let mut client = client::Client::connect("127.0.0.1:7700", "acme", "the secret")?;
    /// let table = client.table_open("visits")?;
    /// for object in client.enumerate(table) {
    ///     println!("{:?}", object?.key);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn enumerate(&mut self, table: u32) -> Enumeration<'_> {
        self.enumerate_from(table, Cursor::start(), PageSize::default())
    }

    /// As [`Client::enumerate`], from a cursor on and in pages of a size.
    pub fn enumerate_from(&mut self, table: u32, from: Cursor, size: PageSize) -> Enumeration<'_> {
        let page = Page { next: Some(from), ..Page::default() };
        Enumeration { client: self, table, size, page, at: 0 }
    }

    /// Checks all objects of a table against their checksums, a step at a time.
    ///
    /// # Errors
    /// `UnknownTable` for a table that was dropped, another refusal, or no answer.
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

/// The objects of a table, one after another; of [`Client::enumerate`]. Ends behind the first error.
pub struct Enumeration<'c> {
    client: &'c mut Client,
    table: u32,
    size: PageSize,
    page: Page,
    at: usize,
}

impl Enumeration<'_> {
    /// Where to go on another time behind the page that the latest object was in; `None` at the end. Objects of that
    /// page that were not taken are left out.
    #[must_use]
    pub fn cursor(&self) -> Option<&Cursor> {
        self.page.next.as_ref()
    }

    /// Hashes of the keys of corrupted objects of the page that the latest object was in.
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
