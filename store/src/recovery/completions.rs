//! The completion records of a recovery, which all cores share.

use std::sync::{MutexGuard, PoisonError};

use super::{Recovery, RecoveryError, RecoveryHandle, Shared};
use crate::completion::{FoundCompletion, FoundCompletions};
use crate::error::WriteError;
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
    /// Keeps a completion record whose client may ask for it.
    pub(super) fn completion(&mut self, entry: &Entry<'_>) -> Result<(), RecoveryError> {
        let Some(found) = FoundCompletion::of(entry) else { return Ok(()) };
        if !self.shared.completions(found.request.client).add(found) {
            return Ok(());
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
