//! Unlinked items that wait until no reader can see them: old index generations, pages, directories.
//!
//! A list roughly in order of tags; `step` frees the due items after it has released the list. Segments wait with the
//! cleaner instead, which must know how many are about to become free.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::epoch::Epochs;
use crate::memory::Mapping;
use crate::sync::Worklist;

/// An item to free.
pub(crate) enum Garbage {
    /// Anything that is freed by dropping it, a [`Retired`] of an unlinked item.
    Boxed(Box<dyn Send>),
    /// The unused part of a generation's memory.
    Pages(Arc<Mapping>, Range<usize>),
}

/// A box that may still be referenced; it becomes a box again when dropped.
pub(crate) struct Retired<T>(NonNull<T>);

// SAFETY: it owns its `T` as a box does.
unsafe impl<T: Send> Send for Retired<T> {}

impl<T> Retired<T> {
    /// Takes over a pointer of `Box::into_raw`; `None` for null.
    ///
    /// # Safety
    /// `pointer` is null or came from `Box::into_raw`, nobody else will free it, and whoever drops the result
    /// does so only when no reference is left.
    pub(crate) unsafe fn new(pointer: *mut T) -> Option<Retired<T>> {
        NonNull::new(pointer).map(Retired)
    }

    /// Returns the retired value.
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
    waiting: Worklist<(u64, Garbage)>,
}

impl Reclaimer {
    pub(crate) fn new(epochs: Arc<Epochs>) -> Reclaimer {
        Reclaimer { epochs, waiting: Worklist::new() }
    }

    /// Takes over an item that new pins cannot reach any more.
    pub(crate) fn retire(&self, garbage: Garbage) {
        self.waiting.add((self.epochs.retire(), garbage));
    }

    /// Returns true if no item waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Frees one due item. Returns whether it did.
    pub(crate) fn step(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        // Items with smaller tags may follow one that a slow thread added late; they wait with it.
        let is_due = |&mut (tag, _): &mut (u64, Garbage)| tag < self.epochs.oldest_pin();
        match self.waiting.try_with(|waiting| waiting.pop_front_if(is_due)).flatten() {
            Some((_, Garbage::Pages(mapping, range))) => mapping.give_back(range),
            Some((_, Garbage::Boxed(retired))) => drop(retired),
            None => return false,
        }
        true
    }
}
