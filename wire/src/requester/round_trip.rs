//! The retransmission interval: the smoothed round trip after RFC 6298, with its back-off.
//!
//! Samples come from requests that were sent once (Karn): a reply to a repeated one may belong to either
//! transmission. A loss doubles the interval for that request, and for new ones until a fresh sample comes, so that a
//! path that became slower than the timer is measured again.

use super::completion::RequesterConfig;

/// Doublings beyond this are the maximum anyway.
const DOUBLINGS_MAX: u8 = 16;

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
