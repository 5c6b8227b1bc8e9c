//! A place for one boxed value, which threads fill and empty without waiting for each other.
//!
//! Each operation is one exchange of a pointer, so a value has one owner at any time: the place, or the thread that
//! took it. A thread that takes a value sees everything written before it was put in.

use std::marker::PhantomData;
use std::ptr;

use super::{AtomicPtr, Ordering};

/// A place for one boxed value, exchanged atomically.
pub struct AtomicBox<T> {
    value: AtomicPtr<T>,
    /// The place owns a `T` and passes it from thread to thread.
    _owns: PhantomData<Box<T>>,
}

// SAFETY: only the thread that took a value can reach it, after the release and acquire of the exchange.
unsafe impl<T: Send> Sync for AtomicBox<T> {}

impl<T> AtomicBox<T> {
    /// Creates an empty place.
    #[must_use]
    pub fn empty() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), _owns: PhantomData }
    }

    /// Puts a value in; returns the previous one.
    pub fn put(&self, value: Box<T>) -> Option<Box<T>> {
        self.exchange(Box::into_raw(value))
    }

    /// Takes the value, if any.
    pub fn take(&self) -> Option<Box<T>> {
        self.exchange(ptr::null_mut())
    }

    fn exchange(&self, value: *mut T) -> Option<Box<T>> {
        let before = self.value.swap(value, Ordering::AcqRel);
        // SAFETY: a pointer in the place came from `Box::into_raw`, and only one exchange takes it out.
        (!before.is_null()).then(|| unsafe { Box::from_raw(before) })
    }
}

impl<T> Default for AtomicBox<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T> Drop for AtomicBox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> std::fmt::Debug for AtomicBox<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AtomicBox").finish_non_exhaustive()
    }
}

#[cfg(all(test, loom_model))]
mod loom_tests {
    use std::sync::Arc;

    use loom::thread;

    use super::AtomicBox;

    /// Two threads each put a value in and take one out: each value is taken once.
    #[test]
    fn loom_each_value_has_one_owner() {
        loom::model(|| {
            let place = Arc::new(AtomicBox::empty());
            let sum_of = |place: &AtomicBox<u64>, value| {
                let replaced = place.put(Box::new(value)).map_or(0, |value| *value);
                replaced + place.take().map_or(0, |value| *value)
            };
            let other = {
                let place = Arc::clone(&place);
                thread::spawn(move || sum_of(&place, 1))
            };
            let own = sum_of(&place, 10);
            assert_eq!(own + other.join().expect("no panic"), 11);
            assert!(place.take().is_none());
        });
    }
}
