//! Starts of a world's server over what its disk has.

use std::cell::Cell;

use cluster::metadata::{OwnLogEnd, OwnLogExtent};
use fastrand::Rng;

use super::super::super::recovery::Report;
use super::{PASSED_OVER, World, brief, keep_unanswered};
use crate::durability::tests::model::Model;
use crate::durability::tests::running::{KEYS_MAX, Running, Started};

impl World {
    /// Starts the server anew over what the disk has, and compares.
    pub(in crate::durability::tests) fn restart(&mut self, random: &mut Rng, seed: u64) {
        let (stable, report) = self.reopen(random, seed);
        let latest_ms = self.latest_ms;
        assert_eq!((report.recovered.dropped, &report.recovered.damaged), (0, &Vec::new()), "seed {seed}");
        let found = self.contents(self.keys.max(KEYS_MAX));
        let is = |model: &Model| model.is_as(&found, &self.found, latest_ms);
        if !is(&self.stable) && !is(&self.begun) {
            let (stable, begun) = (&self.stable.objects, &self.begun.objects);
            let mut keys: Vec<_> = stable.keys().chain(begun.keys()).chain(found.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let [was, began, is] = [stable, begun, &found].map(|state| brief(state.get(key)));
                if was != is || began != is {
                    println!("{key:?}: stable {was:?}, under way {began:?}, found {is:?}");
                }
            }
            panic!("seed {seed}: neither the last stable cut nor the one under way");
        }
        self.model = if is(&self.stable) { self.stable.clone() } else { self.begun.clone() };
        self.check_facts((stable, &found), seed);
        self.check_seen(seed, &found);
        let now_ms = self.model.now_ms;
        // Others are gone for good.
        self.model.objects.retain(|key, held| held.2 <= now_ms || found.contains_key(key));
        self.begin_again();
        if !self.connect_backups(random) {
            self.check_backups(seed);
            self.restart(random, seed);
        }
    }

    pub(super) fn reopen(&mut self, random: &mut Rng, seed: u64) -> (u64, Report) {
        let stable = self.told_to.stable;
        self.latest_ms = self.latest_ms.max(self.model.now_ms);
        self.running = None;
        self.disk = self.disk.restart();
        self.check_directories(seed);
        // The machine's clock may have been set back.
        let now_ms = if random.bool() { 0 } else { self.model.now_ms };
        let decided = self.decided.take().filter(|_| random.bool());
        let extent = Cell::new(OwnLogExtent::Whole);
        let up_to = |own: OwnLogEnd| decided.as_ref().and_then(|decided| decided.up_to(own, &extent));
        self.starts += 1;
        let start = (self.starts, self.backups.as_ref().map_or(0, |_| PASSED_OVER), &up_to as _);
        let opened = Running::open_as(&self.config, (&self.disk, self.frames_max), start, now_ms, random);
        let Started { running, report, completions, seen } =
            opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        keep_unanswered(&running, &self.acknowledged);
        (self.found, self.seen) = (completions, seen);
        let now = running.store.now_ms();
        self.latest_ms = self.latest_ms.max(now);
        for model in [&mut self.model, &mut self.stable, &mut self.begun] {
            model.now_ms = now;
        }
        self.running = Some(running);
        self.check_decided(decided, extent.get(), seed);
        (stable, report)
    }

    pub(super) fn begin_again(&mut self) {
        let newest = self.model.newest.values().copied().max().unwrap_or(0);
        self.running().tables.iter().for_each(|table| table.begin_above(newest));
        self.stable = self.model.clone();
        self.begun = self.model.clone();
        // Cuts that wrote nothing are not on the disk, so numbers may come again.
        self.told_to = self.running().store.reached_cuts();
        self.sent.clear();
        self.received_facts.clear();
    }
}
