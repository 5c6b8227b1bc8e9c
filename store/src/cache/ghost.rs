//! Ghosts: objects that left the small queue recently, remembered by a part of their hash.
//!
//! ```text
//!   set of 16 ── line of 16 words: [ when, 16 bits │ fingerprint, 16 bits ]      0 = empty
//! ```
//!
//! As many ghosts count as the main queue has objects. Older ones are forgotten by the clock, which counts added
//! ghosts, or because a younger one took their place. A wrong answer (one in 2,000) gives an object a better place
//! than it has earned, so the whole hash is not kept: four bytes per ghost. When the main queue has outgrown the
//! sets, they are allocated again, empty.

use crate::limits::{CACHE_GHOST_SETS_MAX, CACHE_GHOST_SETS_MIN};

const WAYS: usize = 16;
/// Ticks of the clock while each set receives as many ghosts as it has places.
const TICKS_PER_TURN: u64 = 1 << 13;

/// The set of ghosts of one table.
#[derive(Default)]
pub(crate) struct Ghost {
    sets: Vec<[u32; WAYS]>,
    /// The number of ghosts ever added.
    came: u64,
}

impl Ghost {
    /// Returns the bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        (self.sets.len() * size_of::<[u32; WAYS]>()) as u64
    }

    /// Frees the sets.
    pub(crate) fn take_apart(&mut self) {
        self.sets = Vec::new();
    }

    fn places(&self) -> u64 {
        (self.sets.len() * WAYS) as u64
    }

    fn set_of(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.sets.len() as u128) >> 64) as usize
    }

    /// Returns the low 16 bits of the clock after `count` ghosts were added.
    fn ticks(&self, count: u64) -> u64 {
        count * TICKS_PER_TURN / self.places().max(1)
    }

    fn age(&self, word: u32) -> u64 {
        u64::from((self.ticks(self.came) as u16).wrapping_sub((word >> 16) as u16))
    }

    /// Adds a ghost, in sets sized for `wanted` ghosts.
    pub(crate) fn insert(&mut self, hash: u64, wanted: usize) {
        let enough = wanted.div_ceil(WAYS).clamp(CACHE_GHOST_SETS_MIN, CACHE_GHOST_SETS_MAX);
        if self.sets.len() < enough {
            self.sets = vec![[0; WAYS]; enough.next_power_of_two()];
            self.came = 0;
        }
        self.came += 1;
        let at = self.set_of(hash);
        let oldest = (0..WAYS).max_by_key(|&way| match self.sets[at][way] {
            0 => u64::MAX,
            word => self.age(word),
        });
        let word = (self.ticks(self.came) as u32) << 16 | fingerprint(hash);
        self.sets[at][oldest.unwrap_or(0)] = word;
    }

    /// Removes the ghost of `hash`; returns whether it was one of the last `wanted`.
    pub(crate) fn take(&mut self, hash: u64, wanted: usize) -> bool {
        if self.sets.is_empty() {
            return false;
        }
        let (at, age_max) = (self.set_of(hash), self.ticks(wanted as u64));
        let is_it = |&word: &u32| word & 0xffff == fingerprint(hash) && self.age(word) <= age_max;
        let Some(way) = self.sets[at].iter().position(is_it) else { return false };
        self.sets[at][way] = 0;
        true
    }
}

/// Returns a fingerprint, never 0, of hash bits that choose neither the set nor, in the index, the bucket or the tag.
fn fingerprint(hash: u64) -> u32 {
    (hash >> 16) as u32 & 0xffff | 1
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use super::Ghost;

    #[test]
    fn the_youngest_ghosts_are_remembered_and_those_of_long_ago_are_not() {
        let hash = |number: u64| crate::hash(&number.to_le_bytes());
        let (mut ghost, wanted) = (Ghost::default(), 4096);
        for number in 0..100_000 {
            ghost.insert(hash(number), wanted);
        }
        let mut known = |numbers: std::ops::Range<u64>| {
            let count = numbers.end - numbers.start;
            (numbers.filter(|&number| ghost.take(hash(number), wanted)).count() * 100) as u64 / count
        };
        assert!(known(0..90_000) <= 1, "old ones are forgotten");
        assert!(known(98_000..100_000) >= 90, "young ones are known");
        assert!(known(98_000..100_000) <= 2, "a ghost is taken once");
    }

    #[test]
    fn nobody_is_a_ghost_where_nobody_left() {
        assert!(!Ghost::default().take(crate::hash(b"key"), 10));
    }
}
