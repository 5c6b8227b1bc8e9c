//! Hashes in migration that clients may read at both servers: the state shared by the workers at either end.
//!
//! ```text
//!   source   gave them away; replies with the former objects until it is closed    budget ── bytes sent ──► no more
//!   target   owns them; names objects that have not arrived, and the progress of the rest
//! ```
//! Objects at the source stay unchanged while it is open: it is closed before any of them is removed, and a worker
//! checks after its read whether it is still open. Shared by all workers and the migration's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::Table;

use super::ranges::Range;

/// A migration that lets clients read at both servers.
#[derive(Debug)]
pub struct Moving {
    /// The number of the migration.
    pub migration: u32,
    /// The hashes, with the parts that hold them.
    pieces: Vec<(Range, Arc<Table>)>,
    /// The budget for reads at a second server, in bytes.
    budget_bytes: u64,
    spent_bytes: AtomicU64,
    reads: AtomicU64,
    is_closed: AtomicBool,
}

impl Moving {
    /// Creates the state of a migration, with the parts that hold the hashes, and the byte budget.
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

    /// Returns whether a hash is in migration.
    #[must_use]
    pub fn has(&self, hash: u64) -> bool {
        self.part(hash).is_some()
    }

    /// Returns the part that holds a hash.
    #[must_use]
    pub fn part(&self, hash: u64) -> Option<&Table> {
        let piece = self.pieces.iter().find(|((first, last), _)| (*first..=*last).contains(&hash));
        piece.map(|(_, part)| &**part)
    }

    /// Returns the ranges that have arrived here.
    pub fn arrived(&self) -> impl Iterator<Item = (u64, u64)> {
        self.pieces.iter().flat_map(|(_, part)| part.arrived_ranges())
    }

    /// Returns whether reads are answered. If so, an earlier read of the objects is valid.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Closes the source, before any of the objects changes.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Charges the bytes of a read at a second server. Returns false, without a charge, if they exceed the budget.
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

    /// Charges bytes that must be sent, regardless of the budget.
    pub fn count(&self, bytes: u64) {
        self.spent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of admitted reads, and the bytes charged.
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
