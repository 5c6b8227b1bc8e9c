//! The exactly-once ring of a session: one record per mutation or invocation that may be retransmitted.
//!
//! ```text
//!  record = sequence & mask                free -> executing -> done        by compare-and-swap
//!  +-------+------+-------+-------+
//!  | state | head | first | second|        state = sequence << 2 | phase
//!  +-------+------+-------+-------+        replies up to 16 bytes are held inline, longer ones beside
//! ```
//!
//! Guarantees: of all copies of a request, on whichever worker they arrive, one gets [`Claim::Execute`]; after
//! [`Ring::complete`] the others get the stored reply, until the client acknowledges it. A request below the window is
//! [`Claim::Expired`] and never runs again. A record is reused only after its request is acknowledged and has ended.
//!
//! Whether an invocation writes depends on the version of its function, which may differ from worker to worker and from
//! copy to copy. A read-only invocation takes no record. It looks for the record of a copy that has written only if the
//! session has begun writing invocations up to its sequence: [`Ring::begin_read`].
//!
//! Inline replies are read optimistically: state, words, state again. The words are atomics, and fences on both sides
//! let a reader that loses the race see a changed state and never a torn reply.
//!
//! A longer reply lies in a box beside its record. A thread takes the box to use it and puts it back, each by one
//! pointer exchange. No thread waits, not even for a worker that answers a copy from the box and meanwhile sends the
//! frame's earlier contents. A thread that finds no box leaves its work to the holder, which does it when it puts the
//! box back.

use store::AtomicBox;
use wire::Status;

use crate::limits::{
    SESSION_REPLY_BYTES_MAX, SESSION_REPLY_BYTES_STORED_MAX, STORED_REPLY_BYTES_KEPT, WINDOW_RECORDS,
};
use crate::sync::{AtomicU64, AtomicUsize, Ordering, fence};

/// The largest sequence: two bits of the state word hold the phase.
pub const SEQUENCE_MAX: u64 = (1 << 62) - 1;

/// Bytes of a reply that a record holds inline.
pub const INLINE_BYTES: usize = 16;

/// Records of a ring; few under loom, so that they are soon reused.
const RECORDS: usize = if cfg!(loom_model) { 2 } else { WINDOW_RECORDS };
const MASK: u64 = RECORDS as u64 - 1;
const PHASE_FREE: u64 = 0;
const PHASE_EXECUTING: u64 = 1;
const PHASE_DONE: u64 = 2;
const PHASE_MASK: u64 = 3;
const HEAD_LONG: u64 = 1 << 16;
/// How often a thread looks for a long reply that another one sends.
const LONG_REPLY_TRIES: u32 = 1_000;

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The request is new: the caller runs it, then calls [`Ring::complete`] or [`Ring::release`].
    Execute,
    /// It ran before: the caller replies with [`Ring::replay`].
    Replay,
    /// It is running; that execution will reply.
    InFlight,
    /// It is below the window: it may have run, its reply is gone.
    Expired,
    /// Its record, or the room for replies, is still in use: the client must retry later.
    Busy,
    /// It is beyond the window that begins at the oldest unacknowledged request.
    Ahead,
}

#[derive(Debug, Default)]
struct RingRecord {
    state: AtomicU64,
    /// Status in the low 8 bits, inline bytes in the next 8, [`HEAD_LONG`].
    head: AtomicU64,
    first: AtomicU64,
    second: AtomicU64,
}

/// A buffer for one reply that is too long for a record; sequence 0 and no bytes if empty.
#[derive(Debug, Default)]
struct LongReply {
    sequence: u64,
    bytes: Vec<u8>,
}

/// The records of one session.
#[derive(Debug)]
#[repr(C)]
pub struct Ring {
    acknowledged: AtomicU64,
    /// The highest sequence of a begun invocation that may write.
    written: AtomicU64,
    records: Box<[RingRecord]>,
    long: Box<[AtomicBox<LongReply>]>,
    /// Bytes of the stored long replies.
    long_bytes: AtomicUsize,
}

impl Ring {
    /// Bytes at the start of the ring that a request without a record reads.
    pub const READ_BYTES: usize = 2 * size_of::<AtomicU64>();

    /// Creates a ring without requests.
    #[must_use]
    pub fn new() -> Self {
        Self {
            acknowledged: AtomicU64::new(0),
            written: AtomicU64::new(0),
            records: (0..RECORDS).map(|_| RingRecord::default()).collect(),
            long: (0..RECORDS).map(|_| AtomicBox::empty()).collect(),
            long_bytes: AtomicUsize::new(0),
        }
    }

    /// Takes in the replies of requests that ran before this ring was made; the client has those below
    /// `first_unacknowledged`. Ignores replies outside the window that begins there. For a ring that no worker knows yet.
    pub fn restore<'a>(
        &self,
        first_unacknowledged: u64,
        replies: impl IntoIterator<Item = (u64, Status, &'a [u8])>,
    ) {
        self.acknowledge(first_unacknowledged);
        for (sequence, status, body) in replies {
            let (claim, _) = self.judge(sequence);
            if claim != Claim::Execute {
                continue;
            }
            // Which of them were invocations is not known, so read-only ones look at all.
            self.written.fetch_max(sequence, Ordering::Release);
            let record = &self.records[(sequence & MASK) as usize];
            record.state.store(sequence << 2 | PHASE_EXECUTING, Ordering::Release);
            self.complete(sequence, status, body);
        }
    }

    /// Records that the client has the replies to all requests below `first_unacknowledged`.
    #[inline]
    pub fn acknowledge(&self, first_unacknowledged: u64) {
        let first = first_unacknowledged.min(SEQUENCE_MAX);
        let known = self.acknowledged.load(Ordering::Relaxed);
        if first <= known {
            return;
        }
        let before = self.acknowledged.fetch_max(first, Ordering::AcqRel);
        if self.long_bytes.load(Ordering::Relaxed) > 0 && first > before {
            self.forget_long(before, first);
        }
    }

    /// Returns the lowest sequence not known to be acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Returns a sequence beyond all claimed or acknowledged ones. Reads every record.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        let claimed = self.records.iter().map(|record| record.state.load(Ordering::Acquire) >> 2).max();
        claimed.map_or(1, |claimed| claimed + 1).max(self.acknowledged())
    }

    /// Claims the record of `sequence`.
    #[inline]
    pub fn claim(&self, sequence: u64) -> Claim {
        let (claim, state) = self.judge(sequence);
        if claim != Claim::Execute {
            return claim;
        }
        if self.long_bytes.load(Ordering::Relaxed) > SESSION_REPLY_BYTES_MAX {
            return Claim::Busy;
        }
        let record = &self.records[(sequence & MASK) as usize];
        let executing = sequence << 2 | PHASE_EXECUTING;
        match record.state.compare_exchange(state, executing, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Claim::Execute,
            Err(_) => Claim::InFlight,
        }
    }

    /// Like [`Ring::claim`], for an invocation that may write while copies of it may meet a read-only version of its
    /// function.
    #[inline]
    pub fn begin_write(&self, sequence: u64) -> Claim {
        if sequence > self.written.load(Ordering::Relaxed) {
            // Before the record is taken, and so before anything is written.
            self.written.fetch_max(sequence, Ordering::Release);
        }
        self.claim(sequence)
    }

    /// Decides about a read-only invocation. [`Claim::Execute`] unless a copy of it was begun as a write.
    #[inline]
    #[must_use]
    pub fn begin_read(&self, sequence: u64) -> Claim {
        if sequence > self.written.load(Ordering::Acquire) {
            return Claim::Execute;
        }
        match self.look(sequence) {
            claim @ (Claim::Replay | Claim::InFlight) => claim,
            _ => Claim::Execute,
        }
    }

    /// Returns the result of [`Ring::claim`] for a request that must not run here, without claiming it.
    #[must_use]
    pub fn look(&self, sequence: u64) -> Claim {
        self.judge(sequence).0
    }

    /// Decides about a request; returns also the state of its record.
    #[inline]
    fn judge(&self, sequence: u64) -> (Claim, u64) {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        if sequence < acknowledged {
            return (Claim::Expired, 0);
        }
        if sequence - acknowledged >= RECORDS as u64 || sequence > SEQUENCE_MAX {
            return (Claim::Ahead, 0);
        }
        let record = &self.records[(sequence & MASK) as usize];
        let state = record.state.load(Ordering::Acquire);
        let (held, phase) = (state >> 2, state & PHASE_MASK);
        if held == sequence {
            match phase {
                PHASE_EXECUTING => return (Claim::InFlight, state),
                PHASE_DONE => return (Claim::Replay, state),
                _ => {}
            }
        } else if held > sequence {
            return (Claim::Expired, state);
        } else if phase == PHASE_EXECUTING {
            return (Claim::Busy, state);
        }
        // The window was checked before the record was read, and only moves on.
        debug_assert!(
            state == 0 || held == sequence || (held < acknowledged && (held ^ sequence) & MASK == 0),
            "a record is reused only after its request is acknowledged"
        );
        (Claim::Execute, state)
    }

    /// Stores the reply of a claimed request that ran. A long one is dropped if it is already acknowledged or the
    /// session stores too many; then a copy of the request gets `ReplyForgotten`.
    pub fn complete(&self, sequence: u64, status: Status, body: &[u8]) {
        if body.len() > INLINE_BYTES {
            return self.complete_long(sequence, status, body);
        }
        let mut words = [0; INLINE_BYTES];
        words[..body.len()].copy_from_slice(body);
        let words = u128::from_le_bytes(words);
        self.complete_inline(sequence, status, body.len(), [words as u64, (words >> 64) as u64]);
    }

    /// Stores a reply of up to two little-endian words, of which the first `bytes` bytes count.
    #[inline]
    pub fn complete_inline(&self, sequence: u64, status: Status, bytes: usize, words: [u64; 2]) {
        assert!(bytes <= INLINE_BYTES);
        let record = self.executing(sequence);
        // After the claim: a reader that sees one of these words sees the new state in its second look. Costs no
        // instruction on x86-64.
        fence(Ordering::Release);
        record.head.store(status as u64 | (bytes as u64) << 8, Ordering::Relaxed);
        record.first.store(words[0], Ordering::Relaxed);
        record.second.store(words[1], Ordering::Relaxed);
        record.state.store(sequence << 2 | PHASE_DONE, Ordering::Release);
    }

    /// Releases a claimed record: the request did not run and may be repeated.
    #[inline]
    pub fn release(&self, sequence: u64) {
        self.executing(sequence).state.store(sequence << 2 | PHASE_FREE, Ordering::Release);
    }

    /// Passes the stored reply of `sequence` to `answer`; `None` if it is gone.
    pub fn replay<T>(&self, sequence: u64, answer: impl FnOnce(Status, &[u8]) -> T) -> Option<T> {
        let record = &self.records[(sequence & MASK) as usize];
        let done = sequence << 2 | PHASE_DONE;
        if record.state.load(Ordering::Acquire) != done {
            return None;
        }
        let head = record.head.load(Ordering::Relaxed);
        let first = record.first.load(Ordering::Relaxed);
        let second = record.second.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if record.state.load(Ordering::Relaxed) != done {
            return None;
        }
        let status = Status::from_u8(head as u8).unwrap_or(Status::Internal);
        if head & HEAD_LONG != 0 {
            let reply = self.long(sequence).take()?;
            let answered = (reply.sequence == sequence).then(|| answer(status, &reply.bytes));
            self.put_back(reply, sequence);
            return answered;
        }
        let words = (u128::from(first) | u128::from(second) << 64).to_le_bytes();
        let bytes = (head >> 8) as u8 as usize;
        debug_assert!(bytes <= INLINE_BYTES, "what was read belongs to one reply");
        Some(answer(status, &words[..bytes.min(INLINE_BYTES)]))
    }

    /// Passes the replies to all requests that ran and that the client has not acknowledged to `visit`. A long one that a
    /// worker sends right now is passed as [`Status::ReplyForgotten`], if that lasts. Reads every record.
    pub fn each_reply(&self, mut visit: impl FnMut(u64, Status, &[u8])) {
        let first = self.acknowledged();
        for sequence in first..first.saturating_add(RECORDS as u64) {
            let mut passes = || self.replay(sequence, |status, body| visit(sequence, status, body)).is_some();
            let is_passed = (0..LONG_REPLY_TRIES).any(|_| {
                self.look(sequence) != Claim::Replay || passes() || {
                    std::thread::yield_now();
                    false
                }
            });
            if !is_passed {
                visit(sequence, Status::ReplyForgotten, &[]);
            }
        }
    }

    fn complete_long(&self, sequence: u64, status: Status, body: &[u8]) {
        let record = self.executing(sequence);
        let mut reply = self.long(sequence).take().unwrap_or_default();
        debug_assert!(
            reply.sequence == 0 || reply.sequence < sequence,
            "the buffer beside a record has no later reply"
        );
        // The reply of the previous request, which was acknowledged.
        self.empty(&mut reply);
        // Counted before it can be found, so that a later taker subtracts it.
        let stored = self.long_bytes.fetch_add(body.len(), Ordering::Relaxed) + body.len();
        let is_kept = stored <= SESSION_REPLY_BYTES_STORED_MAX;
        if is_kept {
            reply.sequence = sequence;
            reply.bytes.extend_from_slice(body);
        } else {
            self.long_bytes.fetch_sub(body.len(), Ordering::Relaxed);
        }
        if !self.put_back(reply, sequence) || !is_kept {
            return self.complete_inline(sequence, Status::ReplyForgotten, 0, [0; 2]);
        }
        // As in `complete_inline`.
        fence(Ordering::Release);
        record.head.store(status as u64 | HEAD_LONG, Ordering::Relaxed);
        record.state.store(sequence << 2 | PHASE_DONE, Ordering::Release);
    }

    /// Frees the long replies of the acknowledged requests from `from` up to, not including, `to`.
    fn forget_long(&self, from: u64, to: u64) {
        for sequence in from.max(to.saturating_sub(RECORDS as u64))..to {
            if let Some(reply) = self.long(sequence).take() {
                self.put_back(reply, sequence);
            }
        }
    }

    /// Puts a buffer back beside the record of `sequence`, emptied if its reply is acknowledged. If two meet there, the
    /// one of the later request stays. Returns false if the request of `sequence` is acknowledged.
    fn put_back(&self, mut reply: Box<LongReply>, sequence: u64) -> bool {
        let place = self.long(sequence);
        loop {
            if reply.sequence < self.acknowledged() {
                self.empty(&mut reply);
            }
            let own = reply.sequence;
            if let Some(mut other) = place.put(reply) {
                debug_assert!(own == 0 || own != other.sequence, "a reply is stored once");
                if other.sequence > own {
                    reply = other;
                    continue;
                }
                self.empty(&mut other);
            }
            // Not a load: of this and the exchange that acknowledges, the later one sees what preceded the other. So
            // either this thread sees that the reply is acknowledged, or the other one sees its bytes and the box.
            let acknowledged = self.acknowledged.fetch_add(0, Ordering::AcqRel);
            if own == 0 || own >= acknowledged {
                return sequence >= acknowledged;
            }
            match place.take() {
                Some(again) => reply = again,
                None => return sequence >= acknowledged,
            }
        }
    }

    /// Empties a buffer, whose memory it keeps unless it is large.
    fn empty(&self, reply: &mut LongReply) {
        let before = self.long_bytes.fetch_sub(reply.bytes.len(), Ordering::Relaxed);
        debug_assert!(before >= reply.bytes.len(), "a stored reply was counted");
        reply.bytes.clear();
        reply.bytes.shrink_to(STORED_REPLY_BYTES_KEPT);
        reply.sequence = 0;
    }

    fn long(&self, sequence: u64) -> &AtomicBox<LongReply> {
        &self.long[(sequence & MASK) as usize]
    }

    fn executing(&self, sequence: u64) -> &RingRecord {
        let record = &self.records[(sequence & MASK) as usize];
        let state = record.state.load(Ordering::Relaxed);
        assert_eq!(state, sequence << 2 | PHASE_EXECUTING, "only a claimed record is completed");
        record
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, loom_model))]
mod loom_tests;
#[cfg(all(test, not(loom_model)))]
mod tests;
