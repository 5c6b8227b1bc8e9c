//! Host calls that read objects of another server of the cluster: requested through [`crate::ops::remote`], "pending"
//! until the reply arrives, then copied into the invocation's arena once.
//!
//! A reply stays until the invocation ends, so a second read of a key finds the same. The commit validates none of
//! these reads: see "Reads at other servers" in docs/notes.md. A retry after a conflict starts without them.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use guest::running;
use sandstorm::Error;
use sandstorm::abi::{RawRecord, RawSlice};

use super::calls::{checked_key, raw_of};
use super::{Access, Awaited};
use crate::extension::allowance::Limit;
use crate::limits::{GET_MANY_KEYS_MAX, INVOCATION_REMOTE_READS_MAX, REMOTE_READ_BYTES};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::ops::remote::{Asker, RemoteAnswer, RemoteOutcome, RemoteReads, Want};
use crate::ops::transaction::ObjectPlace;
use crate::tenant::account::RemotePlace;
use crate::tenant::ledger::Entry;
use crate::tenant::limit::TenantLimit;

/// A remote read of an invocation.
#[derive(Debug)]
struct RemoteRead {
    number: u64,
    table: u32,
    hash: u64,
    key: Box<[u8]>,
    state: ReadState,
}

#[derive(Debug)]
enum ReadState {
    Asked,
    Came(RemoteOutcome),
    /// It failed and the function received the error; another read of the key requests it again.
    Over,
    /// The object is in the arena; version 0 for an absent object.
    Known(RawRecord),
}

/// The remote reads of one invocation, allocated only for invocations that make any: found by key when the host call
/// is repeated, by number when the reply arrives.
#[derive(Debug)]
pub(super) struct Reads {
    /// The number by which replies find the invocation, unique while it lasts.
    invocation: u64,
    /// The reads in the order of their numbers.
    reads: Vec<RemoteRead>,
    /// The indexes of the reads, by table and hash.
    places: HashMap<(u32, u64), usize>,
    /// The number of unanswered reads.
    open: usize,
    /// The bytes that all of them count for.
    bytes: usize,
}

impl Reads {
    fn new(invocation: u64) -> Self {
        Self { invocation, reads: Vec::new(), places: HashMap::new(), open: 0, bytes: 0 }
    }

    /// Forgets all reads, because the invocation starts again.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.invocation);
    }

    fn find(&self, table: u32, hash: u64, key: &[u8]) -> Option<usize> {
        let at = *self.places.get(&(table, hash))?;
        if *self.reads[at].key == *key {
            return Some(at);
        }
        // Two keys with one hash, nearly always made deliberately.
        let is_it = |read: &RemoteRead| {
            read.table == table && *read.key == *key && !matches!(read.state, ReadState::Over)
        };
        self.reads.iter().position(is_it)
    }

    fn push(&mut self, read: RemoteRead) {
        self.bytes += REMOTE_READ_BYTES + read.key.len();
        self.open += 1;
        self.places.insert((read.table, read.hash), self.reads.len());
        self.reads.push(read);
    }

    /// Marks a read to be requested again.
    fn give_up(&mut self, at: usize) {
        let read = &mut self.reads[at];
        read.state = ReadState::Over;
        let place = (read.table, read.hash);
        if self.places.get(&place) == Some(&at) {
            self.places.remove(&place);
        }
    }

    fn answer(&mut self, answer: &RemoteAnswer) {
        let Ok(at) = self.reads.binary_search_by_key(&answer.asker.read, |read| read.number) else { return };
        if matches!(self.reads[at].state, ReadState::Asked) {
            self.reads[at].state = ReadState::Came(answer.outcome.clone());
            self.open -= 1;
        }
    }

    /// Fails the unanswered reads.
    fn not_answered(&mut self) {
        self.open = 0;
        for read in self.reads.iter_mut().filter(|read| matches!(read.state, ReadState::Asked)) {
            read.state = ReadState::Came(RemoteOutcome::Away);
        }
    }
}

impl Access {
    /// Returns the number by which replies find the invocation; `None` if it has no remote reads.
    #[inline]
    #[must_use]
    pub fn asks_as(&self) -> Option<u64> {
        self.remote.as_ref().map(|remote| remote.invocation)
    }

    /// Ends the remote reads of a finished invocation; returns its number if it had any.
    #[inline]
    pub fn ask_no_more(&mut self) -> Option<u64> {
        if self.remote.is_some() { self.remote.take().map(|remote| remote.invocation) } else { None }
    }

    /// Takes a reply. Returns true when every read is answered. Drops a reply that no read waits for.
    pub fn answered(&mut self, answer: &RemoteAnswer) -> bool {
        let Some(remote) = &mut self.remote else { return true };
        remote.answer(answer);
        remote.open == 0
    }

    /// Returns the bytes that it keeps for remote reads.
    #[must_use]
    pub fn asking_bytes(&self) -> usize {
        self.remote.as_ref().map_or(0, |remote| remote.bytes)
    }

    /// Fails the unanswered reads.
    pub fn not_answered(&mut self) {
        if let Some(remote) = &mut self.remote {
            remote.not_answered();
        }
    }

    /// Reads one object of another server.
    #[cold]
    #[inline(never)]
    pub(super) fn get_elsewhere(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        (table, hash, key): (u32, u64, &[u8]),
        record: &mut MaybeUninit<RawRecord>,
    ) -> Result<(), Error> {
        match self.read_elsewhere(environment, (table, hash, key))? {
            Some(found) => {
                self.spending.read_bytes(key.len() + found.value.bytes)?;
                record.write(found);
                Ok(())
            }
            None => {
                self.spending.take_back_reads(1);
                Err(Error::Unavailable)
            }
        }
    }

    /// Reads many objects, some of them on other servers: requests all of those at once, then reads the local ones once
    /// they are known.
    ///
    /// # Safety
    /// The keys are readable, and there is a record for each.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn get_many_elsewhere(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        table: u32,
        keys: &[RawSlice],
        records: *mut RawRecord,
    ) -> Result<(), Error> {
        let parts = &self.entry(environment, table)?.parts;
        let mut local = [None; GET_MANY_KEYS_MAX];
        for (index, key) in keys.iter().enumerate() {
            // SAFETY: readable, as the caller promises.
            let key = checked_key(unsafe { key.as_slice() })?;
            let hash = store::hash(key);
            match parts.find(key, hash) {
                Some(part) => local[index] = Some((part, hash)),
                None => {
                    if let Some(found) = self.read_elsewhere(environment, (table, hash, key))? {
                        // SAFETY: there is a record for each key.
                        unsafe { records.add(index).write(found) };
                    }
                }
            }
        }
        // SAFETY: as above.
        let here =
            local.iter().zip(keys).filter_map(|(part, key)| Some(((*part)?, unsafe { key.as_slice() })));
        for ((part, hash), key) in here.filter(|((part, _), _)| part.is_arrival()) {
            let is_written = self.transaction.has_written(table, hash, key);
            if !is_written && !environment.pin.knows(part, hash, key) {
                self.lack(part, hash);
            }
        }
        if self.lacking.is_pending {
            self.spending.take_back_reads(keys.len() as u64);
            return Err(Error::Unavailable);
        }
        for (index, key) in keys.iter().enumerate() {
            // SAFETY: there is a record for each key.
            let (key, record) = unsafe { (key.as_slice(), records.add(index)) };
            if let Some((part, hash)) = local[index] {
                let place = ObjectPlace { id: table, table: part, hash, key };
                let found = self.transaction.get(environment.pin, place);
                let found = raw_of(found.map_err(|error| self.refuse_at(place, error, 0))?);
                // SAFETY: as above.
                unsafe { record.write(found) };
            }
            // SAFETY: that of an object elsewhere was written before.
            let value_bytes = unsafe { (*record).value.bytes };
            self.spending.read_bytes(key.len() + value_bytes)?;
        }
        Ok(())
    }

    /// Returns a remote object after its reply has arrived. `None`: the call must be repeated.
    fn read_elsewhere(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        (table, hash, key): (u32, u64, &[u8]),
    ) -> Result<Option<RawRecord>, Error> {
        let key = checked_key(key)?;
        if let Some(own) = self.transaction.own_write(table, hash, key) {
            // From before the key went away; the commit refuses it.
            return Ok(Some(raw_of(own)));
        }
        let entry = self.entry(environment, table)?;
        let (Some(reads), Some(map)) = (environment.remote, &entry.map) else { return Err(Error::NotLocal) };
        if self.extension().account.limit(TenantLimit::LocalOnly) != 0 {
            self.count(environment, Counter::RemoteReadsRefused, Entry::RemoteReadsRefused, 1);
            return Err(Error::NotLocal);
        }
        let remote = self.remote.get_or_insert_with(|| Box::new(Reads::new(reads.number())));
        let Some(at) = remote.find(table, hash, key) else {
            self.ask(environment, reads, (table, hash, key), map)?;
            return Ok(self.wait_for_answers());
        };
        match &remote.reads[at].state {
            ReadState::Known(record) => Ok(Some(*record)),
            ReadState::Asked | ReadState::Over => Ok(self.wait_for_answers()),
            ReadState::Came(RemoteOutcome::Found(version, value)) => {
                let (version, value) = (*version, Arc::clone(value));
                let record = self.bring_in(version, value.bytes())?;
                self.know(environment, at, record);
                Ok(Some(record))
            }
            ReadState::Came(RemoteOutcome::Absent) => {
                let nothing = RawSlice { address: ptr::null(), bytes: 0 };
                let record = RawRecord { value: nothing, version: 0 };
                self.know(environment, at, record);
                Ok(Some(record))
            }
            ReadState::Came(RemoteOutcome::Here) => {
                // This worker has still to hear of it.
                remote.give_up(at);
                self.ask(environment, reads, (table, hash, key), map)?;
                Ok(self.wait_for_answers())
            }
            ReadState::Came(RemoteOutcome::Away) => {
                remote.give_up(at);
                self.count(environment, Counter::RemoteReadsUnanswered, Entry::RemoteReadsUnanswered, 1);
                Err(Error::ServerAway)
            }
            ReadState::Came(RemoteOutcome::NoRoom) => {
                remote.give_up(at);
                Err(self.come_again(environment))
            }
        }
    }

    /// Requests an object.
    fn ask(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        reads: &RemoteReads,
        (table, hash, key): (u32, u64, &[u8]),
        map: &Arc<[u8]>,
    ) -> Result<(), Error> {
        let extension = self.extension();
        let Some(remote) = &mut self.remote else { return Err(Error::NotLocal) };
        if remote.reads.len() >= INVOCATION_REMOTE_READS_MAX {
            return Err(self.spending.beyond(Limit::RemoteReads, INVOCATION_REMOTE_READS_MAX as u64));
        }
        let number = reads.number();
        let worker = environment.core.index() as u16;
        let asker = Asker { worker, invocation: remote.invocation, read: number };
        let is_asked = RemotePlace::take(&extension.account, key.len()).is_some_and(|place| {
            let (key, map) = (key.into(), Arc::clone(map));
            let for_disk = environment.core.asks_for_disk();
            reads.ask(Want { asker, tenant: extension.tenant, table, hash, key, map, place, for_disk })
        });
        if !is_asked {
            return Err(self.come_again(environment));
        }
        remote.push(RemoteRead { number, table, hash, key: key.into(), state: ReadState::Asked });
        Ok(())
    }

    /// Makes the call repeat after the requested objects are answered.
    fn wait_for_answers<T>(&mut self) -> Option<T> {
        self.lacking.is_pending = true;
        if self.lacking.awaited.is_none() {
            self.lacking.awaited = self.asks_as().map(Awaited::Answers);
        }
        None
    }

    /// Refuses because too many reads are in flight; the whole invocation should be repeated later.
    fn come_again(&mut self, environment: &WorkerEnvironment<'_>) -> Error {
        self.count(environment, Counter::RemoteReadsRefused, Entry::RemoteReadsRefused, 1);
        self.lacking.is_refused = true;
        Error::Unavailable
    }

    /// Copies a value into the arena.
    fn bring_in(&mut self, version: u64, value: &[u8]) -> Result<RawRecord, Error> {
        // SAFETY: the arena of the invocation that makes this host call: nobody else uses it meanwhile.
        let arena = unsafe { running::arena().as_mut() };
        let place = arena.map_or(ptr::null_mut(), |arena| arena.allocate(value.len(), 1));
        if place.is_null() {
            let most = self.spending.allowance().arena_bytes as u64;
            return Err(self.spending.beyond(Limit::Tenant(TenantLimit::InvocationArenaBytes), most));
        }
        // SAFETY: allocated just now with this length, so they do not overlap.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), place, value.len()) };
        Ok(RawRecord { value: RawSlice { address: place, bytes: value.len() }, version })
    }

    /// Completes a read, which was counted.
    fn know(&mut self, environment: &WorkerEnvironment<'_>, at: usize, record: RawRecord) {
        let Some(read) = self.remote.as_mut().and_then(|remote| remote.reads.get_mut(at)) else { return };
        read.state = ReadState::Known(record);
        let bytes = (read.key.len() + record.value.bytes) as u64;
        self.count(environment, Counter::RemoteReads, Entry::RemoteReads, 1);
        self.count(environment, Counter::RemoteReadBytes, Entry::RemoteReadBytes, bytes);
    }

    fn count(&self, environment: &WorkerEnvironment<'_>, counter: Counter, entry: Entry, amount: u64) {
        environment.metrics.add(counter, amount);
        self.extension().account.ledger.page(environment.core.index()).add(entry, amount);
    }
}
