//! The queues of a table that evicts: the small one and the main one, which hold hashes, and the ghosts of the objects
//! that left the small one.
//!
//! Whoever holds the lock of the queues (`cache.rs`) has them alone, so nothing here is shared between threads.

use std::collections::VecDeque;

use crate::limits::{CACHE_CHUNK_HASHES, CACHE_GHOST_SETS_MAX, CACHE_GHOST_SETS_MIN, CACHE_STALE_FEW};

/// Ghosts of a set.
const WAYS: usize = 16;
/// Ticks of the clock while each set receives as many ghosts as it has places.
const TICKS_PER_TURN: u64 = 1 << 13;

type Chunk = [u64; CACHE_CHUNK_HASHES];

/// The queues of one table.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) small: Fifo,
    pub(crate) main: Fifo,
    pub(crate) ghost: Ghost,
}

impl Queues {
    /// Returns the small or the main queue.
    pub(crate) fn queue(&mut self, small: bool) -> &mut Fifo {
        if small { &mut self.small } else { &mut self.main }
    }

    /// Returns whether most hashes of the queues are stale, given the number of objects.
    pub(crate) fn is_stale(&self, objects: u64) -> bool {
        (self.small.len() + self.main.len()) as u64 > objects.saturating_mul(2) + CACHE_STALE_FEW
    }
}

/// A queue of hashes, in chunks: it grows and shrinks without moving its contents.
///
/// One emptied chunk is kept, so that a queue of constant size allocates nothing.
#[derive(Default)]
pub(crate) struct Fifo {
    chunks: VecDeque<Box<Chunk>>,
    /// Place of the oldest hash in the first chunk.
    first: usize,
    /// Place after the youngest hash, counted from the beginning of the first chunk.
    end: usize,
    spare: Option<Box<Chunk>>,
}

impl Fifo {
    /// Returns the number of hashes.
    pub(crate) fn len(&self) -> usize {
        self.end - self.first
    }

    /// Returns the bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let chunks = self.chunks.len() + usize::from(self.spare.is_some());
        (chunks * size_of::<Chunk>() + self.chunks.capacity() * size_of::<Box<Chunk>>()) as u64
    }

    /// Adds a hash at the young end.
    pub(crate) fn push(&mut self, hash: u64) {
        if self.end == self.chunks.len() * CACHE_CHUNK_HASHES {
            let chunk = self.spare.take().unwrap_or_else(|| Box::new([0; CACHE_CHUNK_HASHES]));
            self.chunks.push_back(chunk);
        }
        self.chunks[self.end / CACHE_CHUNK_HASHES][self.end % CACHE_CHUNK_HASHES] = hash;
        self.end += 1;
    }

    /// Returns the hash after the `others` oldest ones.
    pub(crate) fn peek(&self, others: usize) -> Option<u64> {
        let at = self.first + others;
        (at < self.end).then(|| self.chunks[at / CACHE_CHUNK_HASHES][at % CACHE_CHUNK_HASHES])
    }

    /// Removes and returns the oldest hash.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let hash = self.peek(0)?;
        self.first += 1;
        if self.first == CACHE_CHUNK_HASHES {
            self.spare = self.chunks.pop_front();
            self.first = 0;
            self.end -= CACHE_CHUNK_HASHES;
        }
        Some(hash)
    }

    /// Frees some chunks of an unused queue. Returns whether there were any.
    pub(crate) fn take_apart(&mut self, chunks: usize) -> bool {
        let left = self.chunks.len().saturating_sub(chunks);
        let had_some = !self.chunks.is_empty();
        self.chunks.truncate(left);
        (self.first, self.end) = (0, 0);
        had_some
    }
}

/// The set of ghosts of one table: objects that left the small queue recently, remembered by a part of their hash.
///
/// ```text
///   set of 16 ── line of 16 words: [ when, 16 bits │ fingerprint, 16 bits ]      0 = empty
/// ```
///
/// As many ghosts count as the main queue has objects. Older ones are forgotten by the clock, which counts added
/// ghosts, or because a younger one took their place. A wrong answer (one in 2,000) gives an object a better place
/// than it has earned, so the whole hash is not kept: four bytes per ghost. When the main queue has outgrown the
/// sets, they are allocated again, empty.
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
    use std::collections::VecDeque;

    use super::{Fifo, Ghost};

    #[test]
    fn a_queue_gives_back_what_it_got_in_order() {
        let mut random =
            fastrand::Rng::with_seed(crate::tests::seed("a_queue_gives_back_what_it_got_in_order"));
        let (mut queue, mut model) = (Fifo::default(), VecDeque::new());
        for round in 0..crate::tests::budget(20_000) as u64 {
            // Long runs of pushes and of pops, so that chunks are allocated and freed.
            if (round / 700).is_multiple_of(2) == (random.u32(..4) > 0) {
                queue.push(round);
                model.push_back(round);
            } else {
                let ahead = random.usize(..600);
                assert_eq!(queue.peek(ahead), model.get(ahead).copied());
                assert_eq!(queue.pop(), model.pop_front());
            }
            assert_eq!(queue.len(), model.len());
        }
        assert!(queue.bytes() < (model.len() as u64 + 4 * 256) * 9 + 1024, "{} bytes", queue.bytes());
    }

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
