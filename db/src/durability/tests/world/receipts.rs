//! Cuts that go to a world's backups alone: what these have received survives whatever ends the server.

use std::collections::BTreeMap;

use fastrand::Rng;
use store::AwaitedCuts;

use super::World;
use crate::durability::tests::model::Model;
use crate::durability::tests::running::{CORES, Held, Key, SYNCED};

impl World {
    /// Sends what is new to backups alone, if there are any.
    pub(super) fn send_ahead(&mut self, random: &mut Rng) {
        if self.backups.is_none() {
            return;
        }
        self.note_sent();
        self.running().writer.send_ahead();
        for _ in 0..random.u32(0..30) {
            self.backups.iter_mut().for_each(|backups| _ = backups.turn());
        }
        self.running().writer.tend_backups();
        self.note_received();
    }

    /// Writes something that goes to backups alone.
    pub(super) fn write_ahead(&mut self, random: &mut Rng) {
        self.asks = false;
        for _ in 0..random.u32(0..6) {
            let core = random.usize(..CORES);
            self.put(random, core);
            self.delete(random, core);
            self.send_ahead(random);
        }
    }

    /// Notes what the next cut includes, which may go to backups.
    pub(super) fn note_sent(&mut self) {
        let cut = self.running().store.unstable_cut();
        if cut > 0 && self.backups.is_some() {
            let model = self.model.clone();
            self.sent.insert(cut, model);
        }
    }

    /// Notes what backups have received.
    pub(super) fn note_received(&mut self) {
        let received = self.running().store.reached_cuts().received;
        if self.backups.as_mut().is_some_and(|backups| std::mem::take(&mut backups.has_forgotten)) {
            self.trusted_after = received;
        }
        self.told_to.received = received;
    }

    /// Returns whether the answer to a request waits for receipts of what it shows of a key.
    pub(super) fn waits_for_receipt(&self, key: Key) -> bool {
        let awaits = self.running.as_ref().is_some_and(|running| running.store.awaits_receipts());
        awaits && !self.asks && key.0 != SYNCED
    }

    /// Returns what backups may have, the latest last: whatever may be missing, they have what was received, unless one has lost its
    /// memory since.
    fn at_backups(&self, has_forgotten: bool, earlier: Vec<Model>) -> (Vec<Model>, u64) {
        let received = self.told_to.received;
        let is_trusted = !has_forgotten && received > self.trusted_after.max(self.told_to.stable);
        let trusted = if is_trusted { received } else { 0 };
        let first = self.sent.range(..=trusted).next_back().map(|(cut, _)| *cut);
        let later = self.sent.range(first.unwrap_or(0)..).map(|(_, model)| model.clone());
        let mut models = Vec::new();
        if first.is_none() {
            models.extend(earlier);
            models.extend([self.stable.clone(), self.begun.clone()]);
        }
        models.extend(later);
        (models, trusted)
    }

    /// Checks that backups have what clients were told, and what was acknowledged.
    pub(super) fn check_received(
        &mut self,
        (found, has_forgotten): (&BTreeMap<Key, Held>, bool),
        is: impl Fn(&Model) -> bool,
        what: &str,
    ) {
        let earlier = self.backups.as_ref().map(|backups| backups.earlier.clone()).unwrap_or_default();
        let (models, trusted) = self.at_backups(has_forgotten, earlier);
        let model = models.iter().rev().find(|model| is(model));
        let model = model.unwrap_or_else(|| panic!("{what}: backups have another log"));
        self.received_often += u32::from(trusted > 0);
        let reached = AwaitedCuts { received: trusted, stable: self.told_to.stable };
        for fact in self.received_facts.iter().filter(|fact| fact.cuts.are_reached(reached)) {
            // Nothing that was awaited: it may have been received before a backup lost its memory.
            if fact.cuts == AwaitedCuts::default() && trusted == 0 {
                continue;
            }
            let newest = model.newest.get(&fact.key).copied().unwrap_or(0);
            assert!(
                newest >= fact.version,
                "{what}: {:?} was {} and is {newest} at backups",
                fact.key,
                fact.version
            );
            let held = found.get(&fact.key);
            let has_returned = fact.is_expiry && held.is_some_and(|held| held.0 == fact.version);
            assert!(!has_returned, "{what}: {:?} had expired and is back at backups", fact.key);
        }
    }
}
