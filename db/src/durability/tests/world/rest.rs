//! A world at rest: time passes and clients read, also while the log is replayed.

use std::collections::BTreeMap;

use fastrand::Rng;
use store::AwaitedCuts;

use super::{World, brief};
use crate::durability::tests::model::Fact;
use crate::durability::tests::running::{CORES, Held, Key, SYNCED};

impl World {
    /// Takes a turn without a write.
    pub(super) fn rest(&mut self, random: &mut Rng) {
        let core = random.usize(..CORES);
        self.asks = random.bool();
        match random.u32(0..10) {
            0..7 => self.read(random, core),
            7 => _ = self.running().cores[core].step(),
            8 if random.bool() => self.send_ahead(random),
            8 => self.pass_time(random),
            _ => self.sync(),
        }
    }

    pub(super) fn pass_time(&mut self, random: &mut Rng) {
        self.model.now_ms += random.u64(0..50);
        let now = self.model.now_ms;
        self.running().store.advance_clock(now);
    }

    /// Checks that what clients saw while the log was replayed is what was found.
    pub(super) fn check_seen(&mut self, seed: u64, found: &BTreeMap<Key, Held>) {
        self.seen_often += self.seen.len();
        let now_ms = self.model.now_ms;
        for (key, held, cut) in std::mem::take(&mut self.seen) {
            if held.as_ref().is_none_or(|held| held.2 > now_ms) {
                let (seen, is) = (brief(held.as_ref()), brief(found.get(&key)));
                assert_eq!(seen, is, "seed {seed}: of {key:?} was seen and is found");
            }
            if let (None, Some((version, ..)), SYNCED) = (held, self.model.objects.get(&key), key.0) {
                let cuts = AwaitedCuts { received: 0, stable: cut };
                self.facts.push(Fact { key, version: *version, is_expiry: true, cuts });
            }
        }
    }

    /// Checks that what was told by this cut holds.
    pub(super) fn check_facts(&mut self, (stable, found): (u64, &BTreeMap<Key, Held>), seed: u64) {
        let reached = AwaitedCuts { received: stable, stable };
        for fact in self.facts.drain(..).filter(|fact| fact.cuts.are_reached(reached)) {
            let held = found.get(&fact.key);
            let has_returned = fact.is_expiry && held.is_some_and(|held| held.0 == fact.version);
            assert!(
                !has_returned,
                "seed {seed}: {:?} had expired with {}, and is back",
                fact.key, fact.version
            );
            let newest = self.model.newest.get(&fact.key).copied().unwrap_or(0);
            assert!(
                newest >= fact.version,
                "seed {seed}: {:?} was {} and is {newest}",
                fact.key,
                fact.version
            );
        }
    }
}
