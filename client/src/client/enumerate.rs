//! Enumeration of whole tables page by page, and verification of their checksums.
//!
//! The server keeps no state of an enumeration: its position is a [`Cursor`], which stays valid indefinitely, across
//! sessions and processes. The enumeration returns each object that is present throughout exactly once, in arbitrary
//! order.

use wire::{Request, reply};

use super::Client;
use crate::Error;
use crate::answers::unintelligible;
use crate::pages::{Cursor, Listed, Page, PageSize};

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
        Page::enumerated(self.call(&size.enumeration(table, from)))
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
            let body = self.call(&Request::Verify { table, cursor: &cursor })?;
            let step = reply::Verified::decode(body).map_err(|_| unintelligible("a verification"))?;
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
