//! Epochs: they tell when no reader can still hold a reference to unlinked memory.
//!
//! There is one global number and one slot per core. A pin writes the number into the core's slot. An unlinked item
//! gets the current number as its tag, and the number is incremented. The item is free when no slot holds the tag or
//! less.
//!
//! ```text
//!   unlink X ─ tag 7, global 8        slots: [ 0 │ 9 │ 7 ]   X waits for the core that pinned at 7
//! ```
//!
//! Correctness: a core whose slot holds more than the tag has read the number after the increment, hence sees the
//! unlink. A core whose slot was empty when the freeing side read it publishes its slot before its first read, by a
//! full fence on each side, hence sees the unlink too. Pins nest; a yielded invocation keeps its epoch by a
//! [`HeldPin`]. Loom tests are at the end of this file.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering, fence, store_fenced};

/// A core's slot, alone on its pair of cache lines. 0 = not pinned.
#[repr(align(128))]
struct EpochSlot(AtomicU64);

/// The epochs of one store.
pub(crate) struct Epochs {
    global: AtomicU64,
    slots: Box<[EpochSlot]>,
}

impl Epochs {
    pub(crate) fn new(cores: usize) -> Epochs {
        Epochs {
            global: AtomicU64::new(1),
            slots: (0..cores).map(|_| EpochSlot(AtomicU64::new(0))).collect(),
        }
    }

    /// Returns the tag of an item; call it after unlinking the item.
    pub(crate) fn retire(&self) -> u64 {
        self.global.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns the epoch of the oldest pin, `u64::MAX` without one: items with smaller tags are free.
    pub(crate) fn oldest_pin(&self) -> u64 {
        fence(Ordering::SeqCst);
        let pinned = self.slots.iter().map(|slot| slot.0.load(Ordering::Acquire));
        pinned.filter(|&epoch| epoch != 0).min().unwrap_or(u64::MAX)
    }

    /// Returns the number of retirements while the oldest pin was held, 0 without a pin.
    pub(crate) fn oldest_pin_age(&self) -> u64 {
        let oldest = self.oldest_pin();
        if oldest == u64::MAX { 0 } else { self.global.load(Ordering::Relaxed).saturating_sub(oldest) }
    }
}

/// One core's side of the epochs.
pub(crate) struct LocalEpoch {
    epochs: Arc<Epochs>,
    core: usize,
    depth: Cell<u32>,
    /// Epoch of the outermost pin; meaningful while `depth > 0`.
    epoch: Cell<u64>,
    /// Smallest held epoch, 0 without one.
    held_oldest: Cell<u64>,
    /// Held epochs in ascending order, with how often each is held.
    held: RefCell<VecDeque<(u64, u32)>>,
}

impl LocalEpoch {
    pub(crate) fn new(epochs: Arc<Epochs>, core: usize) -> LocalEpoch {
        assert!(core < epochs.slots.len());
        let held = RefCell::new(VecDeque::with_capacity(64));
        LocalEpoch { epochs, core, depth: Cell::new(0), epoch: Cell::new(0), held_oldest: Cell::new(0), held }
    }

    fn slot(&self) -> &AtomicU64 {
        &self.epochs.slots[self.core].0
    }

    /// Pins: nothing that can be found now is freed until the pin is dropped.
    #[inline]
    pub(crate) fn pin(&self) -> EpochPin<'_> {
        let depth = self.depth.get();
        if depth == 0 {
            let epoch = self.epochs.global.load(Ordering::Acquire);
            self.epoch.set(epoch);
            if self.held_oldest.get() == 0 {
                store_fenced(self.slot(), epoch);
            }
            debug_assert!(self.held_oldest.get() <= epoch, "a held pin is not younger than a new one");
        }
        self.depth.set(depth + 1);
        EpochPin { local: self }
    }

    #[inline]
    fn unpin(&self) {
        debug_assert!(self.depth.get() > 0, "a pin ends once");
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 {
            self.slot().store(self.held_oldest.get(), Ordering::Release);
        }
    }

    fn hold(&self) -> HeldPin {
        let epoch = self.epoch.get();
        let mut held = self.held.borrow_mut();
        debug_assert!(self.depth.get() > 0, "only a pin is held");
        debug_assert!(
            held.back().is_none_or(|&(last, _)| last <= epoch),
            "held epochs are in ascending order"
        );
        match held.back_mut() {
            Some((last, count)) if *last == epoch => *count += 1,
            _ => held.push_back((epoch, 1)),
        }
        self.held_oldest.set(held[0].0);
        HeldPin { epoch, core: self.core, _not_send: PhantomData }
    }

    /// Ends a held pin. Panics if it belongs to another core.
    pub(crate) fn release(&self, pin: HeldPin) {
        assert_eq!(pin.core, self.core, "a held pin is released on its own core");
        let mut held = self.held.borrow_mut();
        let at = held.binary_search_by_key(&pin.epoch, |&(epoch, _)| epoch);
        let at = at.expect("a held pin is released once");
        held[at].1 -= 1;
        if held[at].1 == 0 {
            held.remove(at);
        }
        let oldest = held.front().map_or(0, |&(epoch, _)| epoch);
        self.held_oldest.set(oldest);
        // A pin that began meanwhile protects from its own epoch on.
        let slot = match (oldest, self.depth.get()) {
            (0, 0) => 0,
            (0, _) => self.epoch.get(),
            (oldest, 0) => oldest,
            (oldest, _) => oldest.min(self.epoch.get()),
        };
        debug_assert!(slot != 0 || held.is_empty(), "what is held stays protected");
        self.slot().store(slot, Ordering::Release);
    }

    /// Returns the number of held pins.
    pub(crate) fn held_count(&self) -> u64 {
        self.held.borrow().iter().map(|&(_, count)| u64::from(count)).sum()
    }
}

impl Drop for LocalEpoch {
    fn drop(&mut self) {
        self.slot().store(0, Ordering::Release);
    }
}

/// Proof that the core is pinned: references borrowed from it stay valid.
pub(crate) struct EpochPin<'c> {
    local: &'c LocalEpoch,
}

impl EpochPin<'_> {
    /// Keeps this pin's epoch beyond the pin.
    pub(crate) fn hold(&self) -> HeldPin {
        self.local.hold()
    }
}

impl Drop for EpochPin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.local.unpin();
    }
}

/// The epoch of a pin, kept for an invocation that yielded.
///
/// Objects found under the pin stay valid until [`crate::Core::release`]. A pin that is dropped instead holds memory
/// back until its core is dropped.
#[must_use = "memory is held back until the pin is released"]
#[derive(Debug)]
pub struct HeldPin {
    epoch: u64,
    core: usize,
    _not_send: PhantomData<*const ()>,
}

impl HeldPin {
    /// Returns the held epoch; smaller is older.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Epochs, LocalEpoch};

    #[cfg(not(loom_model))]
    #[test]
    fn a_pin_holds_back_what_is_retired_later_and_nests() {
        let epochs = Arc::new(Epochs::new(2));
        let local = LocalEpoch::new(Arc::clone(&epochs), 1);
        let before = epochs.retire();
        assert!(before < epochs.oldest_pin());
        let outer = local.pin();
        let inner = local.pin();
        let tag = epochs.retire();
        assert!(before < epochs.oldest_pin() && tag >= epochs.oldest_pin());
        drop(outer);
        assert!(tag >= epochs.oldest_pin());
        drop(inner);
        assert!(tag < epochs.oldest_pin());
    }

    #[cfg(not(loom_model))]
    #[test]
    fn held_pins_keep_their_epochs_and_are_released_in_any_order() {
        let epochs = Arc::new(Epochs::new(1));
        let local = LocalEpoch::new(Arc::clone(&epochs), 0);
        let hold = || local.pin().hold();
        let first = hold();
        let first_tag = epochs.retire();
        let second = hold();
        let second_too = hold();
        let second_tag = epochs.retire();
        let third = hold();
        assert_eq!(local.held_count(), 4);
        local.release(second);
        assert!(first_tag >= epochs.oldest_pin());
        local.release(first);
        assert!(first_tag < epochs.oldest_pin() && second_tag >= epochs.oldest_pin());
        let pin = local.pin();
        local.release(second_too);
        local.release(third);
        assert!(second_tag < epochs.oldest_pin());
        let last_tag = epochs.retire();
        assert!(last_tag >= epochs.oldest_pin(), "the pin begun meanwhile holds its own epoch");
        drop(pin);
        assert!(last_tag < epochs.oldest_pin());
        assert_eq!(local.held_count(), 0);
    }

    #[cfg(not(loom_model))]
    #[test]
    #[should_panic(expected = "own core")]
    fn a_held_pin_of_another_core_is_refused() {
        let epochs = Arc::new(Epochs::new(2));
        let (one, other) = (LocalEpoch::new(Arc::clone(&epochs), 0), LocalEpoch::new(epochs, 1));
        let held = one.pin().hold();
        other.release(held);
    }

    /// A writer unlinks and frees while a reader pins, reads and unpins.
    #[cfg(loom_model)]
    #[test]
    fn loom_nothing_is_freed_under_a_reader() {
        use crate::sync::{AtomicBool, AtomicU64, Ordering};

        loom::model(|| {
            let epochs = Arc::new(Epochs::new(1));
            // 1 = the item is linked, 0 = it is unlinked.
            let link = Arc::new(AtomicU64::new(1));
            let freed = Arc::new(AtomicBool::new(false));
            let reader = {
                let (epochs, link, freed) = (Arc::clone(&epochs), Arc::clone(&link), Arc::clone(&freed));
                loom::thread::spawn(move || {
                    let local = LocalEpoch::new(epochs, 0);
                    for _ in 0..2 {
                        let pin = local.pin();
                        if link.load(Ordering::Acquire) == 1 {
                            assert!(!freed.load(Ordering::Acquire), "freed under a reader");
                        }
                        drop(pin);
                    }
                })
            };
            link.store(0, Ordering::Release);
            let tag = epochs.retire();
            if tag < epochs.oldest_pin() {
                freed.store(true, Ordering::Release);
            }
            reader.join().expect("the reader does not panic");
        });
    }
}
