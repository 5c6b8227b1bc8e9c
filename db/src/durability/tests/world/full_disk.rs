//! A world whose disk is full, and has room again.

use fastrand::Rng;
use store::Condition;

use super::World;
use crate::durability::tests::running::Key;

impl World {
    /// Fills the tables until the disk has refused some writes.
    pub(in crate::durability::tests) fn fill(&mut self, random: &mut Rng) {
        self.keys = 100_000;
        for _ in 0..20_000 {
            self.put(random, 0);
            if self.refused > 20 || self.running.is_none() {
                break;
            }
            self.running().cores[0].step();
            if random.u32(0..20) == 0 {
                self.sync();
            }
        }
    }

    /// Deletes nine in ten keys, which a full disk admits as far as they fit.
    pub(in crate::durability::tests) fn delete_most(&mut self, random: &mut Rng) {
        let keys: Vec<Key> = self.model.objects.keys().copied().filter(|_| random.u32(0..10) > 0).collect();
        for key in keys {
            for _ in 0..500 {
                let running = self.running();
                let (table, bytes) = (&running.tables[key.0 as usize - 1], key.1.to_be_bytes());
                let deleted =
                    running.cores[0].pin().delete(table, store::hash(&bytes), &bytes, Condition::Always);
                match deleted {
                    Ok(_) => {
                        self.model.objects.remove(&key);
                        let newest = self.model.newest.get(&key).copied().unwrap_or(0);
                        self.tell(0, key, newest);
                        break;
                    }
                    Err(error) => self.refuse(0, error),
                }
            }
            assert!(!self.model.objects.contains_key(&key), "{key:?} could not be deleted");
        }
    }

    /// Writes as much again as was refused, with steps of the cleaner and of the log.
    pub(in crate::durability::tests) fn write_again(&mut self, random: &mut Rng, seed: u64) {
        let (mut accepted, before) = (0, self.model.newest.len());
        for _ in 0..10_000 {
            let known: u64 = self.model.newest.values().sum();
            self.put(random, 0);
            accepted += u32::from(self.model.newest.values().sum::<u64>() > known);
            if accepted > 50 {
                return;
            }
            (0..10).for_each(|_| _ = self.running().cores[0].step());
            self.sync();
        }
        panic!("seed {seed}: {accepted} writes were accepted after {before} keys were deleted");
    }
}
