//! Whose turn it is to build: one installation per tenant at a time, a few in all, a bounded queue.
//!
//! Whoever waits is a control thread; the bounds keep one tenant from taking all of them.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::limits::{COMPILES_AT_ONCE_MAX, COMPILES_WAITING_PER_TENANT_MAX};
use crate::tenant::TenantId;

/// Who builds and who waits.
#[derive(Debug, Default)]
struct State {
    building: Vec<TenantId>,
    waiting: HashMap<TenantId, usize>,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

/// The right to build until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    tenant: TenantId,
}

impl Turns {
    /// Waits for a turn; `None` when too many of this tenant wait already.
    pub(super) fn take(&self, tenant: TenantId) -> Option<Turn<'_>> {
        let mut state = self.state();
        let waiting = state.waiting.entry(tenant).or_default();
        if *waiting == COMPILES_WAITING_PER_TENANT_MAX {
            return None;
        }
        *waiting += 1;
        while state.building.len() == COMPILES_AT_ONCE_MAX || state.building.contains(&tenant) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(waiting) = state.waiting.get_mut(&tenant) {
            *waiting -= 1;
            if *waiting == 0 {
                state.waiting.remove(&tenant);
            }
        }
        state.building.push(tenant);
        Some(Turn { turns: self, tenant })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
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

    use super::Turns;
    use crate::limits::{COMPILES_AT_ONCE_MAX, COMPILES_WAITING_PER_TENANT_MAX};
    use crate::tenant::TenantId;

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
