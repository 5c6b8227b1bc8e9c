//! The wait of a move's source until this server's copy of the metadata has the end of the move.
//!
//! Only then the source's log gives up what has moved: metadata that is restored from the copies, after their storage was lost,
//! would otherwise say that the source owns the hashes, and no server would have their objects. The wait ends without the copy if
//! the metadata answers and the copy cannot be written for [`METADATA_COPY_PATIENCE_MS`]. While the metadata does not answer there
//! is no end: it may be lost.

use std::time::{Duration, Instant};

use cluster::metadata::MetadataError;
use cluster::records::Revision;

use crate::limits::METADATA_COPY_PATIENCE_MS;

/// The wait of one move.
#[derive(Debug, Default)]
pub(super) struct AwaitedCopy {
    since: Option<Instant>,
    /// The commit that the copy must have; `None` until the metadata has answered.
    end: Option<Revision>,
    is_over: bool,
}

impl AwaitedCopy {
    /// Returns whether the log may give up what has moved. The copy has all commits until `copied`; `ask` returns the last commit
    /// that changed the owners of the table's hashes, `None` if there is no such table, and is called after the end of the move.
    pub(super) fn is_over(
        &mut self,
        copied: Revision,
        now: Instant,
        ask: impl FnOnce() -> Result<Option<Revision>, MetadataError>,
    ) -> bool {
        if self.is_over {
            return true;
        }
        let since = *self.since.get_or_insert(now);
        let is_late = now.duration_since(since) >= Duration::from_millis(METADATA_COPY_PATIENCE_MS);
        if self.end.is_none() || is_late {
            let Ok(found) = ask() else { return false };
            self.end = self.end.or(found);
        }
        self.is_over = self.end.is_some_and(|end| end <= copied);
        if !self.is_over && is_late {
            tracing::warn!(
                "gives up what has moved, though the copy of the metadata in the data directory does not say so yet"
            );
            self.is_over = true;
        }
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use cluster::metadata::MetadataError;
    use cluster::records::{RecordsError, Revision};

    use super::AwaitedCopy;
    use crate::limits::METADATA_COPY_PATIENCE_MS;

    fn is_away() -> Result<Option<Revision>, MetadataError> {
        Err(RecordsError::Unavailable("it is away".to_owned()).into())
    }

    #[test]
    fn a_source_waits_until_the_copy_has_the_end_of_the_move() {
        let (mut awaited, now) = (AwaitedCopy::default(), Instant::now());
        assert!(!awaited.is_over(Revision(8), now, is_away), "nobody knows which commit that is");
        assert!(!awaited.is_over(Revision(8), now, || Ok(Some(Revision(9)))));
        assert!(!awaited.is_over(Revision(8), now, || panic!("it is known")));
        assert!(awaited.is_over(Revision(9), now, || panic!("it is known")));
        assert!(awaited.is_over(Revision(0), now, || panic!("it is over")));
    }

    #[test]
    fn a_copy_that_cannot_be_written_is_not_awaited_for_ever_while_the_metadata_answers() {
        let (mut awaited, now) = (AwaitedCopy::default(), Instant::now());
        assert!(!awaited.is_over(Revision(8), now, || Ok(Some(Revision(9)))));
        let late = now + Duration::from_millis(METADATA_COPY_PATIENCE_MS);
        assert!(!awaited.is_over(Revision(8), late, is_away), "the metadata may be lost");
        assert!(awaited.is_over(Revision(8), late, || Ok(Some(Revision(10)))));
    }
}
