//! The choice of the next invocation: deficit round robin among tenants, by measured cycles and by weight.
//!
//! ```text
//!   fresh ─▶ tenants that were idle and have a rest of their quantum: first
//!   round ─▶ tenants in a ring; one with a used-up deficit gets its quantum and goes to the end
//!              │
//!              └─ in one tenant: ready invocations in order; a parked one when none is ready, when the ready
//!                 ones had some slices since, or when many are parked
//! ```
//! Shreedhar and Varghese, "Efficient Fair Queuing using Deficit Round Robin" (SIGCOMM'95), with two changes. First, an
//! invocation's cost is known only after it ran, so a deficit may become negative: a debt, which the tenant's quanta
//! repay whether or not the tenant waits meanwhile. Second, a tenant that returns before it has used up its quantum
//! goes first (as in FQ-CoDel, RFC 8290, section 4.2), so that a tenant with little work does not wait for a round of
//! tenants that are always busy; a tenant in debt goes to the end of the ring, so returning often gains nothing. After
//! the tenants that go first have used some slices together, the ring gets a turn: otherwise a thousand tenants with
//! little work would delay one in debt until each of them has used a quantum.
//!
//! A tenant has one place here for all its invocations on a worker. All operations take constant time except the first
//! push after thousands of other tenants; after a worker has seen its load, nothing is allocated.

mod places;

pub(super) use places::PlaceId;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use places::{Listed, Places, TenantQueue};
use wire::TenantId;

use crate::limits::{
    FRESH_SLICES, OFFER_LOOK_TENANTS, PARKED_BEFORE_NEW, PARKED_REST_SLICES, TENANT_DEBT_SLICES_MAX,
    TENANT_WEIGHT_DEFAULT,
};
use crate::tenant::account::Account;
use crate::tenant::limit::TenantLimit;

/// A fair queue of one worker's invocations.
#[derive(Debug)]
pub(super) struct Fair<T> {
    places: Places<T>,
    fresh: VecDeque<PlaceId>,
    round: VecDeque<PlaceId>,
    /// How many quanta every waiting tenant has received, in parts of 2^16.
    rounds: u64,
    /// The quantum per round of a tenant of the default weight, in cycles: a slice.
    quantum: u64,
    ready: usize,
    parked: usize,
    /// Cycles used by fresh tenants since the ring had a turn.
    fresh_used: u64,
    /// The first place of the lists, if known.
    first: Option<PlaceId>,
}

/// The invocation to run next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Runnable<T> {
    pub(super) place: PlaceId,
    pub(super) item: T,
    /// Whether it was parked.
    pub(super) was_parked: bool,
}

const ROUND: u64 = 1 << 16;

impl<T> Fair<T> {
    /// Creates an empty queue; `slice` is in cycles.
    pub(super) fn new(slice: u64) -> Self {
        Self {
            places: Places::new(),
            fresh: VecDeque::new(),
            round: VecDeque::new(),
            rounds: 0,
            quantum: slice.clamp(1, u32::MAX.into()),
            ready: 0,
            parked: 0,
            fresh_used: 0,
            first: None,
        }
    }

    /// Returns the number of invocations that can run at once.
    #[inline]
    pub(super) fn ready(&self) -> usize {
        self.ready
    }

    /// Returns the number of tenants that have invocations that can run.
    pub(super) fn waiting_tenants(&self) -> usize {
        self.fresh.len() + self.round.len()
    }

    /// Returns the number of parked invocations.
    #[inline]
    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// Prefetches the place of a tenant.
    #[inline]
    pub(super) fn prefetch(&self, tenant: TenantId) {
        self.places.prefetch(tenant);
    }

    /// Counts a new invocation of a tenant and returns its place.
    #[inline]
    pub(super) fn enter(&mut self, account: &Arc<Account>) -> PlaceId {
        let id = self.places.of(account, || (quantum_of(self.quantum, account) as i64, self.rounds));
        self.places[id].live += 1;
        id
    }

    /// Returns the number of unfinished invocations of a place.
    #[inline]
    pub(super) fn live(&self, id: PlaceId) -> usize {
        self.places[id].live as usize
    }

    /// Returns the counted bytes that a place's invocations hold.
    #[inline]
    pub(super) fn held_bytes(&mut self, id: PlaceId) -> &mut usize {
        &mut self.places[id].held_bytes
    }

    /// Counts an ended invocation of a place; returns whether none of the place can run now.
    #[inline]
    pub(super) fn leave(&mut self, id: PlaceId) -> bool {
        let place = &mut self.places[id];
        debug_assert!(place.live > 0, "an invocation ends once");
        place.live -= 1;
        debug_assert!(place.live > 0 || place.held_bytes == 0, "the last one has given back what it held");
        place.ready.is_empty()
    }

    /// Appends an invocation to its tenant's ready queue.
    #[inline(always)]
    pub(super) fn push(&mut self, id: PlaceId, item: T) {
        self.ready += 1;
        let place = &mut self.places[id];
        place.ready.push_back(item);
        if place.listed == Listed::No {
            self.list_anew(id);
        }
    }

    /// Appends an invocation to its tenant's parked queue.
    pub(super) fn park(&mut self, id: PlaceId, item: T) {
        self.parked += 1;
        let place = &mut self.places[id];
        if place.parked.is_empty() {
            place.since_parked = 0;
        }
        place.parked.push_back(item);
        self.list(id);
    }

    /// Returns the invocation whose turn it is. `may_unpark` says whether a parked one may run; otherwise `None` can
    /// also mean that the first tenant has only parked ones and keeps its place.
    #[inline(always)]
    pub(super) fn next(&mut self, may_unpark: bool) -> Option<Runnable<T>> {
        if let Some(first) = self.first {
            let place = &mut self.places[first];
            debug_assert_ne!(place.listed, Listed::No, "the first place is in a list");
            if place.deficit > 0
                && place.parked.is_empty()
                && let Some(item) = place.ready.pop_front()
            {
                self.ready -= 1;
                return Some(Runnable { place: first, item, was_parked: false });
            }
        }
        self.next_in_order(may_unpark)
    }

    #[inline(never)]
    fn next_in_order(&mut self, may_unpark: bool) -> Option<Runnable<T>> {
        loop {
            let (id, from_fresh) = match self.fresh.front() {
                Some(id) if !self.is_rings_turn() => (*id, true),
                _ => (*self.round.front()?, false),
            };
            self.first = Some(id);
            let rest = PARKED_REST_SLICES * self.quantum;
            let place = &mut self.places[id];
            if place.deficit <= 0 {
                // A debt is repaid in a bounded number of rounds.
                self.pass_on(id, from_fresh);
                continue;
            }
            if !from_fresh {
                self.fresh_used = 0;
            }
            let place = &mut self.places[id];
            let is_due = place.since_parked >= rest || place.parked.len() >= PARKED_BEFORE_NEW;
            let parked_first = may_unpark && is_due && !place.parked.is_empty();
            if !parked_first && let Some(item) = place.ready.pop_front() {
                self.ready -= 1;
                return Some(Runnable { place: id, item, was_parked: false });
            }
            if place.parked.is_empty() {
                self.unlist(id, from_fresh);
            } else if may_unpark {
                place.since_parked = 0;
                let item = place.parked.pop_front()?;
                self.parked -= 1;
                return Some(Runnable { place: id, item, was_parked: true });
            } else {
                // Sent back instead, it would lose its place without its quantum whenever its function outlasts a
                // slice, and with it its share.
                return None;
            }
        }
    }

    /// Returns whether the ring comes before the fresh tenants.
    #[inline]
    fn is_rings_turn(&self) -> bool {
        self.fresh_used >= FRESH_SLICES * self.quantum && !self.round.is_empty()
    }

    /// Puts an invocation before all others of its tenant: one that was taken and not run, or that goes first.
    pub(super) fn put_back(&mut self, turn: Runnable<T>) {
        let place = &mut self.places[turn.place];
        if turn.was_parked {
            self.parked += 1;
            place.parked.push_front(turn.item);
            // It has waited for as long as it has to.
            place.since_parked = u64::MAX;
        } else {
            self.ready += 1;
            place.ready.push_front(turn.item);
        }
        self.list(turn.place);
    }

    /// Charges cycles to a tenant; returns its account.
    #[inline]
    pub(super) fn charge(&mut self, id: PlaceId, cycles: u64) -> &Account {
        debug_assert!(cycles <= i64::MAX as u64, "no charge is negative");
        let debt_max = (TENANT_DEBT_SLICES_MAX * self.quantum) as i64;
        let place = &mut self.places[id];
        place.deficit = (place.deficit - cycles as i64).max(-debt_max);
        if place.listed != Listed::Round {
            self.fresh_used = self.fresh_used.saturating_add(cycles);
            if self.is_rings_turn() {
                self.first = None;
            }
        }
        let place = &mut self.places[id];
        if !place.parked.is_empty() {
            place.since_parked = place.since_parked.saturating_add(cycles);
        }
        &place.account
    }

    /// Lists a place that has something to run.
    #[inline]
    fn list(&mut self, id: PlaceId) {
        if self.places[id].listed == Listed::No {
            self.list_anew(id);
        }
    }

    fn list_anew(&mut self, id: PlaceId) {
        let rounds = self.rounds;
        let place = &mut self.places[id];
        debug_assert_eq!(place.listed, Listed::No, "a place is in one list");
        debug_assert!(!place.ready.is_empty() || !place.parked.is_empty(), "it has something to run");
        debug_assert!(place.rounds <= rounds, "rounds only grow");
        let quantum = quantum_of(self.quantum, &place.account) as i64;
        place.rests = false;
        let missed = (rounds - place.rounds) / ROUND;
        place.rounds += missed * ROUND;
        let repaid = i64::try_from(missed).unwrap_or(i64::MAX).saturating_mul(quantum);
        place.deficit = place.deficit.saturating_add(repaid).min(quantum);
        if place.deficit > 0 {
            place.listed = Listed::Fresh;
            self.fresh.push_back(id);
            // The first place may have been in the ring.
            self.first = None;
        } else {
            place.listed = Listed::Round;
            self.round.push_back(id);
        }
    }

    fn unlist(&mut self, id: PlaceId, from_fresh: bool) {
        self.first = None;
        let list = if from_fresh { &mut self.fresh } else { &mut self.round };
        let front = list.pop_front();
        debug_assert_eq!(front, Some(id), "the first of its list leaves it");
        let place = &mut self.places[id];
        debug_assert_eq!(place.listed == Listed::Fresh, from_fresh, "a place knows its list");
        debug_assert!(place.ready.is_empty() && place.parked.is_empty(), "nothing waits in no list");
        place.listed = Listed::No;
        place.rounds = place.rounds.max(self.rounds);
    }

    /// Gives the first place of the ring its quantum and moves it to the end.
    fn pass_on(&mut self, id: PlaceId, from_fresh: bool) {
        debug_assert!(self.places[id].deficit <= 0, "a place keeps its turn until its quantum is used up");
        if !from_fresh {
            self.rounds += ROUND / self.round.len().max(1) as u64;
            let place = &mut self.places[id];
            place.deficit += quantum_of(self.quantum, &place.account) as i64;
        }
        self.send_back(id, from_fresh);
    }

    fn send_back(&mut self, id: PlaceId, from_fresh: bool) {
        self.first = None;
        debug_assert_eq!(self.places[id].listed == Listed::Fresh, from_fresh, "a place knows its list");
        let front = if from_fresh { self.fresh.pop_front() } else { self.round.pop_front() };
        debug_assert_eq!(front, Some(id), "the first of its list goes to the end");
        self.places[id].listed = Listed::Round;
        self.round.push_back(id);
    }

    /// Takes the newest parked invocation of the tenant that has most of them; on a tie, of the tenant with the largest
    /// debt.
    pub(super) fn take_newest_of_most_parked(&mut self) -> Option<T> {
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
    pub(super) fn take_parked(&mut self, mut ends: impl FnMut(&T) -> bool) -> Option<T> {
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
    pub(super) fn take_all(&mut self, mut ends: impl FnMut(&T) -> bool) -> Vec<T> {
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
    pub(super) fn take_farthest(&mut self, may_go: impl Fn(&T) -> bool) -> Option<T> {
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
    pub(super) fn take_any(&mut self) -> Option<T> {
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

/// Returns a tenant's cycles per round; `quantum` is for the default weight.
#[inline]
fn quantum_of(quantum: u64, account: &Account) -> u64 {
    (quantum * account.limit(TenantLimit::Weight) / TENANT_WEIGHT_DEFAULT).max(1)
}

#[cfg(test)]
mod tests;
