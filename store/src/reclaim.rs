//! What has been unlinked and waits until no reader can see it: old index generations, pages, directories.
//!
//! A queue in order of tags; `step` frees what is due, outside the queue's lock. Segments wait with the
//! cleaner instead, which must know how many are on their way.

use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::epoch::Epochs;
use crate::memory::Mapping;
use crate::sync::Exclusive;

/// Something to free.
pub(crate) enum Garbage {
    /// Anything that is freed by dropping it, a [`Retired`] of whatever has been left.
    Boxed(Box<dyn Send>),
    /// The part of a generation's memory that has been left.
    Pages(Arc<Mapping>, Range<usize>),
}

/// A box that others may still have references into; it becomes a box again when it is dropped.
pub(crate) struct Retired<T>(NonNull<T>);

// SAFETY: it owns its `T` as a box does.
unsafe impl<T: Send> Send for Retired<T> {}

impl<T> Retired<T> {
    /// Takes over what `Box::into_raw` gave. `None` for null.
    ///
    /// # Safety
    /// `pointer` is null or came from `Box::into_raw`, nobody else will free it, and whoever drops the result
    /// does so only when no reference is left.
    pub(crate) unsafe fn new(pointer: *mut T) -> Option<Retired<T>> {
        NonNull::new(pointer).map(Retired)
    }

    /// What waits.
    pub(crate) fn get(&self) -> &T {
        // SAFETY: by the contract of `new` this is the only owner.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: by the contract of `new` this is the only owner and no reference is left.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The queue of garbage of one store.
pub(crate) struct Reclaimer {
    epochs: Arc<Epochs>,
    waiting: Exclusive<VecDeque<(u64, Garbage)>>,
}

impl Reclaimer {
    pub(crate) fn new(epochs: Arc<Epochs>) -> Reclaimer {
        Reclaimer { epochs, waiting: Exclusive::new(VecDeque::with_capacity(64)) }
    }

    /// Takes over what the caller has just made unreachable for readers that are not pinned yet.
    pub(crate) fn retire(&self, garbage: Garbage) {
        let mut waiting = self.waiting.lock();
        let tag = self.epochs.retire();
        waiting.push_back((tag, garbage));
    }

    /// Frees one thing that is due. Returns whether it did.
    pub(crate) fn step(&self) -> bool {
        let due = {
            let Some(mut waiting) = self.waiting.try_lock() else { return false };
            let Some(&(tag, _)) = waiting.front() else { return false };
            if tag >= self.epochs.oldest_pin() {
                return false;
            }
            waiting.pop_front()
        };
        match due {
            Some((_, Garbage::Pages(mapping, range))) => mapping.give_back(range),
            Some((_, Garbage::Boxed(retired))) => drop(retired),
            None => return false,
        }
        true
    }
}
