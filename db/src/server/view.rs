//! The server's view: counts the changes of its ownership, so that only an owner executes a request.
//!
//! ```text
//!   view 7 ───────────┐ cut            worker 0 reaches view 8 between two batches
//!   view 7 ──────────────────┐         worker 1 reaches it a little later
//!                     8 ─────8──────   settled: all have reached it, and clients are told
//! ```
//! A cut changes the view and the tables of a worker in one step. Under one view all workers have the same ownership.
//! Answers name the settled view, read before anything of a round was decided: a client that reads 8 in an answer
//! knows that nothing begins under 7 any more, at any worker. See "Views" in docs/formats.md for the clients' part.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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
