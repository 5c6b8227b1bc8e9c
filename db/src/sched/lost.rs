//! Time that a worker lost while it had work: in which something else had its core.
//!
//! The cycle counter goes on meanwhile, so what runs then looks as if it had used up its slice. How long the thread
//! really ran, the kernel says; asking costs a system call. So the two clocks are read together once in a while, and
//! again when it matters. What the host of a virtual machine takes counts as lost as far as it tells the kernel.

use std::cell::Cell;

use super::cycles;

/// See the file's head. All times are in cycles.
#[derive(Debug)]
pub(super) struct LostTime {
    /// When the clocks were read, and how long the thread had run by then.
    mark: Cell<(u64, u64)>,
    /// What was lost until then.
    total: Cell<u64>,
    /// A mark that is older is renewed.
    renew_after: u64,
}

impl LostTime {
    /// Marks are renewed after so many cycles.
    pub(super) fn new(renew_after: u64) -> Self {
        let mark = Cell::new((cycles::now(), cycles::of_this_thread()));
        Self { mark, total: Cell::new(0), renew_after }
    }

    /// The thread works at `now`; if it may have `rested` before, what was until now is forgotten.
    #[inline]
    pub(super) fn works(&self, now: u64, rested: bool) {
        if rested {
            self.mark.set((now, cycles::of_this_thread()));
        } else if now.wrapping_sub(self.mark.get().0) > self.renew_after {
            self.take(now);
        }
    }

    /// What was lost in all, up to the last time that the clocks were read.
    #[inline]
    pub(super) fn total(&self) -> u64 {
        self.total.get()
    }

    /// For how long until `now` the thread worked and had no core, since the mark; forgets it.
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
    use crate::sched::cycles;

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
