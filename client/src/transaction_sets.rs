//! What a transaction has read and wants to write, and the commit of both, for the blocking and the async interface.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use wire::limits::{COMMIT_READS_MAX, ENUMERATE_OBJECTS_MAX, LISTING_IN_PARTS_BYTES};
use wire::{Changes, CommitRange, CommitRead, CommitWrite, KeyRange, Request, Status};

use crate::Error;
use crate::answers::{Object, unintelligible};
use crate::keyed::{Keyed, Place};
use crate::limits::{TRANSACTION_ATTEMPTS_MAX, TRANSACTION_WAIT_US, TRANSACTION_WAIT_US_MAX};
use crate::pages::{Cursor, Listed, Page, PageSize};
use crate::write_set::WriteSet;

/// The reason why a transaction was not committed, or not answered.
pub(crate) enum NotCommitted {
    /// Another run may succeed.
    Again(Error),
    Final(Error),
}

/// A range that was scanned, without its keys.
struct ScannedRange {
    table: u32,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    prefix: Vec<u8>,
    reverse: bool,
    until: Option<Vec<u8>>,
    /// The keys that were met, in this order; all of them are among the reads.
    keys: Vec<Vec<u8>>,
}

/// The read set and the write set of a transaction.
#[derive(Default)]
pub(crate) struct TransactionSets {
    /// What was read, `None` if it was absent.
    reads: Keyed<Option<Object>>,
    scans: Vec<ScannedRange>,
    writes: WriteSet,
    /// An object that was read twice, with different versions.
    torn: Option<(u32, Vec<u8>)>,
}

impl TransactionSets {
    /// Returns the value that the transaction sees without asking the server: its own write, or what it has read.
    pub(crate) fn known(&self, table: u32, key: &[u8]) -> Option<Option<Vec<u8>>> {
        if let Some(written) = self.writes.get(table, key) {
            return Some(written.value.clone());
        }
        self.reads.get(table, key).map(|read| read.as_ref().map(|object| object.value.clone()))
    }

    /// Returns those of the keys whose values are to be asked for.
    pub(crate) fn unknown<'k>(&self, table: u32, keys: &[&'k [u8]]) -> Vec<&'k [u8]> {
        let is_unknown =
            |key: &&&[u8]| self.reads.get(table, key).is_none() && self.writes.get(table, key).is_none();
        keys.iter().filter(is_unknown).copied().collect()
    }

    /// Notes what was read. Two reads beside each other may have found different objects: then the transaction cannot be committed.
    pub(crate) fn read(&mut self, table: u32, key: &[u8], object: Option<Object>) {
        let version = |object: &Option<Object>| object.as_ref().map(|object| object.version);
        match self.reads.get(table, key) {
            Some(read) if version(read) != version(&object) => self.torn = Some((table, key.to_vec())),
            Some(_) => {}
            None => self.reads.set(table, key, object),
        }
    }

    /// Notes a scan.
    pub(crate) fn scanned(&mut self, table: u32, range: KeyRange<'_>, scan: Scan) -> Vec<Listed> {
        let Scan { objects, next, .. } = scan;
        // Behind the last key nothing is known, unless the range has ended.
        let until = next.as_ref().and(objects.last().map(|object: &Listed| object.key.clone()));
        if next.is_some() && until.is_none() {
            return objects;
        }
        for Listed { key, value, version, ttl_ms } in &objects {
            let object = Object { value: value.clone(), version: *version, ttl_ms: *ttl_ms };
            self.read(table, key, Some(object));
        }
        let keys = objects.iter().map(|object| object.key.clone()).collect();
        let KeyRange { from, to, prefix, reverse, .. } = range;
        let (from, to, prefix) = (from.to_vec(), to.map(<[u8]>::to_vec), prefix.to_vec());
        self.scans.push(ScannedRange { table, from, to, prefix, reverse, until, keys });
        objects
    }

    /// Notes a write; `None` removes the object.
    pub(crate) fn write(&mut self, table: u32, key: &[u8], value: Option<&[u8]>, ttl_ms: Option<u64>) {
        self.writes.put(table, key, value, ttl_ms);
    }

    /// Returns whether there is nothing to commit: one read is as of one moment.
    pub(crate) fn is_trivial(&self) -> bool {
        self.writes.len() == 0 && self.scans.is_empty() && self.reads.len() < 2 && self.torn.is_none()
    }

    /// Refuses what cannot be committed: an object that changed while it was read, and keys of several servers, as far as these
    /// are known.
    pub(crate) fn check(
        &self,
        mut server_of: impl FnMut(u32, &[u8]) -> Option<usize>,
    ) -> Result<(), NotCommitted> {
        if let Some((table, key)) = &self.torn {
            return Err(NotCommitted::Again(Error::Conflict { table: *table, key: key.clone() }));
        }
        let mut first: Option<(Place<'_>, usize)> = None;
        for place in self.writes.keys().chain(self.reads.keys()) {
            let Some(server) = server_of(place.0, place.1) else { continue };
            match first {
                Some((other, of_first)) if of_first != server => {
                    let name = |(table, key): Place<'_>| format!("`{}` of table {table}", key.escape_ascii());
                    let text = format!("{} and {} are at different servers", name(other), name(place));
                    return Err(NotCommitted::Final(Error::Refused { status: Status::NotLocal, text }));
                }
                _ => _ = first.get_or_insert((place, server)),
            }
        }
        Ok(())
    }

    /// Returns the commit of both sets.
    pub(crate) fn commit(&self) -> Commit<'_> {
        let Self { reads, scans, writes, .. } = self;
        let (reads, ranges) = in_order(reads, scans);
        Commit { reads, ranges, writes: writes.all() }
    }
}

/// The items of a commit.
pub(crate) struct Commit<'t> {
    reads: Vec<CommitRead<'t>>,
    ranges: Vec<CommitRange<'t>>,
    writes: Vec<CommitWrite<'t>>,
}

impl Commit<'_> {
    pub(crate) fn request(&self) -> Request<'_> {
        Request::Commit { changes: Changes::listed(&self.reads, &self.ranges, &self.writes) }
    }

    /// Returns what a reply says of the commit.
    pub(crate) fn outcome(&self, status: Result<Status, Error>, body: &[u8]) -> Result<(), NotCommitted> {
        Err(match status {
            Ok(Status::Ok) => return Ok(()),
            Ok(Status::Conflict) => NotCommitted::Again(self.conflict(body)),
            // Tablets of one server may be on their way to another one, one after the other.
            Ok(status @ Status::NotLocal) => {
                let text = "the keys, or those of a scanned range, are at different servers".to_owned();
                NotCommitted::Again(Error::Refused { status, text })
            }
            Ok(status) => NotCommitted::Final(Error::of_answer(status, body)),
            Err(error) if self.writes.is_empty() => NotCommitted::Final(not_committed(error)),
            Err(error) => NotCommitted::Final(error),
        })
    }

    /// Returns the error of a commit that found this number of a read, or of a range behind them, changed.
    fn conflict(&self, body: &[u8]) -> Error {
        let at = body.try_into().map_or(usize::MAX, |bytes| u32::from_le_bytes(bytes) as usize);
        if let Some(CommitRead { table, key, .. }) = self.reads.get(at) {
            return Error::Conflict { table: *table, key: key.to_vec() };
        }
        match self.ranges.get(at.wrapping_sub(self.reads.len())) {
            Some(CommitRange { table, range, .. }) => {
                Error::Conflict { table: *table, key: range.prefix.max(range.from).to_vec() }
            }
            None => unintelligible("the number of a read"),
        }
    }
}

/// A scan within a transaction, page by page.
pub(crate) struct Scan {
    objects: Vec<Listed>,
    next: Option<Cursor>,
    limit: usize,
}

impl Scan {
    /// Begins a scan of at most `limit` objects; refuses a range with hashes.
    pub(crate) fn begin(range: KeyRange<'_>, limit: usize) -> Result<Scan, Error> {
        if range.hashes.is_some() {
            let text = "a transaction scans keys, not hashes".to_owned();
            return Err(Error::Refused { status: Status::OutOfRange, text });
        }
        Ok(Scan { objects: Vec::new(), next: Some(Cursor::start()), limit })
    }

    /// Returns where the next page begins, and its size, if there is one.
    pub(crate) fn next(&mut self) -> Option<(Cursor, PageSize)> {
        let from = self.next.take_if(|_| self.objects.len() < self.limit)?;
        let objects = (self.limit - self.objects.len()).min(ENUMERATE_OBJECTS_MAX);
        Some((from, PageSize { objects, bytes: LISTING_IN_PARTS_BYTES, ..PageSize::default() }))
    }

    /// Adds a page; refuses more objects than a commit can name.
    pub(crate) fn add(&mut self, page: Page) -> Result<(), Error> {
        self.objects.extend(page.objects);
        self.next = page.next;
        if self.objects.len() > COMMIT_READS_MAX {
            let text = format!("a transaction reads at most {COMMIT_READS_MAX} objects");
            return Err(Error::Refused { status: Status::LimitExceeded, text });
        }
        Ok(())
    }
}

/// The runs of a transaction.
pub(crate) struct Attempts {
    random: RandomState,
    attempt: u32,
}

impl Attempts {
    pub(crate) fn new() -> Attempts {
        Attempts { random: RandomState::new(), attempt: 0 }
    }

    /// Returns how long to wait before the next run.
    ///
    /// # Errors
    /// The reason of the failure, if there is to be none.
    pub(crate) fn pause(&mut self, failure: NotCommitted) -> Result<Duration, Error> {
        match failure {
            NotCommitted::Again(_) if self.attempt + 1 < TRANSACTION_ATTEMPTS_MAX => {}
            NotCommitted::Again(error) | NotCommitted::Final(error) => return Err(error),
        }
        let most_us = (TRANSACTION_WAIT_US << self.attempt.min(16)).min(TRANSACTION_WAIT_US_MAX);
        let pause = Duration::from_micros(self.random.hash_one(self.attempt) % most_us);
        self.attempt += 1;
        Ok(pause)
    }
}

/// Returns the error of a transaction without a commit: whatever became of a read, nothing was written.
pub(crate) fn not_committed(error: Error) -> Error {
    if error.outcome_is_unknown() { Error::NotCommitted { cause: Box::new(error) } } else { error }
}

/// Returns what was read, that of each scan in its order and then all else; and the scanned ranges.
fn in_order<'t>(
    reads: &'t Keyed<Option<Object>>,
    scans: &'t [ScannedRange],
) -> (Vec<CommitRead<'t>>, Vec<CommitRange<'t>>) {
    let read = |((table, key), object): (Place<'t>, &Option<Object>)| {
        let version = object.as_ref().map_or(0, |object| object.version);
        CommitRead { table, key, version }
    };
    let (mut order, mut ranges) = (Vec::with_capacity(reads.len()), Vec::new());
    let mut scanned = BTreeSet::new();
    for ScannedRange { table, from, to, prefix, reverse, until, keys } in scans {
        let first = order.len() as u16;
        for key in keys {
            let place = (*table, &key[..]);
            let object = reads.get(*table, key);
            debug_assert!(object.is_some(), "what a scan has met was read");
            order.extend(object.map(|object| read((place, object))));
            scanned.insert(place);
        }
        let range = KeyRange { from, to: to.as_deref(), prefix, reverse: *reverse, hashes: None };
        let (until, reads) = (until.as_deref(), first..order.len() as u16);
        ranges.push(CommitRange { table: *table, range, until, reads });
    }
    order.extend(reads.iter().filter(|(place, _)| !scanned.contains(place)).map(read));
    (order, ranges)
}
