//! Reads in flight to other servers: the server of each, and whether it waits for a stream, for an answer, or for a
//! pause to end. No I/O, no clock; `db/src/remote.rs` drives it.
//!
//! ```text
//!              ┌──────────── the map names another server, or the same one later ───────────┐
//!   take ──► waits for its server ── batch ──► asked ── NotOwned, Later, stream lost ──► pauses
//!              └ the server refuses streams: Away      └ an answer: end
//! ```
//! Each read ends at its deadline in any state, with [`End::Away`]. The same question may be sent more than once,
//! because a read changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;

use crate::limits::{
    REMOTE_BATCH_BYTES, REMOTE_BATCH_READS, REMOTE_OUTSTANDING_MAX, REMOTE_PAUSE_US, REMOTE_PAUSE_US_MAX,
    REMOTE_READ_US_MAX, REMOTE_REOPEN_US,
};

/// The owner of an object, by the latest map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner {
    /// Another server, with its address.
    Server(u32, SocketAddr),
    /// This server.
    Here,
    /// Unknown at present.
    Unknown,
}

/// The end of a read without an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// This server owns the object.
    Here,
    /// No server answered in time, or the server cannot be reached.
    Away,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum QuestionState {
    /// Waits for a stream to this server, or for its turn there.
    Waits(u32),
    /// Was sent to this server.
    Asked(u32),
    /// Pauses until this time.
    Pauses(u64),
}

#[derive(Debug)]
struct Open<T> {
    what: T,
    state: QuestionState,
    deadline_us: u64,
    pause_us: u64,
    /// Ends with `Here` after its pause.
    is_here: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stream {
    /// No stream is opened before this time.
    None(u64),
    Opening,
    Up,
}

#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    stream: Stream,
    /// Numbers of reads, which may have ended or moved to another server.
    waiting: VecDeque<u64>,
    asked: usize,
}

/// The reads in flight to other servers. `T` is the object of a read.
#[derive(Debug)]
pub struct OpenQuestions<T> {
    open: HashMap<u64, Open<T>>,
    latest: u64,
    peers: BTreeMap<u32, Peer>,
    /// The ends of pauses and the deadlines, by time.
    due: BTreeSet<(u64, u64)>,
}

impl<T> Default for OpenQuestions<T> {
    fn default() -> Self {
        Self { open: HashMap::new(), latest: 0, peers: BTreeMap::new(), due: BTreeSet::new() }
    }
}

impl<T> OpenQuestions<T> {
    /// Returns the number of open reads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns whether no read is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Begins a read of an object of this owner.
    pub fn take(&mut self, what: T, owner: Owner, now_us: u64) {
        self.latest += 1;
        let (number, deadline_us) = (self.latest, now_us + REMOTE_READ_US_MAX);
        let (state, pause_us) = (QuestionState::Pauses(0), REMOTE_PAUSE_US);
        self.open.insert(number, Open { what, state, deadline_us, pause_us, is_here: false });
        self.due.insert((deadline_us, number));
        self.place(number, owner, now_us);
    }

    /// Queues a read for its owner's server.
    fn place(&mut self, number: u64, owner: Owner, now_us: u64) {
        let Some(open) = self.open.get_mut(&number) else { return };
        open.is_here = owner == Owner::Here;
        let Owner::Server(server, address) = owner else { return self.pause(number, now_us) };
        open.state = QuestionState::Waits(server);
        let fresh = Peer { address, stream: Stream::None(0), waiting: VecDeque::new(), asked: 0 };
        let peer = self.peers.entry(server).or_insert(fresh);
        // A server restarted at another address has lost its stream, so the address may change.
        peer.address = address;
        peer.waiting.push_back(number);
    }

    fn pause(&mut self, number: u64, now_us: u64) {
        let Some(open) = self.open.get_mut(&number) else { return };
        let until_us = now_us + open.pause_us;
        open.pause_us = (2 * open.pause_us).min(REMOTE_PAUSE_US_MAX);
        open.state = QuestionState::Pauses(until_us);
        self.due.insert((until_us, number));
    }

    fn end(&mut self, number: u64) -> Option<T> {
        let open = self.open.remove(&number)?;
        self.due.remove(&(open.deadline_us, number));
        match open.state {
            QuestionState::Asked(server) => self.asked_no_more(server),
            QuestionState::Pauses(until_us) => drop(self.due.remove(&(until_us, number))),
            QuestionState::Waits(_) => {}
        }
        Some(open.what)
    }

    fn asked_no_more(&mut self, server: u32) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.asked = peer.asked.saturating_sub(1);
        }
    }

    /// Ends a read with a server's final answer. `None` if it is no longer asked there.
    pub fn answered(&mut self, server: u32, number: u64) -> Option<T> {
        if self.is_asked(server, number) { self.end(number) } else { None }
    }

    /// Pauses a read that a server could not answer; then it continues at the owner by the map of that time.
    pub fn not_answered(&mut self, server: u32, number: u64, now_us: u64) {
        if self.is_asked(server, number) {
            self.asked_no_more(server);
            self.pause(number, now_us);
        }
    }

    fn is_asked(&self, server: u32, number: u64) -> bool {
        self.open.get(&number).is_some_and(|open| open.state == QuestionState::Asked(server))
    }

    /// Returns the object of an open read.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&T> {
        self.open.get(&number).map(|open| &open.what)
    }

    /// Returns the next server that needs a stream, and marks the stream as being opened.
    pub fn to_open(&mut self, now_us: u64) -> Option<(u32, SocketAddr)> {
        let is_wanted = |peer: &Peer| {
            matches!(peer.stream, Stream::None(from_us) if from_us <= now_us) && !peer.waiting.is_empty()
        };
        let (server, peer) = self.peers.iter_mut().find(|(_, peer)| is_wanted(peer))?;
        peer.stream = Stream::Opening;
        Some((*server, peer.address))
    }

    /// Notes that a server's stream is open.
    pub fn opened(&mut self, server: u32) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.stream = Stream::Up;
        }
    }

    /// Ends the reads that wait for an unreachable server; returns them.
    pub fn refused(&mut self, server: u32, now_us: u64) -> Vec<T> {
        let Some(peer) = self.peers.get_mut(&server) else { return Vec::new() };
        peer.stream = Stream::None(now_us + REMOTE_REOPEN_US);
        let mut waiting = std::mem::take(&mut peer.waiting);
        waiting.retain(|number| self.is_waiting(server, *number));
        waiting.into_iter().filter_map(|number| self.end(number)).collect()
    }

    fn is_waiting(&self, server: u32, number: u64) -> bool {
        self.open.get(&number).is_some_and(|open| open.state == QuestionState::Waits(server))
    }

    /// Notes that a server's stream broke; its reads are sent again.
    pub fn lost(&mut self, server: u32, now_us: u64) {
        let Some(peer) = self.peers.get_mut(&server) else { return };
        (peer.stream, peer.asked) = (Stream::None(now_us), 0);
        let asked = self.open.iter().filter(|(_, open)| open.state == QuestionState::Asked(server));
        let asked: Vec<u64> = asked.map(|(number, _)| *number).collect();
        asked.into_iter().for_each(|number| self.pause(number, now_us));
    }

    /// Returns the numbers of the next questions to a server in one record; empty if there are none, or enough are in
    /// flight. `bytes` returns the size of each.
    pub fn batch(&mut self, server: u32, bytes: impl Fn(&T) -> usize) -> Vec<u64> {
        let (mut batch, mut batch_bytes) = (Vec::new(), 0);
        let Some(peer) = self.peers.get_mut(&server) else { return batch };
        let room = REMOTE_OUTSTANDING_MAX.saturating_sub(peer.asked).min(REMOTE_BATCH_READS);
        while batch.len() < room && batch_bytes < REMOTE_BATCH_BYTES {
            let Some(number) = peer.waiting.pop_front() else { break };
            let Some(open) = self.open.get_mut(&number) else { continue };
            if open.state == QuestionState::Waits(server) {
                open.state = QuestionState::Asked(server);
                batch_bytes += bytes(&open.what);
                batch.push(number);
            }
        }
        peer.asked += batch.len();
        batch
    }

    /// Continues paused reads at the owner from `owner`; returns those that ended.
    pub fn step(&mut self, now_us: u64, mut owner: impl FnMut(&T) -> Owner) -> Vec<(T, End)> {
        let mut over = Vec::new();
        while let Some(&(due_us, number)) = self.due.first().filter(|(due_us, _)| *due_us <= now_us) {
            self.due.pop_first();
            let Some(open) = self.open.get(&number) else { continue };
            let end = if open.deadline_us <= now_us {
                End::Away
            } else if open.state != QuestionState::Pauses(due_us) {
                continue;
            } else if open.is_here {
                End::Here
            } else {
                let owner = owner(&open.what);
                self.place(number, owner, now_us);
                continue;
            };
            over.extend(self.end(number).map(|what| (what, end)));
        }
        over
    }

    /// Returns the time of the next due event.
    #[must_use]
    pub fn next_due_us(&self) -> Option<u64> {
        self.due.first().map(|(due_us, _)| *due_us)
    }
}

#[cfg(test)]
mod tests;
