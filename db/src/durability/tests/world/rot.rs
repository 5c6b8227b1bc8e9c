//! A world whose disk does not have what was written.

use disk::{BLOCK_BYTES, Disk, FrameId};
use fastrand::Rng;

use super::World;
use crate::durability::log_reader::LogError;
use crate::durability::tests::running::{KEYS_MAX, Key, Running, Started};

/// Bits at the end of a block of which each one makes its trailer invalid.
const TRAILER_BITS: usize = 44 * 8;

impl World {
    /// As [`World::restart`] over a disk with flipped bits: what is lost was reported.
    pub(in crate::durability::tests) fn restart_with_rot(&mut self, random: &mut Rng, seed: u64) {
        let Some(Started { running, report, .. }) = self.open_with_rot(random, seed) else { return };
        let found = running.contents(self.keys.max(KEYS_MAX), self.stable.objects.keys().copied());
        let latest_ms = running.store.now_ms().max(self.model.now_ms);
        let is_sound = |key: &Key| self.stable.allows(*key, found.get(key), latest_ms);
        let all = self.stable.objects.keys().chain(found.keys());
        let lost: Vec<&Key> = all.filter(|key| !is_sound(key)).collect();
        let told = report.blocks_damaged > 0 || !report.recovered.damaged.is_empty();
        assert!(lost.is_empty() || told, "seed {seed}: {lost:?} are lost in silence");
    }

    /// Damages each block of a frame, those of the last segments rather than others.
    pub(in crate::durability::tests) fn take_by_rot(&mut self, random: &mut Rng) {
        let frames = self.disk.frames();
        let frame =
            if random.bool() { random.u32(..frames) } else { frames - 1 - random.u32(..frames.min(8)) };
        for block in 0..self.frame_bytes() / BLOCK_BYTES {
            self.disk.flip(FrameId(frame), (block + 1) * BLOCK_BYTES * 8 - random.usize(1..=TRAILER_BITS));
        }
    }

    /// Starts the server anew over a disk that has lost whole frames: it may lack objects, and nothing else goes wrong.
    pub(in crate::durability::tests) fn restart_over_rot(&mut self, random: &mut Rng, seed: u64) {
        if let Some(Started { running, .. }) = self.open_with_rot(random, seed) {
            running.contents(self.keys.max(KEYS_MAX), std::iter::empty());
        }
    }

    /// Opens the server anew; `None` if the start is refused, which it says in words.
    fn open_with_rot(&mut self, random: &mut Rng, seed: u64) -> Option<Started> {
        self.running = None;
        self.disk = self.disk.restart();
        match Running::open(&self.config, &self.disk, self.frames_max, self.model.now_ms, random) {
            Err(LogError::Unsuitable(text)) => {
                assert!(text.contains("log"), "seed {seed}: {text}");
                None
            }
            Err(error) => panic!("seed {seed}: {error}"),
            Ok(started) => Some(started),
        }
    }
}
