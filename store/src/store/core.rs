//! A core: one worker thread's part of the store. Its log head, its epoch slot, its scratch memory.
//!
//! `Send`, since a worker may be replaced, but not `Sync`: two threads never share one.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::epoch::{HeldPin, LocalEpoch};
use crate::log::Head;
use crate::ordered::NodeGarbage;
use crate::scratch::Scratch;
use crate::store::Store;

/// A worker's access to a store.
pub struct Core {
    pub(crate) store: Arc<Store>,
    pub(crate) index: usize,
    pub(crate) local: LocalEpoch,
    pub(crate) head: RefCell<Head>,
    pub(crate) scratch: RefCell<Scratch>,
    /// Nodes retired by this core's edits of ordered tables.
    pub(crate) garbage: RefCell<NodeGarbage>,
    /// The kind of background work to try next.
    pub(crate) turn: Cell<u32>,
    /// Bytes written for which no cleaning has been done.
    pub(crate) owed: Cell<u64>,
}

impl Core {
    pub(crate) fn new(store: Arc<Store>, index: usize) -> Core {
        let local = LocalEpoch::new(Arc::clone(&store.epochs), index);
        let (head, scratch, garbage) = Default::default();
        Core { store, index, local, head, scratch, garbage, turn: Cell::new(0), owed: Cell::new(0) }
    }

    /// Returns the core's index.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Ends a held pin. Panics if it belongs to another core.
    pub fn release(&self, held: HeldPin) {
        self.local.release(held);
    }

    /// Returns the number of pins held by yielded invocations.
    pub fn held_pins(&self) -> u64 {
        self.local.held_count()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let head = self.head.get_mut();
        self.store.log.take_appended(head);
        self.store.log.close(head);
        self.garbage.get_mut().hand_over(&self.store.reclaimer);
        self.store.give_core_back(self.index);
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Core {{ index: {} }}", self.index)
    }
}
