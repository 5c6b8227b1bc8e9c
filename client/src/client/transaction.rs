//! Transactions: objects are read one by one, and the writes are committed as one if nothing that was read has changed.
//!
//! ```text
//!   begin ──► reads, each with its version; writes wait in the transaction, which sees them ──► commit
//!     ▲                                                                                          │
//!     └───────────── what was read has changed: wait a little, longer each time ◄────────────────┘
//! ```
//! The reads and writes of a transaction are strictly serializable among all transactions, functions and requests. Until the commit a
//! transaction may have read objects as of different moments: do nothing with them but compute. All keys must belong to one server:
//! those of a table of one tablet, or with one tag.

use std::thread;

use wire::KeyRange;

use super::Client;
use crate::Error;
use crate::pages::Listed;
use crate::transaction_sets::{Attempts, NotCommitted, Scan, TransactionSets, not_committed};

/// A transaction in progress: see [`Client::transaction`].
pub struct Transaction<'c> {
    client: &'c mut Client,
    sets: TransactionSets,
}

impl Client {
    /// Runs `run` and commits its writes as one, if nothing that it has read has changed; else runs it again, with a pause that grows,
    /// at most 32 times. An error of `run` ends the transaction without writes; what `run` has read
    /// may not have been so at one moment then. A commit is executed once, and is as durable as its
    /// tables; one that only read is checked as well.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), splinter_client::Error> {
    /// # let mut client = splinter_client::Client::connect("127.0.0.1:7700", "acme", "the secret")?;
    /// let table = client.table_open("accounts")?;
    /// let swapped = client.transaction(|tx| {
    ///     let [one, other] = [tx.get(table, b"one")?, tx.get(table, b"other")?];
    ///     let (Some(one), Some(other)) = (one, other) else { return Ok(false) };
    ///     tx.put(table, b"one", &other);
    ///     tx.put(table, b"other", &one);
    ///     Ok(true)
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`] with a key that others kept changing; `NotLocal` if the keys belong to several servers, with two of them,
    /// before anything is sent; `LimitExceeded` beyond the tenant's `invocation_reads`, `invocation_writes` or
    /// `invocation_write_bytes`; the error of `run`; another refusal, or no reply; see [`Error::outcome_is_unknown`].
    pub fn transaction<T>(
        &mut self,
        mut run: impl FnMut(&mut Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut attempts = Attempts::new();
        loop {
            let mut transaction = Transaction { client: self, sets: TransactionSets::default() };
            let result = run(&mut transaction)?;
            match transaction.commit() {
                Ok(()) => return Ok(result),
                Err(failure) => thread::sleep(attempts.pause(failure)?),
            }
        }
    }
}

impl Transaction<'_> {
    /// Reads an object: the transaction's own write of it, what it has read of it before, or what the server has. `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// The server's refusal, or no reply.
    pub fn get(&mut self, table: u32, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if let Some(known) = self.sets.known(table, key) {
            return Ok(known);
        }
        let object = self.client.get(table, key).map_err(not_committed)?;
        let value = object.as_ref().map(|object| object.value.clone());
        self.sets.read(table, key, object);
        Ok(value)
    }

    /// Reads several objects of a table together, in the order of `keys`; later [`Transaction::get`]s find them.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn multi_get(&mut self, table: u32, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let unknown = self.sets.unknown(table, keys);
        let objects = self.client.multi_get(table, &unknown).map_err(not_committed)?;
        for (key, object) in unknown.into_iter().zip(objects) {
            self.sets.read(table, key, object);
        }
        Ok(keys.iter().map(|key| self.sets.known(table, key).flatten()).collect())
    }

    /// Reads at most `limit` objects of a range of an ordered table, in key order, and makes the commit depend on the absence of all
    /// others there. The table must have one tablet, or the range's prefix a tag. The transaction's own writes are not among them:
    /// scan first.
    ///
    /// # Errors
    /// As [`Client::scan`]; `OutOfRange` for a range with hashes.
    pub fn scan(&mut self, table: u32, range: KeyRange<'_>, limit: usize) -> Result<Vec<Listed>, Error> {
        let mut scan = Scan::begin(range, limit)?;
        while let Some((from, size)) = scan.next() {
            scan.add(self.client.scan_page(table, range, &from, size).map_err(not_committed)?)?;
        }
        Ok(self.sets.scanned(table, range, scan))
    }

    /// Writes an object when the transaction commits.
    pub fn put(&mut self, table: u32, key: &[u8], value: &[u8]) {
        self.sets.write(table, key, Some(value), None);
    }

    /// Writes an object that is absent `ttl_ms` milliseconds after the commit.
    pub fn put_for(&mut self, table: u32, key: &[u8], value: &[u8], ttl_ms: u64) {
        self.sets.write(table, key, Some(value), Some(ttl_ms));
    }

    /// Removes an object, if there is one, when the transaction commits.
    pub fn delete(&mut self, table: u32, key: &[u8]) {
        self.sets.write(table, key, None, None);
    }

    fn commit(self) -> Result<(), NotCommitted> {
        let Self { client: Client { session, body, .. }, sets } = self;
        if sets.is_trivial() {
            return Ok(());
        }
        sets.check(|table, key| session.server_of(table, key))?;
        let commit = sets.commit();
        let status = session.call(&commit.request(), body);
        commit.outcome(status, body)
    }
}
