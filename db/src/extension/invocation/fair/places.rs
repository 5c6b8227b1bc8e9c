//! Where tenants wait on a worker: one place each, made when a tenant is first seen, used again for another one when
//! it has nothing here and thousands of others came by.
//!
//! The queues of a place grow with what waited there at a time. Whenever another tenant comes, one place is looked at
//! in turn: one that had nothing to do since the look before gives back what is more than a few entries.

use std::collections::HashMap;
use std::mem::offset_of;
use std::ops::{Index, IndexMut};
use std::ptr::NonNull;
use std::sync::Arc;

use store::prefetch_value;

use super::waiting::WaitingQueue;
use crate::limits::{TENANT_PLACE_ENTRIES_KEPT, TENANT_PLACES_KEPT};
use crate::tablet::NumberHash;
use crate::tenant::TenantId;
use crate::tenant::account::Account;

/// Where a tenant waits; good until all of its invocations have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::extension::invocation) struct PlaceId(u32);

impl PlaceId {
    /// Of nobody yet.
    pub(in crate::extension::invocation) const NONE: Self = Self(u32::MAX);
}

/// Which list a place is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    No,
    Fresh,
    Round,
}

/// What waits of one tenant. What an invocation changes that is never parked lies on the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct TenantQueue<T> {
    pub(super) account: Arc<Account>,
    pub(super) ready: WaitingQueue<T>,
    pub(super) parked: WaitingQueue<T>,
    /// Cycles that it may still use; negative when it used more.
    pub(super) deficit: i64,
    /// The rounds that there were when it was last given its quantum or left the lists.
    pub(super) rounds: u64,
    /// Its invocations on this worker that have not ended.
    pub(super) live: u32,
    pub(super) listed: Listed,
    /// It had nothing to do when it was last looked at, and was not listed since.
    pub(super) rests: bool,
    /// Cycles that its ready ones used since a parked one ran.
    pub(super) since_parked: u64,
    /// Bytes that its invocations hold, as far as they are counted.
    pub(super) held_bytes: usize,
}

const _: () = assert!(offset_of!(TenantQueue<NonNull<u8>>, since_parked) <= 64);

/// See the file's head.
#[derive(Debug)]
pub(super) struct Places<T> {
    places: Vec<TenantQueue<T>>,
    /// By the number of the tenant.
    known: HashMap<u32, u32, NumberHash>,
    vacant: Vec<u32>,
    last: (*const Account, PlaceId),
    /// The next to be looked at.
    hand: usize,
}

impl<T> Places<T> {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            known: HashMap::default(),
            vacant: Vec::new(),
            last: (std::ptr::null(), PlaceId(0)),
            hand: 0,
        }
    }

    /// The place of a tenant; a new one gets the deficit and the rounds that `standing` says.
    #[inline]
    pub(super) fn of(&mut self, account: &Arc<Account>, standing: impl FnOnce() -> (i64, u64)) -> PlaceId {
        if self.last.0 == Arc::as_ptr(account) { self.last.1 } else { self.look_up(account, standing) }
    }

    /// Asks for what an invocation changes of the place of a tenant.
    #[inline]
    pub(super) fn prefetch(&self, tenant: TenantId) {
        if let Some(id) = self.known.get(&tenant.0) {
            prefetch_value(&self.places[*id as usize].account);
        }
    }

    #[cold]
    fn look_up(&mut self, account: &Arc<Account>, standing: impl FnOnce() -> (i64, u64)) -> PlaceId {
        let id = match self.known.get(&account.tenant.0) {
            Some(id) => PlaceId(*id),
            None => self.make(account, standing()),
        };
        self.last = (Arc::as_ptr(account), id);
        self.look_at_next();
        id
    }

    /// Takes back what a place that rests has more than a few entries.
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
        self.known.insert(account.tenant.0, id);
        PlaceId(id)
    }

    /// Makes the places free of tenants that have nothing here now.
    fn vacate(&mut self) {
        self.last = (std::ptr::null(), PlaceId(0));
        let (places, vacant) = (&self.places, &mut self.vacant);
        self.known.retain(|_, id| {
            let place = &places[*id as usize];
            let stays = place.live > 0 || place.listed != Listed::No;
            if !stays {
                vacant.push(*id);
            }
            stays
        });
    }

    /// Entries for which the queues of a place have memory.
    #[cfg(test)]
    pub(super) fn entries(&self, id: PlaceId) -> usize {
        self[id].ready.capacity() + self[id].parked.capacity()
    }

    /// How many there are, used or not.
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
