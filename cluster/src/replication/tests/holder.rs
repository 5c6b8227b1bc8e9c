//! A backup of the model.

use std::collections::{BTreeMap, BTreeSet};

use super::Item;

/// A backup: what it has in memory and on its disk.
#[derive(Default)]
pub(super) struct Holder {
    pub(super) file: u64,
    pub(super) is_up: bool,
    pub(super) is_full: bool,
    /// The bytes of each item, those of copies under way, and those that are stable.
    pub(super) has: BTreeMap<Item, u64>,
    pub(super) copying: BTreeMap<Item, u64>,
    pub(super) stable: BTreeMap<Item, u64>,
    /// What it had in memory when it crashed.
    pub(super) forgotten: BTreeMap<Item, u64>,
    /// Items of which it drops what follows.
    pub(super) refused: BTreeSet<Item>,
}

impl Holder {
    /// Its process ends.
    pub(super) fn crash(&mut self) {
        self.is_up = false;
        let lost = |(item, bytes): &(&Item, &u64)| self.stable.get(item).is_none_or(|stable| stable < bytes);
        self.forgotten.extend(self.has.iter().filter(lost).map(|(item, bytes)| (*item, *bytes)));
        self.has.clone_from(&self.stable);
    }

    pub(super) fn make_stable(&mut self) {
        self.stable.clone_from(&self.has);
    }
}
