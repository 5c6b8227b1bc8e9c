//! A world at rest: time passes and clients read.

use fastrand::Rng;

use super::World;
use crate::durability::tests::running::CORES;

impl World {
    /// Takes a turn without a write.
    pub(super) fn rest(&mut self, random: &mut Rng) {
        let core = random.usize(..CORES);
        self.asks = random.bool();
        match random.u32(0..10) {
            0..7 => self.read(random, core),
            7 => _ = self.running().cores[core].step(),
            8 => self.pass_time(random),
            _ => self.sync(),
        }
    }

    pub(super) fn pass_time(&mut self, random: &mut Rng) {
        self.model.now_ms += random.u64(0..50);
        let now = self.model.now_ms;
        self.running().store.advance_clock(now);
    }
}
