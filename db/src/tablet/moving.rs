//! Hashes on the move of which clients may read at both servers: what a worker at either end knows of it.
//!
//! ```text
//!   source   gave them away; answers with what there was, until it is closed       budget ── bytes told ──► no more
//!   target   owns them; says of what has not come that it has not, and how far the rest is
//! ```
//! Objects at the source stay as they were as long as it is open: it is closed before anything of them is removed, and a
//! worker looks after it has read whether it is open yet. Shared by all workers and the migration's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::Table;

use super::ranges::Range;

/// See the file's head.
#[derive(Debug)]
pub struct Moving {
    /// Number of the migration.
    pub migration: u32,
    /// The hashes, by the parts that have them.
    pieces: Vec<(Range, Arc<Table>)>,
    /// Bytes that reads at a second server may cost here.
    budget_bytes: u64,
    spent_bytes: AtomicU64,
    reads: AtomicU64,
    is_closed: AtomicBool,
}

impl Moving {
    /// That of a migration, with the parts that have the hashes, and the bytes that may be spent.
    #[must_use]
    pub fn new(migration: u32, pieces: Vec<(Range, Arc<Table>)>, budget_bytes: u64) -> Self {
        Self {
            migration,
            pieces,
            budget_bytes,
            spent_bytes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Whether a hash is on the move.
    #[must_use]
    pub fn has(&self, hash: u64) -> bool {
        self.part(hash).is_some()
    }

    /// The part that has a hash.
    #[must_use]
    pub fn part(&self, hash: u64) -> Option<&Table> {
        let piece = self.pieces.iter().find(|((first, last), _)| (*first..=*last).contains(&hash));
        piece.map(|(_, part)| &**part)
    }

    /// What of it has arrived here.
    pub fn arrived(&self) -> impl Iterator<Item = (u64, u64)> {
        self.pieces.iter().flat_map(|(_, part)| part.arrived_ranges())
    }

    /// Whether reads are answered. What was read before it was asked is as it was.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Ends it: before anything of the objects changes.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Counts the bytes of a read at a second server. False where there is no room for them any more: then they are not.
    pub fn spend(&self, bytes: u64) -> bool {
        let before = self.spent_bytes.fetch_add(bytes, Ordering::Relaxed);
        let may = before.saturating_add(bytes) <= self.budget_bytes;
        if may {
            self.reads.fetch_add(1, Ordering::Relaxed);
        } else {
            self.spent_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        may
    }

    /// Counts bytes that have to be spent, whatever is left.
    pub fn count(&self, bytes: u64) {
        self.spent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reads for which there was room, and bytes that were spent.
    #[must_use]
    pub fn spent(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.spent_bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::Moving;

    #[test]
    fn what_is_spent_stays_within_the_budget() {
        let moving = Moving::new(1, Vec::new(), 100);
        assert_eq!([60, 60, 40, 1].map(|bytes| moving.spend(bytes)), [true, false, true, false]);
        assert_eq!(moving.spent(), (2, 100));
        assert!(moving.is_open() && !moving.has(7));
        moving.close();
        assert!(!moving.is_open());
    }
}
