//! The hand-over of an object from writer to cleaner under loom: every interleaving of two threads.
//!
//! Run: `RUSTFLAGS="--cfg loom_model" cargo test --release -p splinter-store loom`

use std::sync::Arc;

use crate::epoch::{EpochPin, Epochs, LocalEpoch};
use crate::hash_range::HashRange;
use crate::index::{Index, Location};
use crate::segment::{Claim, SegmentId, Segments, State};
use crate::sync::AtomicU64;

const HASH: u64 = 0x1111_2222_3333_4444;
/// Bytes of the object, wherever it is.
const BYTES: u32 = 8;
/// Offsets of the object that the cleaner meets, of its copy, and of a writer's new object.
const OLD: usize = 8;
const COPY: usize = 16;
const NEW: usize = 24;

struct Bed {
    index: Index,
    segments: Segments,
    epochs: Arc<Epochs>,
}

impl Bed {
    /// Creates three windows of one seglet: the first is closed and holds one object, which is not indexed yet.
    fn new() -> Arc<Bed> {
        let index =
            Index::new(HashRange::ALL, 1, Arc::new(AtomicU64::new(0)), false).expect("memory for one bucket");
        let segments = Segments::new(3, 1, 2);
        for _ in 0..3 {
            segments.take(Claim { least: 1, most: 1, keep: 0, windows_kept: 0 }).expect("three are free");
        }
        segments.close(SegmentId(0), BYTES, 1, 0, 0);
        Arc::new(Bed { index, segments, epochs: Arc::new(Epochs::new(2)) })
    }

    fn local(&self, core: usize) -> LocalEpoch {
        LocalEpoch::new(Arc::clone(&self.epochs), core)
    }

    fn find(&self, pin: &EpochPin<'_>) -> Option<usize> {
        self.index.find(pin, HASH, |location| Some(location.offset()))
    }

    fn publish(&self, pin: &EpochPin<'_>, offset: usize) {
        let mut bucket = self.index.lock(pin, HASH).expect("the index is there");
        let _ = bucket.insert(HASH, Location::from_offset(offset)).expect("there is room");
    }

    /// Replaces the object and buries the old one, as a writer does.
    fn overwrite(&self, pin: &EpochPin<'_>) {
        let mut bucket = self.index.lock(pin, HASH).expect("the index is there");
        let (place, before) = bucket.find(HASH, |location| Some(location.offset())).expect("it is there");
        let _ = bucket.replace(place, HASH, Location::from_offset(NEW));
        drop(bucket);
        self.segments.bury(1, u32::from(before == COPY), BYTES);
    }

    /// Moves the object if the index still points to it, as the cleaner does. Returns whether the segment is all dead.
    fn clean(&self, pin: &EpochPin<'_>) -> bool {
        let is_old = |location: Location| (location.offset() == OLD).then_some(());
        if self.index.find(pin, HASH, is_old).is_some() {
            let mut bucket = self.index.lock(pin, HASH).expect("the index is there");
            if let Some((place, ())) = bucket.find(HASH, is_old) {
                bucket.relocate(place, HASH, Location::from_offset(COPY));
                drop(bucket);
                self.segments.bury(0, 0, BYTES);
            }
        }
        let source = SegmentId(0);
        let all_dead = self.segments.dead(source) == self.segments.used(source);
        if all_dead {
            self.segments.set_state(source, State::Retired);
            assert_ne!(self.find(pin), Some(OLD), "nothing leads to what is freed");
        }
        all_dead
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn loom_an_object_that_is_moved_and_overwritten_is_buried_once() {
    explore(|| {
        let bed = Bed::new();
        bed.publish(&bed.local(0).pin(), OLD);
        let writer = {
            let bed = Arc::clone(&bed);
            loom::thread::spawn(move || bed.overwrite(&bed.local(1).pin()))
        };
        let local = bed.local(0);
        let freed = bed.clean(&local.pin());
        writer.join().expect("the writer does not panic");
        assert_eq!(bed.find(&local.pin()), Some(NEW), "the writer's object stays");
        assert_eq!(bed.segments.dead(SegmentId(0)), BYTES, "once, whoever it was");
        assert!(freed || bed.clean(&local.pin()), "what is dead is freed in the end");
    });
}

#[test]
fn loom_an_object_that_is_not_published_yet_keeps_its_segment() {
    explore(|| {
        let bed = Bed::new();
        let writer = {
            let bed = Arc::clone(&bed);
            loom::thread::spawn(move || bed.publish(&bed.local(1).pin(), OLD))
        };
        let local = bed.local(0);
        let pin = local.pin();
        let freed = bed.clean(&pin);
        let found = bed.find(&pin);
        assert!(!freed || found == Some(COPY), "freed only when it was moved");
        drop(pin);
        writer.join().expect("the writer does not panic");
        assert!(freed || bed.clean(&local.pin()), "a second walk moves what was published");
        assert_eq!(bed.find(&local.pin()), Some(COPY));
    });
}

#[test]
fn loom_two_heads_never_own_one_seglet() {
    explore(|| {
        let segments = Arc::new(Segments::new(3, 2, 2));
        let claim = Claim { least: 1, most: 2, keep: 0, windows_kept: 1 };
        let work = move |segments: &Segments| {
            let taken = segments.take(claim)?;
            let run = segments.run(taken);
            segments.close(taken, BYTES, 1, 0, 0);
            segments.set_state(taken, State::Retired);
            segments.free(taken);
            Some(run)
        };
        let other = {
            let segments = Arc::clone(&segments);
            loom::thread::spawn(move || work(&segments))
        };
        assert!(work(&segments).is_some(), "there is enough for two");
        assert!(other.join().expect("the other does not panic").is_some());
        assert_eq!(segments.free_count(), 6);
    });
}

#[test]
fn loom_heads_leave_what_is_to_be_left_while_a_window_is_withdrawn() {
    explore(|| {
        let segments = Arc::new(Segments::new(2, 2, 1));
        let claim = Claim { least: 1, most: 2, keep: 2, windows_kept: 1 };
        let other = {
            let segments = Arc::clone(&segments);
            loom::thread::spawn(move || segments.take(claim).is_some())
        };
        let took = segments.take(claim).is_some();
        assert!(took != other.join().expect("the other does not panic"), "there is enough for one of them");
    });
    explore(|| {
        let segments = Arc::new(Segments::new(2, 2, 1));
        let other = {
            let segments = Arc::clone(&segments);
            loom::thread::spawn(move || {
                let bits = segments.withdraw(1);
                segments.restore(1, bits);
            })
        };
        let claim = Claim { least: 1, most: 2, keep: 0, windows_kept: 0 };
        let runs = [(); 2].map(|()| segments.take(claim).map_or(0..0, |taken| segments.run(taken)));
        other.join().expect("the other does not panic");
        assert!(runs[0].end <= runs[1].start || runs[1].end <= runs[0].start, "{runs:?}");
        let taken: u32 = runs.iter().map(|run| run.end - run.start).sum();
        assert_eq!(segments.free_count(), 4 - u64::from(taken));
    });
}
