//! The sending half of the requester: packs due retransmissions and queued requests.
//!
//! A cursor finds new requests, so a frame of them costs nothing but its messages. Retransmissions are found by
//! walking the window, but only when the earliest timer may have fired, which at a healthy server is once per timer
//! interval at any load.

use super::ring::{Repetition, State};
use super::{NEVER_US, Requester, RequesterConfig};
use crate::frame::FrameWriter;

impl Requester {
    /// Fills one frame with due retransmissions and queued requests, and returns its length; `None` if there is
    /// nothing to send. Call again until then. Copies each body once.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`crate::RequesterConfig::frame_bytes_max`], which also bounds the frame.
    #[inline]
    pub fn poll_transmit(&mut self, now_us: u64, view: u64, buffer: &mut [u8]) -> Option<usize> {
        if !self.wants_transmit(now_us) {
            return None;
        }
        let buffer = &mut buffer[..self.config.frame_bytes_max];
        let mut writer = FrameWriter::new();
        writer.start(buffer, view);
        self.poll_group(now_us, view, &mut writer, buffer);
        match writer.finish(buffer) {
            0 => None,
            frame_bytes => Some(frame_bytes),
        }
    }

    /// As [`Requester::poll_transmit`], into a frame that is already started under this view and that other sessions
    /// may share. Returns whether everything fitted; otherwise the caller finishes the frame and continues with
    /// another.
    #[inline]
    pub fn poll_group(
        &mut self,
        now_us: u64,
        view: u64,
        writer: &mut FrameWriter,
        buffer: &mut [u8],
    ) -> bool {
        if !self.wants_transmit(now_us) {
            return true;
        }
        self.sent_view = self.sent_view.max(view);
        writer.group(buffer, self.token, self.first, 0)
            && (now_us < self.resend_at_us || self.resend_due(now_us, writer, buffer))
            && self.send_queued(now_us, writer, buffer)
    }

    /// Returns whether [`Requester::poll_transmit`] may have something to send.
    #[inline]
    pub const fn wants_transmit(&self, now_us: u64) -> bool {
        self.unsent != self.next || now_us >= self.resend_at_us
    }

    #[inline]
    fn send_queued(&mut self, now_us: u64, writer: &mut FrameWriter, buffer: &mut [u8]) -> bool {
        let doublings = self.round_trip.doublings();
        let due_us = now_us + self.round_trip.interval_us(doublings);
        while self.unsent != self.next {
            let slot = self.ring.slot_mut(self.unsent);
            if slot.state == State::Queued {
                if !slot.write(self.unsent, writer, buffer) {
                    return false;
                }
                slot.state = State::Sent;
                slot.doublings = doublings;
                slot.sent_us = now_us;
                slot.due_us = due_us;
                self.resend_at_us = self.resend_at_us.min(due_us);
            }
            self.unsent += 1;
        }
        true
    }

    /// Walks the window once; runs only when the earliest timer may have fired.
    #[cold]
    fn resend_due(&mut self, now_us: u64, writer: &mut FrameWriter, buffer: &mut [u8]) -> bool {
        let mut resend_at_us = NEVER_US;
        for sequence in self.first..self.unsent {
            let slot = self.ring.slot_mut(sequence);
            if !slot.awaits_reply() {
                continue;
            }
            if slot.due_us <= now_us {
                let before = slot.repetition;
                slot.repetition = match slot.state {
                    State::Sent => Repetition::Lost,
                    _ if before == Repetition::None => Repetition::PutOff,
                    _ => before,
                };
                if !slot.write(sequence, writer, buffer) {
                    slot.repetition = before;
                    // The timer stays in the past, so the next frame goes on here.
                    return false;
                }
                if slot.state == State::Sent {
                    slot.doublings = self.round_trip.on_loss(slot.doublings);
                }
                slot.state = State::Sent;
                slot.due_us = now_us + self.round_trip.interval_us(slot.doublings);
            }
            resend_at_us = resend_at_us.min(slot.due_us);
        }
        self.resend_at_us = resend_at_us;
        true
    }
}

/// Doublings beyond this are the maximum anyway.
const DOUBLINGS_MAX: u8 = 16;

/// The retransmission interval: the smoothed round trip after RFC 6298, with its back-off.
///
/// Samples come from requests that were sent once (Karn): a reply to a repeated one may belong to either transmission.
/// A loss doubles the interval for that request, and for new ones until a fresh sample comes, so that a path that
/// became slower than the timer is measured again.
#[derive(Debug)]
pub(super) struct RoundTrip {
    /// Smoothed round trip, 0 before the first sample.
    smoothed_us: u64,
    /// Smoothed deviation.
    deviation_us: u64,
    /// Interval before any doubling.
    base_us: u64,
    /// Doublings since the latest sample.
    doublings: u8,
    min_us: u64,
    max_us: u64,
}

impl RoundTrip {
    pub(super) fn new(config: &RequesterConfig) -> RoundTrip {
        RoundTrip {
            smoothed_us: 0,
            deviation_us: 0,
            base_us: config.resend_initial_us.clamp(config.resend_min_us, config.resend_max_us),
            doublings: 0,
            min_us: config.resend_min_us,
            max_us: config.resend_max_us,
        }
    }

    /// Records the round trip of a request that was sent once.
    #[inline]
    pub(super) fn on_sample(&mut self, sample_us: u64) {
        let sample_us = sample_us.max(1);
        if self.smoothed_us == 0 {
            self.smoothed_us = sample_us;
            self.deviation_us = sample_us / 2;
        } else {
            let off_us = self.smoothed_us.abs_diff(sample_us);
            self.deviation_us = (3 * self.deviation_us + off_us) / 4;
            self.smoothed_us = (7 * self.smoothed_us + sample_us) / 8;
        }
        self.base_us = (self.smoothed_us + 4 * self.deviation_us).clamp(self.min_us, self.max_us);
        self.doublings = 0;
    }

    /// Returns the doublings of a request that is sent for the first time.
    #[inline]
    pub(super) const fn doublings(&self) -> u8 {
        self.doublings
    }

    /// Records that a request which waited an interval of `doublings` got no reply in time; returns its new
    /// doublings. Requests lost together raise the shared number by one in total.
    pub(super) fn on_loss(&mut self, doublings: u8) -> u8 {
        let raised = (doublings + 1).min(DOUBLINGS_MAX);
        self.doublings = self.doublings.max(raised);
        raised
    }

    /// Returns the time to wait for a reply after `doublings` doublings.
    #[inline]
    pub(super) fn interval_us(&self, doublings: u8) -> u64 {
        (self.base_us << doublings).min(self.max_us)
    }

    pub(super) const fn smoothed_us(&self) -> Option<u64> {
        if self.smoothed_us == 0 { None } else { Some(self.smoothed_us) }
    }
}
