//! How far the rewriting of a table is (`rewriting.rs`): written by the step at work, read by control threads.

use crate::error::WriteError;
use crate::sync::{AtomicBool, AtomicU64, Exclusive, Ordering};

/// The state of a table's rewriting.
pub(crate) struct Rewriting {
    /// Whether objects may lie elsewhere than new ones; then the table is in the list of work.
    is_listed: AtomicBool,
    /// Objects of lower hashes are where they belong.
    next_hash: AtomicU64,
    refusal: Exclusive<Option<WriteError>>,
}

/// How far a rewriting is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RewritingProgress {
    /// Objects of lower hashes are rewritten.
    pub hash: u64,
    /// Why the last step did not go on, if it could not. Steps try again.
    pub refusal: Option<WriteError>,
}

impl Default for Rewriting {
    fn default() -> Rewriting {
        let (is_listed, next_hash) = Default::default();
        Rewriting { is_listed, next_hash, refusal: Exclusive::new(None) }
    }
}

impl Rewriting {
    /// Begins anew, while no step is at work. Returns whether the table must be added to the list.
    pub(crate) fn begin(&self) -> bool {
        self.next_hash.store(0, Ordering::Relaxed);
        *self.refusal.lock() = None;
        !self.is_listed.swap(true, Ordering::AcqRel)
    }

    /// Returns the hash from which a step goes on.
    pub(crate) fn next_hash(&self) -> u64 {
        self.next_hash.load(Ordering::Relaxed)
    }

    /// Notes what a step has reached, `None` for the end, and why it did not go further. Returns whether the table stays in
    /// the list.
    pub(crate) fn reach(&self, hash: Option<u64>, refusal: Option<WriteError>) -> bool {
        if let Some(mut known) = self.refusal.try_lock() {
            *known = refusal;
        }
        match hash {
            Some(hash) => self.next_hash.store(hash, Ordering::Relaxed),
            // After the last copy can be found.
            None => self.is_listed.store(false, Ordering::Release),
        }
        hash.is_some()
    }

    /// Returns how far it is; `None` if none is under way.
    pub(crate) fn progress(&self) -> Option<RewritingProgress> {
        let is_listed = self.is_listed.load(Ordering::Acquire);
        is_listed.then(|| RewritingProgress { hash: self.next_hash(), refusal: *self.refusal.lock() })
    }
}
