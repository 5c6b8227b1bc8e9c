//! Whose turn it is to change the metadata: the threads of a server do it one after another, so that they do not
//! contradict each other, and none waits for ever.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::records::RecordsError;

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct WriteTurn {
    taken: Mutex<bool>,
    free: Condvar,
}

/// Somebody's turn; over when it is dropped.
pub(super) struct Mine<'t>(&'t WriteTurn);

impl WriteTurn {
    /// Waits for the turn.
    ///
    /// # Errors
    /// `Unavailable` when it takes longer than this.
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
