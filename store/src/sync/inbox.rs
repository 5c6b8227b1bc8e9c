//! A queue that any thread fills and one empties, and a place for one boxed value. No thread waits at either.
//!
//! ```text
//!   push: newest = my entry, which leads to the one before        take_all: newest = none
//!   newest ─► entry 3 ─► entry 2 ─► entry 1                        and the entries are reversed
//! ```
//! Entries are linked by one compare-and-swap and taken by one exchange; a boxed value is put and taken by one
//! exchange. So a thread that loses its core during a push has either pushed or not, and the taker never meets an
//! incomplete entry; the queues of the standard library let their reader spin until such a writer continues. The queue
//! is unbounded: its producers apply a bound of their own.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::{AtomicPtr, Ordering};

struct InboxEntry<T> {
    value: T,
    before: *mut InboxEntry<T>,
}

/// An unbounded queue with many producers and one consumer.
pub struct Inbox<T> {
    /// Null, [`closed`], or the entry that was pushed last.
    newest: AtomicPtr<InboxEntry<T>>,
    /// The inbox owns values and passes them from thread to thread.
    _owns: PhantomData<Box<T>>,
}

// SAFETY: only the thread that took a value can reach it, after the release and acquire of `newest`.
unsafe impl<T: Send> Sync for Inbox<T> {}

/// Returns the address that marks a closed inbox; no entry has it.
fn closed<T>() -> *mut InboxEntry<T> {
    ptr::without_provenance_mut(usize::MAX)
}

impl<T> Inbox<T> {
    /// Creates an empty inbox.
    #[must_use]
    pub fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), _owns: PhantomData }
    }

    /// Adds a value at the end.
    ///
    /// # Errors
    /// The value, once the inbox is closed.
    pub fn push(&self, value: T) -> Result<(), T> {
        let entry = Box::into_raw(Box::new(InboxEntry { value, before: ptr::null_mut() }));
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            if newest == closed() {
                // SAFETY: the entry was created above, and no other thread has found it.
                return Err(unsafe { Box::from_raw(entry) }.value);
            }
            // SAFETY: as above.
            unsafe { (*entry).before = newest };
            match self.newest.compare_exchange_weak(newest, entry, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => newest = now,
            }
        }
    }

    /// Returns whether the inbox seems to be empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Relaxed).is_null()
    }

    /// Takes all values, in the order of their pushes. Must not be called after a close.
    #[must_use]
    pub fn take_all(&self) -> Taken<T> {
        Taken::from_newest(self.newest.swap(ptr::null_mut(), Ordering::Acquire))
    }

    /// Takes all values and closes the inbox for pushes.
    pub fn close(&self) -> Taken<T> {
        Taken::from_newest(self.newest.swap(closed(), Ordering::AcqRel))
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.close());
    }
}

impl<T> std::fmt::Debug for Inbox<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// Values that were taken out of an [`Inbox`], in the order in which they were pushed.
#[derive(Debug)]
pub struct Taken<T> {
    oldest: Option<NonNull<InboxEntry<T>>>,
}

// SAFETY: it owns its entries as boxes.
unsafe impl<T: Send> Send for Taken<T> {}

impl<T> Taken<T> {
    /// Reverses the entries, given newest first.
    fn from_newest(newest: *mut InboxEntry<T>) -> Self {
        let (mut next, mut oldest) = (if newest == closed() { None } else { NonNull::new(newest) }, None);
        while let Some(entry) = next {
            // SAFETY: it came from `Box::into_raw`, was linked by `push`, and belongs to the taker of the newest.
            let before = unsafe { &mut (*entry.as_ptr()).before };
            next = NonNull::new(*before);
            *before = oldest.map_or(ptr::null_mut(), NonNull::as_ptr);
            oldest = Some(entry);
        }
        Self { oldest }
    }
}

impl<T> Default for Taken<T> {
    fn default() -> Self {
        Self { oldest: None }
    }
}

impl<T> Iterator for Taken<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let entry = self.oldest?;
        // SAFETY: the entry came from `Box::into_raw`, and this is its only owner.
        let InboxEntry { value, before } = *unsafe { Box::from_raw(entry.as_ptr()) };
        self.oldest = NonNull::new(before);
        Some(value)
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// A place for one boxed value, exchanged atomically.
///
/// A value has one owner at any time: the place, or the thread that took it. That thread sees everything written
/// before the value was put in.
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

#[cfg(all(test, not(loom_model)))]
mod tests {
    use std::sync::Arc;

    use super::Inbox;

    #[test]
    fn values_come_in_the_order_of_each_thread_that_pushes() {
        let inbox = Inbox::new();
        let (mut next, mut taken) = ([0; 4], 0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let inbox = &inbox;
                scope.spawn(move || {
                    (0..1_000).for_each(|number| inbox.push((thread, number)).expect("it is open"))
                });
            }
            while taken < 4_000 {
                for (thread, number) in inbox.take_all() {
                    assert_eq!(number, std::mem::replace(&mut next[thread], number + 1));
                    taken += 1;
                }
            }
        });
        assert_eq!(inbox.take_all().count(), 0);
    }

    #[test]
    fn what_nobody_takes_is_dropped_and_what_comes_late_is_given_back() {
        let (inbox, counted) = (Inbox::new(), Arc::new(()));
        let push = || inbox.push(Arc::clone(&counted)).is_ok();
        assert!(push() && push() && push());
        let mut taken = inbox.take_all();
        assert!(taken.next().is_some() && push());
        drop(taken);
        assert_eq!(Arc::strong_count(&counted), 2);
        assert_eq!(inbox.close().count(), 1);
        assert!(!push());
        drop(inbox);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}

#[cfg(all(test, loom_model))]
mod loom_tests {
    use std::sync::Arc;

    use loom::thread;

    use super::{AtomicBox, Inbox};

    /// Two threads push while another takes and then closes: each value is obtained once, taken or given back, whole
    /// and in the order of its thread.
    #[test]
    fn loom_each_value_is_taken_once_or_given_back() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new());
            let pushing = |values: [u64; 2]| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || values.map(|value| inbox.push(Box::new(value)).err()))
            };
            let others = [pushing([1, 2]), pushing([10, 20])];
            let mut taken: Vec<u64> = inbox.take_all().map(|value| *value).collect();
            taken.extend(inbox.close().map(|value| *value));
            for (other, values) in others.into_iter().zip([[1, 2], [10, 20]]) {
                let back: Vec<u64> =
                    other.join().expect("no panic").into_iter().flatten().map(|value| *value).collect();
                let of_other = taken.iter().copied().filter(|value| values.contains(value));
                assert!(of_other.chain(back).eq(values));
            }
        });
    }

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
