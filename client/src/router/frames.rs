//! Received frames and completions, dispatched to sessions, the caller or the router.

use wire::{Completion, FrameError, FrameReader, Group};

use super::server::Server;
use super::{Arrived, ROUTERS_TAGS, Router};
use crate::session_state::SessionState;

impl Router {
    /// Processes a received frame.
    #[inline]
    pub(crate) fn on_frame(
        &mut self,
        now_us: u64,
        frame: &[u8],
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), FrameError> {
        let Router { servers, owed, inbox, .. } = self;
        if let [Server { state: Some(state), .. }] = &mut servers[..] {
            let complete = &mut |completion: Completion<'_>| sort(completion, owed, inbox, complete);
            return state.on_frame(now_us, frame, complete);
        }
        let reader = FrameReader::new(frame)?;
        for group in reader.groups() {
            let group = group?;
            if let Some(server) = self.server_of_token(group.token) {
                self.on_group(now_us, server, (reader.view(), &group), complete)?;
            }
        }
        Ok(())
    }

    fn server_of_token(&self, token: u64) -> Option<usize> {
        let is_its = |server: &Server| server.state.as_ref().is_some_and(|state| state.token() == token);
        self.servers.iter().position(is_its)
    }

    /// Processes a group of a received frame that belongs to this server's session.
    #[inline]
    pub(crate) fn on_group(
        &mut self,
        now_us: u64,
        server: usize,
        (view, group): (u64, &Group<'_>),
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), FrameError> {
        let Router { servers, owed, inbox, .. } = self;
        servers[server].heard_us = now_us;
        let Some(state) = &mut servers[server].state else { return Ok(()) };
        let complete = &mut |completion: Completion<'_>| sort(completion, owed, inbox, complete);
        state.on_group(now_us, view, group, complete)
    }

    /// Returns whether a server's reply, or one to the router, needs a second step.
    #[inline]
    pub(crate) fn is_troubled(&self, server: usize) -> bool {
        let state = self.servers[server].state.as_ref();
        !self.inbox.is_empty() || state.is_some_and(SessionState::is_troubled)
    }
}

/// Passes a completion to the caller, or keeps one of the router's own.
#[inline]
pub(super) fn sort(
    completion: Completion<'_>,
    owed: &mut usize,
    inbox: &mut Vec<Arrived>,
    complete: &mut impl FnMut(Completion<'_>),
) {
    if completion.tag >= ROUTERS_TAGS {
        return keep(&completion, inbox);
    }
    *owed -= 1;
    complete(completion);
}

#[cold]
fn keep(completion: &Completion<'_>, inbox: &mut Vec<Arrived>) {
    let Completion { tag, status, body, .. } = *completion;
    inbox.push(Arrived { tag, outcome: status.map(|status| (status, body.to_vec())) });
}
