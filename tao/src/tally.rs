//! Counts how often each id is met: a hash table with open addressing, for many ids and little time.
//!
//! One allocation while it does not grow; an entry costs a multiplication and, mostly, one cache line.
//! Ids that are left out keep their slot, so that meeting one again costs the same.

use alloc::vec;
use alloc::vec::Vec;

/// Marks an id that is not counted.
const LEFT_OUT: u32 = u32::MAX;
/// Slots at the start.
const SLOTS_FIRST: usize = 1 << 10;

/// How often each id was met.
#[derive(Debug)]
pub struct Tally {
    /// A power of two of slots: id and count, count 0 for an empty slot.
    slots: Vec<(u64, u32)>,
    used: usize,
    counted: usize,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally::new()
    }
}

impl Tally {
    /// An empty tally.
    pub fn new() -> Tally {
        Tally { slots: vec![(0, 0); SLOTS_FIRST], used: 0, counted: 0 }
    }

    /// How many different ids were met, those left out not counted.
    pub fn distinct(&self) -> usize {
        self.counted
    }

    /// Leaves an id out from now on.
    pub fn leave_out(&mut self, id: u64) {
        let index = self.slot_of(id);
        match self.slots[index].1 {
            LEFT_OUT => return,
            0 => self.used += 1,
            _ => self.counted -= 1,
        }
        self.slots[index] = (id, LEFT_OUT);
        self.grow_if_full();
    }

    /// Counts an id once more.
    #[inline]
    pub fn meet(&mut self, id: u64) {
        let index = self.slot_of(id);
        let slot = &mut self.slots[index];
        if slot.1 == 0 {
            *slot = (id, 1);
            self.used += 1;
            self.counted += 1;
            self.grow_if_full();
        } else if slot.1 < LEFT_OUT - 1 {
            slot.1 += 1;
        }
    }

    /// The `limit` ids met most often, those met equally often by id.
    pub fn ranked(&self, limit: usize) -> Vec<(u64, u32)> {
        let mut ranked = Vec::with_capacity(self.counted);
        for slot in &self.slots {
            if slot.1 != 0 && slot.1 != LEFT_OUT {
                ranked.push(*slot);
            }
        }
        let order = |left: &(u64, u32), right: &(u64, u32)| right.1.cmp(&left.1).then(left.0.cmp(&right.0));
        if limit < ranked.len() {
            ranked.select_nth_unstable_by(limit, order);
            ranked.truncate(limit);
        }
        ranked.sort_unstable_by(order);
        ranked
    }

    /// The slot of an id, or the empty one where it goes.
    #[inline]
    fn slot_of(&self, id: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut index = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[index].1 != 0 && self.slots[index].0 != id {
            index = (index + 1) & mask;
        }
        index
    }

    /// Keeps a third of the slots empty.
    #[inline]
    fn grow_if_full(&mut self) {
        if self.used * 3 > self.slots.len() * 2 {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![(0, 0); self.slots.len() * 4];
        let old = core::mem::replace(&mut self.slots, larger);
        for slot in old {
            if slot.1 != 0 {
                let index = self.slot_of(slot.0);
                self.slots[index] = slot;
            }
        }
    }
}
