//! An in-memory [`Db`](crate::Db) for the unit tests of extensions.
//!
//! ```
//! use sandstorm::testing::MemoryDb;
//! use sandstorm::{Args, Db, Error, Reply};
//!
//! async fn count(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
//!     let sum = db.increment(args.table(), args.key(), 1).await?;
//!     reply.i64(sum)
//! }
//!
//! let db = MemoryDb::new();
//! let visits = db.table("visits");
//! let reply = db.call(count, visits, b"front page", b"").unwrap();
//! assert_eq!(reply, 1i64.to_le_bytes());
//! assert_eq!(db.get(visits, b"front page").unwrap(), 1i64.to_le_bytes());
//! ```
//!
//! It behaves as the server does for one invocation at a time: the function sees its own writes; they are applied
//! together when it returns `Ok`, and dropped when it returns an error. It is not fast.

mod enumeration;
mod host;

use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ffi::c_void;
use core::future::Future;
use core::pin::pin;
use core::ptr::NonNull;
use core::task::Context;
use core::task::Poll;
use core::task::Waker;

use crate::Args;
use crate::Db;
use crate::Error;
use crate::Level;
use crate::Reply;
use crate::Table;
use crate::abi::Call;
use crate::abi::RawReply;
use crate::abi::RawSlice;
use host::Invocation;
use host::Write;

/// Maximum size of a reply in bytes; the server's own limit is configurable.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// Maximum number of polls; a function that is not ready after them waits for an event that never comes.
const POLLS_MAX: u32 = 1_000_000;

/// An in-memory database on which a test calls functions.
#[derive(Debug, Default)]
pub struct MemoryDb {
    state: RefCell<State>,
}

/// The contents of a [`MemoryDb`] between calls.
#[derive(Debug, Default)]
struct State {
    /// Tables by name; ids count from 1.
    tables: BTreeMap<String, u32>,
    objects: BTreeMap<(u32, Vec<u8>), Object>,
    /// Ids of the tables that are ordered.
    ordered: BTreeSet<u32>,
    version: u64,
    now_ms: u64,
    stalling: bool,
    log: Vec<(Level, String)>,
}

/// One object.
#[derive(Debug)]
struct Object {
    version: u64,
    value: Rc<[u8]>,
    expires_ms: u64,
}

impl MemoryDb {
    /// Returns a database without tables and objects.
    pub fn new() -> MemoryDb {
        MemoryDb::default()
    }

    /// Returns the table with this name; creates it if it is new.
    pub fn table(&self, name: &str) -> Table {
        let mut state = self.state.borrow_mut();
        let next = state.tables.len() as u32 + 1;
        Table::from_id(*state.tables.entry(name.to_string()).or_insert(next))
    }

    /// Returns the ordered table with this name; creates it if it is new. A table of [`MemoryDb::table`] becomes
    /// ordered.
    pub fn ordered_table(&self, name: &str) -> Table {
        let table = self.table(name);
        self.state.borrow_mut().ordered.insert(table.id());
        table
    }

    /// Writes an object of a table that [`MemoryDb::table`] returned.
    pub fn put(&self, table: Table, key: &[u8], value: &[u8]) {
        self.state.borrow_mut().put(table.id(), key.to_vec(), Rc::from(value), u64::MAX);
    }

    /// Deletes an object.
    pub fn delete(&self, table: Table, key: &[u8]) {
        self.state.borrow_mut().objects.remove(&(table.id(), key.to_vec()));
    }

    /// Returns a copy of an object's value.
    pub fn get(&self, table: Table, key: &[u8]) -> Option<Vec<u8>> {
        let state = self.state.borrow();
        state.object(&(table.id(), key.to_vec())).map(|object| object.value.to_vec())
    }

    /// Returns the version of an object.
    pub fn version(&self, table: Table, key: &[u8]) -> Option<u64> {
        let state = self.state.borrow();
        state.object(&(table.id(), key.to_vec())).map(|object| object.version)
    }

    /// Calls a function as a `write` function: it may write.
    ///
    /// # Errors
    /// The function's error; nothing was written then.
    ///
    /// # Panics
    /// If the function is still not ready after a million polls.
    pub fn call<F>(&self, function: F, table: Table, key: &[u8], arguments: &[u8]) -> Result<Vec<u8>, Error>
    where
        F: AsyncFnOnce(&Db<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), Error>,
    {
        self.invoke(function, true, table, key, arguments)
    }

    /// Calls a function as a `read` function: a write fails with [`Error::ReadOnly`].
    ///
    /// # Errors
    /// The function's error.
    ///
    /// # Panics
    /// As for [`MemoryDb::call`].
    pub fn call_read<F>(
        &self,
        function: F,
        table: Table,
        key: &[u8],
        arguments: &[u8],
    ) -> Result<Vec<u8>, Error>
    where
        F: AsyncFnOnce(&Db<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), Error>,
    {
        self.invoke(function, false, table, key, arguments)
    }

    /// Makes every operation of a function return "pending" at first, as if its record came from disk.
    pub fn set_stalling(&self, stalling: bool) {
        self.state.borrow_mut().stalling = stalling;
    }

    /// Sets the result of [`Db::now_ms`], by which objects expire; 0 at first.
    pub fn set_now_ms(&self, now_ms: u64) {
        self.state.borrow_mut().now_ms = now_ms;
    }

    /// Returns and removes the log lines of the functions.
    pub fn take_log(&self) -> Vec<(Level, String)> {
        core::mem::take(&mut self.state.borrow_mut().log)
    }

    /// Runs one function to its end and applies its writes if it succeeded.
    fn invoke<F>(
        &self,
        function: F,
        may_write: bool,
        table: Table,
        key: &[u8],
        arguments: &[u8],
    ) -> Result<Vec<u8>, Error>
    where
        F: AsyncFnOnce(&Db<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), Error>,
    {
        let mut buffer = vec![0u8; REPLY_BYTES_MAX];
        let (result, reply_bytes, writes, log) = {
            let state = self.state.borrow();
            let invocation = Invocation::new(&state, may_write);
            let mut call = Call {
                host: &host::HOST,
                context: (&raw const invocation).cast_mut().cast::<c_void>(),
                key: RawSlice::of(key),
                arguments: RawSlice::of(arguments),
                reply: RawReply {
                    address: buffer.as_mut_ptr(),
                    bytes: 0,
                    capacity: REPLY_BYTES_MAX,
                    highest: 0,
                    asked: 0,
                },
                future: core::ptr::null_mut(),
                table: table.id(),
                reserved: 0,
            };
            // SAFETY: invocation, call and buffer outlive `drive`; the host calls take an Invocation, which keeps every
            // value that it lends; and the state is borrowed, hence unchanged, meanwhile.
            let result = unsafe {
                let db = Db::from_raw(&host::HOST, call.context);
                let mut reply = Reply::from_raw(NonNull::from(&mut call.reply));
                drive(function(&db, Args::of(&call), &mut reply))
            };
            let (writes, log) = invocation.finish();
            (result, call.reply.bytes, writes, log)
        };
        let mut state = self.state.borrow_mut();
        state.log.extend(log);
        result?;
        state.apply(writes);
        buffer.truncate(reply_bytes);
        Ok(buffer)
    }
}

impl State {
    /// Writes an object under the next version.
    fn put(&mut self, table: u32, key: Vec<u8>, value: Rc<[u8]>, expires_ms: u64) {
        self.version += 1;
        self.objects.insert((table, key), Object { version: self.version, value, expires_ms });
    }

    /// Returns an object that has not expired.
    fn object(&self, name: &(u32, Vec<u8>)) -> Option<&Object> {
        self.objects.get(name).filter(|object| object.expires_ms > self.now_ms)
    }

    /// Applies a write set in order.
    fn apply(&mut self, writes: Vec<Write>) {
        for write in writes {
            match write.value {
                Some(value) => self.put(write.table, write.key, value, write.expires_ms),
                None => drop(self.objects.remove(&(write.table, write.key))),
            }
        }
    }
}

/// Polls a future until it is ready.
fn drive<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
    panic!("the function is still pending after {POLLS_MAX} polls");
}

#[cfg(test)]
mod tests;
