//! The operations of the database, by name.
//!
//! Every operation that may have to wait is a future; most are ready at their first poll, which is one call
//! through the host's table. Reads see the invocation's own writes. Writes wait in the invocation's write
//! set and are applied together when the function ends well.

use crate::Condition;
use crate::Cursor;
use crate::Db;
use crate::Delete;
use crate::Entry;
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
    /// Reads a value; `None` when there is no such object. In a cluster the object may be another server's: then this
    /// takes a round trip, the value is copied into the arena, and is what that server had at some time since it was asked.
    /// A function that writes cannot rely on it still being so when its writes are applied.
    /// [`crate::Error::ServerAway`] when that server does not answer, [`crate::Error::NotLocal`] when the tenant is
    /// `local_only`.
    #[inline]
    pub fn get<'f>(&'f self, table: Table, key: &'f [u8]) -> Get<'f, 'a> {
        Get(self.get_record(table, key))
    }

    /// Reads a value with its version; else as [`Db::get`].
    #[inline]
    pub fn get_record<'f>(&'f self, table: Table, key: &'f [u8]) -> GetRecord<'f, 'a> {
        GetRecord { db: self, table, key, ticket: 0 }
    }

    /// Reads many objects of a table at the price of little more than one: their memory accesses overlap, and what other
    /// servers have is asked for at once; else as [`Db::get`].
    /// `records[i]` receives what `keys[i]` names. The slices must have one length, else
    /// [`crate::Error::BadArguments`].
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

    /// Reads the objects of a range of an ordered table, in the order of their keys; [`crate::Error::NotOrdered`] for
    /// another table. A function that writes can rely on it: when its writes are applied the range holds the same
    /// objects still, none more.
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

    /// Reads objects of a whole table from a cursor on, at most 32 and as many as there is room for. Each that is there
    /// from the first page to the last is met exactly once, however long the cursor rests in between; one that comes or
    /// goes meanwhile may be met or not. In a function that writes it is [`crate::Error::NotSerializable`]: what it
    /// met could not be relied on.
    ///
    /// ```
    /// # use sandstorm::{Args, Cursor, Db, Error, Reply};
    /// # #[allow(dead_code)]
    /// async fn count(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    ///     let (mut objects, mut next) = ([None; 32], Some(Cursor::start()));
    ///     let mut count = 0;
    ///     while let Some(cursor) = next {
    ///         let page = db.enumerate(args.table(), cursor, &mut objects).await?;
    ///         count += objects.iter().flatten().count() as u64;
    ///         next = page.next;
    ///         db.yield_now().await;
    ///     }
    ///     reply.u64(count)
    /// }
    /// ```
    #[inline]
    pub fn enumerate<'f>(
        &'f self,
        table: Table,
        cursor: Cursor,
        entries: &'f mut [Option<Entry<'a>>],
    ) -> Enumerate<'f, 'a> {
        Enumerate { db: self, table, cursor, entries, ticket: 0 }
    }

    /// Writes an object, whatever is there. The key and value are copied. It stays until it is deleted, or for a time:
    /// `db.put(table, key, value).for_ms(60_000).await`.
    #[inline]
    pub fn put<'f>(&'f self, table: Table, key: &'f [u8], value: &'f [u8]) -> Put<'f, 'a> {
        self.put_if(table, key, value, Condition::Always)
    }

    /// Writes an object when a condition holds, else [`crate::Error::ConditionFailed`]. The condition holds
    /// again when the writes are applied. What another server has is [`crate::Error::NotLocal`] to all writes.
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

    /// Deletes an object; fine when there is none.
    #[inline]
    pub fn delete<'f>(&'f self, table: Table, key: &'f [u8]) -> Delete<'f, 'a> {
        self.delete_if(table, key, Condition::Always)
    }

    /// Deletes an object when a condition holds, else [`crate::Error::ConditionFailed`].
    #[inline]
    pub fn delete_if<'f>(&'f self, table: Table, key: &'f [u8], condition: Condition) -> Delete<'f, 'a> {
        Delete { db: self, table, key, condition, ticket: 0 }
    }

    /// Adds to the number that an object holds and answers the sum; an absent object counts as 0. An object
    /// that holds no number is [`crate::Error::NotANumber`]. One that expires does so when it would have.
    #[inline]
    pub fn increment<'f>(&'f self, table: Table, key: &'f [u8], delta: i64) -> Increment<'f, 'a> {
        Increment { db: self, table, key, delta, ticket: 0 }
    }

    /// Adds to the floating point number (IEEE 754, 64 bits, little-endian) that an object holds and answers the sum.
    /// What is not finite is not added ([`crate::Error::OutOfRange`]), a sum that is not is
    /// [`crate::Error::Overflow`]; else as [`Db::increment`].
    #[inline]
    pub fn increment_float<'f>(&'f self, table: Table, key: &'f [u8], delta: f64) -> IncrementFloat<'f, 'a> {
        IncrementFloat { db: self, table, key, delta, ticket: 0 }
    }

    /// Finds a table of the tenant by name, else [`crate::Error::UnknownTable`].
    #[inline]
    pub fn table<'f>(&'f self, name: &'f str) -> FindTable<'f, 'a> {
        FindTable { db: self, name, ticket: 0 }
    }

    /// Lets others run for a moment. Long loops do well to wait here now and then.
    #[inline]
    pub fn yield_now(&self) -> YieldNow {
        YieldNow { yielded: false }
    }
}
