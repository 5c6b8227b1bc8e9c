//! The tenants' places on a worker: one each, created when a tenant first appears, and reused for another tenant when
//! the first has nothing here and thousands of others appeared.
//!
//! The queues of a place grow with the number of waiting invocations. Whenever another tenant appears, one place is
//! examined in rotation; if it was idle since the last examination, it releases all but a few entries.

use std::collections::{HashMap, VecDeque};
use std::mem::offset_of;
use std::ops::{Index, IndexMut};
use std::ptr::NonNull;
use std::sync::Arc;

use store::{NumberHash, prefetch_value};
use wire::TenantId;

use crate::limits::{TENANT_PLACE_ENTRIES_KEPT, TENANT_PLACES_KEPT};
use crate::tenant::account::Account;

/// The place of a tenant; valid until all of its invocations have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::extension::invocation) struct PlaceId(u32);

impl PlaceId {
    /// The id of no place.
    pub(in crate::extension::invocation) const NONE: Self = Self(u32::MAX);
}

/// The list that holds a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    No,
    Fresh,
    Round,
}

/// The waiting invocations of one tenant. The first cache line holds all that a never-parked invocation changes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct TenantQueue<T> {
    pub(super) account: Arc<Account>,
    pub(super) ready: WaitingQueue<T>,
    pub(super) parked: WaitingQueue<T>,
    /// Cycles left to use; negative for a debt.
    pub(super) deficit: i64,
    /// The count of rounds when it last got its quantum or left the lists.
    pub(super) rounds: u64,
    /// Its unfinished invocations on this worker.
    pub(super) live: u32,
    pub(super) listed: Listed,
    /// Whether it was idle at the last examination and was not listed since.
    pub(super) rests: bool,
    /// Cycles that its ready invocations used since a parked one ran.
    pub(super) since_parked: u64,
    /// The counted bytes that its invocations hold.
    pub(super) held_bytes: usize,
}

const _: () = assert!(offset_of!(TenantQueue<NonNull<u8>>, since_parked) <= 64);

/// The places of all tenants on one worker.
#[derive(Debug)]
pub(super) struct Places<T> {
    places: Vec<TenantQueue<T>>,
    /// The places, by the number of the tenant.
    known: HashMap<u32, u32, NumberHash>,
    vacant: Vec<u32>,
    last: (*const Account, PlaceId),
    /// The next place to examine.
    hand: usize,
}

impl<T> Places<T> {
    /// Creates an empty list of places.
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            known: HashMap::default(),
            vacant: Vec::new(),
            last: (std::ptr::null(), PlaceId(0)),
            hand: 0,
        }
    }

    /// Returns the place of a tenant; a new one starts with the deficit and the rounds from `first`.
    #[inline]
    pub(super) fn of(&mut self, account: &Arc<Account>, first: impl FnOnce() -> (i64, u64)) -> PlaceId {
        if self.last.0 == Arc::as_ptr(account) { self.last.1 } else { self.look_up(account, first) }
    }

    /// Prefetches what an invocation changes of a tenant's place.
    #[inline]
    pub(super) fn prefetch(&self, tenant: TenantId) {
        if let Some(id) = self.known.get(&tenant.0) {
            prefetch_value(&self.places[*id as usize].account);
        }
    }

    #[cold]
    fn look_up(&mut self, account: &Arc<Account>, first: impl FnOnce() -> (i64, u64)) -> PlaceId {
        let id = match self.known.get(&account.tenant.0) {
            Some(id) => PlaceId(*id),
            None => self.make(account, first()),
        };
        self.last = (Arc::as_ptr(account), id);
        self.look_at_next();
        id
    }

    /// Releases all but a few entries of the next place, if it rests.
    fn look_at_next(&mut self) {
        self.hand = if self.hand + 1 < self.places.len() { self.hand + 1 } else { 0 };
        let place = &mut self.places[self.hand];
        if place.live > 0 || place.listed != Listed::No {
            place.rests = false;
        } else if std::mem::replace(&mut place.rests, true)
            && place.ready.capacity().max(place.parked.capacity()) > TENANT_PLACE_ENTRIES_KEPT
        {
            place.ready.shrink_to(TENANT_PLACE_ENTRIES_KEPT);
            place.parked.shrink_to(TENANT_PLACE_ENTRIES_KEPT);
        }
    }

    fn make(&mut self, account: &Arc<Account>, (deficit, rounds): (i64, u64)) -> PlaceId {
        if self.known.len() >= TENANT_PLACES_KEPT && self.vacant.is_empty() {
            self.vacate();
        }
        let fresh = TenantQueue {
            account: Arc::clone(account),
            ready: WaitingQueue::new(),
            parked: WaitingQueue::new(),
            deficit,
            since_parked: 0,
            rounds,
            listed: Listed::No,
            live: 0,
            held_bytes: 0,
            rests: false,
        };
        let id = if let Some(id) = self.vacant.pop() {
            self.places[id as usize] = fresh;
            id
        } else {
            self.places.push(fresh);
            (self.places.len() - 1) as u32
        };
        let before = self.known.insert(account.tenant.0, id);
        debug_assert_eq!(before, None, "a tenant has one place");
        PlaceId(id)
    }

    /// Frees the places of tenants that have nothing here now.
    fn vacate(&mut self) {
        self.last = (std::ptr::null(), PlaceId(0));
        let (places, vacant) = (&self.places, &mut self.vacant);
        self.known.retain(|_, id| {
            let place = &places[*id as usize];
            let stays = place.live > 0 || place.listed != Listed::No;
            if !stays {
                debug_assert!(place.ready.is_empty() && place.parked.is_empty(), "nothing waits in no list");
                debug_assert_eq!(place.held_bytes, 0, "who has nothing here holds nothing");
                vacant.push(*id);
            }
            stays
        });
    }

    /// Returns the entries for which the queues of a place have memory.
    #[cfg(test)]
    pub(super) fn entries(&self, id: PlaceId) -> usize {
        self[id].ready.capacity() + self[id].parked.capacity()
    }

    /// Returns the number of places, used or not.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}

impl<T> Index<PlaceId> for Places<T> {
    type Output = TenantQueue<T>;

    #[inline]
    fn index(&self, id: PlaceId) -> &TenantQueue<T> {
        &self.places[id.0 as usize]
    }
}

impl<T> IndexMut<PlaceId> for Places<T> {
    #[inline]
    fn index_mut(&mut self, id: PlaceId) -> &mut TenantQueue<T> {
        &mut self.places[id.0 as usize]
    }
}

/// A queue that stores its first item inline; the other items exist only if a first one exists.
///
/// Most tenants have one invocation on a worker at a time, and then nothing else is touched.
#[derive(Debug)]
pub(super) struct WaitingQueue<T> {
    first: Option<T>,
    /// The other items; allocated for the second one, and kept.
    #[expect(clippy::box_collection, reason = "a quarter of the size within the place of a tenant")]
    behind: Option<Box<VecDeque<T>>>,
}

impl<T> WaitingQueue<T> {
    pub(super) const fn new() -> Self {
        Self { first: None, behind: None }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.behind.as_ref().map_or(0, |behind| behind.len())
    }

    #[inline]
    pub(super) fn push_back(&mut self, item: T) {
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.behind.get_or_insert_default().push_back(item);
        }
    }

    pub(super) fn push_front(&mut self, item: T) {
        if let Some(second) = self.first.replace(item) {
            self.behind.get_or_insert_default().push_front(second);
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        let item = self.first.take()?;
        self.first = self.behind.as_mut().and_then(|behind| behind.pop_front());
        Some(item)
    }

    pub(super) fn pop_back(&mut self) -> Option<T> {
        self.behind.as_mut().and_then(|behind| behind.pop_back()).or_else(|| self.first.take())
    }

    pub(super) fn back(&self) -> Option<&T> {
        self.behind.as_ref().and_then(|behind| behind.back()).or(self.first.as_ref())
    }

    /// Removes the first item that `picks` selects.
    pub(super) fn remove(&mut self, mut picks: impl FnMut(&T) -> bool) -> Option<T> {
        if self.first.as_ref().is_some_and(&mut picks) {
            return self.pop_front();
        }
        let behind = self.behind.as_mut()?;
        behind.iter().position(picks).and_then(|at| behind.remove(at))
    }

    /// Returns the number of items for which there is memory.
    pub(super) fn capacity(&self) -> usize {
        self.behind.as_ref().map_or(1, |behind| behind.capacity() + 1)
    }

    /// Releases memory beyond `items` items.
    pub(super) fn shrink_to(&mut self, items: usize) {
        self.behind.iter_mut().for_each(|behind| behind.shrink_to(items.saturating_sub(1)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::WaitingQueue;

    #[test]
    fn it_is_a_queue() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut waiting, mut model) = (WaitingQueue::new(), VecDeque::new());
        for item in 0..10_000 {
            match random.u8(..7) {
                0 | 1 => (waiting.push_back(item), model.push_back(item)).0,
                2 => (waiting.push_front(item), model.push_front(item)).0,
                3 | 4 => assert_eq!(waiting.pop_front(), model.pop_front()),
                5 => assert_eq!(waiting.pop_back(), model.pop_back()),
                _ => {
                    let picks = |known: &i32| known % 3 == 0;
                    let at = model.iter().position(picks);
                    assert_eq!(waiting.remove(picks), at.and_then(|at| model.remove(at)));
                }
            }
            assert_eq!((waiting.len(), waiting.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(waiting.back(), model.back());
        }
    }
}
