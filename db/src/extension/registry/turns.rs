//! The order of builds: one installation per tenant at a time, a few in all, a bounded queue.
//!
//! Tenants take turns: after a turn a tenant goes behind all waiting tenants, however many of its own installations
//! wait. The waiting threads are control threads; the bounds keep one tenant from occupying all of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use wire::TenantId;

use crate::limits::{COMPILES_AT_ONCE_MAX, COMPILES_WAITING_PER_TENANT_MAX};

/// The building and the waiting tenants.
#[derive(Debug, Default)]
struct BuildQueue {
    building: Vec<TenantId>,
    waiting: HashMap<TenantId, usize>,
    /// Each waiting tenant, once.
    order: VecDeque<TenantId>,
}

impl BuildQueue {
    /// Returns the tenant whose turn it is.
    fn next(&self) -> Option<TenantId> {
        let has_room = self.building.len() < COMPILES_AT_ONCE_MAX;
        let idle = self.order.iter().find(|tenant| !self.building.contains(tenant));
        idle.copied().filter(|_| has_room)
    }
}

/// The turns of tenants at the compiler.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<BuildQueue>,
    changed: Condvar,
}

/// The right to build until it is dropped.
#[derive(Debug)]
pub(super) struct BuildTurn<'t> {
    turns: &'t Turns,
    tenant: TenantId,
}

impl Turns {
    /// Waits for a turn; `None` if too many installations of this tenant wait already.
    pub(super) fn take(&self, tenant: TenantId) -> Option<BuildTurn<'_>> {
        let mut state = self.state();
        let waiting = state.waiting.entry(tenant).or_default();
        if *waiting == COMPILES_WAITING_PER_TENANT_MAX {
            return None;
        }
        *waiting += 1;
        if *waiting == 1 {
            state.order.push_back(tenant);
        }
        while state.next() != Some(tenant) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.order.retain(|waiting| *waiting != tenant);
        if let Some(waiting) = state.waiting.get_mut(&tenant) {
            *waiting -= 1;
            if *waiting == 0 {
                state.waiting.remove(&tenant);
            } else {
                state.order.push_back(tenant);
            }
        }
        state.building.push(tenant);
        // There may be room for the one behind.
        self.changed.notify_all();
        Some(BuildTurn { turns: self, tenant })
    }

    fn state(&self) -> MutexGuard<'_, BuildQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BuildTurn<'_> {
    fn drop(&mut self) {
        self.turns.state().building.retain(|tenant| *tenant != self.tenant);
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use wire::TenantId;

    use super::Turns;
    use crate::limits::{COMPILES_AT_ONCE_MAX, COMPILES_WAITING_PER_TENANT_MAX};

    #[test]
    fn one_per_tenant_and_a_few_in_all_build_at_a_time() {
        let turns = Turns::default();
        let (all, own) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 4]);
        thread::scope(|scope| {
            for number in 0..8 {
                let (turns, all, own) = (&turns, &all, &own[number % 4]);
                scope.spawn(move || {
                    for _ in 0..20 {
                        let _turn = turns.take(TenantId(number as u32 % 4)).expect("few wait");
                        assert!(all.fetch_add(1, Ordering::SeqCst) < COMPILES_AT_ONCE_MAX);
                        assert_eq!(own.fetch_add(1, Ordering::SeqCst), 0);
                        thread::sleep(Duration::from_micros(200));
                        own.fetch_sub(1, Ordering::SeqCst);
                        all.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn who_comes_later_waits_for_one_turn_of_a_tenant_that_has_many_waiting() {
        let turns = Turns::default();
        let mut blocking: Vec<_> = (10..10 + COMPILES_AT_ONCE_MAX as u32)
            .map(|tenant| turns.take(TenantId(tenant)).expect("nobody builds"))
            .collect();
        let order = std::sync::Mutex::new(Vec::new());
        let waits = |tenant: u32, count: usize| {
            while turns.state().waiting.get(&TenantId(tenant)) != Some(&count) {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            let build = |tenant: u32| {
                let _turn = turns.take(TenantId(tenant)).expect("few wait");
                order.lock().expect("no panic").push(tenant);
            };
            for count in 1..=COMPILES_WAITING_PER_TENANT_MAX {
                scope.spawn(move || build(1));
                waits(1, count);
            }
            scope.spawn(move || build(2));
            waits(2, 1);
            // One slot alone, so that the turns come one after the other.
            drop(blocking.pop());
        });
        let order = order.into_inner().expect("no panic");
        assert_eq!(order.iter().position(|tenant| *tenant == 2), Some(1), "{order:?}");
    }

    #[test]
    fn a_tenant_that_queues_too_many_is_refused_and_others_are_not() {
        let turns = Turns::default();
        let first = turns.take(TenantId(1)).expect("nobody builds");
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..COMPILES_WAITING_PER_TENANT_MAX)
                .map(|_| scope.spawn(|| turns.take(TenantId(1)).is_some()))
                .collect();
            while turns.state().waiting.get(&TenantId(1)) != Some(&COMPILES_WAITING_PER_TENANT_MAX) {
                thread::yield_now();
            }
            assert!(turns.take(TenantId(1)).is_none());
            assert!(turns.take(TenantId(2)).is_some());
            drop(first);
            assert!(waiting.into_iter().all(|thread| thread.join().expect("no panic")));
        });
        assert!(turns.take(TenantId(1)).is_some());
    }
}
