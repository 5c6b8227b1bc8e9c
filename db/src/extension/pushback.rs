//! Decides which invocations their clients run themselves.
//!
//! A client that has the module of a function says so in its request; the server may then answer with
//! [`wire::Status::PushedBack`] in place of running it. It does so only while it is the bottleneck, and only for what costs it
//! more to run than to serve the reads and the commit of a client that runs it:
//!
//! ```text
//!   cycles of the function here  >  (its reads + its commit) x cycles of a request, by a quarter    FunctionCost
//!   invocations that can run     >= those that keep the worker busy until more arrive                PushbackLimit
//! ```
//! So the load decides whether, and the measured cost decides which. Costs are those of the invocations that are timed for the
//! metrics anyway, about one in sixteen. [`PushbackLimit`] is adjusted each millisecond: it falls while the worker is hardly
//! idle and rises as soon as it is. A client that cannot do more leaves the worker idle, and so gets less.
//! Because that many always run here, costs are measured anew without probes.
//!
//! After the load-based pushback of ASFP (Bhardwaj et al., "Adaptive Placement for In-memory Storage Functions", ATC'20), which has fixed
//! bounds and no memory of a function's cost.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{
    KEEP_FEWER_IDLE_PERCENT, KEEP_MORE_IDLE_PERCENT, KEPT_INVOCATIONS_MAX, KEPT_INVOCATIONS_MIN,
    PUSHBACK_WINDOW_US, REQUEST_CYCLES,
};
use crate::tenant::account::Account;
use crate::tenant::limit::TenantLimit;

/// Where a tenant's invocations run whose clients can run them too: the limit `run_at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAt {
    /// Where it is cheaper.
    Adaptive,
    /// At the server.
    Server,
    /// At the client.
    Client,
}

impl RunAt {
    /// Returns the limit `run_at` of a tenant.
    pub fn of(account: &Account) -> Self {
        match account.limit(TenantLimit::RunAt) {
            1 => Self::Server,
            2 => Self::Client,
            _ => Self::Adaptive,
        }
    }
}

/// A new measurement is one part in this many of the average.
const AVERAGED: u64 = 8;
/// Requests are counted in parts of this many, since the mean of few is rarely whole.
const REQUEST_PARTS: u64 = 16;

/// The moving averages of what a function costs its server, for one version of an extension. All workers add to them without
/// coordination: a lost measurement is followed by another one.
#[derive(Debug, Default)]
pub struct FunctionCost {
    /// Cycles of an invocation, with its host calls; 0 until one was timed.
    cycles: AtomicU64,
    /// Requests of a client that runs it, in [`REQUEST_PARTS`].
    requests: AtomicU64,
}

impl FunctionCost {
    /// Adds a timed invocation.
    pub fn note(&self, cycles: u64, reads: u64, writes: u64) {
        // A commit costs about as much as a request for each of its writes, and one more.
        let requests = (reads + if writes > 0 { writes + 1 } else { 0 }) * REQUEST_PARTS;
        let is_first = self.cycles.load(Ordering::Relaxed) == 0;
        let add = |average: &AtomicU64, value: u64| {
            let before = average.load(Ordering::Relaxed);
            // Something else may have had the core: one measurement moves the average by three eighths at most.
            let value = if is_first { value } else { value.min(4 * before + REQUEST_CYCLES) };
            let after = if is_first { value } else { before - before / AVERAGED + value / AVERAGED };
            average.store(after, Ordering::Relaxed);
        };
        add(&self.requests, requests);
        add(&self.cycles, cycles.max(1));
    }

    /// Returns whether the server has less work if the client runs the function; `None` before a measurement.
    pub fn is_cheaper_at_clients(&self) -> Option<bool> {
        let cycles = self.cycles.load(Ordering::Relaxed);
        let requests = self.requests.load(Ordering::Relaxed);
        let elsewhere = requests.saturating_mul(REQUEST_CYCLES) / REQUEST_PARTS;
        (cycles > 0).then_some(cycles > elsewhere.saturating_add(elsewhere / 4).max(REQUEST_CYCLES))
    }
}

/// How many invocations a worker keeps before it pushes any back.
#[derive(Debug)]
pub struct PushbackLimit {
    kept: usize,
    until_us: u64,
    idle_us: u64,
}

impl Default for PushbackLimit {
    /// Creates the limit of a worker that is not busy.
    fn default() -> Self {
        Self { kept: KEPT_INVOCATIONS_MAX, until_us: 0, idle_us: 0 }
    }
}

impl PushbackLimit {
    /// Notes a round of the worker that ends at `now_us`, and whether it had work.
    #[inline]
    pub fn note_round(&mut self, now_us: u64, round_us: u64, had_work: bool) {
        if !had_work {
            self.idle_us += round_us;
        }
        if now_us >= self.until_us {
            self.adjust(now_us);
        }
    }

    fn adjust(&mut self, now_us: u64) {
        if self.idle_us * 100 >= PUSHBACK_WINDOW_US * KEEP_MORE_IDLE_PERCENT {
            // A sleep may last for many intervals.
            let doublings = 1 + (self.idle_us / PUSHBACK_WINDOW_US).min(KEPT_INVOCATIONS_MAX.ilog2().into());
            self.kept = (self.kept << doublings).min(KEPT_INVOCATIONS_MAX);
        } else if self.idle_us * 100 < PUSHBACK_WINDOW_US * KEEP_FEWER_IDLE_PERCENT {
            self.kept = (self.kept - self.kept / 4).max(KEPT_INVOCATIONS_MIN);
        }
        (self.idle_us, self.until_us) = (0, now_us + PUSHBACK_WINDOW_US);
    }

    /// Returns whether an invocation may be pushed back while so many can run, parked ones included.
    #[inline]
    pub fn is_reached(&self, waiting: usize) -> bool {
        waiting >= self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::{FunctionCost, PushbackLimit};
    use crate::limits::{KEPT_INVOCATIONS_MAX, KEPT_INVOCATIONS_MIN, PUSHBACK_WINDOW_US, REQUEST_CYCLES};

    #[test]
    fn what_computes_goes_to_clients_and_what_reads_stays() {
        let of = |cycles, reads, writes| {
            let cost = FunctionCost::default();
            (0..100).for_each(|_| cost.note(cycles, reads, writes));
            cost.is_cheaper_at_clients() == Some(true)
        };
        assert_eq!(FunctionCost::default().is_cheaper_at_clients(), None);
        assert!(
            !of(REQUEST_CYCLES, 2, 0) && !of(2 * REQUEST_CYCLES, 2, 0),
            "it costs as much to serve its reads"
        );
        assert!(of(10 * REQUEST_CYCLES, 2, 0) && of(10 * REQUEST_CYCLES, 4, 2));
        assert!(!of(10 * REQUEST_CYCLES, 4, 4), "its commit counts");
        assert!(!of(REQUEST_CYCLES, 0, 0), "the answer that pushes it back counts");
    }

    #[test]
    fn costs_follow_what_the_function_does() {
        let cost = FunctionCost::default();
        (0..100).for_each(|_| cost.note(REQUEST_CYCLES, 2, 0));
        assert_eq!(cost.is_cheaper_at_clients(), Some(false));
        (0..40).for_each(|_| cost.note(10 * REQUEST_CYCLES, 2, 0));
        assert_eq!(cost.is_cheaper_at_clients(), Some(true));
        (0..40).for_each(|_| cost.note(REQUEST_CYCLES, 2, 0));
        assert_eq!(cost.is_cheaper_at_clients(), Some(false));
    }

    #[test]
    fn a_worker_keeps_fewer_while_it_is_never_idle_and_more_as_soon_as_it_is() {
        let (mut limit, mut now_us) = (PushbackLimit::default(), 1_000);
        let mut work = |limit: &mut PushbackLimit, windows: u64, idle_percent: u64| {
            for _ in 0..windows * 100 {
                now_us += PUSHBACK_WINDOW_US / 100;
                limit.note_round(
                    now_us,
                    PUSHBACK_WINDOW_US / 100,
                    now_us / (PUSHBACK_WINDOW_US / 100) % 100 >= idle_percent,
                );
            }
        };
        work(&mut limit, 10, 50);
        assert!(!limit.is_reached(KEPT_INVOCATIONS_MAX - 1));
        work(&mut limit, 40, 0);
        assert!(limit.is_reached(KEPT_INVOCATIONS_MIN) && !limit.is_reached(KEPT_INVOCATIONS_MIN - 1));
        work(&mut limit, 2, 20);
        assert!(!limit.is_reached(KEPT_INVOCATIONS_MIN) && limit.is_reached(16 * KEPT_INVOCATIONS_MIN));
        work(&mut limit, 1, 10);
        let before = limit.kept;
        assert!(before < KEPT_INVOCATIONS_MAX);
        work(&mut limit, 10, 10);
        assert_eq!(limit.kept, before, "neither idle nor saturated");
        limit.note_round(now_us + 1_000_000, 1_000_000, false);
        assert!(!limit.is_reached(KEPT_INVOCATIONS_MAX - 1), "it has slept");
    }
}
