//! The server's clock: microseconds since start for the data path, milliseconds since the Unix epoch for extensions and
//! logs.
//!
//! A worker reads the clock once per round and passes the value down; no lower layer reads it again. Both readings come
//! from the kernel's shared page of time and cost some 25 ns, without a system call. Time continues while the process
//! is stopped and while the machine is suspended: see "Leases" in docs/notes.md.

use std::time::{SystemTime, UNIX_EPOCH};

use cluster::moment::Moment;

/// A clock. Copied freely; all copies of one clock agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Moment,
    /// The time of day when the clock was created, in milliseconds since the Unix epoch.
    start_ms: u64,
}

impl Clock {
    /// Creates a clock that begins at zero now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Moment::now(), start_ms: wall_ms() }
    }

    /// Makes [`Clock::steady_ms`] begin no earlier than this: objects that had expired before stay so, whatever the
    /// machine's clock says. For the clock before its copies.
    pub fn begin_at(&mut self, ms: u64) {
        self.start_ms = self.start_ms.max(ms);
    }

    /// Returns microseconds since the clock was created; never goes back.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.us_at(Moment::now())
    }

    /// Returns microseconds from the clock's creation to a moment; 0 if that is earlier.
    #[must_use]
    pub const fn us_at(&self, moment: Moment) -> u64 {
        moment.ns_since(self.start) / 1_000
    }

    /// Returns milliseconds since the Unix epoch by the machine's clock; 0 for a time before it.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        wall_ms()
    }

    /// Returns milliseconds since the Unix epoch for the expiry of objects, at `now_us` of this clock: the time of day
    /// at the clock's creation plus the elapsed time. So setting the machine's clock expires no object early.
    #[must_use]
    pub const fn steady_ms(&self, now_us: u64) -> u64 {
        self.start_ms + now_us / 1000
    }
}

/// The time of day for a round that has already read the clock, read again when a millisecond has passed.
#[derive(Debug, Default)]
pub struct WallTime {
    wall_ms: u64,
    /// When it was read.
    read_us: u64,
}

impl WallTime {
    /// Returns [`Clock::wall_ms`] as it was at most 1 ms before `now_us` of `clock`.
    #[inline]
    pub fn at(&mut self, clock: &Clock, now_us: u64) -> u64 {
        if self.wall_ms == 0 || now_us >= self.read_us + 1_000 {
            (self.wall_ms, self.read_us) = (clock.wall_ms(), now_us);
        }
        self.wall_ms
    }
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, WallTime};

    #[test]
    fn the_time_of_day_is_read_anew_each_millisecond() {
        let (clock, mut wall) = (Clock::new(), WallTime::default());
        let first = wall.at(&clock, 10);
        assert!(first > 0 && first <= clock.wall_ms());
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(wall.at(&clock, 1_009), first);
        assert!(wall.at(&clock, 1_010) >= first + 5);
    }

    #[test]
    fn time_never_goes_back() {
        let clock = Clock::new();
        let mut last = clock.now_us();
        for _ in 0..1000 {
            let now = clock.now_us();
            assert!(now >= last);
            last = now;
        }
    }
}
