//! Admission of migrations to the slots of a server: the lowest number first, at every server alike.
//!
//! ```text
//!   target begun ──► slot at the target ──► Prepare ──► slot at the source ──► both work ──► both slots free
//! ```
//! A server has some slots for migrations of which it is the target and as many others for those of which it is the
//! source. Each migration takes the target's slot first, and the source takes its own after the first request of the
//! target. So a migration that holds a source's slot holds both and waits for no other one, and one that holds a
//! target's slot waits only for such migrations. This excludes a circle, in whatever order servers learn of migrations.
//! Numbers only grow, so with lowest first every migration is eventually admitted.

use std::collections::{BTreeMap, BTreeSet};

/// The slots of one side of a server, and the migrations that hold them or wait for one.
#[derive(Clone, Debug)]
pub struct SlotAdmission {
    free: Vec<usize>,
    held: BTreeMap<u32, usize>,
    waiting: BTreeSet<u32>,
}

impl SlotAdmission {
    /// Creates an admission with these free slots.
    pub fn new(slots: impl IntoIterator<Item = usize>) -> Self {
        Self { free: slots.into_iter().collect(), held: BTreeMap::new(), waiting: BTreeSet::new() }
    }

    /// Requests a slot; a migration that has one keeps it.
    pub fn ask(&mut self, migration: u32) {
        if !self.held.contains_key(&migration) {
            self.waiting.insert(migration);
        }
    }

    /// Gives a free slot to the lowest waiting number, and returns both; called until it returns `None`.
    pub fn admit(&mut self) -> Option<(u32, usize)> {
        if self.waiting.is_empty() {
            return None;
        }
        let slot = self.free.pop()?;
        let migration = self.waiting.pop_first()?;
        debug_assert!(self.held.values().all(|held| *held != slot), "a slot has one holder");
        let before = self.held.insert(migration, slot);
        debug_assert_eq!(before, None, "a migration that has a slot does not wait");
        Some((migration, slot))
    }

    /// Releases a migration's slot, or ends its wait for one.
    pub fn leave(&mut self, migration: u32) {
        self.waiting.remove(&migration);
        let left = self.held.remove(&migration);
        debug_assert!(left.is_none_or(|slot| !self.free.contains(&slot)), "a slot is given back once");
        self.free.extend(left);
    }

    /// Returns how many are admitted before this one; `None` when it does not wait.
    #[must_use]
    pub fn ahead_of(&self, migration: u32) -> Option<usize> {
        self.waiting.contains(&migration).then(|| self.waiting.range(..migration).count())
    }
}

#[cfg(test)]
mod tests {
    use super::SlotAdmission;

    #[test]
    fn the_lowest_number_that_waits_is_next_and_a_slot_is_held_by_one() {
        let mut admission = SlotAdmission::new([4, 5]);
        [9, 3, 7].into_iter().for_each(|migration| admission.ask(migration));
        let first: Vec<_> = std::iter::from_fn(|| admission.admit()).collect();
        assert_eq!(first.iter().map(|(migration, _)| *migration).collect::<Vec<_>>(), [3, 7]);
        assert_ne!(first[0].1, first[1].1);
        admission.ask(3);
        admission.ask(5);
        assert_eq!([3, 5, 9].map(|migration| admission.ahead_of(migration)), [None, Some(0), Some(1)]);
        admission.leave(7);
        assert_eq!(admission.admit(), Some((5, first[1].1)));
        assert_eq!((admission.admit(), admission.ahead_of(9)), (None, Some(0)));
    }

    #[test]
    fn one_that_leaves_the_queue_frees_no_slot_and_is_not_admitted() {
        let mut admission = SlotAdmission::new([0]);
        [1, 2, 3].into_iter().for_each(|migration| admission.ask(migration));
        assert_eq!(admission.admit(), Some((1, 0)));
        admission.leave(2);
        assert_eq!(admission.admit(), None);
        admission.leave(1);
        admission.leave(1);
        assert_eq!(admission.admit(), Some((3, 0)));
        admission.leave(3);
        assert_eq!(admission.admit(), None, "nobody waits");
    }
}
