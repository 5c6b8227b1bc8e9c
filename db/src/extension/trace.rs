//! Traces of single invocations of a tenant's extensions, recorded while a client reads them.
//!
//! ```text
//!   reader ─ leases ─▶ account is traced ─▶ worker sees it when an invocation arrives ─▶ recorder
//!          ◀─ reads ── ring of the last 32 ◀─ publishes, or drops when a reader has the lock ───┘
//! ```
//! Without a reader an invocation pays one relaxed load. With one, a worker traces one invocation at a time of the
//! extension or function that the reader named; on request only the slow ones are kept. A lease ends with its reader or
//! at its time limit; [`Traces::forget`] frees its memory.

mod recorder;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use recorder::{CALL_KINDS, Calls, Poll, PollEnd, Recorder, Recording};

use guest::cycles;

use crate::limits::{TRACE_LEASE_US, TRACES_KEPT};
use crate::tenant::account::Account;

/// The selection of invocations to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceFilter {
    /// The number of the extension.
    pub extension: u32,
    /// [`wire::function_hash`] of the function; `None` for all.
    pub function: Option<u32>,
    /// The minimum duration of kept traces, in microseconds.
    pub slower_than_us: u64,
}

#[derive(Debug)]
struct TraceRing {
    wanted: Option<TraceFilter>,
    traces: VecDeque<Recording>,
    /// The number of the next trace.
    next: u64,
}

/// The trace lease and the recent traces of one tenant.
#[derive(Debug)]
pub struct Traces {
    /// The end of the lease, in microseconds of the server's clock.
    until_us: AtomicU64,
    ring: Mutex<TraceRing>,
}

/// Another reader of the tenant traces with a different filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedAlready;

impl Traces {
    /// Creates traces without a reader.
    #[must_use]
    pub const fn new() -> Self {
        let ring = TraceRing { wanted: None, traces: VecDeque::new(), next: 1 };
        Self { until_us: AtomicU64::new(0), ring: Mutex::new(ring) }
    }

    /// Starts or renews a reader's lease for these traces. The reader repeats the call while it reads.
    ///
    /// # Errors
    /// [`TracedAlready`].
    pub fn lease(&self, account: &Account, wanted: TraceFilter, now_us: u64) -> Result<(), TracedAlready> {
        let mut ring = self.ring();
        if ring.wanted != Some(wanted) {
            if self.is_leased(now_us) {
                return Err(TracedAlready);
            }
            ring.wanted = Some(wanted);
            ring.traces.clear();
        }
        if ring.traces.capacity() == 0 {
            ring.traces.reserve_exact(TRACES_KEPT);
        }
        self.until_us.store(now_us + TRACE_LEASE_US, Ordering::Relaxed);
        account.set_traced(true);
        Ok(())
    }

    /// Ends the lease if it is for this extension.
    pub fn end(&self, account: &Account, extension: u32) {
        let ring = self.ring();
        if ring.wanted.is_some_and(|wanted| wanted.extension == extension) {
            self.until_us.store(0, Ordering::Relaxed);
            account.set_traced(false);
        }
    }

    /// Returns whether a reader holds the lease.
    #[must_use]
    pub fn is_leased(&self, now_us: u64) -> bool {
        now_us < self.until_us.load(Ordering::Relaxed)
    }

    /// Returns whether a worker should trace an invocation. Ends an expired lease. Never waits.
    #[must_use]
    pub fn wants(&self, account: &Account, extension: u32, function: u32, now_us: u64) -> bool {
        if !self.is_leased(now_us) {
            account.set_traced(false);
            return false;
        }
        let Ok(ring) = self.ring.try_lock() else { return false };
        let wants = |wanted: TraceFilter| {
            wanted.extension == extension && wanted.function.is_none_or(|hash| hash == function)
        };
        ring.wanted.is_some_and(wants)
    }

    /// Adds a worker's recording if it was slow enough. Returns false if it was not added, also when a reader holds the
    /// lock. Never waits or allocates.
    pub fn publish(&self, recording: &Recording) -> bool {
        let Ok(mut ring) = self.ring.try_lock() else { return false };
        let slow = |wanted: TraceFilter| cycles::to_us(recording.cycles) >= wanted.slower_than_us;
        if ring.traces.capacity() == 0 || !ring.wanted.is_some_and(slow) {
            return false;
        }
        if ring.traces.len() == TRACES_KEPT {
            ring.traces.pop_front();
        }
        ring.traces.push_back(*recording);
        ring.next += 1;
        true
    }

    /// Returns the oldest `count` traces after `after`, the number of the last one, and how many after `after` are no
    /// longer available. Returns no traces for a number that was not reached.
    #[must_use]
    pub fn after(&self, after: u64, count: usize) -> (Vec<Recording>, u64, u64) {
        let ring = self.ring();
        let first = ring.next - ring.traces.len() as u64;
        let from = after.saturating_add(1).clamp(first, ring.next);
        let found: Vec<_> = ring.traces.iter().skip((from - first) as usize).take(count).copied().collect();
        let last = from + found.len() as u64 - 1;
        (found, last, first.saturating_sub(after.saturating_add(1)))
    }

    /// Frees the memory if the lease has ended, and returns whether it did.
    pub fn forget(&self, now_us: u64) -> bool {
        if self.is_leased(now_us) {
            return false;
        }
        let mut ring = self.ring();
        ring.wanted = None;
        ring.traces = VecDeque::new();
        true
    }

    fn ring(&self) -> MutexGuard<'_, TraceRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Traces {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use wire::{Status, TenantId};

    use super::{Recorder, TraceFilter, TracedAlready, Traces};
    use crate::limits::{TRACE_LEASE_US, TRACES_KEPT};
    use crate::tenant::account::Account;

    const ALL: TraceFilter = TraceFilter { extension: 7, function: None, slower_than_us: 0 };

    #[test]
    fn a_lease_holds_for_what_it_names_and_ends_by_itself() {
        let (traces, account) = (Traces::new(), Account::new(TenantId(1)));
        assert!(!account.is_traced() && !traces.wants(&account, 7, 1, 0));
        let one = TraceFilter { function: Some(1), ..ALL };
        assert_eq!(traces.lease(&account, one, 0), Ok(()));
        assert!(account.is_traced());
        assert!(traces.wants(&account, 7, 1, 10));
        assert!(!traces.wants(&account, 7, 2, 10) && !traces.wants(&account, 8, 1, 10));
        assert_eq!(traces.lease(&account, ALL, 10), Err(TracedAlready));
        assert!(!traces.forget(10));
        assert!(!traces.wants(&account, 7, 1, TRACE_LEASE_US) && !account.is_traced());
        assert_eq!(traces.lease(&account, ALL, TRACE_LEASE_US), Ok(()));
        assert!(traces.forget(2 * TRACE_LEASE_US));
    }

    #[test]
    fn a_lease_ends_at_once_when_its_reader_says_so() {
        let (traces, account) = (Traces::new(), Account::new(TenantId(1)));
        assert_eq!(traces.lease(&account, ALL, 0), Ok(()));
        traces.end(&account, 8);
        assert!(account.is_traced() && !traces.forget(1), "that is another extension");
        traces.end(&account, 7);
        assert!(!account.is_traced() && !traces.wants(&account, 7, 1, 1) && traces.forget(1));
        assert_eq!(traces.lease(&account, TraceFilter { extension: 8, ..ALL }, 1), Ok(()));
    }

    #[test]
    fn a_reader_goes_on_behind_what_it_has_and_hears_what_it_missed() {
        let (traces, account) = (Traces::new(), Account::new(TenantId(1)));
        let mut recorder = Recorder::new();
        let mut publish = |status| {
            recorder.begin("f", 1, 0);
            traces.publish(recorder.end(status, 0))
        };
        assert!(!publish(Status::Ok), "nobody reads");
        assert_eq!(traces.lease(&account, ALL, 0), Ok(()));
        let (found, last, missed) = traces.after(u64::MAX, 10);
        assert_eq!((found.len(), last, missed), (0, 0, 0));
        assert!((0..3).all(|_| publish(Status::Ok)));
        let (found, last, missed) = traces.after(0, 2);
        assert_eq!((found.len(), last, missed), (2, 2, 0));
        assert!((0..TRACES_KEPT).all(|_| publish(Status::Conflict)));
        let (found, last, missed) = traces.after(2, 1_000);
        assert_eq!((found.len(), last, missed), (TRACES_KEPT, TRACES_KEPT as u64 + 3, 1));
        assert_eq!(found[0].status, Status::Conflict);
        let slow = TraceFilter { slower_than_us: 1_000_000, ..ALL };
        assert_eq!(traces.lease(&account, slow, TRACE_LEASE_US), Ok(()));
        assert!(!publish(Status::Ok), "too fast");
    }
}
