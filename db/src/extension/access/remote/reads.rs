//! An invocation's remote reads and the outcome of each: found by key when the host call is repeated, by number when
//! the reply arrives.

use std::collections::HashMap;

use sandstorm::abi::RawRecord;

use crate::limits::REMOTE_READ_BYTES;
use crate::ops::remote::{RemoteAnswer, RemoteOutcome};

/// A remote read of an invocation.
#[derive(Debug)]
pub(super) struct RemoteRead {
    pub(super) number: u64,
    pub(super) table: u32,
    pub(super) hash: u64,
    pub(super) key: Box<[u8]>,
    pub(super) state: ReadState,
}

#[derive(Debug)]
pub(super) enum ReadState {
    Asked,
    Came(RemoteOutcome),
    /// It failed and the function received the error; another read of the key requests it again.
    Over,
    /// The object is in the arena; version 0 for an absent object.
    Known(RawRecord),
}

/// The remote reads of one invocation. Allocated only for invocations that make any.
#[derive(Debug)]
pub(in crate::extension::access) struct Reads {
    /// The number by which replies find the invocation, unique while it lasts.
    pub(super) invocation: u64,
    /// The reads in the order of their numbers.
    pub(super) reads: Vec<RemoteRead>,
    /// The indexes of the reads, by table and hash.
    places: HashMap<(u32, u64), usize>,
    /// The number of unanswered reads.
    pub(super) open: usize,
    /// The bytes that all of them count for.
    pub(super) bytes: usize,
}

impl Reads {
    pub(super) fn new(invocation: u64) -> Self {
        Self { invocation, reads: Vec::new(), places: HashMap::new(), open: 0, bytes: 0 }
    }

    /// Forgets all reads, because the invocation starts again.
    pub(in crate::extension::access) fn clear(&mut self) {
        *self = Self::new(self.invocation);
    }

    pub(super) fn find(&self, table: u32, hash: u64, key: &[u8]) -> Option<usize> {
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

    pub(super) fn push(&mut self, read: RemoteRead) {
        self.bytes += REMOTE_READ_BYTES + read.key.len();
        self.open += 1;
        self.places.insert((read.table, read.hash), self.reads.len());
        self.reads.push(read);
    }

    /// Marks a read to be requested again.
    pub(super) fn give_up(&mut self, at: usize) {
        let read = &mut self.reads[at];
        read.state = ReadState::Over;
        let place = (read.table, read.hash);
        if self.places.get(&place) == Some(&at) {
            self.places.remove(&place);
        }
    }

    pub(super) fn answer(&mut self, answer: &RemoteAnswer) {
        let Ok(at) = self.reads.binary_search_by_key(&answer.asker.read, |read| read.number) else { return };
        if matches!(self.reads[at].state, ReadState::Asked) {
            self.reads[at].state = ReadState::Came(answer.outcome.clone());
            self.open -= 1;
        }
    }

    /// Fails the unanswered reads.
    pub(super) fn not_answered(&mut self) {
        self.open = 0;
        for read in self.reads.iter_mut().filter(|read| matches!(read.state, ReadState::Asked)) {
            read.state = ReadState::Came(RemoteOutcome::Away);
        }
    }
}
