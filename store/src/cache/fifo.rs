//! A queue of hashes, in chunks: it grows and shrinks without moving its contents.
//!
//! One emptied chunk is kept, so that a queue of constant size allocates nothing.

use std::collections::VecDeque;

use crate::limits::CACHE_CHUNK_HASHES;

type Chunk = [u64; CACHE_CHUNK_HASHES];

/// A queue of hashes.
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

#[cfg(all(test, not(loom_model)))]
mod tests {
    use std::collections::VecDeque;

    use super::Fifo;

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
}
