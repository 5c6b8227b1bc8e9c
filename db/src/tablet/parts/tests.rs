//! Tests of finding the part of a hash, for parts and ranges of all kinds, compared with a linear search.

use std::sync::Arc;

use store::{Config, HashRange, Quota, Store, Table, TableOptions};

use super::{Parts, PartsError};

fn store() -> Arc<Store> {
    Store::new(Config {
        memory_bytes: 16 << 20,
        segment_bytes: 1 << 20,
        cores: 1,
        huge_pages: false,
        durable: false,
        recovery_cores: 0,
    })
    .expect("a small store")
}

fn part(store: &Store, id: u32, hashes: HashRange) -> Arc<Table> {
    let options = TableOptions { hashes, ..TableOptions::default() };
    store.table_with(id, options, &Arc::new(Quota::new(1, u64::MAX)))
}

fn range(first: u64, last: u64) -> HashRange {
    HashRange::new(first, last).expect("wide enough")
}

#[test]
fn a_whole_table_has_every_hash_in_its_one_part() {
    let store = store();
    let parts = Parts::whole(store.table(1));
    for hash in [0, 1, 1 << 63, u64::MAX] {
        assert_eq!(parts.find(b"", hash).map(Table::id), Some(1));
    }
    assert_eq!(parts.only().map(Table::id), Some(1));
    assert_eq!(parts.owned(), [(0, u64::MAX)]);
}

#[test]
fn what_is_split_and_all_owned_is_found_as_before() {
    let store = store();
    let middle = 1 << 63;
    let halves = [range(0, middle - 1), range(middle, u64::MAX)];
    let parts =
        Parts::new(TableOptions::default(), vec![store.table(1)], &halves).expect("halves of one part");
    assert_eq!(parts.only().map(Table::id), Some(1), "a split of what stays here costs a look-up nothing");
}

#[test]
fn a_tagged_table_has_the_keys_of_a_tag_in_one_part_whatever_their_hashes_are() {
    let store = store();
    let options = |positions| TableOptions { positions: Some(positions), ..TableOptions::default() };
    let quarter = |at: u64| range(at << 62, (at << 62) + ((1 << 62) - 1));
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let held: Vec<_> =
        (0_u64..3).map(|at| store.table_with(at as u32 + 1, options(quarter(at)), &quota)).collect();
    let owned = [quarter(0), quarter(1)];
    let parts = Parts::new(options(HashRange::ALL), held, &owned).expect("whole parts");
    assert!(parts.is_tagged() && parts.only().is_none());
    let mut found = [0; 4];
    for user in 0..200 {
        let at = (store::hash(format!("{user}").as_bytes()) >> 62) as usize;
        for name in ["a", "b", "c"] {
            let key = format!("{name}:{{{user}}}").into_bytes();
            let part = parts.find(&key, store::hash(&key)).map(Table::id);
            assert_eq!(part, [Some(1), Some(2), None, None][at], "{user}");
        }
        let of_user = parts.part_of(format!("d:{{{user}}}").as_bytes()).map(Table::id);
        assert_eq!(of_user, [Some(1), Some(2), None, None][at], "{user}");
        found[at] += 1;
    }
    assert!(found.iter().all(|found| *found > 20), "{found:?}");
    assert!(parts.part_of(b"{7").is_none());
    // The hashes of a part, to move it.
    let pieces = parts.pieces((quarter(1).first(), quarter(1).last()));
    assert_eq!(
        pieces.iter().map(|(hashes, part)| (*hashes, part.id())).collect::<Vec<_>>(),
        [((0, u64::MAX), 2)]
    );
    let whole = Parts::whole(store.table_with(9, options(HashRange::ALL), &quota));
    assert_eq!(whole.find(b"{x}y", 7).map(Table::id), Some(9));
}

#[test]
fn a_table_of_which_nothing_is_owned_finds_nothing() {
    let store = store();
    for held in [vec![], vec![store.table(1)]] {
        let parts = Parts::new(TableOptions::default(), held, &[]).expect("nothing owned");
        assert!(parts.find(b"", 0).is_none() && parts.find(b"", u64::MAX).is_none());
        assert!(parts.only().is_none() && parts.owned().is_empty());
    }
}

#[test]
fn ranges_that_overlap_and_those_that_nobody_holds_are_refused() {
    let store = store();
    let (low, high) = (range(0, 1 << 62), range(1 << 62, u64::MAX));
    let one = part(&store, 1, low);
    let new = |held: &[&Arc<Table>], owned: &[HashRange]| {
        Parts::new(TableOptions::default(), held.iter().map(|&part| Arc::clone(part)).collect(), owned)
            .map(|parts| parts.owned())
    };
    assert_eq!(new(&[&one], &[low, high]), Err(PartsError::Overlap(1 << 62)));
    assert_eq!(new(&[&one], &[HashRange::ALL]), Err(PartsError::NotHeld((1 << 62) + 1)));
    assert_eq!(new(&[], &[low]), Err(PartsError::NotHeld(0)));
}

#[test]
fn each_hash_is_found_in_its_part_and_nowhere_else() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..50 {
        let store = store();
        let mut bounds: Vec<u64> =
            (0..random.usize(0..9)).map(|_| random.u64(1 << 40..u64::MAX - (1 << 40))).collect();
        bounds.sort_unstable();
        bounds.dedup_by(|one, other| *one - *other < 1 << 40);
        let firsts = std::iter::once(0).chain(bounds.iter().copied());
        let lasts = bounds.iter().map(|bound| bound - 1).chain([u64::MAX]);
        let all: Vec<HashRange> = firsts.zip(lasts).map(|(first, last)| range(first, last)).collect();
        // Each tablet is held in a part of its own, or with the next one in the same; owned, or not.
        let (mut held, mut owned, mut at) = (Vec::new(), Vec::new(), 0);
        while at < all.len() {
            let end = (at + random.usize(1..3)).min(all.len());
            if random.u8(..4) > 0 {
                held.push(part(&store, at as u32 + 1, range(all[at].first(), all[end - 1].last())));
                owned.extend(all[at..end].iter().filter(|_| random.u8(..4) > 0));
            }
            at = end;
        }
        let parts = Parts::new(TableOptions::default(), held.clone(), &owned).expect("disjoint and held");
        let near = bounds.iter().flat_map(|&bound| [bound - 1, bound]).chain([0, u64::MAX]);
        let anywhere: Vec<u64> = (0..200).map(|_| random.u64(..)).collect();
        for hash in near.chain(anywhere) {
            let expected = owned
                .iter()
                .any(|range| range.contains(hash))
                .then(|| held.iter().find(|part| part.hashes().contains(hash)).map(|part| part.id()));
            assert_eq!(parts.find(b"", hash).map(Table::id), expected.flatten(), "hash {hash:x}");
        }
    }
}

#[test]
fn hashes_that_came_back_are_found_in_the_newest_part_that_has_them() {
    let store = store();
    let quarter = |first: u64, last: u64| range(first << 62, (last << 62).wrapping_sub(1));
    let held = [(1, HashRange::ALL), (2, quarter(1, 3)), (3, quarter(2, 3))];
    let held: Vec<_> = held.iter().map(|&(id, hashes)| part(&store, id, hashes)).collect();
    let owned = [quarter(0, 2), quarter(2, 0)];
    let parts = Parts::new(TableOptions::default(), held, &owned).expect("all is held");
    let found: Vec<_> = (0..4).map(|at| parts.find(b"", (at << 62) + 7).map(Table::id)).collect();
    assert_eq!(found, [Some(1), Some(2), Some(3), Some(1)]);
    let pieces: Vec<_> =
        parts.pieces((0, u64::MAX)).iter().map(|(hashes, part)| (hashes.0 >> 62, part.id())).collect();
    assert_eq!(pieces, [(0, 1), (1, 2), (2, 3), (3, 1)]);
    assert_eq!(parts.objects(), 0);
}
