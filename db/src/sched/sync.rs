//! The one place of this crate that chooses between the standard library and loom.
//!
//! What is lock-free here and hands memory from thread to thread takes its atomics and cells from this file, so
//! that `RUSTFLAGS="--cfg loom_model"` explores the interleavings of the very code that runs. Plain counters and hints,
//! through which nothing is found, use the standard library's atomics directly.

#[cfg(loom_model)]
pub(super) use loom::cell::UnsafeCell;
#[cfg(loom_model)]
pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom_model))]
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};

/// The standard library's cell with loom's face: pointers for the time of a closure.
#[cfg(not(loom_model))]
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom_model))]
impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(super) fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
        use_it(self.0.get())
    }
}
