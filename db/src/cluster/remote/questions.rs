//! Reads under way to other servers: which server each is for, which wait for a stream, which for an answer, which for a while
//! since nobody could answer yet. No I/O, no clock; see `server/remote.rs` for who drives it.
//!
//! ```text
//!              ┌──────────── the map says another server, or the same one later ───────────┐
//!   take ──► waits for its server ── batch ──► asked ── NotOwned, Later, stream lost ──► pauses
//!              └ the server refuses streams: away      └ an answer: over
//! ```
//! Each is over at its deadline, wherever it is: [`End::Away`] is what who asked hears then. The same question may be asked
//! more than once; a read changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;

use crate::limits::{
    REMOTE_BATCH_BYTES, REMOTE_BATCH_READS, REMOTE_OUTSTANDING_MAX, REMOTE_PAUSE_US, REMOTE_PAUSE_US_MAX,
    REMOTE_READ_US_MAX, REMOTE_REOPEN_US,
};

/// Whose an object is, by the latest map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner {
    /// A server, and where it listens.
    Server(u32, SocketAddr),
    /// This one.
    Here,
    /// Nobody knows for now.
    Unknown,
}

/// How a read is over without an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// It is this server's.
    Here,
    /// Nobody answered in time, or the server cannot be reached.
    Away,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum QuestionState {
    /// For a stream to this server, or for its turn there.
    Waits(u32),
    /// This server has been asked.
    Asked(u32),
    /// Until then.
    Pauses(u64),
}

#[derive(Debug)]
struct Open<T> {
    what: T,
    standing: QuestionState,
    deadline_us: u64,
    pause_us: u64,
    /// It is to be told "here" behind its pause.
    is_here: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stream {
    /// None before that time.
    None(u64),
    Opening,
    Up,
}

#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    stream: Stream,
    /// Numbers; those may be over, or be another server's by now.
    waiting: VecDeque<u64>,
    asked: usize,
}

/// See the file's head. `T` is what is read.
#[derive(Debug)]
pub struct OpenQuestions<T> {
    open: HashMap<u64, Open<T>>,
    latest: u64,
    peers: BTreeMap<u32, Peer>,
    /// By time: pauses, and deadlines.
    due: BTreeSet<(u64, u64)>,
}

impl<T> Default for OpenQuestions<T> {
    fn default() -> Self {
        Self { open: HashMap::new(), latest: 0, peers: BTreeMap::new(), due: BTreeSet::new() }
    }
}

impl<T> OpenQuestions<T> {
    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// A read begins, of an object of this owner.
    pub fn take(&mut self, what: T, owner: Owner, now_us: u64) {
        self.latest += 1;
        let (number, deadline_us) = (self.latest, now_us + REMOTE_READ_US_MAX);
        let (standing, pause_us) = (QuestionState::Pauses(0), REMOTE_PAUSE_US);
        self.open.insert(number, Open { what, standing, deadline_us, pause_us, is_here: false });
        self.due.insert((deadline_us, number));
        self.place(number, owner, now_us);
    }

    /// Lets a read wait for its owner's server.
    fn place(&mut self, number: u64, owner: Owner, now_us: u64) {
        let Some(open) = self.open.get_mut(&number) else { return };
        open.is_here = owner == Owner::Here;
        let Owner::Server(server, address) = owner else { return self.pause(number, now_us) };
        open.standing = QuestionState::Waits(server);
        let fresh = Peer { address, stream: Stream::None(0), waiting: VecDeque::new(), asked: 0 };
        let peer = self.peers.entry(server).or_insert(fresh);
        // One that was started again elsewhere has lost its stream.
        peer.address = address;
        peer.waiting.push_back(number);
    }

    fn pause(&mut self, number: u64, now_us: u64) {
        let Some(open) = self.open.get_mut(&number) else { return };
        let until_us = now_us + open.pause_us;
        open.pause_us = (2 * open.pause_us).min(REMOTE_PAUSE_US_MAX);
        open.standing = QuestionState::Pauses(until_us);
        self.due.insert((until_us, number));
    }

    fn end(&mut self, number: u64) -> Option<T> {
        let open = self.open.remove(&number)?;
        self.due.remove(&(open.deadline_us, number));
        match open.standing {
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

    /// A server has answered for good. `None` where nobody asks it any more.
    pub fn answered(&mut self, server: u32, number: u64) -> Option<T> {
        if self.is_asked(server, number) { self.end(number) } else { None }
    }

    /// A server could not answer: the read goes on after a pause, where the map says then.
    pub fn not_answered(&mut self, server: u32, number: u64, now_us: u64) {
        if self.is_asked(server, number) {
            self.asked_no_more(server);
            self.pause(number, now_us);
        }
    }

    fn is_asked(&self, server: u32, number: u64) -> bool {
        self.open.get(&number).is_some_and(|open| open.standing == QuestionState::Asked(server))
    }

    /// What is read by a question that is open.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&T> {
        self.open.get(&number).map(|open| &open.what)
    }

    /// The next server to which a stream is to be opened; it counts as being opened from then on.
    pub fn to_open(&mut self, now_us: u64) -> Option<(u32, SocketAddr)> {
        let is_wanted = |peer: &Peer| {
            matches!(peer.stream, Stream::None(from_us) if from_us <= now_us) && !peer.waiting.is_empty()
        };
        let (server, peer) = self.peers.iter_mut().find(|(_, peer)| is_wanted(peer))?;
        peer.stream = Stream::Opening;
        Some((*server, peer.address))
    }

    /// There is a stream to a server.
    pub fn opened(&mut self, server: u32) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.stream = Stream::Up;
        }
    }

    /// A server cannot be reached: those that wait for it are over.
    pub fn refused(&mut self, server: u32, now_us: u64) -> Vec<T> {
        let Some(peer) = self.peers.get_mut(&server) else { return Vec::new() };
        peer.stream = Stream::None(now_us + REMOTE_REOPEN_US);
        let mut waiting = std::mem::take(&mut peer.waiting);
        waiting.retain(|number| self.is_waiting(server, *number));
        waiting.into_iter().filter_map(|number| self.end(number)).collect()
    }

    fn is_waiting(&self, server: u32, number: u64) -> bool {
        self.open.get(&number).is_some_and(|open| open.standing == QuestionState::Waits(server))
    }

    /// The stream to a server broke: what it was asked is asked again.
    pub fn lost(&mut self, server: u32, now_us: u64) {
        let Some(peer) = self.peers.get_mut(&server) else { return };
        (peer.stream, peer.asked) = (Stream::None(now_us), 0);
        let asked = self.open.iter().filter(|(_, open)| open.standing == QuestionState::Asked(server));
        let asked: Vec<u64> = asked.map(|(number, _)| *number).collect();
        asked.into_iter().for_each(|number| self.pause(number, now_us));
    }

    /// What a server is to be asked next in one record, by number; empty where there is nothing, or enough is under way.
    /// `bytes` says how many each takes.
    pub fn batch(&mut self, server: u32, bytes: impl Fn(&T) -> usize) -> Vec<u64> {
        let (mut batch, mut batch_bytes) = (Vec::new(), 0);
        let Some(peer) = self.peers.get_mut(&server) else { return batch };
        let room = REMOTE_OUTSTANDING_MAX.saturating_sub(peer.asked).min(REMOTE_BATCH_READS);
        while batch.len() < room && batch_bytes < REMOTE_BATCH_BYTES {
            let Some(number) = peer.waiting.pop_front() else { break };
            let Some(open) = self.open.get_mut(&number) else { continue };
            if open.standing == QuestionState::Waits(server) {
                open.standing = QuestionState::Asked(server);
                batch_bytes += bytes(&open.what);
                batch.push(number);
            }
        }
        peer.asked += batch.len();
        batch
    }

    /// Goes on with what has paused, where `owner` says; gives those that are over.
    pub fn step(&mut self, now_us: u64, mut owner: impl FnMut(&T) -> Owner) -> Vec<(T, End)> {
        let mut over = Vec::new();
        while let Some(&(due_us, number)) = self.due.first().filter(|(due_us, _)| *due_us <= now_us) {
            self.due.pop_first();
            let Some(open) = self.open.get(&number) else { continue };
            let end = if open.deadline_us <= now_us {
                End::Away
            } else if open.standing != QuestionState::Pauses(due_us) {
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

    /// When something is due next.
    #[must_use]
    pub fn next_due_us(&self) -> Option<u64> {
        self.due.first().map(|(due_us, _)| *due_us)
    }
}

#[cfg(test)]
mod tests;
