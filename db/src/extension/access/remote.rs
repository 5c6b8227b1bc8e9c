//! Host calls that read what another server of the cluster has: asked for through [`crate::ops::remote`], "pending" until it
//! has come, then copied into the invocation's arena, once.
//!
//! What came stays until the invocation ends, so a second read of a key finds the same. Nothing of it is noted for the
//! commit: see "Reads at other servers" in docs/notes.md. A try after a conflict begins without it.

mod reads;

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use sandstorm::Error;
use sandstorm::abi::{RawRecord, RawSlice};

pub(super) use self::reads::Reads;
use self::reads::{ReadState, RemoteRead};
use super::calls::{checked_key, raw_of};
use super::{Access, Awaited};
use crate::extension::allowance::Limit;
use crate::limits::{GET_MANY_KEYS_MAX, INVOCATION_REMOTE_READS_MAX};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::ops::remote::{Asker, RemoteAnswer, RemoteOutcome, RemoteReads, Want};
use crate::ops::transaction::ObjectPlace;
use crate::sched::running;
use crate::tenant::ledger::Entry;
use crate::tenant::limit::TenantLimit;
use crate::tenant::remote::RemotePlace;

impl Access {
    /// The number by which answers find the invocation; nothing if it asks nobody.
    #[inline]
    #[must_use]
    pub fn asks_as(&self) -> Option<u64> {
        self.remote.as_ref().map(|remote| remote.invocation)
    }

    /// The invocation is over: its number, if it has asked.
    #[inline]
    pub fn ask_no_more(&mut self) -> Option<u64> {
        if self.remote.is_some() { self.remote.take().map(|remote| remote.invocation) } else { None }
    }

    /// Takes an answer. True when all that was asked for is answered. One that nobody waits for any more is dropped.
    pub fn answered(&mut self, answer: &RemoteAnswer) -> bool {
        let Some(remote) = &mut self.remote else { return true };
        remote.answer(answer);
        remote.open == 0
    }

    /// Bytes that it keeps of what it asked.
    #[must_use]
    pub fn asking_bytes(&self) -> usize {
        self.remote.as_ref().map_or(0, |remote| remote.bytes)
    }

    /// Nobody answers any more what is open.
    pub fn not_answered(&mut self) {
        if let Some(remote) = &mut self.remote {
            remote.not_answered();
        }
    }

    /// Reads one object that is not here.
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

    /// Reads many objects, of which some are not here: asks for all of those at once, and when they are known reads the
    /// others.
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
            match parts.find(hash) {
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

    /// An object that is not here, once it has come. `None`: the call is to be made again.
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

    /// Asks for an object.
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
            reads.ask(Want { asker, tenant: extension.tenant, table, hash, key, map, place })
        });
        if !is_asked {
            return Err(self.come_again(environment));
        }
        remote.push(RemoteRead { number, table, hash, key: key.into(), state: ReadState::Asked });
        Ok(())
    }

    /// The call is to be made again when what was asked for is answered.
    fn wait_for_answers<T>(&mut self) -> Option<T> {
        self.lacking.is_pending = true;
        if self.lacking.awaited.is_none() {
            self.lacking.awaited = self.asks_as().map(Awaited::Answers);
        }
        None
    }

    /// Too much is under way: the whole invocation is better made again later.
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

    /// A read is over, and was counted.
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
