//! Counts occurrences of ids in a hash table with open addressing, for many ids in little time.
//!
//! One allocation of the expected size; an id costs a multiplication and usually one cache line. An excluded id keeps
//! its slot, so that another occurrence costs the same. A full tally reports that and counts only the ids that it has,
//! because the memory of an invocation is bounded.

use crate::limits::TALLY_SLOTS_MAX;
use alloc::vec;
use alloc::vec::Vec;

/// Marks an id that is not counted.
const LEFT_OUT: u32 = u32::MAX;
/// Slots of the smallest tally.
const SLOTS_MIN: usize = 64;

/// The number of occurrences of each id.
#[derive(Debug)]
pub struct Tally {
    /// A power of two of slots: id and count, count 0 for an empty slot.
    slots: Vec<(u64, u32)>,
    used: usize,
    counted: usize,
}

impl Tally {
    /// Creates an empty tally with room for `ids` ids, including excluded ones, but at most as many as
    /// [`TALLY_SLOTS_MAX`] allows.
    pub fn new(ids: usize) -> Tally {
        let slots = (ids + ids / 2).next_power_of_two().clamp(SLOTS_MIN, TALLY_SLOTS_MAX);
        Tally { slots: vec![(0, 0); slots], used: 0, counted: 0 }
    }

    /// Returns the number of different ids, without excluded ones.
    pub fn distinct(&self) -> usize {
        self.counted
    }

    /// Excludes an id from now on; returns false if there is no room for it.
    pub fn leave_out(&mut self, id: u64) -> bool {
        let index = self.slot_of(id);
        match self.slots[index].1 {
            LEFT_OUT => return true,
            0 => {
                if self.is_full() {
                    return false;
                }
                self.used += 1;
            }
            _ => self.counted -= 1,
        }
        self.slots[index] = (id, LEFT_OUT);
        true
    }

    /// Counts an id; returns false if it is new and there is no room for it.
    #[inline]
    pub fn meet(&mut self, id: u64) -> bool {
        let index = self.slot_of(id);
        let slot = &mut self.slots[index];
        if slot.1 != 0 {
            // Saturates one below the mark, and leaves the mark as it is.
            slot.1 += u32::from(slot.1 < LEFT_OUT - 1);
            return true;
        }
        if self.is_full() {
            return false;
        }
        self.slots[index] = (id, 1);
        self.used += 1;
        self.counted += 1;
        true
    }

    /// Returns the `limit` most frequent ids, ties ordered by id. Works in place.
    pub fn into_ranked(self, limit: usize) -> Vec<(u64, u32)> {
        let order = |left: &(u64, u32), right: &(u64, u32)| right.1.cmp(&left.1).then(left.0.cmp(&right.0));
        let mut ranked = self.slots;
        ranked.retain(|slot| slot.1 != 0 && slot.1 != LEFT_OUT);
        if limit < ranked.len() {
            ranked.select_nth_unstable_by(limit, order);
            ranked.truncate(limit);
        }
        ranked.sort_unstable_by(order);
        ranked
    }

    /// Returns the slot of an id, or the empty slot for it.
    #[inline]
    fn slot_of(&self, id: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut index = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[index].1 != 0 && self.slots[index].0 != id {
            index = (index + 1) & mask;
        }
        index
    }

    /// Returns whether the tally is full. An eighth of the slots stays empty, so that every search ends soon.
    #[inline]
    fn is_full(&self) -> bool {
        self.used >= self.slots.len() / 8 * 7
    }
}
