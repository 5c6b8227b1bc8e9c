//! The smallest cases of the tree under loom: two writers and a walk, with leaves small enough to be split.
//!
//! Run: `RUSTFLAGS="--cfg loom_model" cargo test --release -p splinter-store loom`

use std::sync::Arc;

use crate::epoch::{Epochs, LocalEpoch};
use crate::hash_range::HashRange;
use crate::index::{Index, Location};
use crate::ordered::{KeyRange, NodeGarbage, OrderedKeys};
use crate::reclaim::Reclaimer;
use crate::sync::AtomicU64;

struct Bed {
    keys: OrderedKeys,
    reclaimer: Reclaimer,
    epochs: Arc<Epochs>,
}

impl Bed {
    fn new(keys: &[u8]) -> Arc<Bed> {
        let epochs = Arc::new(Epochs::new(2));
        let reclaimer = Reclaimer::new(Arc::clone(&epochs));
        let bed = Bed { keys: OrderedKeys::new(Arc::new(AtomicU64::new(0))), reclaimer, epochs };
        keys.iter().for_each(|&key| bed.edit(0, |bed, local, garbage| bed.insert(local, key, garbage)));
        Arc::new(bed)
    }

    fn insert(&self, local: &LocalEpoch, key: u8, garbage: &mut NodeGarbage) {
        self.keys.insert(&local.pin(), &[key], garbage).expect("a model waits");
    }

    fn remove(&self, local: &LocalEpoch, key: u8, garbage: &mut NodeGarbage) {
        let pin = local.pin();
        while let Some(removal) = self.keys.removal(&pin, &[key]).expect("a model waits") {
            if let Ok(removed) = self.keys.remove(removal) {
                self.keys.finish(&pin, &[key], removed, garbage);
            }
        }
    }

    fn edit(&self, core: usize, edit: impl FnOnce(&Bed, &LocalEpoch, &mut NodeGarbage)) {
        let (local, mut garbage) = (LocalEpoch::new(Arc::clone(&self.epochs), core), NodeGarbage::default());
        edit(self, &local, &mut garbage);
        garbage.hand_over(&self.reclaimer);
        self.reclaimer.step();
    }

    fn all(&self, core: usize, reverse: bool) -> Vec<u8> {
        let local = LocalEpoch::new(Arc::clone(&self.epochs), core);
        let pin = local.pin();
        let mut walk = self.keys.walk(&pin, KeyRange { reverse, ..KeyRange::default() });
        std::iter::from_fn(|| walk.next().map(|key| key[0])).collect()
    }
}

fn beside(bed: &Arc<Bed>, work: impl FnOnce(&Bed) + Send + 'static) -> loom::thread::JoinHandle<()> {
    let bed = Arc::clone(bed);
    loom::thread::spawn(move || work(&bed))
}

#[test]
fn loom_no_insert_is_lost_where_two_meet_and_a_leaf_is_split() {
    loom::model(|| {
        let bed = Bed::new(&[20, 40]);
        let other = beside(&bed, |bed| bed.edit(1, |bed, local, garbage| bed.insert(local, 10, garbage)));
        bed.edit(0, |bed, local, garbage| bed.insert(local, 30, garbage));
        other.join().expect("the other does not panic");
        assert_eq!(bed.all(0, false), [10, 20, 30, 40]);
        assert_eq!(bed.all(0, true), [40, 30, 20, 10]);
    });
}

#[test]
fn loom_a_walk_meets_all_that_stay_while_a_leaf_is_split_and_freed() {
    loom::model(|| {
        let bed = Bed::new(&[20, 40]);
        let other = beside(&bed, |bed| {
            bed.edit(1, |bed, local, garbage| {
                bed.insert(local, 30, garbage);
                bed.remove(local, 30, garbage);
            });
        });
        let mut met = bed.all(0, true);
        met.retain(|&key| key != 30);
        assert_eq!(met, [40, 20]);
        other.join().expect("the other does not panic");
    });
}

/// A tree beside an index, with one key that is written and removed as `ordered_table.rs` does.
struct Beside {
    bed: Arc<Bed>,
    index: Index,
}

const KEY: u8 = 30;
const HASH: u64 = 0x1111_2222_3333_4444;

impl Beside {
    fn new() -> Arc<Beside> {
        let index =
            Index::new(HashRange::ALL, 1, Arc::new(AtomicU64::new(0)), false).expect("memory for one bucket");
        Arc::new(Beside { bed: Bed::new(&[20]), index })
    }

    fn write(&self, core: usize) {
        self.bed.edit(core, |bed, local, garbage| {
            loop {
                let entered = bed.keys.entered_now();
                bed.insert(local, KEY, garbage);
                let pin = local.pin();
                let mut bucket = self.index.lock(&pin, HASH).expect("it is there");
                let has_entered = bed.keys.entered_now() == entered || bed.keys.has(&pin, &[KEY]);
                let _ = match bucket.find(HASH, |_| Some(())) {
                    Some((place, ())) => bucket.replace(place, HASH, Location::from_offset(16)),
                    None if has_entered => bucket.insert(HASH, Location::from_offset(8)).expect("room"),
                    None => continue,
                };
                return;
            }
        });
    }

    fn delete(&self, core: usize) {
        self.bed.edit(core, |bed, local, garbage| {
            let pin = local.pin();
            let mut bucket = self.index.lock(&pin, HASH).expect("it is there");
            let Some((place, ())) = bucket.find(HASH, |_| Some(())) else { return };
            let _ = bucket.remove(place);
            drop(bucket);
            while let Some(removal) = bed.keys.removal(&pin, &[KEY]).expect("a model waits") {
                let bucket = self.index.lock(&pin, HASH).expect("it is there");
                if bucket.find(HASH, |_| Some(())).is_some() {
                    return;
                }
                let removed = bed.keys.remove(removal);
                drop(bucket);
                if let Ok(removed) = removed {
                    bed.keys.finish(&pin, &[KEY], removed, garbage);
                }
            }
        });
    }

    /// Returns whether the index and whether the tree have the key.
    fn has(&self) -> (bool, bool) {
        let local = LocalEpoch::new(Arc::clone(&self.bed.epochs), 0);
        let pin = local.pin();
        (self.index.find(&pin, HASH, |_| Some(())).is_some(), self.bed.keys.has(&pin, &[KEY]))
    }
}

fn together(first: impl FnOnce(&Beside) + Send + 'static, second: impl FnOnce(&Beside)) -> (bool, bool) {
    let beside = Beside::new();
    beside.write(0);
    let other = {
        let beside = Arc::clone(&beside);
        loom::thread::spawn(move || first(&beside))
    };
    second(&beside);
    other.join().expect("the other does not panic");
    beside.has()
}

#[test]
fn loom_a_key_that_is_written_while_it_is_removed_is_in_the_tree_if_it_is_in_the_index() {
    loom::model(|| {
        let (in_index, in_tree) = together(|beside| beside.delete(1), |beside| beside.write(0));
        assert_eq!(in_index, in_tree);
    });
}

#[test]
fn loom_a_key_that_is_removed_and_written_again_while_it_is_removed_is_in_both_or_in_neither() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (in_index, in_tree) = together(
            |beside| beside.delete(1),
            |beside| {
                beside.delete(0);
                beside.write(0);
            },
        );
        assert_eq!(in_index, in_tree);
    });
}
