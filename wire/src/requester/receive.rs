//! The receiving half of the requester: matches replies to requests.
//!
//! A reply names the low half of its sequence; within the window this determines the whole. Replies that are not
//! awaited are ignored, so repeated, late and forged replies are harmless: only the holder of the token can name the
//! session, and the port has to drop frames from other addresses.

use super::ring::{Repetition, State};
use super::{Completion, Requester};
use crate::frame::{FrameError, FrameReader, Group, Message};
use crate::limits::{IS_PART, REPLY_PARTS_MAX};
use crate::reply::{self, Part};
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
            let Ok(part) = Part::decode(message.body) else { return };
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
        debug_assert!(
            (self.first..self.unsent).contains(&sequence) && self.ring.slot(sequence).awaits_reply(),
            "only what was sent is answered"
        );
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
            Status::BadToken => slot.state = State::Refused,
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

/// Buffers that are kept for the next answers.
const SPARE_BUFFERS: usize = 16;

/// A reply whose parts are arriving, of one execution: a part of another execution starts again.
#[derive(Debug)]
struct Assembly {
    sequence: u64,
    stamp: u32,
    count: u16,
    /// A bit for each piece that is here.
    here: u64,
    body: Vec<u8>,
}

const _: () = assert!(REPLY_PARTS_MAX <= u64::BITS as usize);

/// The assemblies of a session: at most [`crate::limits::REPLY_PARTS_BYTES_MAX`] per outstanding request.
#[derive(Debug, Default)]
pub(super) struct Assemblies {
    open: Vec<Assembly>,
    spare: Vec<Vec<u8>>,
}

impl Assemblies {
    /// Stores a part; returns the reply if it was the last missing one.
    #[inline]
    pub(super) fn add(&mut self, sequence: u64, part: &Part<'_>) -> Option<Vec<u8>> {
        // Searches from the end: most parts belong to the latest request.
        let found = self.open.iter().rposition(|assembly| assembly.sequence == sequence);
        let index = found.unwrap_or_else(|| {
            let body = self.spare.pop().unwrap_or_default();
            self.open.push(Assembly { sequence, stamp: part.stamp, count: 0, here: 0, body });
            self.open.len() - 1
        });
        let assembly = &mut self.open[index];
        let is_same = assembly.stamp == part.stamp
            && assembly.count == part.count
            && assembly.body.len() == part.whole_bytes as usize;
        if !is_same {
            (assembly.stamp, assembly.count, assembly.here) = (part.stamp, part.count, 0);
            assembly.body.resize(part.whole_bytes as usize, 0);
        }
        let place = assembly.body.get_mut(part.first()..)?.get_mut(..part.bytes.len())?;
        place.copy_from_slice(part.bytes);
        assembly.here |= 1 << part.index;
        let is_whole = assembly.here.count_ones() == u32::from(part.count);
        is_whole.then(|| self.open.swap_remove(index).body)
    }

    /// Discards the parts of a sequence.
    #[inline]
    pub(super) fn forget(&mut self, sequence: u64) {
        if !self.open.is_empty()
            && let Some(index) = self.open.iter().position(|assembly| assembly.sequence == sequence)
        {
            let body = self.open.swap_remove(index).body;
            self.give_back(body);
        }
    }

    /// Takes back the memory of a reply.
    pub(super) fn give_back(&mut self, body: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS {
            self.spare.push(body);
        }
    }
}
