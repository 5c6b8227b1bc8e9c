//! The read mix of the ATC'13 paper (table 3), and its synthetic graph of any size.
//!
//! Both are pure functions of a seed, so that a demo, a benchmark and a test ask the same questions in the same order.
//! Shares: assoc_get 15.7 %, assoc_range 40.9 %, assoc_count 11.7 %, obj_get 28.9 %, assoc_time_range 2.8 %.

use crate::key::{AssocType, ListId, ObjectId};

/// Thousandths of assoc_get, then cumulated with assoc_range, assoc_count and obj_get; the rest is assoc_time_range.
const SHARES: [u64; 4] = [157, 566, 683, 972];

/// A small, fast, seeded random number generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

/// One question of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Reads the association from the list's object to `id2`, if it exists.
    AssocGet {
        /// The list.
        list: ListId,
        /// The other end.
        id2: ObjectId,
    },
    /// Reads the newest `limit` associations.
    AssocRange {
        /// The list.
        list: ListId,
        /// The first position, counted from the newest.
        position: u32,
        /// The number of associations.
        limit: u32,
    },
    /// Counts the associations.
    AssocCount {
        /// The list.
        list: ListId,
    },
    /// Reads the object.
    ObjGet {
        /// The object.
        id: ObjectId,
    },
    /// Reads the newest `limit` associations in a span of time.
    AssocTimeRange {
        /// The list.
        list: ListId,
        /// Latest time.
        high: u64,
        /// Earliest time.
        low: u64,
        /// The number of associations.
        limit: u32,
    },
}

/// The objects and ranges of the mix.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// The number of objects, with the ids 0 to `objects` - 1.
    pub objects: u64,
    /// Type of the associations.
    pub atype: AssocType,
    /// Entries per range read.
    pub limit: u32,
    /// The latest time of a time range read.
    pub high: u64,
    /// The earliest time of a time range read.
    pub low: u64,
}

impl Random {
    /// Creates a generator that returns the same numbers for the same seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.state)
    }

    /// Returns a number below `bound`, 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

impl Mix {
    /// Returns the next question. `neighbour` returns the other end of one association of an object, given the object
    /// and a random number to choose by.
    #[inline]
    pub fn draw<F: Fn(u64, u64) -> u64>(&self, random: &mut Random, neighbour: F) -> Question {
        let id = random.below(self.objects);
        let list = ListId { id1: ObjectId(id), atype: self.atype };
        let share = random.below(1_000);
        if share < SHARES[0] {
            let id2 = ObjectId(neighbour(id, random.next_u64()));
            Question::AssocGet { list, id2 }
        } else if share < SHARES[1] {
            Question::AssocRange { list, position: 0, limit: self.limit }
        } else if share < SHARES[2] {
            Question::AssocCount { list }
        } else if share < SHARES[3] {
            Question::ObjGet { id: list.id1 }
        } else {
            Question::AssocTimeRange { list, high: self.high, low: self.low, limit: self.limit }
        }
    }
}

/// Returns the number of associations of object `id` in the synthetic graph: 1 to 19, on average 10.
#[inline]
pub fn degree(id: u64) -> u64 {
    1 + scramble(id.wrapping_add(77)) % 19
}

/// Returns the other end of association `index` of object `id` in a synthetic graph of `objects` objects.
#[inline]
pub fn neighbour(id: u64, index: u64, objects: u64) -> u64 {
    scramble(id.wrapping_mul(64).wrapping_add(index)) % objects.max(1)
}

/// Returns the time of association `index` of object `id` in the synthetic graph.
#[inline]
pub fn time(id: u64, index: u64) -> u64 {
    1_500_000_000 + scramble(id.wrapping_mul(64).wrapping_add(index).wrapping_add(5)) % 100_000_000
}

/// Applies the finalizer of SplitMix64: a bijection that spreads every bit.
#[inline]
fn scramble(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
