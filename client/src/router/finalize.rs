//! Work after each batch: the router's own replies, redirected requests, changes of servers.
//!
//! With a single server whose maps are known there is none; with several, the router checks the servers once a
//! millisecond and processes replies at once.

use net::Port;
use wire::limits::SERVERS_MAX;
use wire::{Completion, CompletionError, KeyRange, Request, Status, opcode};

use super::gather::{BOTH, PART};
use super::maps::TABLE_BITS;
use super::server::{Look, SILENCE_US, Server};
use super::{Arrived, HOME, Latest, ROUTERS_TAGS, Router, Sent, Waiting, away, sort};
use crate::Error;
use crate::admin_call::AdminCall;
use crate::both_sides::Outcome;
use crate::owned_request::OwnedRequest;
use crate::session_state::{Moved, SessionState, SessionStatistics};

/// Maximum time between polls while a request waits, in microseconds.
const WAITING_POLL_US: u64 = 1_000;
/// Interval between checks of servers that owe nothing, in microseconds.
const LOOK_EVERY_US: u64 = 1_000;
/// Interval between checks of the only server of a session that may go on at others, in microseconds.
const LOOK_ALONE_EVERY_US: u64 = 100_000;

impl Router {
    /// Does the work that is due after a batch or by time. See [`SessionState::finalize`].
    #[inline]
    pub(crate) fn finalize(
        &mut self,
        now_us: u64,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        let is_due = |server: &Server| server.state.as_ref().is_some_and(|it| it.is_due(now_us));
        if self.is_restless
            || now_us >= self.look_at_us
            || !self.inbox.is_empty()
            || self.servers.iter().any(is_due)
        {
            return self.settle_due(now_us, statistics, complete);
        }
        Ok(())
    }

    #[inline(never)]
    fn settle_due(
        &mut self,
        now_us: u64,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        let Router { servers, owed, inbox, is_restless, .. } = self;
        let mut settled = Ok(());
        for Server { state, view, .. } in servers.iter_mut() {
            let Some(state) = state else { continue };
            if state.is_due(now_us) {
                let complete = &mut |completion: Completion<'_>| sort(completion, owed, inbox, complete);
                settled = settled.and(state.finalize(now_us, statistics, complete));
                *is_restless |= state.has_moved() || state.is_lost();
            }
            *is_restless |= state.view != *view;
        }
        self.add_others(now_us);
        if self.is_restless || now_us >= self.look_at_us || !self.inbox.is_empty() {
            self.settle_routes(now_us, statistics, complete);
        }
        settled
    }

    /// Lets the session know the other servers that the caller named, once its only one answers nothing.
    fn add_others(&mut self, now_us: u64) {
        let [Server { state: Some(home), .. }] = &self.servers[..] else { return };
        let silent_since_us = now_us.saturating_sub(SILENCE_US);
        if self.settings.identity.others.is_empty() || !(home.is_lost() || home.owes_since(silent_since_us)) {
            return;
        }
        let others = std::mem::take(&mut self.settings.identity.others);
        self.servers.extend(others.into_iter().take(SERVERS_MAX).map(Server::named));
        (self.latest, self.is_restless) = (Latest::NONE, true);
    }

    fn settle_routes(
        &mut self,
        now_us: u64,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        if self.is_shared() {
            self.look_after_servers(now_us, statistics, complete);
        }
        for server in 0..self.servers.len() {
            let moved = self.servers[server].state.as_mut().map(SessionState::take_moved);
            for moved in moved.into_iter().flatten() {
                self.take_moved(now_us, moved, complete);
            }
        }
        for _ in 0..self.waiting.len() {
            let Some(waiting) = self.waiting.pop_front() else { break };
            self.send_waiting(now_us, waiting, statistics, complete);
        }
        // A part may itself be gathered from parts.
        while !self.inbox.is_empty() {
            for Arrived { tag, outcome } in std::mem::take(&mut self.inbox) {
                self.take_own(now_us, tag, outcome, complete);
            }
        }
        self.hurry_boths(now_us);
        for waiting in std::mem::take(&mut self.boths.alone) {
            self.send_waiting(now_us, waiting, statistics, complete);
        }
        self.see_views(now_us);
        self.ask_for_maps(now_us, statistics);
        // The check of the servers decides whether to ask others too.
        let is_asking = self.maps.iter().any(|map| map.is_wanted && map.asks.is_empty());
        let is_opening = self.servers.iter().any(Server::is_opening);
        let is_awaiting = self.servers.iter().any(Server::is_awaited);
        self.is_restless =
            is_asking || is_opening || is_awaiting || !self.waiting.is_empty() || !self.leaving.is_empty();
        self.look_at_us = match (self.is_shared(), self.settings.identity.others.is_empty()) {
            (true, _) => now_us + LOOK_EVERY_US,
            (false, false) => now_us + LOOK_ALONE_EVERY_US,
            (false, true) => u64::MAX,
        };
    }

    /// Returns whether [`Router::finalize`] can wait for the next request or reply.
    pub(crate) fn is_at_rest(&self) -> bool {
        let is_quiet = |state: &SessionState| state.outstanding() == 0 && !state.is_troubled();
        let mut states = self.servers.iter().filter_map(|server| server.state.as_ref());
        let has_work = self.is_restless || self.is_shared() || self.owed > 0 || !self.inbox.is_empty();
        !has_work && states.all(is_quiet)
    }

    /// Returns the time of the next [`Router::finalize`] if nothing arrives.
    pub(crate) fn next_deadline_us(&self, now_us: u64) -> Option<u64> {
        let states = self.servers.iter().filter_map(|server| server.state.as_ref());
        let due = states.filter_map(|state| state.requester.next_deadline_us()).min();
        if !self.is_restless && !self.is_shared() {
            let look = (self.owed > 0 && self.look_at_us < u64::MAX).then_some(self.look_at_us);
            return due.into_iter().chain(look).min();
        }
        let is_awaiting = self.servers.iter().any(Server::is_awaited);
        let is_waiting =
            is_awaiting || !self.waiting.is_empty() || !self.leaving.is_empty() || self.asks_both();
        let soon = is_waiting.then_some(now_us + WAITING_POLL_US);
        let look = self.servers.iter().filter_map(Server::next_look_us).min().filter(|_| self.is_shared());
        [due, soon, look].into_iter().flatten().min()
    }

    /// Checks the servers, and leaves the sessions that have ended.
    fn look_after_servers(
        &mut self,
        now_us: u64,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let addresses = self.addresses_to_ask();
        for index in 0..self.servers.len() {
            let is_owner = !self.servers[index].is_silent() || self.maps.iter().any(|map| map.names(index));
            let Router { servers, leaving, owed, inbox, settings, others_settings, .. } = self;
            let settings = if index == HOME { settings } else { others_settings };
            let (server, sorted) = (&mut servers[index], &mut |completion: Completion<'_>| {
                sort(completion, owed, inbox, complete)
            });
            let look = server.look(now_us, (settings, is_owner), statistics, sorted);
            let ended = if look == Look::Ended { server.suspend() } else { None };
            let useless = server.take_useless();
            let left = server.ask_others(now_us, (settings, &addresses, is_owner), sorted);
            for mut state in [ended, useless, left].into_iter().flatten() {
                state.leave(sorted);
                leaving.push(state);
            }
            if let Some(lost) = server.lost() {
                // It does not reopen by itself, so this cannot fail.
                let _ = lost.finalize(now_us, statistics, sorted);
                let moved = lost.take_moved();
                server.reach(now_us, settings);
                for moved in moved {
                    self.take_moved(now_us, moved, complete);
                }
            }
            if look == Look::Silent {
                self.want_maps_of(now_us, index);
            }
        }
        for mut state in std::mem::take(&mut self.leaving) {
            let Router { owed, inbox, .. } = self;
            let sorted = &mut |completion: Completion<'_>| sort(completion, owed, inbox, complete);
            // A session that was left does not reopen, so this cannot fail.
            let _ = state.finalize(now_us, statistics, sorted);
            for moved in state.take_moved() {
                self.take_moved(now_us, moved, complete);
            }
            if state.is_leaving() {
                self.leaving.push(state);
            }
        }
    }

    /// Returns the addresses of the servers to ask for the replies of others, if any are lost or silent: those first that
    /// probably answer.
    fn addresses_to_ask(&self) -> Vec<String> {
        let is_asked_about = |server: &Server| server.is_awaited() || server.is_silent();
        if !self.servers.iter().any(is_asked_about) {
            return Vec::new();
        }
        let mut others: Vec<&Server> = self.servers.iter().filter(|server| !is_asked_about(server)).collect();
        others.sort_by_key(|server| (server.state.is_none(), server.is_doubted()));
        others.into_iter().map(|server| server.address.clone()).collect()
    }

    /// Falls back to UDP for servers that have ended their shared-memory channel.
    #[cold]
    pub(crate) fn leave_lost_ways(&mut self, port: &dyn Port) {
        let states = self.servers.iter_mut().filter_map(|server| server.state.as_mut());
        states.for_each(|state| state.leave_lost_way(port));
    }

    /// Decides where to repeat a request.
    fn take_moved(&mut self, now_us: u64, moved: Moved, complete: &mut impl FnMut(Completion<'_>)) {
        let Moved { mut request, status, end } = moved;
        let tag = request.tag;
        if tag >= ROUTERS_TAGS && matches!(request.code, opcode::TABLETS | opcode::GET_NOW) {
            return self.inbox.push(Arrived { tag, outcome: Ok((status, Vec::new())) });
        }
        let (mut asked, mut refusal) = (0, None);
        match (status, request.decode()) {
            (Status::NotOwned, Ok(decoded)) => {
                let index = decoded.table().map(|table| self.index_of(table));
                request.journey = request.journey.moved();
                let in_vain = (request.journey.moves > 1).then_some(&request.journey);
                asked = index.map_or(0, |index| self.want(now_us, index, in_vain));
                refusal = Some(status);
            }
            (
                Status::SeveralTablets,
                Ok(Request::Scan { table, range, cursor, keys_only, objects_max, bytes_max }),
            ) => {
                let index = self.index_of(table);
                match (range.hashes, end) {
                    (Some((first, last)), Some(end))
                        if (first..last).contains(&end) && self.maps[index].cut(end) =>
                    {
                        self.latest = Latest::NONE;
                    }
                    (None, _) => {
                        let range = KeyRange { hashes: Some((0, u64::MAX)), ..range };
                        let scan = Request::Scan { table, range, cursor, keys_only, objects_max, bytes_max };
                        request = OwnedRequest::new(tag, request.journey, &scan);
                    }
                    _ => return self.finish(tag, Ok((status, Vec::new())), complete),
                }
            }
            (Status::SeveralTablets, _) | (_, Err(_)) => {
                return self.finish(tag, Ok((status, Vec::new())), complete);
            }
            _ => {}
        }
        self.wait(Waiting { request, asked, refusal });
    }

    fn send_waiting(
        &mut self,
        now_us: u64,
        waiting: Waiting,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let Waiting { ref request, asked, refusal } = waiting;
        let (tag, journey) = (request.tag, request.journey);
        if now_us >= journey.deadline_us {
            let outcome = refusal.map_or(Err(CompletionError::NotSent), |status| Ok((status, Vec::new())));
            return self.finish(tag, outcome, complete);
        }
        let Ok(request) = request.decode() else {
            return self.finish(tag, Ok((Status::Malformed, Vec::new())), complete);
        };
        if asked > 0
            && let Some(table) = request.table()
        {
            let index = self.index_of(table);
            if self.maps[index].asked < asked {
                if !self.is_reachable(now_us) {
                    let outcome = Err(away(&self.servers[HOME]));
                    return self.finish(tag, outcome, complete);
                }
                return self.wait(waiting);
            }
        }
        match self.send(now_us, (tag, journey), &request, statistics) {
            Ok(Sent::To(_) | Sent::InParts) => {}
            Ok(Sent::Waits(asked)) => self.wait(Waiting { asked, ..waiting }),
            Ok(Sent::Away(server)) => {
                // The owner of its tablets may have changed, or will when others have recovered them. No server has received
                // the request, so the owner by the new map may get it.
                if let Some(table) = request.table() {
                    let index = self.index_of(table);
                    let in_vain = (asked > 0).then_some(&journey);
                    if asked == 0 || self.maps[index].is_recovered(&request) {
                        let asked = self.want(now_us, index, in_vain);
                        return self.wait(Waiting { asked, ..waiting });
                    }
                    self.want(now_us, index, None);
                }
                let outcome = Err(away(&self.servers[server]));
                self.finish(tag, outcome, complete);
            }
            Err(Error::Refused { status, .. }) => self.finish(tag, Ok((status, Vec::new())), complete),
            Err(_) => self.wait(waiting),
        }
    }

    /// Completes a request that is at no server.
    pub(super) fn finish(&mut self, tag: u64, outcome: Outcome, complete: &mut impl FnMut(Completion<'_>)) {
        let (status, body) = match &outcome {
            Ok((status, body)) => (Ok(*status), &body[..]),
            Err(error) => (Err(*error), &[][..]),
        };
        sort(Completion { tag, sequence: 0, status, body }, &mut self.owed, &mut self.inbox, complete);
    }

    /// Processes the outcome of one of the router's own requests.
    fn take_own(
        &mut self,
        now_us: u64,
        tag: u64,
        outcome: Outcome,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        if tag & PART != 0 {
            return self.take_part(tag, outcome, complete);
        }
        if tag & BOTH != 0 {
            return self.take_said(now_us, tag, outcome, complete);
        }
        let tag = tag & !ROUTERS_TAGS;
        self.take_map(now_us, tag as u32, (tag >> TABLE_BITS) as usize, outcome);
    }

    /// Makes an administrative request to the home server.
    pub(crate) fn administer(
        &mut self,
        now_us: u64,
        call: &AdminCall,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(Status, Vec<u8>), Error> {
        let Router { servers, owed, inbox, settings, .. } = self;
        let sorted = &mut |completion: Completion<'_>| sort(completion, owed, inbox, complete);
        let state = servers[HOME].open(now_us, settings, statistics, sorted)?;
        state.administer(now_us, call, statistics, sorted)
    }
}
