//! The rate limit of a tenant's operations per second, over all cores: a bucket shared by all workers.
//!
//! A bucket is one number, the time up to which the admitted operations have used up the rate (the generic cell rate
//! algorithm, ITU-T I.371, annex A). It lies at most a burst behind the present, so a tenant that was quiet may send a
//! burst at once. Each refused operation gets a retry time a little later than the one before, so that retries come at
//! the admissible rate and not all at once; the time is a hint, not a promise.
//!
//! No lock: one compare-and-swap per group of messages of a tenant with a limit, nothing for others.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::limits::{RATE_BURST_US, THROTTLED_AFTER_US_MAX, THROTTLED_AFTER_US_MIN};

/// Ticks of a bucket per microsecond, fine enough to keep a rate of a hundred million exact within a percent.
const TICKS_PER_US: u64 = 64_000;

/// The bucket of one tenant's rate.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Rate {
    /// The time up to which the rate is used up, in ticks.
    used_until: AtomicU64,
    /// The retry time of the last refused operation, in ticks.
    put_off_until: AtomicU64,
}

/// The number of operations admitted now, and the retry times of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The number of admitted operations, the first ones.
    pub admitted: u64,
    /// The retry time of the first refused one, in ticks from now.
    after: u64,
    /// The delay of each further one.
    step: u64,
}

impl Admission {
    /// Admits all operations.
    pub const ALL: Self = Self { admitted: u64::MAX, after: 0, step: 0 };

    /// Returns the retry delay in microseconds of operation `index`, counted from 0 over the requested ones.
    #[must_use]
    pub fn after_us(&self, index: u64) -> u32 {
        let turned_away = index.saturating_sub(self.admitted);
        let after = self.after.saturating_add(turned_away.saturating_mul(self.step)) / TICKS_PER_US;
        after.clamp(THROTTLED_AFTER_US_MIN, THROTTLED_AFTER_US_MAX) as u32
    }
}

impl Rate {
    /// Takes as many of `wanted` operations as `per_second` allows at `now_us`.
    pub fn take(&self, per_second: u64, now_us: u64, wanted: u64) -> Admission {
        let (now, step, burst) = ticks_of(per_second, now_us);
        let mut used_until = self.used_until.load(Relaxed);
        let admitted = loop {
            let from = used_until.max(now.saturating_sub(burst));
            let admitted = (now.saturating_sub(from) / step).min(wanted);
            if admitted == 0 {
                break 0;
            }
            let then = from + admitted * step;
            match self.used_until.compare_exchange_weak(used_until, then, Relaxed, Relaxed) {
                Ok(_) => {
                    used_until = then;
                    break admitted;
                }
                Err(other) => used_until = other,
            }
        };
        if admitted == wanted {
            return Admission { admitted, after: 0, step };
        }
        let latest = now + THROTTLED_AFTER_US_MAX * TICKS_PER_US;
        let from = self.put_off_until.load(Relaxed).max(used_until).clamp(now, latest);
        let until = from.saturating_add((wanted - admitted).saturating_mul(step)).min(latest);
        self.put_off_until.store(until, Relaxed);
        Admission { admitted, after: from - now + step, step }
    }

    /// Takes operations that come with admitted ones, whether or not there are so many: later ones wait until they are made up for.
    pub fn charge(&self, per_second: u64, now_us: u64, operations: u64) {
        let (now, step, burst) = ticks_of(per_second, now_us);
        let charged = |used_until: u64| {
            let from = used_until.max(now.saturating_sub(burst));
            Some(from.saturating_add(operations.saturating_mul(step)))
        };
        // It always has a value to set.
        let _ = self.used_until.fetch_update(Relaxed, Relaxed, charged);
    }
}

/// Returns the present, the time of one operation, and that of a burst, in ticks.
fn ticks_of(per_second: u64, now_us: u64) -> (u64, u64, u64) {
    let step = (1_000_000 * TICKS_PER_US / per_second.max(1)).max(1);
    (now_us.saturating_mul(TICKS_PER_US), step, (RATE_BURST_US * TICKS_PER_US).max(step))
}

#[cfg(test)]
mod tests {
    use super::Rate;
    use crate::limits::{RATE_BURST_US, THROTTLED_AFTER_US_MAX, THROTTLED_AFTER_US_MIN};

    #[test]
    fn a_burst_is_admitted_at_once_and_then_the_rate() {
        let (rate, start_us) = (Rate::default(), 10_000_000);
        assert_eq!(rate.take(1_000, start_us, 10).admitted, 10);
        assert_eq!(rate.take(1_000, start_us, 1_000).admitted, RATE_BURST_US / 1_000 - 10);
        assert_eq!(rate.take(1_000, start_us, 1).admitted, 0);
        let admitted: u64 = (1..=2_000).map(|ms| rate.take(1_000, start_us + ms * 1_000, 5).admitted).sum();
        assert_eq!(admitted, 2_000);
    }

    #[test]
    fn what_is_charged_is_made_up_for_before_more_is_admitted() {
        let (rate, start_us) = (Rate::default(), 10_000_000);
        assert_eq!(rate.take(1_000, start_us, 1).admitted, 1);
        rate.charge(1_000, start_us, 500);
        let burst = RATE_BURST_US / 1_000;
        let paid_us = start_us + (501 - burst) * 1_000;
        assert_eq!(rate.take(1_000, paid_us, 5).admitted, 0);
        assert_eq!(rate.take(1_000, paid_us + 3_000, 5).admitted, 3);
        rate.charge(1, paid_us, u64::MAX);
        assert_eq!(rate.take(1_000, 1_000_000 * start_us, 1).admitted, 0);
    }

    #[test]
    fn rates_of_all_sizes_hold_over_ten_seconds() {
        for per_second in [1, 3, 10, 999, 1_000_000, 30_000_000, 100_000_000] {
            let (rate, start_us) = (Rate::default(), 5_000_000);
            let steps = 0..10_000_u64;
            let admitted: u64 =
                steps.map(|ms| rate.take(per_second, start_us + ms * 1_000, 200_000).admitted).sum();
            let (least, most) = (per_second * 99 / 10, per_second * 102 / 10 + 1);
            assert!((least..=most).contains(&admitted), "{per_second}: {admitted}");
        }
    }

    #[test]
    fn those_turned_away_are_told_to_come_one_after_the_other() {
        let (rate, start_us) = (Rate::default(), 10_000_000);
        let burst = RATE_BURST_US / 10_000;
        let admission = rate.take(100, start_us, burst + 4);
        assert_eq!(admission.admitted, burst);
        let after: Vec<u32> = (burst..burst + 4).map(|index| admission.after_us(index)).collect();
        assert_eq!(after, [10_000, 20_000, 30_000, 40_000]);
        assert_eq!(rate.take(100, start_us, 1).after_us(0), 50_000);
        let flood = rate.take(100, start_us, 10_000);
        assert_eq!(u64::from(flood.after_us(9_999)), THROTTLED_AFTER_US_MAX);
        assert_eq!(u64::from(rate.take(100, start_us, 1).after_us(0)), THROTTLED_AFTER_US_MAX);
        let fast = Rate::default();
        assert_eq!(u64::from(fast.take(1_000_000, 0, 1).after_us(0)), THROTTLED_AFTER_US_MIN);
    }

    #[test]
    fn workers_that_take_at_once_do_not_take_more_than_there_is() {
        let (rate, start_us) = (Rate::default(), 10_000_000);
        let taken: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| (0..1_000).map(|_| rate.take(100_000, start_us, 7).admitted).sum::<u64>())
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("counts")).sum()
        });
        assert_eq!(taken, RATE_BURST_US / 10);
    }
}
