//! The receiving half of the requester: matches replies to requests.
//!
//! A reply names the low half of its sequence; within the window this determines the whole. Replies that are not
//! awaited are ignored, so repeated, late and forged replies are harmless: only the holder of the token can name the
//! session, and the port has to drop frames from other addresses.

use super::ring::{Repetition, State};
use super::{Completion, Requester};
use crate::frame::{FrameError, FrameReader, Group, Message};
use crate::limits::IS_PART;
use crate::reply;
use crate::status::Status;

/// Longest that a server's `Retry` may put a request off; it may lie, or mean another unit.
const RETRY_AFTER_US_MAX: u32 = 1_000_000;

impl Requester {
    /// Processes a received frame and completes the answered requests; returns the server's view.
    ///
    /// Groups of other sessions, replies to unknown sequences and repeated replies are ignored. The next transmission
    /// must carry the returned view: requests that were refused for their view are then due.
    ///
    /// # Errors
    /// The fault of the frame; replies before it have been completed.
    #[inline]
    pub fn on_frame(
        &mut self,
        now_us: u64,
        frame: &[u8],
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<u64, FrameError> {
        let reader = FrameReader::new(frame)?;
        for group in reader.groups() {
            self.on_group(now_us, reader.view(), &group?, complete)?;
        }
        Ok(reader.view())
    }

    /// As [`Requester::on_frame`], for a caller that shares a port between sessions and finds them by
    /// [`Group::token`]. `view` is the frame's. A group of another session is ignored.
    ///
    /// # Errors
    /// As [`Requester::on_frame`].
    #[inline]
    pub fn on_group(
        &mut self,
        now_us: u64,
        view: u64,
        group: &Group<'_>,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), FrameError> {
        if group.token != self.token {
            return Ok(());
        }
        self.home_core = Some(group.home_core);
        for message in group.messages() {
            self.on_reply(now_us, view, &message?, complete);
        }
        Ok(())
    }

    #[inline]
    fn on_reply(
        &mut self,
        now_us: u64,
        view: u64,
        message: &Message<'_>,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let ahead = u64::from(message.sequence_low.wrapping_sub(self.first as u32));
        // Only what was sent can be answered.
        if ahead >= self.unsent - self.first {
            return;
        }
        let sequence = self.first + ahead;
        if !self.ring.slot(sequence).awaits_reply() {
            return;
        }
        let mut whole = Vec::new();
        let body = if message.flags & IS_PART == 0 {
            message.body
        } else {
            let Ok(part) = reply::Part::decode(message.body) else { return };
            let Some(body) = self.assemblies.add(sequence, &part) else { return };
            whole = body;
            &whole
        };
        self.on_answer((now_us, view), sequence, message.code, body, complete);
        if whole.capacity() > 0 {
            self.assemblies.give_back(whole);
        }
    }

    /// Takes a whole answer to a request that awaits it.
    #[inline(always)]
    fn on_answer(
        &mut self,
        (now_us, view): (u64, u64),
        sequence: u64,
        code: u8,
        body: &[u8],
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let slot = self.ring.slot_mut(sequence);
        // A status of a newer protocol is an answer all the same; the caller sees that it is none of its own.
        let status = Status::from_u8(code).unwrap_or(Status::Internal);
        if slot.state == State::Sent && slot.repetition == Repetition::None {
            self.round_trip.on_sample(now_us.saturating_sub(slot.sent_us));
        }
        let tag = slot.tag;
        match status {
            Status::Retry => {
                return self.put_off(now_us, sequence, retry_after_us(body), State::PutOff);
            }
            Status::Throttled => {
                let after_us = reply::Throttled::decode(body).map_or(RETRY_AFTER_US_MAX, |it| it.after_us);
                let after_us = u64::from(after_us.min(RETRY_AFTER_US_MAX));
                return self.put_off(now_us, sequence, after_us, State::Throttled);
            }
            Status::WrongView | Status::NotOwned if status == Status::WrongView || view < self.sent_view => {
                // At once under a view that is news; should it be none, no faster than a lost one. `NotOwned` holds
                // for the view of the frame and those before; under a later one a copy may be executed there.
                let after_us = if slot.repetition != Repetition::None && view <= self.sent_view {
                    self.round_trip.interval_us(slot.doublings)
                } else {
                    0
                };
                return self.put_off(now_us, sequence, after_us, State::PutOff);
            }
            Status::UseStream => slot.state = State::Reserved,
            _ => self.free(sequence),
        }
        complete(Completion { tag, sequence, status: Ok(status), body });
    }

    /// The server did not execute this request now and wants to see it again, under the same sequence: an
    /// earlier transmission may have been executed.
    #[cold]
    fn put_off(&mut self, now_us: u64, sequence: u64, after_us: u64, state: State) {
        let slot = self.ring.slot_mut(sequence);
        if slot.state != State::Sent {
            return;
        }
        slot.state = state;
        slot.due_us = now_us + after_us;
        self.resend_at_us = self.resend_at_us.min(slot.due_us);
    }
}

fn retry_after_us(body: &[u8]) -> u64 {
    u64::from(reply::decode_retry(body).unwrap_or(RETRY_AFTER_US_MAX).min(RETRY_AFTER_US_MAX))
}
