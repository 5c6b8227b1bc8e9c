//! The database as an extension sees it.
//!
//! Every operation that may have to wait is a future; most are ready at their first poll, which is one call
//! through the host's table. Reads see the invocation's own writes. Writes wait in the invocation's write
//! set and are applied together when the function ends well.

use core::ffi::c_void;
use core::fmt;

use crate::Condition;
use crate::Record;
use crate::Table;
use crate::abi::Host;
use crate::abi::RawSlice;
use crate::operation::Delete;
use crate::operation::FindTable;
use crate::operation::Get;
use crate::operation::GetMany;
use crate::operation::GetRecord;
use crate::operation::Increment;
use crate::operation::Put;
use crate::operation::YieldNow;

/// A log line longer than this is cut; longer lines would only cost stack.
const LOG_LINE_BYTES_MAX: usize = 256;

/// The store, within one invocation. What it lends lives for `'a`, the invocation.
pub struct Db<'a> {
    host: &'a Host,
    context: *mut c_void,
}

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed.
    Error = 0,
    /// Something looks wrong.
    Warning = 1,
    /// Worth knowing.
    Information = 2,
    /// For the author.
    Debug = 3,
}

impl<'a> Db<'a> {
    /// The database of a host.
    ///
    /// # Safety
    /// The calls of `host` may be made with `context` on this thread for `'a`; slices that they lend stay
    /// readable and unchanged for `'a`.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn from_raw(host: &'a Host, context: *mut c_void) -> Db<'a> {
        Db { host, context }
    }

    /// Reads a value; `None` when there is no such object.
    #[inline]
    pub fn get<'f>(&'f self, table: Table, key: &'f [u8]) -> Get<'f, 'a> {
        Get(self.get_record(table, key))
    }

    /// Reads a value with its version.
    #[inline]
    pub fn get_record<'f>(&'f self, table: Table, key: &'f [u8]) -> GetRecord<'f, 'a> {
        GetRecord { db: self, table, key, ticket: 0 }
    }

    /// Reads many objects of a table at the price of little more than one: their memory accesses overlap.
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

    /// Writes an object, whatever is there. The key and value are copied.
    #[inline]
    pub fn put<'f>(&'f self, table: Table, key: &'f [u8], value: &'f [u8]) -> Put<'f, 'a> {
        self.put_if(table, key, value, Condition::Always)
    }

    /// Writes an object when a condition holds, else [`crate::Error::ConditionFailed`]. The condition holds
    /// again when the writes are applied.
    #[inline]
    pub fn put_if<'f>(
        &'f self,
        table: Table,
        key: &'f [u8],
        value: &'f [u8],
        condition: Condition,
    ) -> Put<'f, 'a> {
        Put { db: self, table, key, value, condition, ticket: 0 }
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
    /// that holds no number is [`crate::Error::NotANumber`].
    #[inline]
    pub fn increment<'f>(&'f self, table: Table, key: &'f [u8], delta: i64) -> Increment<'f, 'a> {
        Increment { db: self, table, key, delta, ticket: 0 }
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

    /// Writes a line to the tenant's log: `db.log(Level::Debug, format_args!("{count} edges"))`. Lines
    /// beyond 256 bytes are cut; the server limits how many it keeps.
    pub fn log(&self, level: Level, text: fmt::Arguments<'_>) {
        let mut line = Line { bytes: [0; LOG_LINE_BYTES_MAX], used: 0 };
        // A cut line ends the formatting with an error, and the text of the author's own Display may fail:
        // what was formatted until then is logged.
        let _ = fmt::write(&mut line, text);
        let text = RawSlice::of(&line.bytes[..line.used]);
        // SAFETY: from_raw's caller lets `host` be called with `context`; the text lives over the call.
        unsafe { (self.host.log)(self.context, level as u32, text) }
    }

    /// Milliseconds since 1970, as the server's clock says.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        // SAFETY: from_raw's caller lets `host` be called with `context`.
        unsafe { (self.host.now_ms)(self.context) }
    }

    /// The host's calls.
    #[inline]
    pub(crate) fn host(&self) -> &'a Host {
        self.host
    }

    /// What the host's calls get.
    #[inline]
    pub(crate) fn context(&self) -> *mut c_void {
        self.context
    }
}

impl fmt::Debug for Db<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Db")
    }
}

/// A log line that is cut, at a character's border, when its buffer is full.
struct Line {
    bytes: [u8; LOG_LINE_BYTES_MAX],
    used: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.used..];
        let count = text.floor_char_boundary(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.used += count;
        if count == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
