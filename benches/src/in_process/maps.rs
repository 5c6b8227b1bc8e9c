//! The maps that the store is measured beside: dashmap, papaya, scc.
//!
//! Each is used as a store of bytes would use it: keys and values of any length in boxes of their own, the same hash
//! function as ours, a value replaced as a whole. Counters stand in the map itself.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::in_process::side::{Kind, Side, Worker, copy_out, key_of, value_of};

type Bytes = Box<[u8]>;

/// The store's hash in the shape that maps want.
#[derive(Clone, Copy, Default)]
struct SameHash;

/// See [`SameHash`].
#[derive(Default)]
struct SameHasher(u64);

impl BuildHasher for SameHash {
    type Hasher = SameHasher;

    fn build_hasher(&self) -> SameHasher {
        SameHasher::default()
    }
}

impl Hasher for SameHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= store::hash(bytes);
    }

    /// The length, which the hash of the bytes covers already.
    #[inline]
    fn write_usize(&mut self, _length: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The map of that name, empty.
pub fn open(name: &str, kind: Kind) -> Option<Box<dyn Side>> {
    Some(match (name, kind) {
        ("dashmap", Kind::Objects) => Box::new(MapSide(DashObjects::with_hasher(SameHash))),
        ("dashmap", Kind::Counters) => Box::new(MapSide(DashCounters::with_hasher(SameHash))),
        ("papaya", Kind::Objects) => Box::new(MapSide(PapayaObjects::with_hasher(SameHash))),
        ("papaya", Kind::Counters) => Box::new(MapSide(PapayaCounters::with_hasher(SameHash))),
        ("scc", Kind::Objects) => Box::new(MapSide(SccObjects::with_hasher(SameHash))),
        ("scc", Kind::Counters) => Box::new(MapSide(SccCounters::with_hasher(SameHash))),
        _ => return None,
    })
}

type DashObjects = dashmap::DashMap<Bytes, Bytes, SameHash>;
type DashCounters = dashmap::DashMap<u64, u64, SameHash>;
type PapayaObjects = papaya::HashMap<Bytes, Bytes, SameHash>;
// A value of papaya's is not changed in place: a counter that is atomic is the fastest it can do.
type PapayaCounters = papaya::HashMap<u64, AtomicU64, SameHash>;
type SccObjects = scc::HashMap<Bytes, Bytes, SameHash>;
type SccCounters = scc::HashMap<u64, u64, SameHash>;

/// A map as a side; each thread works with a reference to it.
struct MapSide<M>(M);

impl<M: Sync> Side for MapSide<M>
where
    for<'a> &'a M: Worker,
{
    fn worker(&self, _core: usize) -> Box<dyn Worker + '_> {
        Box::new(&self.0)
    }
}

impl Worker for &DashObjects {
    fn read(&mut self, numbers: &[u64]) -> usize {
        let found = |&&number: &&u64| {
            self.get(key_of(number).as_slice()).is_some_and(|value| copy_out(&value, number))
        };
        numbers.iter().filter(found).count()
    }

    fn write(&mut self, numbers: &[u64]) {
        for &number in numbers {
            self.insert(key_of(number).into(), value_of(number).into());
        }
    }
}

impl Worker for &DashCounters {
    fn read(&mut self, numbers: &[u64]) -> usize {
        numbers.iter().filter(|number| self.get(number).is_some_and(|value| *value > 0)).count()
    }

    fn write(&mut self, numbers: &[u64]) {
        for &number in numbers {
            *self.entry(number).or_insert(0) += 1;
        }
    }
}

impl Worker for &PapayaObjects {
    fn read(&mut self, numbers: &[u64]) -> usize {
        let map = self.pin();
        let found =
            |&&number: &&u64| map.get(key_of(number).as_slice()).is_some_and(|value| copy_out(value, number));
        numbers.iter().filter(found).count()
    }

    fn write(&mut self, numbers: &[u64]) {
        let map = self.pin();
        for &number in numbers {
            map.insert(key_of(number).into(), value_of(number).into());
        }
    }
}

impl Worker for &PapayaCounters {
    fn read(&mut self, numbers: &[u64]) -> usize {
        let map = self.pin();
        let found = |number: &&u64| map.get(*number).is_some_and(|value| value.load(Ordering::Relaxed) > 0);
        numbers.iter().filter(found).count()
    }

    fn write(&mut self, numbers: &[u64]) {
        let map = self.pin();
        for &number in numbers {
            map.get_or_insert_with(number, AtomicU64::default).fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Worker for &SccObjects {
    fn read(&mut self, numbers: &[u64]) -> usize {
        let found = |&&number: &&u64| {
            let read = self.read_sync(key_of(number).as_slice(), |_, value| copy_out(value, number));
            read.unwrap_or(false)
        };
        numbers.iter().filter(found).count()
    }

    fn write(&mut self, numbers: &[u64]) {
        for &number in numbers {
            self.upsert_sync(key_of(number).into(), value_of(number).into());
        }
    }
}

impl Worker for &SccCounters {
    fn read(&mut self, numbers: &[u64]) -> usize {
        numbers.iter().filter(|number| self.read_sync(*number, |_, value| *value > 0) == Some(true)).count()
    }

    fn write(&mut self, numbers: &[u64]) {
        for &number in numbers {
            *self.entry_sync(number).or_insert(0) += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::in_process::open;
    use crate::in_process::side::{Kind, SIDES};

    #[test]
    fn every_side_reads_what_it_wrote_and_nothing_else() {
        for name in SIDES {
            for kind in [Kind::Objects, Kind::Counters] {
                let side = open(name, kind, 1000, 1, 0.5).unwrap();
                let mut worker = side.worker(0);
                let numbers: Vec<u64> = (0..200).collect();
                worker.write(&numbers[..100]);
                worker.write(&numbers[..100]);
                assert_eq!(worker.read(&numbers), 100, "{name} {kind:?}");
            }
        }
    }
}
