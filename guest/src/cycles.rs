//! Cycles of the time stamp counter: the clock of slices and of an invocation's charges.
//!
//! The counter runs at a constant rate on all supported machines, also while a core sleeps. It counts wall time,
//! including the time of a thread without its core, so the callers cap charges. Reading it costs some 8 ns and needs no
//! system call.

use std::arch::x86_64::_rdtsc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the counter.
#[inline]
#[must_use]
pub fn now() -> u64 {
    // SAFETY: reads a counter that every processor of this architecture has.
    unsafe { _rdtsc() }
}

/// Returns the cycles per microsecond, measured once per process, which takes 2 ms.
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

/// Converts microseconds to cycles.
#[must_use]
pub fn of_us(us: u64) -> u64 {
    us.saturating_mul(per_us())
}

/// Converts cycles to microseconds.
#[must_use]
pub fn to_us(cycles: u64) -> u64 {
    cycles / per_us()
}

/// Converts cycles to nanoseconds.
#[must_use]
pub fn to_ns(cycles: u64) -> u64 {
    u64::try_from(u128::from(cycles) * 1000 / u128::from(per_us())).unwrap_or(u64::MAX)
}

/// Converts nanoseconds to cycles.
#[must_use]
pub fn of_ns(ns: u64) -> u64 {
    u64::try_from(u128::from(ns) * u128::from(per_us()) / 1000).unwrap_or(u64::MAX)
}

/// Returns the cycles for which this thread has had a core. A system call, of some 0.3 us.
#[must_use]
pub fn of_this_thread() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live local that the call fills. Every supported kernel has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    of_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{now, of_this_thread, of_us, to_us};

    #[test]
    fn cycles_follow_the_clock() {
        let (begin, first) = (Instant::now(), now());
        while begin.elapsed().as_millis() < 20 {}
        let (measured, elapsed) = (to_us(now() - first), begin.elapsed().as_micros() as u64);
        assert!(measured >= 19_000 && measured <= elapsed + elapsed / 5, "{measured} us of {elapsed}");
        assert!((999..=1000).contains(&to_us(of_us(1000))));
        assert_eq!(of_us(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_thread_that_sleeps_has_no_core_and_one_that_works_has() {
        let (first, had) = (now(), of_this_thread());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(of_this_thread() - had < (now() - first) / 2);
        while of_this_thread() - had < of_us(5_000) {}
        assert!(now() - first >= of_us(24_000));
    }
}
