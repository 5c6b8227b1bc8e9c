//! Scans of ordered tables: objects of a key range in key order, page by page.
//!
//! The server keeps no state of a scan: its position is a [`Cursor`], valid for its table and range.

use wire::KeyRange;
use wire::limits::LISTING_IN_PARTS_BYTES;

use super::Client;
use crate::Error;
use crate::pages::{Cursor, Listed, Page, PageSize};

impl Client {
    /// Reads the next objects of a range, in key order. Pages of up to 24 KiB come in datagrams, others over the
    /// stream. A page may be empty before the end.
    ///
    /// # Errors
    /// `NotOrdered` for a table that was not created as an ordered one, `CursorInvalid` for a cursor of another table
    /// or range or not created by the server, another refusal, or no reply.
    pub fn scan_page(
        &mut self,
        table: u32,
        range: KeyRange<'_>,
        from: &Cursor,
        size: PageSize,
    ) -> Result<Page, Error> {
        Page::scanned(self.call(&size.scan(table, range, from)))
    }

    /// Reads at most `limit` objects of a range, in key order. Returns each object that is present throughout exactly
    /// once; one that is created or deleted meanwhile may or may not be returned.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), splinter_client::Error> {
    /// # let mut client = splinter_client::Client::connect("127.0.0.1:7700", "acme", "the secret")?;
    /// let table = client.table_open("log")?;
    /// let newest = splinter_client::KeyRange { prefix: b"user:7:", reverse: true, ..Default::default() };
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
