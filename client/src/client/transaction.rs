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

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::Duration;

use wire::limits::{ENUMERATE_OBJECTS_MAX, LISTING_IN_PARTS_BYTES};
use wire::{Changes, CommitRange, CommitRead, CommitWrite, KeyRange, Request, Status};

use super::enumerate::{Cursor, Listed, PageSize};
use super::{Client, Object};
use crate::Error;
use crate::limits::{TRANSACTION_ATTEMPTS_MAX, TRANSACTION_WAIT_US, TRANSACTION_WAIT_US_MAX};

/// A table's id and a key.
type Place = (u32, Vec<u8>);

/// The reason why a transaction was not committed, or not answered.
enum NotCommitted {
    /// Another run may succeed.
    Again(Error),
    Final(Error),
}

/// A pending write.
struct Written {
    /// `None` removes the object.
    value: Option<Vec<u8>>,
    ttl_ms: Option<u64>,
}

/// A range that was scanned, without its keys.
struct Scanned {
    table: u32,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    prefix: Vec<u8>,
    reverse: bool,
    until: Option<Vec<u8>>,
    /// The keys that were met, in this order.
    places: Vec<Place>,
}

/// A transaction in progress: see [`Client::transaction`].
pub struct Transaction<'c> {
    client: &'c mut Client,
    /// What was read, `None` if it was absent.
    reads: BTreeMap<Place, Option<Object>>,
    scans: Vec<Scanned>,
    writes: BTreeMap<Place, Written>,
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
        let random = RandomState::new();
        for attempt in 0.. {
            let mut transaction = Transaction::begin(self);
            let result = run(&mut transaction)?;
            match transaction.commit() {
                Ok(()) => return Ok(result),
                Err(NotCommitted::Again(_)) if attempt + 1 < TRANSACTION_ATTEMPTS_MAX => {}
                Err(NotCommitted::Again(error) | NotCommitted::Final(error)) => return Err(error),
            }
            let most_us = (TRANSACTION_WAIT_US << attempt.min(16)).min(TRANSACTION_WAIT_US_MAX);
            thread::sleep(Duration::from_micros(random.hash_one(attempt) % most_us));
        }
        unreachable!("the last attempt returns")
    }
}

impl<'c> Transaction<'c> {
    fn begin(client: &'c mut Client) -> Self {
        Self { client, reads: BTreeMap::new(), scans: Vec::new(), writes: BTreeMap::new() }
    }

    /// Reads an object: the transaction's own write of it, what it has read of it before, or what the server has. `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// The server's refusal, or no reply.
    pub fn get(&mut self, table: u32, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let place = (table, key.to_vec());
        if let Some(written) = self.writes.get(&place) {
            return Ok(written.value.clone());
        }
        let read = match self.reads.entry(place) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(place) => place.insert(self.client.get(table, key).map_err(not_committed)?),
        };
        Ok(read.as_ref().map(|object| object.value.clone()))
    }

    /// Reads several objects of a table together, in the order of `keys`; later [`Transaction::get`]s find them.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn multi_get(&mut self, table: u32, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let is_unknown = |key: &&&[u8]| {
            let place = (table, key.to_vec());
            !self.reads.contains_key(&place) && !self.writes.contains_key(&place)
        };
        let unknown: Vec<&[u8]> = keys.iter().filter(is_unknown).copied().collect();
        let objects = self.client.multi_get(table, &unknown).map_err(not_committed)?;
        let places = unknown.iter().map(|key| (table, key.to_vec()));
        self.reads.extend(places.zip(objects));
        keys.iter().map(|key| self.get(table, key)).collect()
    }

    /// Reads at most `limit` objects of a range of an ordered table, in key order, and makes the commit depend on the absence of all
    /// others there. The table must have one tablet, or the range's prefix a tag. The transaction's own writes are not among them:
    /// scan first.
    ///
    /// # Errors
    /// As [`Client::scan`]; `OutOfRange` for a range with hashes.
    pub fn scan(&mut self, table: u32, range: KeyRange<'_>, limit: usize) -> Result<Vec<Listed>, Error> {
        if range.hashes.is_some() {
            let text = "a transaction scans keys, not hashes".to_owned();
            return Err(Error::Refused { status: Status::OutOfRange, text });
        }
        let (mut objects, mut next) = (Vec::new(), Some(Cursor::start()));
        while let Some(from) = next.take_if(|_| objects.len() < limit) {
            let objects_left = (limit - objects.len()).min(ENUMERATE_OBJECTS_MAX);
            let size =
                PageSize { objects: objects_left, bytes: LISTING_IN_PARTS_BYTES, ..PageSize::default() };
            let page = self.client.scan_page(table, range, &from, size).map_err(not_committed)?;
            objects.extend(page.objects);
            next = page.next;
        }
        // Behind the last key nothing is known, unless the range has ended.
        let until = next.as_ref().and(objects.last().map(|object: &Listed| object.key.clone()));
        if next.is_some() && until.is_none() {
            return Ok(objects);
        }
        for Listed { key, value, version, ttl_ms, .. } in &objects {
            let object = Object { value: value.clone(), version: *version, ttl_ms: *ttl_ms };
            // What was read before must be the same.
            self.reads.entry((table, key.clone())).or_insert(Some(object));
        }
        let places = objects.iter().map(|object| (table, object.key.clone())).collect();
        let KeyRange { from, to, prefix, reverse, .. } = range;
        let (from, to, prefix) = (from.to_vec(), to.map(<[u8]>::to_vec), prefix.to_vec());
        self.scans.push(Scanned { table, from, to, prefix, reverse, until, places });
        Ok(objects)
    }

    /// Writes an object when the transaction commits.
    pub fn put(&mut self, table: u32, key: &[u8], value: &[u8]) {
        self.writes.insert((table, key.to_vec()), Written { value: Some(value.to_vec()), ttl_ms: None });
    }

    /// Writes an object that is absent `ttl_ms` milliseconds after the commit.
    pub fn put_for(&mut self, table: u32, key: &[u8], value: &[u8], ttl_ms: u64) {
        let written = Written { value: Some(value.to_vec()), ttl_ms: Some(ttl_ms) };
        self.writes.insert((table, key.to_vec()), written);
    }

    /// Removes an object, if there is one, when the transaction commits.
    pub fn delete(&mut self, table: u32, key: &[u8]) {
        self.writes.insert((table, key.to_vec()), Written { value: None, ttl_ms: None });
    }

    fn commit(mut self) -> Result<(), NotCommitted> {
        // One read is as of one moment.
        if self.writes.is_empty() && self.scans.is_empty() && self.reads.len() < 2 {
            return Ok(());
        }
        self.check_servers().map_err(NotCommitted::Final)?;
        let Self { client, reads, scans, writes } = self;
        let (order, ranges) = in_order(&reads, &scans);
        let version =
            |place: &Place| reads.get(place).and_then(Option::as_ref).map_or(0, |object| object.version);
        let reads: Vec<_> = order
            .into_iter()
            .map(|place| CommitRead { table: place.0, key: &place.1, version: version(place) })
            .collect();
        let writes: Vec<_> = writes
            .iter()
            .map(|((table, key), Written { value, ttl_ms })| CommitWrite {
                table: *table,
                key,
                value: value.as_deref(),
                ttl_ms: *ttl_ms,
            })
            .collect();
        let changes = Changes::listed(&reads, &ranges, &writes);
        Err(match client.session.call(&Request::Commit { changes }, &mut client.body) {
            Ok(Status::Ok) => return Ok(()),
            Ok(Status::Conflict) => NotCommitted::Again(conflict(&client.body, &reads, &ranges)),
            // Tablets of one server may be on their way to another one, one after the other.
            Ok(status @ Status::NotLocal) => {
                let text = "the keys, or those of a scanned range, are at different servers".to_owned();
                NotCommitted::Again(Error::Refused { status, text })
            }
            Ok(status) => NotCommitted::Final(Error::of_answer(status, &client.body)),
            Err(error) if writes.is_empty() => NotCommitted::Final(not_committed(error)),
            Err(error) => NotCommitted::Final(error),
        })
    }

    /// Refuses keys of several servers, as far as their tables' tablets are known.
    fn check_servers(&mut self) -> Result<(), Error> {
        let session = &mut self.client.session;
        let mut first: Option<(&Place, usize)> = None;
        for place in self.writes.keys().chain(self.reads.keys()) {
            let Some(server) = session.server_of(place.0, &place.1) else { continue };
            match first {
                Some((other, of_first)) if of_first != server => {
                    let name = |(table, key): &Place| format!("`{}` of table {table}", key.escape_ascii());
                    let text = format!("{} and {} are at different servers", name(other), name(place));
                    return Err(Error::Refused { status: Status::NotLocal, text });
                }
                _ => _ = first.get_or_insert((place, server)),
            }
        }
        Ok(())
    }
}

/// Returns the error of a transaction without a commit: whatever became of a read, nothing was written.
fn not_committed(error: Error) -> Error {
    if error.outcome_is_unknown() { Error::NotCommitted { cause: Box::new(error) } } else { error }
}

/// Returns what was read, that of each scan in its order and then all else; and the scanned ranges.
fn in_order<'t>(
    reads: &'t BTreeMap<Place, Option<Object>>,
    scans: &'t [Scanned],
) -> (Vec<&'t Place>, Vec<CommitRange<'t>>) {
    let (mut order, mut ranges): (Vec<&Place>, Vec<_>) = Default::default();
    for Scanned { table, from, to, prefix, reverse, until, places } in scans {
        let first = order.len() as u16;
        order.extend(places);
        let range = KeyRange { from, to: to.as_deref(), prefix, reverse: *reverse, hashes: None };
        let (until, reads) = (until.as_deref(), first..order.len() as u16);
        ranges.push(CommitRange { table: *table, range, until, reads });
    }
    let scanned: BTreeSet<&Place> = order.iter().copied().collect();
    order.extend(reads.keys().filter(|place| !scanned.contains(place)));
    (order, ranges)
}

/// Returns the error of a commit that found this number of a read, or of a range behind them, changed.
fn conflict(body: &[u8], reads: &[CommitRead<'_>], ranges: &[CommitRange<'_>]) -> Error {
    let at = body.try_into().map_or(usize::MAX, |bytes| u32::from_le_bytes(bytes) as usize);
    if let Some(CommitRead { table, key, .. }) = reads.get(at) {
        return Error::Conflict { table: *table, key: key.to_vec() };
    }
    match ranges.get(at.wrapping_sub(reads.len())) {
        Some(CommitRange { table, range, .. }) => {
            Error::Conflict { table: *table, key: range.prefix.max(range.from).to_vec() }
        }
        None => Error::Unintelligible { expected: "the number of a read" },
    }
}
