//! The server's view: counts the changes of what it owns, so that a request is executed by nobody but an owner.
//!
//! ```text
//!   view 7 ───────────┐ cut            worker 0 passes between two batches
//!   view 7 ──────────────────┐         worker 1 passes a little later
//!                     8 ─────8──────   settled: all have passed, and clients are told
//! ```
//! A cut changes the view and the tables of a worker in one step. Under one view what is owned is the same at all workers.
//! What answers name is the settled view, read before anything of a round was decided: whoever reads 8 in an answer knows
//! that nothing begins any more under 7, at any worker. See "Views" in docs/formats.md for what clients make of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::tablet::TableEntry;

/// The views of one server, as all of its threads see them.
#[derive(Debug)]
pub struct Views {
    settled: AtomicU64,
    latest: AtomicU64,
}

impl Views {
    /// All workers begin under `view`.
    #[must_use]
    pub fn new(view: u64) -> Self {
        Self { settled: AtomicU64::new(view), latest: AtomicU64::new(view) }
    }

    /// The view that all workers have passed. Cost: one load of what seldom changes.
    #[inline]
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// The view of the latest cut, which workers may still have to pass.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// A view that no cut had.
    pub fn next(&self) -> u64 {
        self.latest.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// The own view of a worker that is to execute nothing: no server counts so far. A client that names it deceives nobody but
/// itself.
const FENCED: u64 = u64::MAX;

/// The view of a worker in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundView {
    /// Its own: requests under another one are not executed.
    pub own: u64,
    /// What answers name.
    pub settled: u64,
}

impl RoundView {
    /// One that all workers have.
    #[must_use]
    pub const fn settled(view: u64) -> Self {
        Self { own: view, settled: view }
    }

    /// One under which no request was sent: all are told to come again.
    pub const fn fenced(self) -> Self {
        Self { own: FENCED, settled: self.settled }
    }

    /// Whether nothing is to be executed.
    #[inline]
    #[must_use]
    pub const fn is_fenced(self) -> bool {
        self.own == FENCED
    }

    /// Whether others have still to pass.
    #[inline]
    #[must_use]
    pub const fn is_passing(self) -> bool {
        self.own != self.settled
    }
}

/// A change of view on its way through the workers.
#[derive(Debug)]
pub struct Cut {
    /// The view behind it.
    pub view: u64,
    /// Tables of which other parts or ranges are owned from there on.
    pub tables: Vec<Arc<TableEntry>>,
    /// Workers that have still to pass.
    left: AtomicUsize,
    views: Arc<Views>,
}

impl Cut {
    /// A cut through so many workers.
    #[must_use]
    pub fn new(view: u64, tables: Vec<Arc<TableEntry>>, workers: usize, views: Arc<Views>) -> Self {
        Self { view, tables, left: AtomicUsize::new(workers), views }
    }

    /// A worker has passed: called once by each, after the last thing that it did under the view before. The last one
    /// settles the view.
    pub fn pass(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.views.settled.store(self.view, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Cut, Views};

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
}
