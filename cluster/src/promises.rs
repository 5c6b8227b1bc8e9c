//! A round of questions to other servers whether they promise not to find the asker gone ([`Presence::not_gone_for`]).
//!
//! All must promise that may find it gone, or have what its log is recovered from: those that were not gone when the asker last saw the
//! registrations, and those whose replicas of its log may count.
//!
//! [`Presence::not_gone_for`]: crate::presence::Presence::not_gone_for

use std::collections::BTreeSet;
use std::time::Duration;

use crate::limits::PROMISE_MS_MAX;
use crate::moment::Moment;

/// A round of questions for promises.
#[derive(Clone, Debug)]
pub struct PromiseRound {
    /// The time before the first question was sent.
    begun: Moment,
    /// Servers that have not promised.
    missing: BTreeSet<u32>,
    least: Duration,
}

impl PromiseRound {
    /// Begins a round of questions to these servers, of which none is sent yet.
    #[must_use]
    pub fn new(begun: Moment, asked: BTreeSet<u32>) -> Self {
        Self { begun, missing: asked, least: Duration::from_millis(PROMISE_MS_MAX) }
    }

    /// Takes an answer: for how long from the answer on that server will not find the asker gone.
    pub fn answered(&mut self, server: u32, time: Duration) {
        if !time.is_zero() && self.missing.remove(&server) {
            self.least = self.least.min(time);
        }
    }

    /// Returns whether a server was asked, and has not promised.
    #[must_use]
    pub fn is_missing(&self, server: u32) -> bool {
        self.missing.contains(&server)
    }

    /// Returns the time until which the asker may serve, `margin` before one of the others may find it gone; `None` until all have
    /// promised.
    #[must_use]
    pub fn until(&self, margin: Duration) -> Option<Moment> {
        self.missing.is_empty().then(|| self.begun + self.least.saturating_sub(margin))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::PromiseRound;
    use crate::limits::PROMISE_MS_MAX;
    use crate::moment::Moment;

    #[test]
    fn a_server_may_serve_when_all_have_promised_for_as_long_as_the_least_of_them() {
        let ms = Duration::from_millis;
        let begun = Moment::after_boot(ms(7_000));
        let mut round = PromiseRound::new(begun, BTreeSet::from([1, 2, 4]));
        round.answered(1, ms(PROMISE_MS_MAX + 9));
        round.answered(4, ms(900));
        round.answered(2, Duration::ZERO);
        round.answered(3, ms(1));
        assert_eq!([1, 2, 3, 4].map(|server| round.is_missing(server)), [false, true, false, false]);
        assert_eq!(round.until(ms(500)), None);
        round.answered(2, ms(2_000));
        assert_eq!(round.until(ms(500)), Some(begun + ms(400)));
        assert_eq!(round.until(ms(1_000)), Some(begun));
        let alone = PromiseRound::new(begun, BTreeSet::new());
        assert_eq!(alone.until(ms(0)), Some(begun + ms(PROMISE_MS_MAX)));
    }
}
