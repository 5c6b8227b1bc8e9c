//! The processor time of a tenant's installations, limited per minute.
//!
//! An installation's need is known only when it has ended. So it may begin whenever time is left; the excess is a debt
//! that the next one waits for. Unused time is kept for a minute. Only control threads use this.

use std::sync::{Mutex, PoisonError};

use super::limit::UNLIMITED;

const MINUTE_US: u128 = 60_000_000;

/// The reason why an installation may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTime {
    /// Time is available again after this many microseconds.
    For(u64),
    /// The tenant's limit is zero.
    Ever,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    us: u64,
    at_us: u64,
}

/// The compile time that a tenant's installations have used and not yet regained.
#[derive(Debug, Default)]
pub struct CompileTime(Mutex<Used>);

impl CompileTime {
    /// Checks whether an installation may begin.
    ///
    /// # Errors
    /// [`NoTime`] when all time is used up.
    pub fn admit(&self, ms_per_minute: u64, now_us: u64) -> Result<(), NoTime> {
        if ms_per_minute == 0 {
            return Err(NoTime::Ever);
        }
        let limit_us = ms_per_minute.saturating_mul(1000);
        let used = self.used(limit_us, now_us, 0);
        if ms_per_minute == UNLIMITED || used < limit_us {
            return Ok(());
        }
        // And a little more, since looks in between round down what has come back.
        let wait_us = u128::from(used - limit_us + 1) * MINUTE_US / u128::from(limit_us) + 1_000;
        Err(NoTime::For(u64::try_from(wait_us).unwrap_or(u64::MAX)))
    }

    /// Charges the time of an installation.
    pub fn spend(&self, ms_per_minute: u64, now_us: u64, spent_ms: u64) {
        self.used(ms_per_minute.saturating_mul(1000), now_us, spent_ms.saturating_mul(1000));
    }

    /// Returns the time that counts as used now, plus `more_us`.
    fn used(&self, limit_us: u64, now_us: u64, more_us: u64) -> u64 {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed_us = u128::from(now_us.saturating_sub(used.at_us));
        let back_us = u64::try_from(passed_us * u128::from(limit_us) / MINUTE_US).unwrap_or(u64::MAX);
        // Looks that come too soon for a whole microsecond take nothing from the next one.
        if back_us > 0 || more_us > 0 {
            *used = Used { us: used.us.saturating_sub(back_us).saturating_add(more_us), at_us: now_us };
        }
        used.us
    }
}

#[cfg(test)]
mod tests {
    use super::{CompileTime, NoTime};
    use crate::tenant::limit::UNLIMITED;

    #[test]
    fn who_used_it_up_comes_back_when_he_is_told_and_not_before() {
        let time = CompileTime::default();
        let begin_us = 5_000_000;
        time.spend(6_000, begin_us, 5_999);
        assert_eq!(time.admit(6_000, begin_us), Ok(()), "a millisecond is left");
        time.spend(6_000, begin_us, 3_001);
        let Err(NoTime::For(wait_us)) = time.admit(6_000, begin_us) else { panic!("three seconds of debt") };
        assert!(
            (30_000_000..30_010_000).contains(&wait_us),
            "{wait_us}: it comes back at a tenth of the time"
        );
        assert!(time.admit(6_000, begin_us + wait_us / 2).is_err());
        assert_eq!(time.admit(6_000, begin_us + wait_us), Ok(()));
    }

    #[test]
    fn nothing_may_be_used_or_anything() {
        let time = CompileTime::default();
        assert_eq!(time.admit(0, 1), Err(NoTime::Ever));
        time.spend(UNLIMITED, 1, u64::MAX);
        assert_eq!(time.admit(UNLIMITED, 2), Ok(()));
    }

    #[test]
    fn what_is_not_used_is_kept_for_a_minute_and_no_longer() {
        let time = CompileTime::default();
        time.spend(1_000, 60_000_000_000, 1_000);
        assert!(
            time.admit(1_000, 60_000_000_000).is_err(),
            "hours without an installation are worth a minute"
        );
        assert_eq!(time.admit(1_000, 60_000_000_000 + 60_000), Ok(()));
    }
}
