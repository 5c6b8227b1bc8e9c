//! What workers know: the [`change`]s that the control plane sends them, their [`catalog`] of sessions, tables and
//! extensions, and the server's view and its fence, which keep a worker from executing requests that another server may
//! own.
//!
//! A view counts the changes of the server's ownership:
//!
//! ```text
//!   view 7 ───────────┐ cut            worker 0 reaches view 8 between two batches
//!   view 7 ──────────────────┐         worker 1 reaches it a little later
//!                     8 ─────8──────   settled: all have reached it, and clients are told
//! ```
//! A cut changes the view and the tables of a worker in one step. Under one view all workers have the same ownership.
//! Answers name the settled view, read before anything of a round was decided: a client that reads 8 in an answer
//! knows that nothing begins under 7 any more, at any worker. See "Views" in docs/formats.md for the clients' part.
//!
//! The fence is the time until which workers may serve hashes that others may come to own:
//!
//! ```text
//!   registration ── hold(lease, until) ──┐
//!   migrations ──── guard, drop ─────────┴──▶ until_us ──▶ workers: one relaxed load a round
//! ```
//! The hashes that a side of a migration serves belong to the server as long as the lease lasts under which it was
//! found to be the owner. Therefore that side holds a [`Guard`] of the lease from before it serves until after all
//! workers have left. Normally it makes them leave when the lease ends. If it cannot, because the whole server stood
//! still, the fence passes: workers execute nothing until all such guards are dropped. A new lease does not move the
//! fence of guards of an earlier one: another server may own by now what was served under that. A server without
//! guards, or outside a cluster, has no fence. While etcd does not answer, promises of all other servers move the fence
//! ([`crate::control_plane::promises`]).

pub mod catalog;
pub mod change;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::records::LeaseId;

use crate::limits::FENCE_AFTER_MS;
use crate::tablet::TableEntry;

/// The views of one server, shared by all of its threads.
#[derive(Debug)]
pub struct Views {
    settled: AtomicU64,
    latest: AtomicU64,
}

impl Views {
    /// Creates the views; all workers begin under `view`.
    #[must_use]
    pub fn new(view: u64) -> Self {
        Self { settled: AtomicU64::new(view), latest: AtomicU64::new(view) }
    }

    /// Returns the view that all workers have reached. Cost: one load of a value that seldom changes.
    #[inline]
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Returns the view of the latest cut, which some workers may not have reached.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// Allocates the next view.
    pub fn next(&self) -> u64 {
        self.latest.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// The own view of a fenced worker, which executes nothing; no server counts that far. A client that names it deceives
/// only itself.
const FENCED: u64 = u64::MAX;

/// A worker's view in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundView {
    /// The worker's own view: requests under another one are not executed.
    pub own: u64,
    /// The view that answers name.
    pub settled: u64,
}

impl RoundView {
    /// Returns a view that all workers have reached.
    #[must_use]
    pub const fn settled(view: u64) -> Self {
        Self { own: view, settled: view }
    }

    /// Returns a view under which no request was sent: all get `Retry`.
    pub const fn fenced(self) -> Self {
        Self { own: FENCED, settled: self.settled }
    }

    /// Returns true if nothing may be executed.
    #[inline]
    #[must_use]
    pub const fn is_fenced(self) -> bool {
        self.own == FENCED
    }

    /// Returns true if other workers have not reached the view yet.
    #[inline]
    #[must_use]
    pub const fn is_passing(self) -> bool {
        self.own != self.settled
    }
}

/// A change of view on its way through the workers.
#[derive(Debug)]
pub struct Cut {
    /// The new view.
    pub view: u64,
    /// Tables whose parts or owned ranges change with it.
    pub tables: Vec<Arc<TableEntry>>,
    /// Workers that have not reached it yet.
    left: AtomicUsize,
    views: Arc<Views>,
}

impl Cut {
    /// Creates a cut through this many workers.
    #[must_use]
    pub fn new(view: u64, tables: Vec<Arc<TableEntry>>, workers: usize, views: Arc<Views>) -> Self {
        Self { view, tables, left: AtomicUsize::new(workers), views }
    }

    /// Records that a worker reached the view: each worker calls it once, after its last action under the previous
    /// view. The last one settles the view.
    pub fn pass(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.views.settled.store(self.view, Ordering::Release);
        }
    }
}

/// No fence.
const NEVER_US: u64 = u64::MAX;

/// The fence that workers check in each round.
#[derive(Debug)]
pub struct Fence {
    until_us: AtomicU64,
    state: Mutex<FenceState>,
}

#[derive(Debug, Default)]
struct FenceState {
    /// The lease that is held, or was held last.
    lease: Option<LeaseId>,
    /// Number of guards of each lease, and their fence in microseconds of the server's clock.
    leases: BTreeMap<LeaseId, (usize, u64)>,
}

/// A guard for hashes that may be served while its lease is held.
#[derive(Debug)]
pub struct Guard {
    fence: Arc<Fence>,
    lease: LeaseId,
}

impl Default for Fence {
    fn default() -> Self {
        Self { until_us: AtomicU64::new(NEVER_US), state: Mutex::default() }
    }
}

impl Fence {
    /// Returns true if nothing may be executed. Cost: one relaxed load of a value that seldom changes. A thread that
    /// received the guarded hashes sees the guard.
    #[inline]
    #[must_use]
    pub fn is_passed(&self, now_us: u64) -> bool {
        now_us >= self.until_us.load(Ordering::Relaxed)
    }

    /// Sets the lease that is held, and its end in microseconds of the server's clock.
    pub fn hold(&self, lease: LeaseId, until_us: u64) {
        let mut state = self.state();
        let before = state.lease.replace(lease);
        if before != Some(lease) {
            state.leases.retain(|_, (guards, _)| *guards > 0);
        }
        let fence_us = &mut state.leases.entry(lease).or_default().1;
        *fence_us = (*fence_us).max(until_us.saturating_add(FENCE_AFTER_MS * 1_000));
        self.move_to(&state);
    }

    /// Lets what is guarded be served until this time too, since no other server takes it over before: under each lease whose fence
    /// has not passed. Under others it may have.
    pub fn extend(&self, now_us: u64, until_us: u64) {
        let mut state = self.state();
        for (_, fence_us) in state.leases.values_mut().filter(|(_, fence_us)| now_us < *fence_us) {
            *fence_us = until_us.max(*fence_us);
        }
        self.move_to(&state);
    }

    /// Returns microseconds until nothing may be executed any more; `None` if there is no fence.
    #[must_use]
    pub fn left_us(&self, now_us: u64) -> Option<u64> {
        let until_us = self.until_us.load(Ordering::Relaxed);
        (until_us != NEVER_US).then(|| until_us.saturating_sub(now_us))
    }

    /// Returns a guard of a lease. If the lease is not held and has no guards yet, the guard lets nothing be served.
    #[must_use]
    pub fn guard(self: &Arc<Self>, lease: LeaseId) -> Guard {
        let mut state = self.state();
        state.leases.entry(lease).or_default().0 += 1;
        self.move_to(&state);
        Guard { fence: Arc::clone(self), lease }
    }

    fn move_to(&self, state: &FenceState) {
        let guarded = state.leases.values().filter(|(guards, _)| *guards > 0);
        let until_us = guarded.map(|(_, until_us)| *until_us).min().unwrap_or(NEVER_US);
        self.until_us.store(until_us, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, FenceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.fence.state();
        if let Some((guards, _)) = state.leases.get_mut(&self.lease) {
            *guards -= 1;
        }
        self.fence.move_to(&state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::records::LeaseId;

    use super::{Cut, Fence, Views};
    use crate::limits::FENCE_AFTER_MS;

    const AFTER_US: u64 = FENCE_AFTER_MS * 1_000;

    #[test]
    fn a_view_settles_when_the_last_worker_has_passed() {
        let views = Arc::new(Views::new(7));
        let view = views.next();
        let cut = Cut::new(view, Vec::new(), 3, Arc::clone(&views));
        for _ in 0..2 {
            cut.pass();
            assert_eq!((views.settled(), views.latest()), (7, 8));
        }
        cut.pass();
        assert_eq!((views.settled(), views.next()), (8, 9));
    }

    #[test]
    fn a_guard_fences_at_the_end_of_its_own_lease_and_no_other_one() {
        let fence = Arc::new(Fence::default());
        assert!(!fence.is_passed(u64::MAX - 1), "of no cluster");
        fence.hold(LeaseId(1), 1_000);
        assert!(!fence.is_passed(u64::MAX - 1), "nothing that others may come to own");
        let first = fence.guard(LeaseId(1));
        assert!(!fence.is_passed(999 + AFTER_US) && fence.is_passed(1_000 + AFTER_US));
        fence.hold(LeaseId(1), 2_000);
        assert!(!fence.is_passed(1_999 + AFTER_US) && fence.is_passed(2_000 + AFTER_US));
        fence.hold(LeaseId(2), 9_000);
        let second = fence.guard(LeaseId(2));
        assert!(fence.is_passed(2_000 + AFTER_US), "what the first guards may be another's");
        drop(first);
        assert!(!fence.is_passed(8_999 + AFTER_US) && fence.is_passed(9_000 + AFTER_US));
        drop(second);
        assert!(!fence.is_passed(u64::MAX - 1));
    }

    #[test]
    fn promises_move_fences_that_have_not_passed_and_a_renewal_moves_none_back() {
        let fence = Arc::new(Fence::default());
        fence.hold(LeaseId(1), 1_000);
        let first = fence.guard(LeaseId(1));
        let until_us = 1_000 + AFTER_US;
        assert_eq!(fence.left_us(1_000), Some(AFTER_US));
        fence.extend(until_us - 1, until_us + 7);
        fence.extend(until_us, until_us - 7);
        fence.hold(LeaseId(1), 1_000);
        assert!(!fence.is_passed(until_us + 6) && fence.is_passed(until_us + 7));
        // Another lease, under which nothing is verified yet.
        fence.hold(LeaseId(2), until_us);
        fence.extend(until_us + 6, until_us + 50);
        assert!(!fence.is_passed(until_us + 49) && fence.is_passed(until_us + 50));
        fence.extend(until_us + 50, until_us + 99);
        assert!(fence.is_passed(until_us + 50), "others may have taken over since");
        let second = fence.guard(LeaseId(2));
        drop(first);
        assert!(!fence.is_passed(until_us + AFTER_US - 1), "under that it has not passed");
        drop(second);
        assert_eq!(fence.left_us(0), None);
    }

    #[test]
    fn a_guard_of_a_lease_that_is_forgotten_lets_nothing_be_served() {
        let fence = Arc::new(Fence::default());
        fence.hold(LeaseId(1), 1_000);
        fence.hold(LeaseId(2), 2_000);
        let late = fence.guard(LeaseId(1));
        assert!(fence.is_passed(0));
        drop(late);
        assert!(!fence.is_passed(0));
    }
}
