//! The choice between the standard library and loom, made only here.
//!
//! All lock-free code of this crate takes its atomics from here, so that `RUSTFLAGS="--cfg loom_model"` explores the
//! interleavings of the very code that runs. [`Exclusive`] is a lock that is tried, never slept on: its holders make
//! no system call that can block, so that a worker waits at most for a few memory accesses. A [`Worklist`] is such a
//! lock behind an [`Inbox`], which takes more work while another thread has the list.

mod inbox;

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::limits::{SPINS_MAX_LOG, WAIT_ASLEEP_US, WAITS_MAX};
pub use inbox::{AtomicBox, Inbox, Taken};
#[cfg(loom_model)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom_model))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// Stores `value` with a fence: all threads see it before this thread's later loads.
#[inline]
pub(crate) fn store_fenced(slot: &AtomicU64, value: u64) {
    if cfg!(any(loom_model, miri)) {
        slot.store(value, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    } else {
        // On x86-64 a locked exchange is a full fence and costs a third of `mfence` (crossbeam-epoch does the same).
        slot.swap(value, Ordering::SeqCst);
    }
}

/// A back-off: spins, then yields the processor, since the holder may be descheduled.
pub(crate) struct Backoff {
    rounds: u32,
}

/// An error: the bound of a wait was exceeded; the holder may have lost its core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Busy;

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff { rounds: 0 }
    }

    /// Waits a little, longer each time.
    #[cold]
    pub(crate) fn wait(&mut self) {
        #[cfg(loom_model)]
        loom::thread::yield_now();
        #[cfg(not(loom_model))]
        if self.rounds < 6 && !cfg!(miri) {
            for _ in 0..1 << self.rounds {
                std::hint::spin_loop();
            }
        } else {
            std::thread::yield_now();
        }
        self.rounds = self.rounds.saturating_add(1);
    }

    /// Waits a little, longer each time, and then sleeps for [`WAIT_ASLEEP_US`].
    ///
    /// For a thread of real-time priority, which may have taken the processor from the one that it waits for: that one
    /// does not run while this one spins or yields.
    #[cold]
    pub(crate) fn wait_asleep(&mut self) {
        if self.rounds < SPINS_MAX_LOG || cfg!(any(loom_model, miri)) {
            self.wait();
        } else {
            std::thread::sleep(Duration::from_micros(WAIT_ASLEEP_US));
        }
    }

    /// Waits a little, longer each time, at most [`WAITS_MAX`] times.
    ///
    /// For workers that meet a lock which a thread of lower priority may hold. It does not yield the processor, since
    /// a yield has no time bound.
    #[cold]
    pub(crate) fn try_wait(&mut self) -> Result<(), Busy> {
        if cfg!(loom_model) {
            // Under loom, waits without a bound.
            self.wait();
            return Ok(());
        }
        if self.rounds == WAITS_MAX {
            return Err(Busy);
        }
        for _ in 0..1 << self.rounds.min(SPINS_MAX_LOG) {
            std::hint::spin_loop();
        }
        if cfg!(miri) {
            std::thread::yield_now();
        }
        self.rounds += 1;
        Ok(())
    }
}

/// A value for one thread at a time, with a lock that is tried or briefly spun on.
pub(crate) struct Exclusive<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `taken` admits one thread at a time to `value`; the guard is the only way in.
unsafe impl<T: Send> Send for Exclusive<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T: Default> Default for Exclusive<T> {
    fn default() -> Self {
        Exclusive::new(T::default())
    }
}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Exclusive { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Returns the value, unless another thread holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<ExclusiveGuard<'_, T>> {
        let won = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Creates the guard only if the lock was won, because dropping a guard unlocks.
        won.then(|| ExclusiveGuard { owner: self, _lends: PhantomData })
    }

    /// Returns the value, after the few instructions that its holder takes.
    pub(crate) fn lock(&self) -> ExclusiveGuard<'_, T> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            backoff.wait();
        }
    }
}

/// Access to the value of an [`Exclusive`].
pub(crate) struct ExclusiveGuard<'a, T> {
    owner: &'a Exclusive<T>,
    /// The guard lends a `T`: threads may share it only if they may share that.
    _lends: PhantomData<&'a mut T>,
}

impl<T> Deref for ExclusiveGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard exists only while its thread holds `taken`.
        unsafe { &*self.owner.value.get() }
    }
}

impl<T> DerefMut for ExclusiveGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard exists only while its thread holds `taken`, and is borrowed mutably.
        unsafe { &mut *self.owner.value.get() }
    }
}

impl<T> Drop for ExclusiveGuard<'_, T> {
    fn drop(&mut self) {
        self.owner.taken.store(false, Ordering::Release);
    }
}

/// A list of work: any thread adds to it without waiting, and the thread that locks it, by a try, does the work.
pub(crate) struct Worklist<T> {
    added: Inbox<T>,
    list: Exclusive<VecDeque<T>>,
    /// The length of the list, readable without its lock.
    listed: AtomicUsize,
}

impl<T> Worklist<T> {
    pub(crate) fn new() -> Worklist<T> {
        let (added, list) = (Inbox::new(), Exclusive::new(VecDeque::new()));
        Worklist { added, list, listed: AtomicUsize::new(0) }
    }

    /// Adds work to the end.
    pub(crate) fn add(&self, work: T) {
        assert!(self.added.push(work).is_ok(), "a list of work is never closed");
    }

    /// Returns whether the list seems to be empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.load(Ordering::Relaxed) == 0 && self.added.is_empty()
    }

    /// Calls `work` with the list; `None` if another thread has it.
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut VecDeque<T>) -> R) -> Option<R> {
        let mut list = self.list.try_lock()?;
        if !self.added.is_empty() {
            list.extend(self.added.take_all());
        }
        let result = work(&mut list);
        self.listed.store(list.len(), Ordering::Relaxed);
        Some(result)
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::{ExclusiveGuard, Worklist};

    struct Threads<T>(PhantomData<T>);

    impl<T: Sync> Threads<T> {
        const MAY_SHARE: bool = true;
    }

    /// The value for types to which the constant above does not apply.
    trait Otherwise {
        const MAY_SHARE: bool = false;
    }

    impl<T> Otherwise for Threads<T> {}

    #[test]
    fn a_guard_is_shared_by_threads_only_where_its_value_may_be() {
        let [cell, number] = [
            Threads::<ExclusiveGuard<'_, Cell<u8>>>::MAY_SHARE,
            Threads::<ExclusiveGuard<'_, u8>>::MAY_SHARE,
        ];
        assert_eq!([cell, number], [false, true]);
    }

    #[test]
    fn work_is_added_while_somebody_has_the_list_and_found_by_the_next_one() {
        let list = Worklist::new();
        assert!(list.is_empty());
        list.add(1);
        assert!(!list.is_empty());
        let taken = list.try_with(|work| {
            list.add(2);
            assert_eq!(list.try_with(|_| ()), None, "one at a time");
            work.pop_front()
        });
        assert_eq!((taken, list.is_empty()), (Some(Some(1)), false));
        assert_eq!(list.try_with(|work| work.drain(..).collect()), Some(vec![2]));
        assert!(list.is_empty());
    }
}

#[cfg(all(test, loom_model))]
mod tests {
    use std::sync::Arc;

    use super::{AtomicU64, Exclusive, Ordering};

    /// Two threads count inside the lock; a third attempt fails while one of them holds it.
    #[test]
    fn loom_one_thread_at_a_time_has_what_is_exclusive() {
        loom::model(|| {
            let shared = Arc::new((Exclusive::new(0), AtomicU64::new(0)));
            let count = |shared: &(Exclusive<u64>, AtomicU64)| {
                let mut count = shared.0.lock();
                assert_eq!(shared.1.swap(1, Ordering::Relaxed), 0, "somebody else is inside");
                assert!(shared.0.try_lock().is_none());
                *count += 1;
                shared.1.store(0, Ordering::Relaxed);
            };
            let other = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || count(&shared))
            };
            count(&shared);
            other.join().expect("the other does not panic");
            assert_eq!(*shared.0.lock(), 2);
        });
    }
}
