//! The only file of this crate that chooses between the standard library and loom.
//!
//! Lock-free code that publishes data from one thread to another takes its atomics and cells from this file, so that
//! `RUSTFLAGS="--cfg loom_model"` explores the interleavings of the production code. Plain counters and hints, which
//! publish no data, use the standard library's atomics directly.

pub mod oneshot;

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(loom_model)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(loom_model)]
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom_model))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Locks a mutex, even after a panic, which left nothing half-made because changes are applied last.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The standard library's cell with loom's interface: pointers for the duration of a closure.
#[cfg(not(loom_model))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom_model))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
        use_it(self.0.get())
    }
}
