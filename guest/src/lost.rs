//! Time for which a worker had work and lost its core.
//!
//! The cycle counter continues meanwhile, so the running code seems to have used up its slice. Only the kernel knows
//! how long the thread really ran, and asking costs a system call. So both clocks are read together occasionally, and
//! again when it matters. Time taken by the host of a virtual machine counts as lost if the host reports it to the
//! kernel.

use std::cell::Cell;

use super::cycles;

/// The lost time of one thread. All times are in cycles.
#[derive(Debug)]
pub(super) struct LostTime {
    /// The time when the clocks were read, and the thread's run time until then.
    mark: Cell<(u64, u64)>,
    /// The total lost time until the mark.
    total: Cell<u64>,
    /// The age after which a mark is renewed.
    renew_after: u64,
}

impl LostTime {
    /// Creates a clock whose marks are renewed after `renew_after` cycles.
    pub(super) fn new(renew_after: u64) -> Self {
        let mark = Cell::new((cycles::now(), cycles::of_this_thread()));
        Self { mark, total: Cell::new(0), renew_after }
    }

    /// Notes that the thread works at `now`; if it may have `rested` before, the time until now is discarded.
    #[inline]
    pub(super) fn works(&self, now: u64, rested: bool) {
        if rested {
            self.mark.set((now, cycles::of_this_thread()));
        } else if now.wrapping_sub(self.mark.get().0) > self.renew_after {
            self.take(now);
        }
    }

    /// Returns the total lost time up to the last reading of the clocks.
    #[inline]
    pub(super) fn total(&self) -> u64 {
        self.total.get()
    }

    /// Returns the time lost since the mark until `now`, and resets the mark.
    #[cold]
    pub(super) fn take(&self, now: u64) -> u64 {
        let ((marked, had), has) = (self.mark.get(), cycles::of_this_thread());
        self.mark.set((now, has));
        let lost = now.saturating_sub(marked).saturating_sub(has - had);
        self.total.set(self.total.get() + lost);
        lost
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::LostTime;
    use crate::cycles;

    #[test]
    fn time_without_a_core_is_lost_once_and_rest_is_not() {
        let lost = LostTime::new(cycles::of_us(1_000_000));
        std::thread::sleep(Duration::from_millis(10));
        let taken = lost.take(cycles::now());
        assert!(taken >= cycles::of_us(9_000), "{} us", cycles::to_us(taken));
        let (had, begin) = (cycles::of_this_thread(), cycles::now());
        while cycles::of_this_thread() - had < cycles::of_us(2_000) {}
        let now = cycles::now();
        let away = (now - begin).saturating_sub(cycles::of_us(2_000));
        assert!(lost.take(now) <= away + cycles::of_us(500), "work is not lost");
        std::thread::sleep(Duration::from_millis(10));
        lost.works(cycles::now(), true);
        assert!(lost.take(cycles::now()) < cycles::of_us(9_000), "it had rested");
    }
}
