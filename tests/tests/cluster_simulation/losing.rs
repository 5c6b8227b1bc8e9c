//! What is lost when servers without logs take over from others that they believe to be gone: said in the history, with the moments
//! between which it happened. What a dead server had is lost at some moment; here it is by the time that the heir has come to its
//! end.

use std::collections::BTreeMap;

use cluster::metadata::{MigrationRow, Side};
use cluster::migration::MigrationPhase;
use tests::history::{Action, Operation, Outcome};

use super::World;

impl World {
    /// All migrations as they stand, by number.
    pub fn standings(&self) -> BTreeMap<u32, MigrationRow> {
        self.ask(|metadata| metadata.migrations()).into_iter().map(|row| (row.id, row)).collect()
    }

    /// Notes of migrations that stood like this before whatever happened that their keys may have lost what was written.
    pub fn note_what_was_taken(&mut self, before: &BTreeMap<u32, MigrationRow>) {
        let now = self.standings();
        for (id, row) in before.iter().filter(|(_, row)| !row.is_over()) {
            let Some(now) = now.get(id).filter(|now| now.phase != row.phase) else { continue };
            self.tally.taken += 1;
            if self.plan.durability.is_on_disk() {
                continue;
            }
            let from = self.history.len();
            self.lose_keys(&[(row.hashes.first(), row.hashes.last())]);
            let heir = if now.phase == MigrationPhase::Finished { Side::Target } else { Side::Source };
            self.losses.insert(*id, (heir, from..self.history.len()));
        }
    }

    /// A side of a migration has come to its end: of the heir's it is known that nothing is lost from here on.
    pub fn note_that_it_is_over(&mut self, id: u32, side: Side) {
        if self.losses.get(&id).is_some_and(|(heir, _)| *heir == side)
            && let Some((_, losses)) = self.losses.remove(&id)
        {
            let now_us = self.now_us;
            self.history[losses].iter_mut().for_each(|loss| loss.end = Some(now_us));
        }
    }

    /// Notes that what was written to the keys of these hashes may be lost.
    pub fn lose_keys(&mut self, ranges: &[(u64, u64)]) {
        self.lists.are_lost = true;
        for (key, name) in self.keys.iter().enumerate() {
            if ranges.iter().any(|range| (range.0..=range.1).contains(&store::hash(name))) {
                let (key, call) = (key as u64, self.now_us);
                let (action, outcome) = (Action::Lose, Outcome::Unknown);
                self.history.push(Operation { client: u32::MAX, key, call, end: None, action, outcome });
            }
        }
    }
}
