//! The operations of the database.
//!
//! Every operation that may wait is a future; most are ready at their first poll, which is one call through the host's
//! table. Reads see the invocation's own writes. Writes are collected in the invocation's write set and applied
//! together when the function succeeds.

use crate::Condition;
use crate::Cursor;
use crate::Db;
use crate::Delete;
use crate::EntryPage;
use crate::Enumerate;
use crate::FindTable;
use crate::Get;
use crate::GetMany;
use crate::GetRecord;
use crate::Increment;
use crate::IncrementFloat;
use crate::KeyRange;
use crate::Put;
use crate::Record;
use crate::Scan;
use crate::Table;
use crate::YieldNow;

impl<'a> Db<'a> {
    /// Reads a value; returns `None` if the object does not exist. In a cluster another server may own the object: then
    /// this takes a round trip, copies the value into the arena, and returns the value that the server had at some time
    /// since the request. A function that writes cannot rely on that value being current when its writes are applied.
    /// Fails with [`crate::Error::ServerAway`] if that server does not answer, and with [`crate::Error::NotLocal`] if
    /// the tenant is `local_only`.
    #[inline]
    pub fn get<'f>(&'f self, table: Table, key: &'f [u8]) -> Get<'f, 'a> {
        Get(self.get_record(table, key))
    }

    /// Reads a value with its version; otherwise as [`Db::get`].
    #[inline]
    pub fn get_record<'f>(&'f self, table: Table, key: &'f [u8]) -> GetRecord<'f, 'a> {
        GetRecord { db: self, table, key, ticket: 0 }
    }

    /// Reads many objects of a table for little more than the cost of one. Their memory accesses overlap, and requests
    /// to other servers run concurrently; otherwise as [`Db::get`]. `records[i]` receives the object of `keys[i]`. The
    /// slices must have equal length, else [`crate::Error::BadArguments`].
    ///
    /// ```
    /// # use sandstorm::{Args, Db, Error, Reply};
    /// # #[allow(dead_code)]
    /// async fn both(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    ///     let mut records = [None; 2];
    ///     db.get_many(args.table(), &[b"left", b"right"], &mut records).await?;
    ///     for record in records.into_iter().flatten() {
    ///         reply.write(record.value)?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[inline]
    pub fn get_many<'f>(
        &'f self,
        table: Table,
        keys: &'f [&'f [u8]],
        records: &'f mut [Option<Record<'a>>],
    ) -> GetMany<'f, 'a> {
        GetMany { db: self, table, keys, records, done: 0, ticket: 0 }
    }

    /// Reads the objects of a range of an ordered table, in key order; [`crate::Error::NotOrdered`] for other tables. A
    /// function that writes can rely on it: its writes are applied only if the range still holds exactly the same
    /// objects. Each object is lent until the next one is read; copy what should live longer.
    ///
    /// ```
    /// # use sandstorm::{Args, Db, Error, KeyRange, Reply};
    /// # #[allow(dead_code)]
    /// async fn newest(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    ///     let mut scan = db.scan(args.table(), KeyRange::prefix(args.key()).reverse().limit(10));
    ///     while let Some(entry) = scan.next().await? {
    ///         reply.write(entry.value)?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[inline]
    pub fn scan<'f>(&'f self, table: Table, range: KeyRange<'f>) -> Scan<'f, 'a> {
        Scan::new(self, table, range)
    }

    /// Reads objects of a whole table from a cursor into `page`, at most 32 and at most the page's limit; if it fails,
    /// the page is empty. Returns the cursor of the next page, `None` at the end. Each object that is present from the
    /// first page to the last is read exactly once, however long the cursor rests in between; an object created or
    /// deleted meanwhile may or may not be read. Fails with [`crate::Error::NotSerializable`] in a function that
    /// writes, because the commit could not verify the objects read, and with [`crate::Error::BadArguments`] if the
    /// page's limit is 0.
    ///
    /// ```
    /// # use sandstorm::{Args, Cursor, Db, EntryPage, Error, Reply};
    /// # #[allow(dead_code)]
    /// async fn value_bytes(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    ///     let (mut page, mut next) = (EntryPage::new(), Some(Cursor::start()));
    ///     let mut bytes = 0;
    ///     while let Some(cursor) = next {
    ///         next = db.enumerate(args.table(), cursor, &mut page).await?;
    ///         for entry in &page {
    ///             bytes += entry.value.len() as u64;
    ///         }
    ///         db.yield_now().await;
    ///     }
    ///     reply.u64(bytes)
    /// }
    /// ```
    #[inline]
    pub fn enumerate<'f>(
        &'f self,
        table: Table,
        cursor: Cursor,
        page: &'f mut EntryPage<'a>,
    ) -> Enumerate<'f, 'a> {
        Enumerate { db: self, table, cursor, page, ticket: 0 }
    }

    /// Writes an object unconditionally. Copies key and value. The object stays until it is deleted, or for a time:
    /// `db.put(table, key, value).for_ms(60_000).await`.
    #[inline]
    pub fn put<'f>(&'f self, table: Table, key: &'f [u8], value: &'f [u8]) -> Put<'f, 'a> {
        self.put_if(table, key, value, Condition::Always)
    }

    /// Writes an object if a condition holds, else [`crate::Error::ConditionFailed`]. The condition is checked again
    /// when the writes are applied. All writes fail with [`crate::Error::NotLocal`] if another server owns the object.
    #[inline]
    pub fn put_if<'f>(
        &'f self,
        table: Table,
        key: &'f [u8],
        value: &'f [u8],
        condition: Condition,
    ) -> Put<'f, 'a> {
        Put { db: self, table, key, value, condition, ttl_ms: None, ticket: 0 }
    }

    /// Deletes an object; succeeds if there is none.
    #[inline]
    pub fn delete<'f>(&'f self, table: Table, key: &'f [u8]) -> Delete<'f, 'a> {
        self.delete_if(table, key, Condition::Always)
    }

    /// Deletes an object if a condition holds, else [`crate::Error::ConditionFailed`].
    #[inline]
    pub fn delete_if<'f>(&'f self, table: Table, key: &'f [u8], condition: Condition) -> Delete<'f, 'a> {
        Delete { db: self, table, key, condition, ticket: 0 }
    }

    /// Adds to the number that an object holds and returns the sum; an absent object counts as 0. Fails with
    /// [`crate::Error::NotANumber`] if the object does not hold a number. The object keeps its expiry time.
    #[inline]
    pub fn increment<'f>(&'f self, table: Table, key: &'f [u8], delta: i64) -> Increment<'f, 'a> {
        Increment { db: self, table, key, delta, ticket: 0 }
    }

    /// Adds to an object's floating-point number (IEEE 754, 64 bits, little-endian) and returns the sum. Fails with
    /// [`crate::Error::OutOfRange`] if `delta` is not finite, and with [`crate::Error::Overflow`] if the sum is not;
    /// otherwise as [`Db::increment`].
    #[inline]
    pub fn increment_float<'f>(&'f self, table: Table, key: &'f [u8], delta: f64) -> IncrementFloat<'f, 'a> {
        IncrementFloat { db: self, table, key, delta, ticket: 0 }
    }

    /// Looks up a table of the tenant by name, else [`crate::Error::UnknownTable`].
    #[inline]
    pub fn table<'f>(&'f self, name: &'f str) -> FindTable<'f, 'a> {
        FindTable { db: self, name, ticket: 0 }
    }

    /// Yields to other invocations. Long loops should call this from time to time.
    #[inline]
    pub fn yield_now(&self) -> YieldNow {
        YieldNow { yielded: false }
    }
}
