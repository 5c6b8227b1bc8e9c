//! What an invocation has asked of other servers, and what became of each: found by its key when the host call is made
//! again, by its number when the answer comes.

use std::collections::HashMap;

use sandstorm::abi::RawRecord;

use crate::limits::REMOTE_READ_BYTES;
use crate::ops::remote::{RemoteAnswer, RemoteOutcome};

/// A read of an invocation.
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
    /// It went wrong, and its function heard of it: asked anew when it is read again.
    Over,
    /// In the arena; version 0 for an object that there is not.
    Known(RawRecord),
}

/// What an invocation reads at other servers. There is none for those that do not.
#[derive(Debug)]
pub(in crate::extension::access) struct Reads {
    /// By which answers find the invocation: its own as long as it lasts.
    pub(super) invocation: u64,
    /// In the order of their numbers.
    pub(super) reads: Vec<RemoteRead>,
    /// Their places, by table and hash.
    places: HashMap<(u32, u64), usize>,
    /// How many are not answered.
    pub(super) open: usize,
    /// What all of it counts for.
    pub(super) bytes: usize,
}

impl Reads {
    pub(super) fn new(invocation: u64) -> Self {
        Self { invocation, reads: Vec::new(), places: HashMap::new(), open: 0, bytes: 0 }
    }

    /// Forgets all: the invocation begins anew.
    pub(in crate::extension::access) fn clear(&mut self) {
        *self = Self::new(self.invocation);
    }

    pub(super) fn find(&self, table: u32, hash: u64, key: &[u8]) -> Option<usize> {
        let at = *self.places.get(&(table, hash))?;
        if *self.reads[at].key == *key {
            return Some(at);
        }
        // Two keys of one hash: nearly always somebody's who made them.
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

    /// It is to be asked for again.
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

    /// Nobody answers any more what is open.
    pub(super) fn not_answered(&mut self) {
        self.open = 0;
        for read in self.reads.iter_mut().filter(|read| matches!(read.state, ReadState::Asked)) {
            read.state = ReadState::Came(RemoteOutcome::Away);
        }
    }
}
