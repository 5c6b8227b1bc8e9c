//! Times at which leases end, on a clock that continues while the process is stopped or the machine is suspended.

use std::ops::Add;
use std::time::Duration;

/// A time since the machine was booted, including suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    ns: u64,
}

impl Moment {
    /// Returns the current time, from `CLOCK_BOOTTIME`.
    #[must_use]
    #[inline]
    pub fn now() -> Self {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a live local timespec, which the call fills; every supported Linux has this clock.
        let failed = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
        debug_assert_eq!(failed, 0, "the kernel has the clock");
        Self { ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 }
    }

    /// Returns the moment this long after the boot.
    #[must_use]
    pub const fn after_boot(time: Duration) -> Self {
        Self { ns: time.as_nanos() as u64 }
    }

    /// Returns nanoseconds from an earlier moment to this one; 0 if it is not earlier.
    #[must_use]
    #[inline]
    pub const fn ns_since(self, earlier: Self) -> u64 {
        self.ns.saturating_sub(earlier.ns)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self { ns: self.ns + time.as_nanos() as u64 }
    }
}
