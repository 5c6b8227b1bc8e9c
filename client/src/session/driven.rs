//! A session whose owner must not block: it sleeps by itself, and reopens a lost session where blocking is fine.

use std::os::fd::OwnedFd;
use std::time::Duration;

use wire::{Completion, CompletionError};

use super::Session;
use crate::Error;

impl Session {
    /// Returns the session as one whose polls never block: its owner calls [`Session::reopen`] when
    /// [`Session::awaits_reopening`].
    pub(crate) fn driven(mut self) -> Session {
        self.router.defer_reopening();
        self
    }

    /// Returns whether requests wait for [`Session::reopen`].
    #[inline]
    pub(crate) fn awaits_reopening(&self) -> bool {
        self.router.awaits_reopening()
    }

    /// Reopens a lost session. Blocks for at most the time of a call.
    ///
    /// # Errors
    /// If it cannot be reopened; then all requests have completed with errors, and the next one needs it again.
    pub(crate) fn reopen(&mut self, complete: &mut impl FnMut(Completion<'_>)) -> Result<(), Error> {
        let now_us = self.watch.look();
        let reopened = self.router.reopen(now_us, &mut self.statistics, complete);
        if let Err(error) = &reopened {
            let status = error.status().ok_or(CompletionError::Away { server: 0 });
            self.router.end_waiting(status, complete);
        }
        reopened
    }

    /// Returns a descriptor that is readable when something has arrived between [`Session::begin_wait`] and
    /// [`Session::end_wait`]; `None` for a port that can only be polled.
    pub(crate) fn descriptor(&self) -> Result<Option<OwnedFd>, Error> {
        self.port.descriptor().map_err(|error| Error::Port { error })
    }

    /// Announces a sleep; returns false if there is something to do at once.
    pub(crate) fn begin_wait(&mut self) -> bool {
        self.port.begin_wait()
    }

    /// Ends the sleep that was announced.
    pub(crate) fn end_wait(&mut self) {
        self.port.end_wait();
        self.watch.sleep();
    }

    /// Returns the time until a timer is due.
    pub(crate) fn next_timer(&mut self) -> Option<Duration> {
        self.due()
    }
}
