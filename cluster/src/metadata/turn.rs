//! The order of a server's metadata changes: its threads make them one after another, so that they do not conflict, and
//! each waits for a bounded time.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::records::RecordsError;

/// The turn of a server's threads to change the metadata.
#[derive(Debug, Default)]
pub(super) struct WriteTurn {
    taken: Mutex<bool>,
    free: Condvar,
}

/// A thread's turn, which ends on drop.
pub(super) struct Mine<'t>(&'t WriteTurn);

impl WriteTurn {
    /// Waits for the turn.
    ///
    /// # Errors
    /// `Unavailable` when it takes longer than `timeout`.
    pub(super) fn take(&self, timeout: Duration) -> Result<Mine<'_>, RecordsError> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.free.wait_timeout_while(taken, timeout, |taken| *taken);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *taken {
            return Err(RecordsError::Unavailable("others are changing it for too long".to_owned()));
        }
        *taken = true;
        Ok(Mine(self))
    }
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::WriteTurn;

    #[test]
    fn one_has_the_turn_and_who_waits_too_long_is_told() {
        let turn = WriteTurn::default();
        let mine = turn.take(Duration::ZERO).expect("free");
        assert!(turn.take(Duration::from_millis(1)).is_err());
        drop(mine);
        assert!(turn.take(Duration::ZERO).is_ok());
    }
}
