//! The tree's smallest cases under loom: two writers and a walk, with leaves so small that they are split.
//!
//! Run: `RUSTFLAGS="--cfg loom_model" cargo test --release -p store loom`

use std::sync::Arc;

use crate::epoch::{Epochs, LocalEpoch};
use crate::ordered::{Garbage, KeyRange, OrderedKeys};
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

    fn insert(&self, local: &LocalEpoch, key: u8, garbage: &mut Garbage) {
        self.keys.insert(&local.pin(), &[key], garbage);
    }

    fn edit(&self, core: usize, edit: impl FnOnce(&Bed, &LocalEpoch, &mut Garbage)) {
        let (local, mut garbage) = (LocalEpoch::new(Arc::clone(&self.epochs), core), Garbage::default());
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
                bed.keys.remove(&local.pin(), &[30], garbage);
            });
        });
        let mut met = bed.all(0, true);
        met.retain(|&key| key != 30);
        assert_eq!(met, [40, 20]);
        other.join().expect("the other does not panic");
    });
}
