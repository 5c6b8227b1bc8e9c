//! The slots of outstanding requests, found by sequence.
//!
//! The number of slots is a power of two, at least the credits: two sequences within a window never share one. A slot
//! keeps the encoded body for retransmission, in a buffer that only grows, up to one frame.

use crate::durability::RequestDurability;
use crate::frame::FrameWriter;
use crate::limits::{MAY_PUSH_BACK, TAKES_PARTS};
use crate::opcode;
use crate::requester::completion::{Accepted, Journey};

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// No request, or a complete one.
    Free,
    /// Accepted, never sent.
    Queued,
    /// Sent, possibly many times.
    Sent,
    /// Refused for now: waits for its retransmission.
    PutOff,
    /// As `PutOff`, for a limit of its tenant.
    Throttled,
    /// The sequence belongs to a request over the stream.
    Reserved,
    /// The server did not know the session; waits until the session is resumed or closed.
    Refused,
}

/// The reason why a request was sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repetition {
    /// It was sent only once.
    None,
    /// The server replied each time that it should be sent again later.
    PutOff,
    /// A reply was lost.
    Lost,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) state: State,
    /// The opcode.
    pub(super) code: u8,
    /// The reason of its retransmissions, if any.
    pub(super) repetition: Repetition,
    /// Doublings of its present interval.
    pub(super) doublings: u8,
    /// Length of the body at the start of `buffer`.
    body_bytes: u16,
    moves: u8,
    /// [`Journey::flags`].
    journey_flags: u8,
    pub(super) tag: u64,
    /// The time at which the call is given up.
    pub(super) deadline_us: u64,
    /// The time of its next transmission.
    pub(super) due_us: u64,
    /// The time of its first transmission.
    pub(super) sent_us: u64,
    buffer: Vec<u8>,
}

impl Slot {
    /// Returns whether a reply would be accepted.
    #[inline]
    pub(super) const fn awaits_reply(&self) -> bool {
        matches!(self.state, State::Sent | State::PutOff | State::Throttled)
    }

    /// Returns whether a caller waits for its completion.
    #[inline]
    pub(super) const fn is_call(&self) -> bool {
        self.awaits_reply() || matches!(self.state, State::Queued)
    }

    /// Returns room for a body; it holds old bytes.
    #[inline]
    pub(super) fn body_mut(&mut self, body_bytes: usize) -> &mut [u8] {
        if self.buffer.len() < body_bytes {
            self.buffer.resize(body_bytes, 0);
        }
        self.body_bytes = body_bytes as u16;
        &mut self.buffer[..body_bytes]
    }

    /// Sets the deadline and moves of the call.
    #[inline]
    pub(super) fn set_journey(&mut self, journey: Journey) {
        (self.deadline_us, self.moves, self.journey_flags) =
            (journey.deadline_us, journey.moves, journey.flags());
    }

    #[inline]
    fn body(&self) -> &[u8] {
        &self.buffer[..usize::from(self.body_bytes)]
    }

    /// Returns the request as it was accepted.
    pub(super) fn accepted(&self) -> Accepted<'_> {
        let was_repeated = self.repetition != Repetition::None;
        let journey = Journey {
            deadline_us: self.deadline_us,
            moves: self.moves,
            durability: RequestDurability::of_flags(self.journey_flags),
            may_push_back: self.journey_flags & MAY_PUSH_BACK != 0,
        };
        Accepted { tag: self.tag, journey, code: self.code, body: self.body(), was_repeated }
    }

    /// Returns the flags of the request: a read may be answered in parts, unless an answer was lost; then the stream
    /// carries it. And what the answer waits for.
    #[inline]
    const fn flags(&self) -> u8 {
        let takes_parts = opcode::is_read(self.code) && !matches!(self.repetition, Repetition::Lost);
        self.journey_flags | if takes_parts { TAKES_PARTS } else { 0 }
    }

    /// Writes the request as a message; `false` when it does not fit.
    #[inline]
    pub(super) fn write(&self, sequence: u64, writer: &mut FrameWriter, buffer: &mut [u8]) -> bool {
        let body = self.body();
        let place = writer.message(buffer, self.code, self.flags(), sequence as u32, body.len());
        place.map(|place| place.copy_from_slice(body)).is_some()
    }
}

// Hundreds of sessions may stand in one process.
const _: () = assert!(size_of::<Slot>() <= 64);

#[derive(Debug)]
pub(super) struct Ring {
    slots: Box<[Slot]>,
    used: usize,
}

impl Ring {
    pub(super) fn new(credits: u16) -> Ring {
        let empty = || Slot {
            state: State::Free,
            code: 0,
            repetition: Repetition::None,
            doublings: 0,
            body_bytes: 0,
            tag: 0,
            moves: 0,
            journey_flags: 0,
            deadline_us: 0,
            due_us: 0,
            sent_us: 0,
            buffer: Vec::new(),
        };
        let slots = (0..usize::from(credits).next_power_of_two()).map(|_| empty()).collect();
        Ring { slots, used: 0 }
    }

    #[inline]
    pub(super) fn slot(&self, sequence: u64) -> &Slot {
        &self.slots[sequence as usize & (self.slots.len() - 1)]
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, sequence: u64) -> &mut Slot {
        let index = sequence as usize & (self.slots.len() - 1);
        &mut self.slots[index]
    }

    /// Takes the slot of a new sequence.
    #[inline]
    pub(super) fn take(&mut self, sequence: u64, state: State) -> &mut Slot {
        self.used += 1;
        let slot = self.slot_mut(sequence);
        assert!(slot.state == State::Free, "a sequence within the window has a slot of its own");
        slot.state = state;
        slot
    }

    #[inline]
    pub(super) fn free(&mut self, sequence: u64) {
        debug_assert!(self.slot(sequence).state != State::Free, "a request completes once");
        self.used -= 1;
        self.slot_mut(sequence).state = State::Free;
    }

    /// Returns the number of slots in use.
    #[inline]
    pub(super) const fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::{Ring, State};

    #[test]
    fn slots_keep_their_buffers_so_that_nothing_is_allocated_again() {
        let mut ring = Ring::new(4);
        let mut places: Vec<*const u8> = Vec::new();
        for sequence in 0..4 {
            places.push(ring.take(sequence, State::Queued).body_mut(1_424).as_ptr());
            ring.free(sequence);
        }
        for sequence in 4..400 {
            let body_bytes = (sequence as usize * 37) % 1_425;
            let body = ring.take(sequence, State::Queued).body_mut(body_bytes);
            assert_eq!((body.len(), body.as_ptr()), (body_bytes, places[sequence as usize % 4]));
            ring.free(sequence);
        }
        assert_eq!(ring.used(), 0);
    }
}
