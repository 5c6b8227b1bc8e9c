//! Outstanding requests of one session: transmission, retransmission, completion, expiry.
//!
//! Sans-I/O: the caller passes the time in microseconds of any monotonic clock, sends the frames that
//! [`Requester::poll_transmit`] fills and hands over those that arrive. Each request keeps its sequence over all
//! retransmissions, and frames carry the lowest sequence that is not complete; with the server's records a request
//! executes at most once, and exactly once if it completes with the status of an execution.
//!
//! ```text
//!    first (acknowledged below)      unsent            next
//!      |  sent .. done .. refused      |  queued ..      |        next - first <= credits
//! ```
//! A ring of slots is indexed by sequence and sized by the credits. Bodies live in buffers that slots keep, so that
//! nothing is allocated once they have grown, and a request can be read back to be sent in another way. No threads,
//! no locks, and no pacing beyond the credits.

mod completion;
mod receive;
mod ring;
mod transmit;

pub use completion::{Accepted, Completion, CompletionError, Journey, RequesterConfig, SubmitError};

use crate::limits::{
    CREDITS_MAX, FRAME_BYTES_LIMIT, FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, MESSAGE_HEADER_BYTES,
};
use crate::opcode;
use crate::request::Request;
use receive::Assemblies;
use ring::{Repetition, Ring, State};
use transmit::RoundTrip;

/// No timer is running.
const NEVER_US: u64 = u64::MAX;

/// The outstanding requests of one session. See the file's head for the life of a request.
#[derive(Debug)]
pub struct Requester {
    token: u64,
    /// Lowest sequence that is not complete.
    first: u64,
    /// Lowest sequence that was never sent.
    unsent: u64,
    /// The next sequence to give.
    next: u64,
    credits: u64,
    /// No slot is due for retransmission before; may be too early, never too late.
    resend_at_us: u64,
    /// No call is to be given up before; may be too early, never too late.
    give_up_at_us: u64,
    /// The highest view that anything was sent under.
    sent_view: u64,
    ring: Ring,
    assemblies: Assemblies,
    round_trip: RoundTrip,
    body_bytes_max: usize,
    home_core: Option<u16>,
    config: RequesterConfig,
}

impl Requester {
    /// Creates a requester for the session of `token`.
    ///
    /// Its sequences start at `first_sequence` (1 for a new session), and its server granted `credits`. Memory: 64
    /// bytes per credit, rounded up to a power of two, and the bodies.
    ///
    /// # Panics
    /// If `credits` is 0 or above [`CREDITS_MAX`], or the largest frame has no room for a message.
    pub fn new(token: u64, first_sequence: u64, credits: u16, config: RequesterConfig) -> Requester {
        assert!(credits > 0 && credits <= CREDITS_MAX, "{credits} credits");
        assert!(config.frame_bytes_max <= FRAME_BYTES_LIMIT, "frames beyond the limit");
        let heads_bytes = FRAME_HEADER_BYTES + GROUP_HEADER_BYTES + MESSAGE_HEADER_BYTES;
        let body_bytes_max = config.frame_bytes_max.checked_sub(heads_bytes).expect("frames without place");
        Requester {
            token,
            first: first_sequence,
            unsent: first_sequence,
            next: first_sequence,
            credits: u64::from(credits),
            resend_at_us: NEVER_US,
            give_up_at_us: NEVER_US,
            sent_view: 0,
            ring: Ring::new(credits),
            assemblies: Assemblies::default(),
            round_trip: RoundTrip::new(&config),
            body_bytes_max,
            home_core: None,
            config,
        }
    }

    /// Queues a request and returns its sequence; `tag` comes back with its completion. Copies key and value
    /// or arguments once, into the slot's buffer.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing was queued.
    #[inline]
    pub fn submit(&mut self, now_us: u64, tag: u64, request: &Request<'_>) -> Result<u64, SubmitError> {
        self.submit_on(Journey::begin(now_us, self.config.call_timeout_us), tag, request)
    }

    /// As [`Requester::submit`], for a request that may have been in transit before: it keeps its deadline.
    ///
    /// # Errors
    /// As [`Requester::submit`].
    #[inline]
    pub fn submit_on(
        &mut self,
        journey: Journey,
        tag: u64,
        request: &Request<'_>,
    ) -> Result<u64, SubmitError> {
        if !self.can_submit() {
            return Err(SubmitError::Full);
        }
        request.check().map_err(SubmitError::Refused)?;
        let body_bytes = request.body_bytes();
        if body_bytes > self.body_bytes_max {
            return Err(SubmitError::TooLarge);
        }
        let sequence = self.next;
        self.next += 1;
        let slot = self.ring.take(sequence, State::Queued);
        slot.code = request.opcode();
        slot.repetition = Repetition::None;
        slot.tag = tag;
        slot.set_journey(journey);
        request.encode(slot.body_mut(body_bytes));
        self.give_up_at_us = self.give_up_at_us.min(journey.deadline_us);
        self.check();
        Ok(sequence)
    }

    /// Asserts that the window is in order and within the credits.
    #[inline]
    fn check(&self) {
        debug_assert!(
            self.first <= self.unsent && self.unsent <= self.next,
            "a sequence is sent once it is given"
        );
        debug_assert!(self.next - self.first <= self.credits, "the window is within the credits");
        debug_assert!(self.ring.used() as u64 <= self.next - self.first, "a slot is that of a sequence");
    }

    /// Returns whether [`Requester::submit`] and [`Requester::reserve_sequence`] have a free sequence. One old
    /// unanswered request holds the window back, however many newer ones are complete.
    #[inline]
    pub const fn can_submit(&self) -> bool {
        self.next - self.first < self.credits
    }

    /// Reserves a sequence for a request that travels over the stream. It counts as outstanding, so that frames do
    /// not acknowledge it, until [`Requester::release`]. `None` if the window is full.
    pub fn reserve_sequence(&mut self) -> Option<u64> {
        if !self.can_submit() {
            return None;
        }
        let sequence = self.next;
        self.next += 1;
        if self.unsent == sequence {
            self.unsent = self.next;
        }
        self.ring.take(sequence, State::Reserved);
        Some(sequence)
    }

    /// Completes a sequence that was reserved, or whose completion had the status [`crate::Status::UseStream`] or
    /// [`crate::Status::BadToken`].
    ///
    /// Call it when the reply has come over the stream, or the caller no longer waits for it. Returns whether there
    /// was such a sequence.
    pub fn release(&mut self, sequence: u64) -> bool {
        let held = (self.first..self.next).contains(&sequence)
            && matches!(self.ring.slot(sequence).state, State::Reserved | State::Refused);
        if held {
            self.free(sequence);
        }
        held
    }

    /// Completes the requests whose deadline has passed.
    #[inline]
    pub fn on_timer(&mut self, now_us: u64, complete: &mut impl FnMut(Completion<'_>)) {
        if self.is_due(now_us) {
            self.give_up_due(now_us, complete);
        }
    }

    /// Returns whether [`Requester::on_timer`] may have something to do.
    #[inline]
    pub const fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.give_up_at_us
    }

    /// Walks the window once; runs only when the earliest deadline may have passed.
    #[cold]
    fn give_up_due(&mut self, now_us: u64, complete: &mut impl FnMut(Completion<'_>)) {
        let mut give_up_at_us = NEVER_US;
        for sequence in self.first..self.next {
            let slot = self.ring.slot(sequence);
            if !slot.is_call() {
                continue;
            }
            match slot.deadline_us {
                deadline_us if deadline_us <= now_us => self.give_up(sequence, None, complete),
                deadline_us => give_up_at_us = give_up_at_us.min(deadline_us),
            }
        }
        self.give_up_at_us = give_up_at_us;
    }

    /// Continues in the session of `token`, which the server gave the client in place of this one. All outstanding
    /// requests keep their sequences and deadlines; those that were sent are sent again at once, also those that
    /// completed with [`crate::Status::BadToken`].
    pub fn resume(&mut self, token: u64) {
        self.token = token;
        // Of an earlier run of the server. No frame under the former token is executed any more.
        (self.home_core, self.sent_view, self.assemblies) = (None, 0, Assemblies::default());
        for sequence in self.first..self.unsent {
            let slot = self.ring.slot_mut(sequence);
            if slot.state == State::Refused {
                slot.state = State::Sent;
                self.give_up_at_us = self.give_up_at_us.min(slot.deadline_us);
            }
            if slot.awaits_reply() {
                (slot.due_us, slot.doublings) = (0, 0);
                self.resend_at_us = 0;
            }
        }
    }

    /// Returns the outstanding requests, without those on the stream.
    pub fn calls(&self) -> impl Iterator<Item = (u64, Accepted<'_>)> {
        let slots = (self.first..self.next).map(|sequence| (sequence, self.ring.slot(sequence)));
        let calls = slots.filter(|(_, slot)| slot.is_call() || slot.state == State::Refused);
        calls.map(|(sequence, slot)| (sequence, slot.accepted()))
    }

    /// Ends the session: completes every request with [`CompletionError::Closed`] and releases every reserved
    /// sequence.
    pub fn close(&mut self, complete: &mut impl FnMut(Completion<'_>)) {
        for sequence in self.first..self.next {
            if self.ring.slot(sequence).is_call() {
                self.give_up(sequence, Some(CompletionError::Closed), complete);
            } else {
                self.release(sequence);
            }
        }
    }

    /// Completes with [`CompletionError::Closed`] the requests for which `ends` is true, also those that completed with
    /// [`crate::Status::BadToken`].
    pub fn close_where(
        &mut self,
        ends: impl Fn(&Accepted<'_>) -> bool,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        for sequence in self.first..self.next {
            let slot = self.ring.slot(sequence);
            if (slot.is_call() || slot.state == State::Refused) && ends(&slot.accepted()) {
                self.give_up(sequence, Some(CompletionError::Closed), complete);
            }
        }
    }

    fn give_up(
        &mut self,
        sequence: u64,
        error: Option<CompletionError>,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let slot = self.ring.slot(sequence);
        let tag = slot.tag;
        // Whatever later copies were told, one that had no answer may have been executed.
        let may_be_done = slot.repetition == Repetition::Lost && !opcode::is_read(slot.code);
        let error = error.unwrap_or(match slot.state {
            State::Queued => CompletionError::NotSent,
            State::PutOff | State::Throttled if may_be_done => CompletionError::TimedOut,
            State::PutOff => CompletionError::Overloaded,
            State::Throttled => CompletionError::Throttled,
            _ => CompletionError::TimedOut,
        });
        self.free(sequence);
        complete(Completion { tag, sequence, status: Err(error), body: &[] });
    }

    /// Returns the time of the next call of [`Requester::on_timer`] and [`Requester::poll_transmit`], without other
    /// events.
    ///
    /// It may be in the past, or too early for any work; `None` if no reply is awaited. Queued requests do not wait
    /// for it.
    pub fn next_deadline_us(&self) -> Option<u64> {
        let awaits = (self.first..self.next).any(|sequence| self.ring.slot(sequence).is_call());
        awaits.then(|| self.give_up_at_us.min(self.resend_at_us))
    }

    /// Returns the sequence of the next request.
    pub const fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Returns the request of an outstanding sequence, or of a completed one until the next submit.
    #[must_use]
    pub fn accepted(&self, sequence: u64) -> Accepted<'_> {
        self.ring.slot(sequence).accepted()
    }

    /// Returns the number of incomplete sequences, reserved ones included.
    #[inline]
    pub const fn outstanding(&self) -> usize {
        self.ring.used()
    }

    /// Returns the sequence below which all are complete. Stream records carry it as frames do.
    #[inline]
    pub const fn first_unacknowledged(&self) -> u64 {
        self.first
    }

    /// Returns the session's token.
    #[inline]
    pub const fn token(&self) -> u64 {
        self.token
    }

    /// Returns the tenant's home core as named by the latest reply.
    #[inline]
    pub const fn home_core(&self) -> Option<u16> {
        self.home_core
    }

    /// Returns the smoothed time from sending to reply; `None` before the first sample.
    pub const fn round_trip_us(&self) -> Option<u64> {
        self.round_trip.smoothed_us()
    }

    /// Frees the slot and moves the start of the window over all that is complete.
    #[inline]
    fn free(&mut self, sequence: u64) {
        self.ring.free(sequence);
        self.assemblies.forget(sequence);
        if sequence != self.first {
            return;
        }
        while self.first != self.next && self.ring.slot(self.first).state == State::Free {
            self.first += 1;
        }
        self.unsent = self.unsent.max(self.first);
        if self.first == self.next {
            (self.resend_at_us, self.give_up_at_us) = (NEVER_US, NEVER_US);
            debug_assert_eq!(self.ring.used(), 0, "an empty window has no slot");
        }
        self.check();
    }
}
