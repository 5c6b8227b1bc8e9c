//! Cycles of the time stamp counter: the clock of slices and of what an invocation is charged.
//!
//! The counter runs at a constant rate on all machines we run on, also while a core sleeps. It counts wall
//! time: what a thread spends without its core counts as well, so charges are capped by whoever charges.
//! Reading it costs some 8 ns and needs no system call.

use std::arch::x86_64::_rdtsc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The counter now.
#[inline]
#[must_use]
pub fn now() -> u64 {
    // SAFETY: reads a counter that every processor of this kind has.
    unsafe { _rdtsc() }
}

/// Cycles of a microsecond, measured once in the process, which takes 2 ms.
#[must_use]
pub fn per_us() -> u64 {
    static PER_US: OnceLock<u64> = OnceLock::new();
    *PER_US.get_or_init(|| {
        let (begin, first) = (Instant::now(), now());
        while begin.elapsed() < Duration::from_millis(2) {}
        let (last, elapsed) = (now(), begin.elapsed());
        ((u128::from(last - first) * 1000 / elapsed.as_nanos()) as u64).max(1)
    })
}

/// Cycles of some microseconds.
#[must_use]
pub fn of_us(us: u64) -> u64 {
    us.saturating_mul(per_us())
}

/// Microseconds of some cycles.
#[must_use]
pub fn to_us(cycles: u64) -> u64 {
    cycles / per_us()
}

/// Nanoseconds of some cycles.
#[must_use]
pub fn to_ns(cycles: u64) -> u64 {
    u64::try_from(u128::from(cycles) * 1000 / u128::from(per_us())).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{now, of_us, to_us};
    use std::time::Instant;

    #[test]
    fn cycles_follow_the_clock() {
        let (begin, first) = (Instant::now(), now());
        while begin.elapsed().as_millis() < 20 {}
        let (measured, elapsed) = (to_us(now() - first), begin.elapsed().as_micros() as u64);
        assert!(measured >= 19_000 && measured <= elapsed + elapsed / 5, "{measured} us of {elapsed}");
        assert!((999..=1000).contains(&to_us(of_us(1000))));
        assert_eq!(of_us(u64::MAX), u64::MAX);
    }
}
