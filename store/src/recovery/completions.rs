//! The completion records of a recovery.

use super::{Recovery, RecoveryError};
use crate::completion::FoundCompletion;
use crate::error::WriteError;
use crate::log::NoSegment;
use crate::object::Entry;

impl Recovery<'_> {
    /// Keeps a completion record whose client may ask for it.
    pub(super) fn completion(&mut self, entry: &Entry<'_>) -> Result<(), RecoveryError> {
        if !self.completions.add(entry) {
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
    pub fn take_completions(&mut self) -> impl Iterator<Item = FoundCompletion> + use<> {
        std::mem::take(&mut self.completions).into_all()
    }
}
