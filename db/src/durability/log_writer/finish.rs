//! The end of a log that is written no more.

use std::thread;
use std::time::Duration;

use disk::DiskError;

use super::LogWriter;
use crate::limits::DIRECTORIES_DUE_MAX;

/// How often the failure of growth is looked for, and the pause in between.
const CAUSE_LOOKS: u32 = 100;
const CAUSE_PAUSE: Duration = Duration::from_millis(1);

impl LogWriter {
    /// Fixes in a last digest what all segments have, so that a start finds damage at their ends: without it, that looks
    /// like a write that a crash interrupted; and writes directories of all, for which a start then needs not wait. Called
    /// after the last step.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn finish(&mut self) -> Result<(), DiskError> {
        for mut open in std::mem::take(&mut self.open).into_iter().filter(|open| open.written > 0) {
            self.directories.add(open.opened.sequence, open.all_words(&self.store));
            if let Some(segment) = self.state.segments.get_mut(&open.opened.sequence) {
                segment.bytes = open.written as u32;
            }
        }
        self.write_digest(self.store.now_ms())?;
        if let Some(replicas) = &mut self.replicas {
            replicas.settle(None);
        }
        self.write_directories(DIRECTORIES_DUE_MAX)
    }

    /// Returns why the disk has failed, if the writer only learned that nothing is written any more: growth tells it a moment
    /// later.
    pub(in crate::durability) fn cause_of(&self, error: DiskError) -> DiskError {
        let Some(growth) = self.growth.as_ref().filter(|_| matches!(error, DiskError::Stopped)) else {
            return error;
        };
        for _ in 0..CAUSE_LOOKS {
            if let Some(cause) = growth.failure() {
                return cause;
            }
            thread::sleep(CAUSE_PAUSE);
        }
        error
    }
}
