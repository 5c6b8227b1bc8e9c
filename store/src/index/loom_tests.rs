//! The smallest cases of the index under loom: every interleaving of two threads.
//!
//! Run: `RUSTFLAGS="--cfg loom_model" cargo test --release -p splinter-store loom`

use std::sync::Arc;

use super::generation::{Generation, Purpose};
use super::{Index, Location};
use crate::epoch::{EpochPin, Epochs, LocalEpoch};
use crate::hash_range::HashRange;
use crate::reclaim::Reclaimer;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A hash in the lower half, so in the first of two buckets.
const HASH: u64 = 0x1111_2222_3333_4444;
/// A hash in the upper half, with a tag of its own.
const HIGH: u64 = (HASH | 1 << 63) + 1;
const UPPER: usize = 24;
const FIRST: usize = 8;
const SECOND: usize = 16;

struct Bed {
    index: Index,
    reclaimer: Reclaimer,
    epochs: Arc<Epochs>,
}

impl Bed {
    fn new() -> Arc<Bed> {
        Self::with_buckets(1)
    }

    fn with_buckets(buckets: u64) -> Arc<Bed> {
        let epochs = Arc::new(Epochs::new(2));
        let index = Index::new(HashRange::ALL, buckets, Arc::new(AtomicU64::new(0)), false)
            .expect("memory for a few buckets");
        Arc::new(Bed { index, reclaimer: Reclaimer::new(Arc::clone(&epochs)), epochs })
    }

    fn local(&self, core: usize) -> LocalEpoch {
        LocalEpoch::new(Arc::clone(&self.epochs), core)
    }

    fn find(&self, pin: &EpochPin<'_>, hash: u64) -> Option<usize> {
        self.index.find(pin, hash, |location| Some(location.offset()))
    }

    fn insert(&self, pin: &EpochPin<'_>, hash: u64, offset: usize) {
        let mut bucket = self.index.lock(pin, hash).expect("the index is there");
        let _ = bucket.insert(hash, Location::from_offset(offset)).expect("there is room");
    }

    fn replace(&self, pin: &EpochPin<'_>, hash: u64, offset: usize) {
        let mut bucket = self.index.lock(pin, hash).expect("the index is there");
        let (place, ()) = bucket.find(hash, |_| Some(())).expect("it is there");
        let _ = bucket.replace(place, hash, Location::from_offset(offset));
    }

    fn grow(&self, pin: &EpochPin<'_>) {
        self.index.start_growth(pin, 0, false).expect("memory for two buckets");
        self.index.grow(pin, 2, &self.reclaimer, |_| HASH, |_| {});
    }

    /// Shrinks from two buckets to one, with `HASH` in the lower bucket and `HIGH` in the upper one.
    fn shrink(&self, pin: &EpochPin<'_>) {
        self.index.start_shrinking(pin, 0, false);
        let hash_of = |location: Location| if location.offset() == UPPER { HIGH } else { HASH };
        self.index.grow(pin, 3, &self.reclaimer, hash_of, |_| {});
    }
}

fn beside(
    bed: &Arc<Bed>,
    work: impl Fn(&Bed, &EpochPin<'_>) + Send + 'static,
) -> loom::thread::JoinHandle<()> {
    let bed = Arc::clone(bed);
    loom::thread::spawn(move || {
        let local = bed.local(1);
        work(&bed, &local.pin());
    })
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn loom_a_published_entry_is_found_by_whoever_comes_later() {
    explore(|| {
        let bed = Bed::new();
        let reader = beside(&bed, |bed, pin| {
            let first = bed.find(pin, HASH);
            let second = bed.find(pin, HASH);
            assert!(first.is_none() || second == first, "what was found stays");
        });
        let local = bed.local(0);
        bed.insert(&local.pin(), HASH, FIRST);
        assert_eq!(bed.find(&local.pin(), HASH), Some(FIRST));
        reader.join().expect("the reader does not panic");
    });
}

#[test]
fn loom_an_entry_is_found_while_the_index_grows() {
    explore(|| {
        let bed = Bed::new();
        let local = bed.local(0);
        bed.insert(&local.pin(), HASH, FIRST);
        let reader = beside(&bed, |bed, pin| assert_eq!(bed.find(pin, HASH), Some(FIRST)));
        bed.grow(&local.pin());
        assert_eq!(bed.find(&local.pin(), HASH), Some(FIRST));
        reader.join().expect("the reader does not panic");
    });
}

#[test]
fn loom_a_replacement_is_not_lost_while_the_index_grows() {
    explore(|| {
        let bed = Bed::new();
        let local = bed.local(0);
        bed.insert(&local.pin(), HASH, FIRST);
        let writer = beside(&bed, |bed, pin| {
            bed.replace(pin, HASH, SECOND);
            assert_eq!(bed.find(pin, HASH), Some(SECOND));
        });
        bed.grow(&local.pin());
        writer.join().expect("the writer does not panic");
        assert_eq!(bed.find(&local.pin(), HASH), Some(SECOND));
    });
}

#[test]
fn loom_entries_are_found_while_the_index_shrinks() {
    explore(|| {
        let bed = Bed::with_buckets(2);
        let local = bed.local(0);
        bed.insert(&local.pin(), HASH, FIRST);
        bed.insert(&local.pin(), HIGH, UPPER);
        let reader = beside(&bed, |bed, pin| {
            assert_eq!(bed.find(pin, HIGH), Some(UPPER));
            assert_eq!(bed.find(pin, HASH), Some(FIRST));
        });
        bed.shrink(&local.pin());
        assert_eq!(bed.find(&local.pin(), HIGH), Some(UPPER));
        reader.join().expect("the reader does not panic");
    });
}

#[test]
fn loom_a_replacement_is_not_lost_while_the_index_shrinks() {
    explore(|| {
        let bed = Bed::with_buckets(2);
        let local = bed.local(0);
        bed.insert(&local.pin(), HASH, FIRST);
        bed.insert(&local.pin(), HIGH, UPPER);
        let writer = beside(&bed, |bed, pin| {
            bed.replace(pin, HASH, SECOND);
            assert_eq!(bed.find(pin, HASH), Some(SECOND));
        });
        bed.shrink(&local.pin());
        writer.join().expect("the writer does not panic");
        assert_eq!(bed.find(&local.pin(), HASH), Some(SECOND));
        assert_eq!(bed.find(&local.pin(), HIGH), Some(UPPER));
    });
}

#[test]
fn loom_two_movers_move_each_bucket_once() {
    explore(|| {
        let bed = Bed::new();
        let local = bed.local(0);
        bed.insert(&local.pin(), HASH, FIRST);
        let other = beside(&bed, |bed, pin| bed.grow(pin));
        bed.grow(&local.pin());
        other.join().expect("the other mover does not panic");
        assert_eq!(bed.find(&local.pin(), HASH), Some(FIRST));
    });
}

#[test]
fn loom_an_entry_that_moves_within_its_chain_is_found() {
    explore(|| {
        let bed = Bed::new();
        let local = bed.local(0);
        {
            // Seven entries of another hash fill the bucket; the entry of `HASH` is in its overflow bucket.
            let pin = local.pin();
            (2..9).for_each(|number| bed.insert(&pin, HASH + 1, number * 8));
            bed.insert(&pin, HASH, 800);
        }
        let reader = beside(&bed, |bed, pin| assert_eq!(bed.find(pin, HASH), Some(800)));
        {
            // Removing one of them moves the entry of `HASH` into its place.
            let pin = local.pin();
            let mut bucket = bed.index.lock(&pin, HASH).expect("the index is there");
            let (place, ()) = bucket.find(HASH + 1, |_| Some(())).expect("it is there");
            let _ = bucket.remove(place);
        }
        reader.join().expect("the reader does not panic");
    });
}

#[test]
fn loom_two_writers_of_one_bucket_both_succeed() {
    explore(|| {
        let bed = Bed::new();
        let writer = beside(&bed, |bed, pin| bed.insert(pin, HASH, FIRST));
        let local = bed.local(0);
        bed.insert(&local.pin(), HASH + 1, SECOND);
        writer.join().expect("the writer does not panic");
        assert_eq!(bed.find(&local.pin(), HASH), Some(FIRST));
        assert_eq!(bed.find(&local.pin(), HASH + 1), Some(SECOND));
    });
}

#[test]
fn loom_readers_of_two_buckets_do_not_see_half_a_commit() {
    explore(|| {
        let (low, high) = (HASH, HASH | 1 << 63);
        let bed = Bed::new();
        let local = bed.local(0);
        {
            // One and a half buckets, rounded up to two.
            let pin = local.pin();
            bed.grow(&pin);
            bed.insert(&pin, low, FIRST);
            bed.insert(&pin, high, FIRST);
        }
        let reader = beside(&bed, move |bed, pin| {
            let first = bed.find(pin, low);
            let second = bed.find(pin, high);
            assert!(first == Some(FIRST) || second == Some(SECOND), "the second is read later");
        });
        let pin = local.pin();
        let lock = |hash| bed.index.lock(&pin, hash).expect("the index is there");
        let mut buckets = [(low, lock(low)), (high, lock(high))];
        buckets.iter_mut().for_each(|(_, bucket)| bucket.begin_commit());
        for (hash, bucket) in &mut buckets {
            let (place, ()) = bucket.find(*hash, |_| Some(())).expect("it is there");
            let _ = bucket.replace(place, *hash, Location::from_offset(SECOND));
        }
        drop(buckets);
        drop(pin);
        reader.join().expect("the reader does not panic");
    });
}

/// A use is counted in the generation that has the entry, or is lost; the entry is found either way.
#[test]
fn loom_a_use_while_the_index_grows_loses_nothing() {
    explore(|| {
        let bed = Bed::new();
        let local = bed.local(0);
        bed.insert(&local.pin(), HASH, FIRST);
        let reader = beside(&bed, |bed, pin| bed.index.note_use(pin, HASH, |_| true));
        bed.grow(&local.pin());
        reader.join().expect("the reader does not panic");
        let pin = local.pin();
        let bucket = bed.index.lock(&pin, HASH).expect("the index is there");
        let found = bucket.find_marked(HASH, |mark, location| Some((mark.uses(), location.offset())));
        let (_, (uses, offset)) = found.expect("it is there");
        assert!(uses <= 1 && offset == FIRST);
    });
}

/// One thread takes and frees an overflow bucket, while another takes two and frees the first: then the free list
/// begins as before but continues differently.
#[test]
fn loom_an_overflow_bucket_is_had_by_one_thread_at_a_time() {
    loom::model(|| {
        let generation = Arc::new(Generation::new(HashRange::ALL, 1, None, false).expect("memory"));
        let held = Arc::new([(); 3].map(|()| AtomicBool::new(false)));
        let take = |generation: &Generation, held: &[AtomicBool; 3]| {
            let number = generation.take_overflow(Purpose::Move)?;
            assert!(!held[number as usize].swap(true, Ordering::Relaxed), "somebody else has it");
            Some(number)
        };
        let give = |generation: &Generation, held: &[AtomicBool; 3], number: Option<u32>| {
            let Some(number) = number else { return };
            held[number as usize].store(false, Ordering::Relaxed);
            generation.free_overflow(number);
        };
        let both = [(); 2].map(|()| take(&generation, &held));
        both.into_iter().for_each(|number| give(&generation, &held, number));
        let other = {
            let (generation, held) = (Arc::clone(&generation), Arc::clone(&held));
            loom::thread::spawn(move || {
                let [first, second] = [(); 2].map(|()| take(&generation, &held));
                give(&generation, &held, first);
                give(&generation, &held, second);
            })
        };
        let number = take(&generation, &held);
        give(&generation, &held, number);
        other.join().expect("no panic");
        assert!([(); 2].iter().all(|()| take(&generation, &held).is_some()), "one was lost");
    });
}
