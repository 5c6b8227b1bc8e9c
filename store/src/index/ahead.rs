//! The memory of the next generation, backed before it is needed.
//!
//! The kernel clears a huge page at the first write to it, in 100 us and more: too long for the insert that happens to move
//! the first bucket there. So a large index that will grow soon says so once; a thread beside the workers makes the next
//! generation, backs its memory and leaves it here; growth takes it if it still fits. Where there is no such thread,
//! growth makes its own, and pays.

use std::io;

use crate::epoch::EpochPin;
use crate::index::Index;
use crate::index::generation::{Capacity, Generation};
use crate::limits::{AHEAD_BYTES_MIN, AHEAD_LOAD_PERCENT, GROWTH_DIVISOR, LOAD_DENOMINATOR, LOAD_NUMERATOR};
use crate::memory::HUGE_PAGE_BYTES;
use crate::sync::{AtomicBool, Exclusive, Ordering};

/// See the file's head.
#[derive(Default)]
pub(crate) struct Ahead {
    /// Somebody was told that the current generation will be left.
    told: AtomicBool,
    made: Exclusive<Option<Made>>,
}

/// A generation with memory, and what it can follow.
struct Made {
    follows: Capacity,
    generation: Box<Generation>,
}

impl Ahead {
    /// For the mover, who has left a generation.
    pub(crate) fn forget(&self) {
        self.told.store(false, Ordering::Release);
    }
}

impl Index {
    /// Whether the thread that backs memory should look at an index with so many objects, which it is told once: it will
    /// grow soon and is large.
    pub(crate) fn wants_memory_ahead(&self, pin: &EpochPin<'_>, objects: u64) -> bool {
        self.current(pin).is_some_and(|current| nears_growth(current, objects))
            && !self.ahead.told.swap(true, Ordering::AcqRel)
    }

    /// Makes the next generation and backs its memory, if an index with so many objects will need it soon; frees what was
    /// made and does not fit any more. For a thread beside the workers; takes a millisecond for 8 MiB.
    ///
    /// # Errors
    /// The system has no memory for it, or does not back memory on demand.
    pub(crate) fn make_ahead(&self, objects: u64, huge_pages: bool) -> io::Result<()> {
        let next = self.with_current(|current| {
            nears_growth(current, objects).then(|| (current.hashes(), current.capacity()))
        });
        let next = next.flatten();
        let fits = |made: &Made| next.is_some_and(|(_, follows)| made.follows == follows);
        let misfit = self.ahead.made.lock().take_if(|made| !fits(made));
        drop(misfit);
        let Some((hashes, follows)) = next.filter(|_| self.ahead.made.lock().is_none()) else {
            return Ok(());
        };
        let generation =
            Box::new(Generation::new(hashes, larger(follows.buckets), Some(follows), huge_pages)?);
        for from in (0..generation.bytes()).step_by(HUGE_PAGE_BYTES) {
            generation.populate(from, generation.bytes().min(from + HUGE_PAGE_BYTES as u64))?;
        }
        *self.ahead.made.lock() = Some(Made { follows, generation });
        Ok(())
    }

    /// What was made ahead, if it follows `current` and has `buckets` at least.
    pub(crate) fn take_ahead(&self, current: &Generation, buckets: u64) -> Option<Box<Generation>> {
        let fits =
            |made: &mut Made| made.follows == current.capacity() && made.generation.buckets() >= buckets;
        // What does not fit stays: the thread frees it.
        self.ahead.made.try_lock()?.take_if(fits).map(|made| made.generation)
    }
}

/// Whether the index of that generation will be left soon for a larger one.
fn nears_growth(current: &Generation, objects: u64) -> bool {
    let near = current.buckets() * LOAD_NUMERATOR * AHEAD_LOAD_PERCENT / 100;
    current.bytes() >= AHEAD_BYTES_MIN
        && objects.saturating_mul(LOAD_DENOMINATOR) > near
        && current.next_pointer().is_null()
}

/// How many buckets follow so many.
pub(crate) fn larger(buckets: u64) -> u64 {
    buckets + buckets.div_ceil(GROWTH_DIVISOR)
}

#[cfg(test)]
impl Index {
    /// Bytes of the generation that was made ahead.
    pub(crate) fn bytes_ahead(&self) -> Option<u64> {
        self.ahead.made.lock().as_ref().map(|made| made.generation.bytes())
    }
}
