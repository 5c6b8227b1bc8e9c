//! A lost session with the only server that is reopened where waiting is fine, not during a poll.

use wire::{Completion, CompletionError, Status};

use super::{HOME, Router, sort};
use crate::Error;
use crate::session_state::{SessionState, SessionStatistics};

impl Router {
    /// Leaves the reopening of a lost session with the only server to [`Router::reopen`]: a poll may not wait.
    pub(crate) fn defer_reopening(&mut self) {
        self.servers
            .iter_mut()
            .filter_map(|server| server.state.as_mut())
            .for_each(SessionState::defer_reopening);
    }

    /// Returns whether requests wait for [`Router::reopen`].
    #[inline]
    pub(crate) fn awaits_reopening(&self) -> bool {
        self.owed > 0 && self.home().is_some_and(SessionState::awaits_reopening)
    }

    /// Reopens the session with the home server. Waits for at most the time of a call.
    pub(crate) fn reopen(
        &mut self,
        now_us: u64,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        let Router { servers, owed, inbox, .. } = self;
        let Some(state) = servers[HOME].state.as_mut() else { return Ok(()) };
        let sorted = &mut |completion: Completion<'_>| sort(completion, owed, inbox, complete);
        state.reopen(now_us, statistics, sorted)
    }

    /// Ends the requests that no server has received.
    pub(crate) fn end_waiting(
        &mut self,
        status: Result<Status, CompletionError>,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.finish(waiting.request.tag, status.map(|status| (status, Vec::new())), complete);
        }
    }
}
