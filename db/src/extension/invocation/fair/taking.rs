//! Removal of invocations regardless of turns: those to be ended, and those offered to other workers.

use std::cmp::Reverse;

use super::Fair;
use super::places::TenantQueue;
use crate::limits::OFFER_LOOK_TENANTS;

impl<T> Fair<T> {
    /// Takes the newest parked invocation of the tenant that has most of them; on a tie, of the tenant with the largest
    /// debt.
    pub(in crate::extension::invocation) fn take_newest_of_most_parked(&mut self) -> Option<T> {
        let listed = self.fresh.iter().chain(&self.round);
        let most = *listed.max_by_key(|id| {
            let place = &self.places[**id];
            (place.parked.len(), Reverse(place.deficit))
        })?;
        let item = self.places[most].parked.pop_back()?;
        self.parked -= 1;
        Some(item)
    }

    /// Takes one parked invocation that `ends` selects.
    pub(in crate::extension::invocation) fn take_parked(
        &mut self,
        mut ends: impl FnMut(&T) -> bool,
    ) -> Option<T> {
        if self.parked == 0 {
            return None;
        }
        for id in self.fresh.iter().chain(&self.round) {
            if let Some(item) = self.places[*id].parked.remove(&mut ends) {
                self.parked -= 1;
                return Some(item);
            }
        }
        None
    }

    /// Takes all invocations, ready or parked, that `ends` selects. Examines each once.
    pub(in crate::extension::invocation) fn take_all(&mut self, mut ends: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for id in self.fresh.iter().chain(&self.round) {
            let place = &mut self.places[*id];
            for waiting in [&mut place.ready, &mut place.parked] {
                // Once around, so that the others keep their order.
                for _ in 0..waiting.len() {
                    match waiting.pop_front() {
                        Some(item) if ends(&item) => taken.push(item),
                        Some(item) => waiting.push_back(item),
                        None => break,
                    }
                }
            }
        }
        let left = |of: fn(&TenantQueue<T>) -> usize| {
            self.fresh.iter().chain(&self.round).map(|id| of(&self.places[*id])).sum()
        };
        (self.ready, self.parked) = (left(|place| place.ready.len()), left(|place| place.parked.len()));
        taken
    }

    /// Takes the last ready invocation accepted by `may_go`, of the tenant whose turn is farthest. Examines only a few
    /// tenants.
    pub(in crate::extension::invocation) fn take_farthest(
        &mut self,
        may_go: impl Fn(&T) -> bool,
    ) -> Option<T> {
        for id in self.round.iter().rev().chain(self.fresh.iter().rev()).take(OFFER_LOOK_TENANTS) {
            let ready = &mut self.places[*id].ready;
            if ready.back().is_some_and(&may_go) {
                self.ready -= 1;
                return ready.pop_back();
            }
        }
        None
    }

    /// Takes any waiting invocation, regardless of turns.
    pub(in crate::extension::invocation) fn take_any(&mut self) -> Option<T> {
        for id in self.fresh.iter().chain(&self.round) {
            let place = &mut self.places[*id];
            if let Some(item) = place.ready.pop_front() {
                self.ready -= 1;
                return Some(item);
            }
            if let Some(item) = place.parked.pop_front() {
                self.parked -= 1;
                return Some(item);
            }
        }
        None
    }
}
