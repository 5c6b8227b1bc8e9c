//! The clock of a session, or of sessions that share a port, read only when necessary.
//!
//! Reading the clock costs as much as reading memory shared with a server, and a caller that waits for a reply polls
//! continuously. So a poll reads it when there is something to send or received, after a sleep, and otherwise on every
//! fourth poll: timers are late by at most three polls, for infrequent pollers too.

use std::time::Instant;

/// Idle polls per reading of the clock.
const POLLS_PER_LOOK: u8 = 4;
/// Interval at which a port checks all sources of replies, in microseconds.
const EVERYWHERE_EACH_US: u64 = 20;

/// A clock that caches its latest reading.
#[derive(Debug)]
pub(crate) struct Watch {
    started: Instant,
    now_us: u64,
    /// A request was queued since the latest poll. Later ones reuse its reading.
    is_queued: bool,
    /// This poll has read the clock.
    has_looked: bool,
    /// Polls since the latest reading.
    polls: u8,
    /// Time when the port last checked all sources.
    everywhere_us: u64,
}

impl Watch {
    pub(crate) fn start() -> Watch {
        let started = Instant::now();
        Watch { started, now_us: 0, is_queued: false, has_looked: false, polls: 0, everywhere_us: 0 }
    }

    /// Returns the microseconds from the start to the latest reading.
    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Reads the clock and returns the time.
    #[inline]
    pub(crate) fn look(&mut self) -> u64 {
        self.now_us = self.started.elapsed().as_micros() as u64;
        self.polls = 0;
        self.now_us
    }

    /// Returns the time for a request that is queued.
    #[inline]
    pub(crate) fn queue(&mut self) -> u64 {
        if !self.is_queued {
            self.is_queued = true;
            self.look();
        }
        self.now_us
    }

    /// Forgets queued requests. A caller that does not poll has taken them over.
    pub(crate) fn forget_queued(&mut self) {
        self.is_queued = false;
    }

    /// Returns the time for a poll that begins.
    #[inline]
    pub(crate) fn begin_poll(&mut self) -> u64 {
        self.polls += 1;
        self.has_looked = std::mem::take(&mut self.is_queued) || self.polls >= POLLS_PER_LOOK;
        if self.has_looked { self.look() } else { self.now_us }
    }

    /// Returns the exact time for a poll that sends or has received.
    #[inline]
    pub(crate) fn exact(&mut self) -> u64 {
        if self.has_looked {
            return self.now_us;
        }
        self.has_looked = true;
        self.look()
    }

    /// Makes the next poll read the clock, after the caller's sleep.
    pub(crate) fn sleep(&mut self) {
        self.polls = POLLS_PER_LOOK - 1;
    }

    /// Returns whether a check of all sources of replies is due. Then restarts the interval.
    #[inline]
    pub(crate) fn is_everywhere_due(&mut self) -> bool {
        let is_due = self.now_us >= self.everywhere_us + EVERYWHERE_EACH_US;
        if is_due {
            self.everywhere_us = self.now_us;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::{POLLS_PER_LOOK, Watch};

    /// Sleeps until the next reading of the clock differs.
    fn pass() {
        sleep(Duration::from_millis(1));
    }

    #[test]
    fn an_idle_poll_looks_each_fourth_time() {
        let mut watch = Watch::start();
        let before_us = watch.look();
        pass();
        for _ in 1..POLLS_PER_LOOK {
            assert_eq!(watch.begin_poll(), before_us);
        }
        assert!(watch.begin_poll() > before_us);
    }

    #[test]
    fn a_poll_that_sends_or_receives_looks() {
        let mut watch = Watch::start();
        let queued_us = watch.queue();
        pass();
        assert_eq!(watch.queue(), queued_us, "requests of one poll share a look");
        let sent_us = watch.begin_poll();
        assert!(sent_us > queued_us);
        pass();
        assert_eq!(watch.exact(), sent_us, "one look is enough for a poll");
        assert_eq!(watch.begin_poll(), sent_us);
        assert!(watch.exact() > sent_us);
    }

    #[test]
    fn the_first_poll_after_a_sleep_looks() {
        let mut watch = Watch::start();
        let before_us = watch.look();
        watch.sleep();
        pass();
        assert!(watch.begin_poll() > before_us);
    }

    #[test]
    fn a_port_looks_everywhere_by_the_time_not_by_the_polls() {
        let mut watch = Watch::start();
        pass();
        watch.look();
        assert!(watch.is_everywhere_due() && !watch.is_everywhere_due());
        pass();
        assert!((0..POLLS_PER_LOOK).any(|_| {
            watch.begin_poll();
            watch.is_everywhere_due()
        }));
    }
}
