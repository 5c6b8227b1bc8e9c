//! Tests that pins nest, that held pins outlive their pins, and (under loom) that nothing is freed under a reader.

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
