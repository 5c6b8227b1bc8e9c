//! Outgoing frames: one open frame per peer, which replies fill in place.
//!
//! ```text
//!   reply to (peer, session)  -> the peer's open frame -> its group of that session -> the message's body
//!                                full: open the next     other session: new group     written once, here
//!                                outbox full: send all
//! ```
//! The frame of the latest reply is remembered, so the replies to one request frame need no lookup. Other peers are
//! found through a small direct-mapped table; a collision only costs a frame that could have been shared. Nothing
//! allocates after the start. A reply that fits no frame is sent in parts, one frame each, if the client accepts
//! parts; otherwise it becomes `UseStream`. The server does not keep parts: a client that misses one asks again.
//! Frames leave when the outbox is full, when a reply has to leave from another port than those before it, or when the
//! worker's round ends. At the end of a round, answers of invocations wait for more of their kind if more follow soon,
//! since a frame costs more than its content. If the port breaks meanwhile, the end of the round reports it.

mod held;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;

use net::Outbox;
use wire::limits::{
    FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, IS_PART, MESSAGE_HEADER_BYTES, REPLY_PARTS_BYTES_MAX, TAKES_PARTS,
};
use wire::reply::Part;
use wire::{FrameWriter, Status};

use self::held::HeldAnswers;
use super::ports::Exits;
use crate::limits::{GATHER_US, OUTGOING_FRAMES};
use crate::metrics::{Counter, WorkerMetrics};
use crate::session::Session;

const HEADS_BYTES: usize = FRAME_HEADER_BYTES + GROUP_HEADER_BYTES + MESSAGE_HEADER_BYTES;

/// Slots of the table from peers to frames; a power of two.
const PEER_SLOTS: usize = 2 * OUTGOING_FRAMES;
const NO_FRAME: usize = usize::MAX;

/// The outgoing frames of one worker.
pub struct Outgoing {
    outbox: Outbox,
    writers: Box<[FrameWriter]>,
    tokens: Box<[Option<u64>]>,
    peers: [u16; PEER_SLOTS],
    current: usize,
    current_peer: SocketAddr,
    /// The port from which all open frames leave.
    exit: u16,
    view: u64,
    broken: Option<io::Error>,
    /// An answer in it must not wait.
    hurries: bool,
    /// Time since which an answer in it waits, in microseconds.
    gathers_since_us: Option<u64>,
    /// Buffer for an answer that is sent in parts.
    whole: Box<[u8]>,
    /// Answers that wait for receipts of backups, and those that wait for the disk.
    held: [HeldAnswers; 2],
    /// Number of the latest answer in parts. It starts at random, so that the numbers of two workers rarely coincide.
    stamp: u32,
}

impl Outgoing {
    /// Creates an outbox without open frames. `frame_bytes_max` is the port's.
    #[must_use]
    pub fn new(frame_bytes_max: usize, view: u64) -> Self {
        Self {
            outbox: Outbox::with_frames(OUTGOING_FRAMES, frame_bytes_max),
            writers: vec![FrameWriter::new(); OUTGOING_FRAMES].into_boxed_slice(),
            tokens: vec![None; OUTGOING_FRAMES].into_boxed_slice(),
            peers: [0; PEER_SLOTS],
            current: NO_FRAME,
            current_peer: SocketAddr::from(([0, 0, 0, 0], 0)),
            exit: 0,
            view,
            broken: None,
            hurries: false,
            gathers_since_us: None,
            whole: vec![0; REPLY_PARTS_BYTES_MAX].into_boxed_slice(),
            held: <[HeldAnswers; 2]>::default(),
            stamp: RandomState::new().hash_one(0) as u32,
        }
    }

    /// Sets the view that frames name when they are opened from now on.
    #[inline]
    pub fn set_view(&mut self, view: u64) {
        self.view = view;
    }

    /// Writes one reply; `fill` gets exactly `body_bytes` of the frame, holding old bytes.
    #[inline]
    pub fn reply<P: Exits>(
        &mut self,
        port: &mut P,
        metrics: &WorkerMetrics,
        to: &Addressee,
        head: (u32, Status),
        body_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let (sequence_low, status) = head;
        if self.current == NO_FRAME || self.current_peer != to.peer || self.exit != to.port {
            self.select(port, metrics, to);
        }
        if self.tokens[self.current] == Some(to.token) {
            let (index, code) = (self.current, status as u8);
            let buffer = self.outbox.buffer(index);
            if let Some(body) = self.writers[index].message(buffer, code, 0, sequence_low, body_bytes) {
                return fill(body);
            }
        }
        self.reply_elsewhere(port, metrics, to, head, body_bytes, fill);
    }

    /// Handles the rare cases: another session in the frame, the next frame, or a reply that fits none.
    #[inline(never)]
    fn reply_elsewhere<P: Exits>(
        &mut self,
        port: &mut P,
        metrics: &WorkerMetrics,
        to: &Addressee,
        (sequence_low, status): (u32, Status),
        body_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        if HEADS_BYTES + body_bytes > self.outbox.frame_bytes_max() {
            if to.flags & TAKES_PARTS != 0 && body_bytes <= REPLY_PARTS_BYTES_MAX {
                fill(&mut self.whole[..body_bytes]);
                return self.reply_in_parts(port, metrics, to, (sequence_low, status), body_bytes);
            }
            metrics.count(Counter::UseStream);
            return self.reply(port, metrics, to, (sequence_low, Status::UseStream), 0, no_body);
        }
        if self.tokens[self.current] == Some(to.token) || !self.open_group(to, body_bytes) {
            self.next_frame(port, metrics, to.peer);
            let fresh = self.open_group(to, body_bytes);
            assert!(fresh, "a reply that fits a frame fits an empty one");
        }
        let index = self.current;
        let buffer = self.outbox.buffer(index);
        let body = self.writers[index].message(buffer, status as u8, 0, sequence_low, body_bytes);
        fill(body.expect("there is room for the message, it was asked for"));
    }

    /// Sends the first `body_bytes` of `whole` in parts, each as long as a frame allows so that the port may merge
    /// them.
    fn reply_in_parts<P: Exits>(
        &mut self,
        port: &mut P,
        metrics: &WorkerMetrics,
        to: &Addressee,
        (sequence_low, status): (u32, Status),
        body_bytes: usize,
    ) {
        metrics.count(Counter::RepliesInParts);
        let piece_bytes = self.outbox.frame_bytes_max() - HEADS_BYTES - Part::HEAD_BYTES;
        self.stamp = self.stamp.wrapping_add(1);
        let whole = std::mem::take(&mut self.whole);
        for part in Part::split(self.stamp, &whole[..body_bytes], piece_bytes) {
            if self.tokens[self.current].is_some() || !self.open_group(to, part.body_bytes()) {
                self.next_frame(port, metrics, to.peer);
                let fresh = self.open_group(to, part.body_bytes());
                assert!(fresh, "a part fits an empty frame");
            }
            let (index, code) = (self.current, status as u8);
            let buffer = self.outbox.buffer(index);
            let body = self.writers[index].message(buffer, code, IS_PART, sequence_low, part.body_bytes());
            part.encode(body.expect("there is room for the part, it was asked for"));
        }
        self.whole = whole;
    }

    /// Sends all open frames.
    ///
    /// # Errors
    /// If the port is broken, or broke since the last call.
    pub fn send<P: Exits>(&mut self, port: &mut P, metrics: &WorkerMetrics) -> io::Result<()> {
        self.flush(port, metrics);
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Ends a round: sends all open frames as [`Outgoing::send`] does, or lets them wait. They wait while
    /// `more_follows`, no answer in them is urgent, and none has waited for [`GATHER_US`].
    ///
    /// # Errors
    /// Same as [`Outgoing::send`].
    #[inline]
    pub fn send_or_gather<P: Exits>(
        &mut self,
        port: &mut P,
        metrics: &WorkerMetrics,
        now_us: u64,
        more_follows: bool,
    ) -> io::Result<()> {
        if more_follows && !self.hurries && self.broken.is_none() && !self.outbox.is_empty() {
            let since_us = *self.gathers_since_us.get_or_insert(now_us);
            if now_us.saturating_sub(since_us) < GATHER_US {
                return Ok(());
            }
        }
        self.send(port, metrics)
    }

    /// Notes that an answer must not wait for the rest of the round.
    #[inline]
    pub fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Sends all open frames if an answer in them must not wait. The next call of [`Outgoing::send`] reports whether
    /// the port broke.
    pub fn send_hurried<P: Exits>(&mut self, port: &mut P, metrics: &WorkerMetrics) {
        if self.hurries {
            self.flush(port, metrics);
        }
    }

    fn flush<P: Exits>(&mut self, port: &mut P, metrics: &WorkerMetrics) {
        self.hurries = false;
        self.gathers_since_us = None;
        if self.outbox.is_empty() {
            return;
        }
        let mut bytes_sent = 0;
        for index in 0..self.outbox.len() {
            let bytes = self.writers[index].finish(self.outbox.buffer(index));
            self.outbox.set_bytes(index, bytes);
            bytes_sent += bytes as u64;
        }
        metrics.add(Counter::BytesSent, bytes_sent);
        self.peers = [0; PEER_SLOTS];
        self.current = NO_FRAME;
        match port.send(self.exit, &mut self.outbox) {
            Ok(sent) => metrics.add(Counter::FramesSent, sent as u64),
            Err(error) => self.broken = Some(error),
        }
        self.outbox.clear();
    }

    /// Makes the addressee's open frame the current one.
    fn select<P: Exits>(&mut self, port: &mut P, metrics: &WorkerMetrics, to: &Addressee) {
        if self.exit != to.port {
            self.flush(port, metrics);
            self.exit = to.port;
        }
        let peer = to.peer;
        let slot = slot_of(&peer);
        let index = usize::from(self.peers[slot]);
        if index > 0 && self.outbox.frame(index - 1).1 == peer {
            (self.current, self.current_peer) = (index - 1, peer);
            return;
        }
        self.current = NO_FRAME;
        self.next_frame(port, metrics, peer);
    }

    /// Opens a frame for `peer`, after the current one if that is the peer's.
    fn next_frame<P: Exits>(&mut self, port: &mut P, metrics: &WorkerMetrics, peer: SocketAddr) {
        if self.outbox.is_full() {
            self.flush(port, metrics);
        }
        let opened = match self.current {
            NO_FRAME => self.outbox.open(peer),
            current => self.outbox.open_next(current),
        };
        let index = opened.expect("an outbox that is not full opens a frame");
        self.writers[index].start(self.outbox.buffer(index), self.view);
        self.tokens[index] = None;
        self.peers[slot_of(&peer)] = index as u16 + 1;
        (self.current, self.current_peer) = (index, peer);
    }

    /// Opens a group in the current frame if a message of `body_bytes` fits after it.
    fn open_group(&mut self, to: &Addressee, body_bytes: usize) -> bool {
        let index = self.current;
        let buffer = self.outbox.buffer(index);
        let left = self.writers[index].body_bytes_left(buffer);
        if left.is_none_or(|left| left < GROUP_HEADER_BYTES + body_bytes) {
            return false;
        }
        let opened = self.writers[index].group(buffer, to.token, 0, to.home_core);
        self.tokens[index] = Some(to.token);
        opened
    }
}

/// The addressee of a reply.
#[derive(Clone, Copy, Debug)]
pub struct Addressee {
    /// Index of the worker from whose port the reply leaves.
    pub port: u16,
    /// The client's address.
    pub peer: SocketAddr,
    /// The session's token.
    pub token: u64,
    /// The session's home core, named in the group.
    pub home_core: u16,
    /// The request's flags. Parts are for clients that are reached where they say.
    pub flags: u8,
}

impl Addressee {
    /// Returns the addressee for a request of a session, from an address, at a worker's port.
    #[inline]
    pub fn of(session: &Session, (port, peer): (u16, SocketAddr), flags: u8) -> Self {
        Self { port, peer, token: session.token, home_core: session.home_core(), flags }
    }
}

/// Fills the body of a reply that has none.
fn no_body(_: &mut [u8]) {}

fn slot_of(peer: &SocketAddr) -> usize {
    let address = match peer {
        SocketAddr::V4(peer) => peer.ip().to_bits(),
        SocketAddr::V6(peer) => peer.ip().to_bits() as u32,
    };
    let mixed = (address ^ u32::from(peer.port()).rotate_left(16)).wrapping_mul(0x9e37_79b1);
    mixed as usize >> 16 & (PEER_SLOTS - 1)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;

    use net::Outbox;
    use wire::Status;

    use super::{Addressee, Outgoing};
    use crate::limits::GATHER_US;
    use crate::metrics::WorkerMetrics;
    use crate::worker::ports::Exits;

    /// Counts what leaves.
    #[derive(Default)]
    struct Exit {
        frames: usize,
    }

    impl Exits for Exit {
        fn send(&mut self, _: u16, out: &mut Outbox) -> io::Result<usize> {
            self.frames += out.len();
            Ok(out.len())
        }
    }

    /// An answer to one of two clients.
    fn answer(outgoing: &mut Outgoing, exit: &mut Exit, metrics: &WorkerMetrics, client: u16) {
        let peer = SocketAddr::from(([127, 0, 0, 1], client));
        let to = Addressee { port: 0, peer, token: client.into(), home_core: 0, flags: 0 };
        outgoing.reply(exit, metrics, &to, (1, Status::Ok), 8, |body| body.fill(1));
    }

    #[test]
    fn answers_wait_for_more_of_them_but_not_long_and_not_beside_one_that_hurries() {
        let (mut outgoing, mut exit, metrics) =
            (Outgoing::new(1472, 1), Exit::default(), WorkerMetrics::new());
        let end_round = |outgoing: &mut Outgoing, exit: &mut Exit, now_us, more_follows| {
            outgoing.send_or_gather(exit, &metrics, now_us, more_follows).expect("a port that works");
            exit.frames
        };
        for round in 0..GATHER_US / 10 {
            answer(&mut outgoing, &mut exit, &metrics, 1);
            assert_eq!(end_round(&mut outgoing, &mut exit, 5_000 + 10 * round, true), 0);
        }
        assert_eq!(end_round(&mut outgoing, &mut exit, 5_000 + GATHER_US, true), 1, "waited long enough");

        answer(&mut outgoing, &mut exit, &metrics, 1);
        assert_eq!(end_round(&mut outgoing, &mut exit, 9_000, true), 1, "waits anew");
        answer(&mut outgoing, &mut exit, &metrics, 2);
        outgoing.hurry();
        assert_eq!(end_round(&mut outgoing, &mut exit, 9_010, true), 3, "goes with what hurries");
        answer(&mut outgoing, &mut exit, &metrics, 1);
        assert_eq!(end_round(&mut outgoing, &mut exit, 9_020, false), 4, "nothing more follows");
    }
}
