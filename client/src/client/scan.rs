//! Ordered tables: objects of a range of keys in their order, page by page.
//!
//! The server remembers nothing of a scan: where it stands is a [`Cursor`], good for its table and range.

use wire::limits::{ENUMERATE_BYTES_MAX, ENUMERATE_OBJECTS_MAX, LISTING_IN_PARTS_BYTES};
use wire::{KeyRange, Request, reply};

use super::Client;
use super::data::unintelligible;
use super::enumerate::{Cursor, Listed, Page, PageSize};
use crate::Error;

impl Client {
    /// Reads the next objects of a range, in the order of their keys. Pages of up to 24 KiB come in datagrams, others over
    /// the stream. A page may have no objects before the end, too.
    ///
    /// # Errors
    /// `NotOrdered` for a table that was not created as an ordered one, `CursorInvalid` for a cursor of another table
    /// or range or of nobody, another refusal, or no answer.
    pub fn scan_page(
        &mut self,
        table: u32,
        range: KeyRange<'_>,
        from: &Cursor,
        size: PageSize,
    ) -> Result<Page, Error> {
        let objects_max = size.objects.clamp(1, ENUMERATE_OBJECTS_MAX) as u16;
        let bytes_max = size.bytes.clamp(1, ENUMERATE_BYTES_MAX) as u32;
        let (cursor, keys_only) = (from.as_bytes(), size.keys_only);
        self.call(&Request::Scan { table, range, cursor, keys_only, objects_max, bytes_max })?;
        let listing = reply::Scanned::decode(&self.body).map_err(|_| unintelligible("objects in order"))?;
        let next = listing.cursor().map(Cursor::from_bytes);
        let objects = listing.map(|listed| Listed::of(&listed)).collect();
        Ok(Page { objects, next, ..Page::default() })
    }

    /// Reads at most `limit` objects of a range, in the order of their keys. Each that is there all the time is met
    /// once; one that comes or goes meanwhile may be met or not.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), client::Error> {
    /// # let mut client = client::Client::connect("127.0.0.1:7700", "acme", "the secret")?;
    /// let table = client.table_open("log")?;
    /// let newest = client::KeyRange { prefix: b"user:7:", reverse: true, ..Default::default() };
    /// for object in client.scan(table, newest, 10)? {
    ///     println!("{:?}", object.key);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::scan_page`].
    pub fn scan(&mut self, table: u32, range: KeyRange<'_>, limit: usize) -> Result<Vec<Listed>, Error> {
        let (mut objects, mut next) = (Vec::new(), Some(Cursor::start()));
        while let Some(from) = next.filter(|_| objects.len() < limit) {
            let (objects_left, bytes) = (limit - objects.len(), LISTING_IN_PARTS_BYTES);
            let size = PageSize { objects: objects_left, bytes, ..PageSize::default() };
            let page = self.scan_page(table, range, &from, size)?;
            objects.extend(page.objects);
            next = page.next;
        }
        Ok(objects)
    }
}
