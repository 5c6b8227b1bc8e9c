//! The completion records of a recovery, which all cores share.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use super::{Recovery, RecoveryError, RecoveryHandle, Shared};
use crate::completion::{FoundCompletion, FoundCompletions};
use crate::error::WriteError;
use crate::limits::OLD_COMPLETIONS_BYTES_MAX;
use crate::log::NoSegment;
use crate::object::Entry;

impl Shared {
    /// Returns the records of some clients, this one among them.
    fn completions(&self, client: u64) -> MutexGuard<'_, FoundCompletions> {
        let shard = &self.completions[client as usize % self.completions.len()];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecoveryHandle {
    /// Returns the completion records that were found of a client until now.
    #[must_use]
    pub fn completions_of(&self, client: u64) -> Vec<FoundCompletion> {
        self.0.completions(client).of(client).to_vec()
    }
}

impl Recovery<'_> {
    /// Says of the segments that follow whether clients have probably forgotten the requests that wrote them. Of such ones
    /// completion records are kept up to `OLD_COMPLETIONS_BYTES_MAX`.
    pub fn expect_old_replies(&mut self, are_old: bool) {
        self.are_replies_old = are_old;
    }

    /// Keeps a completion record whose client may ask for it.
    pub(super) fn completion(&mut self, entry: &Entry<'_>) -> Result<(), RecoveryError> {
        let bytes = &self.shared.completions_bytes;
        if self.are_replies_old && bytes.load(Ordering::Relaxed) >= OLD_COMPLETIONS_BYTES_MAX {
            return Ok(());
        }
        let Some(found) = FoundCompletion::of(entry) else { return Ok(()) };
        {
            let mut known = self.shared.completions(found.request.client);
            let before = known.bytes();
            let is_kept = known.add(found);
            // It wraps where adding one has let others go.
            bytes.fetch_add(known.bytes().wrapping_sub(before), Ordering::Relaxed);
            if !is_kept {
                return Ok(());
            }
        }
        self.retrying(|this, pinned| {
            let log = &pinned.core.store.log;
            let claim = |bytes| log.claim_of_writer(bytes, 0);
            let content = (entry.key(), entry.value());
            let staged = log.stage_completion(&mut this.head, claim, entry.table(), content);
            let staged = staged.map_err(|NoSegment| WriteError::Retry { after_us: 0 })?;
            log.seal(&staged, entry.version(), 0);
            this.head.note_needed(staged.bytes());
            log.bury(pinned.core.index, staged.location, staged.bytes());
            Ok(())
        })
    }

    /// Returns the completion records that clients may ask for. Called before [`Recovery::finish`], from which on the
    /// cleaner asks which of them are needed.
    #[must_use]
    pub fn completions(&self) -> Vec<FoundCompletion> {
        (0..self.shared.completions.len() as u64)
            .flat_map(|shard| self.shared.completions(shard).all().cloned().collect::<Vec<_>>())
            .collect()
    }
}
