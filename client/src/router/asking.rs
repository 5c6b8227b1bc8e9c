//! Requesting tablet maps, and applying the replies.
//!
//! The router requests a map when its table is first used, without delaying requests, and again when a server reports
//! that it does not own a key; after a pause if the previous map did not help. It asks one server, and the next one too
//! while the first is slow. Silent servers come last, until they reply or owe no reply. A reply is untrusted: the
//! router ignores a map that is invalid or would name more servers than a cluster has.

use wire::limits::SERVERS_MAX;
use wire::{Body, Journey, Request, ServerPlace, Status, TabletMap};

use super::gather::Outcome;
use super::maps::{TableMap, Tablet};
use super::sending::Latest;
use super::server::{Reach, Server};
use super::{HOME, ROUTERS_TAGS, Router};
use crate::SessionStatistics;
use crate::both_sides::Moving;
use crate::limits::NEXT_MAP_AFTER_US;
use crate::session_state::SessionState;

/// Position of the server's index in a tag; the bits below hold the table.
pub(super) const TABLE_BITS: u32 = 32;
/// Minimum pause before a map is requested again after one that did not help, in microseconds.
const LAG_US_MIN: u64 = 500;
/// Maximum of that pause, in microseconds. In between it is a fraction of the time that the request has taken.
const LAG_US_MAX: u64 = 50_000;
/// Divisor of that fraction: a late request for a map prolongs the wait by at most a fourth.
const LAG_PART: u64 = 4;

impl Router {
    /// Schedules a new request for a table's map, after a pause if a request was sent by it in vain. Returns the number
    /// of map requests after that one.
    pub(super) fn want(&mut self, now_us: u64, index: usize, in_vain: Option<&Journey>) -> u64 {
        let latest_us = now_us.saturating_add(self.call_timeout_us);
        let map = &mut self.maps[index];
        if !map.is_wanted {
            let pause_us = |journey: &Journey| {
                let taken_us = latest_us.saturating_sub(journey.deadline_us);
                (taken_us / LAG_PART).clamp(LAG_US_MIN, LAG_US_MAX)
            };
            map.ask_at_us = now_us + in_vain.map_or(0, pause_us);
            map.patience_us = NEXT_MAP_AFTER_US;
            map.is_wanted = true;
        }
        map.asked + 1
    }

    /// Schedules a new request for all maps if a server's view has changed: its ownership has changed, or will.
    pub(super) fn see_views(&mut self, now_us: u64) {
        let mut is_news = false;
        for server in &mut self.servers {
            let view = server.state.as_ref().map_or(server.view, SessionState::view);
            is_news |= std::mem::replace(&mut server.view, view) != view;
        }
        for index in 0..self.maps.len() * usize::from(is_news) {
            self.want(now_us, index, None);
        }
    }

    /// Requests the maps that are needed.
    pub(super) fn ask_for_maps(&mut self, now_us: u64, statistics: &mut SessionStatistics) {
        for index in 0..self.maps.len() {
            let map = &self.maps[index];
            if map.is_wanted && now_us >= map.ask_at_us {
                self.ask_for_map(now_us, index, statistics);
            }
        }
    }

    /// Requests a map from one more server.
    fn ask_for_map(&mut self, now_us: u64, index: usize, statistics: &mut SessionStatistics) {
        let TableMap { table, ref asks, .. } = self.maps[index];
        asks.iter().for_each(|&asked| self.servers[asked].doubt(now_us));
        let mut candidates = by_turns(&self.servers, self.turn);
        candidates.retain(|at| !asks.contains(at));
        let mut may_open = true;
        for at in candidates {
            if !may_open && self.servers[at].state.is_none() {
                continue;
            }
            if self.reach(now_us, at) == Reach::Opening {
                // Other servers are asked meanwhile, but a map request opens only one session at a time.
                self.servers[at].doubt(now_us);
                may_open = false;
            }
            let tag = ROUTERS_TAGS | (at as u64) << TABLE_BITS | u64::from(table);
            let ask = Request::Tablets { table };
            let journey = Journey::begin(now_us, self.call_timeout_us);
            if let Some(state) = &mut self.servers[at].state
                && state.submit(journey, tag, &ask, statistics).is_ok()
            {
                self.maps[index].asks.push(at);
                break;
            }
        }
        let map = &mut self.maps[index];
        if !map.asks.is_empty() {
            map.ask_at_us = now_us + map.patience_us;
            map.patience_us = map.patience_us.saturating_mul(2);
        }
    }

    /// Applies the reply to a map request.
    pub(super) fn take_map(&mut self, now_us: u64, table: u32, from: usize, outcome: Outcome) {
        let index = self.index_of(table);
        let map = &mut self.maps[index];
        map.asks.retain(|&asked| asked != from);
        // The next request goes to another server: of the two servers of a migration, one knows earlier.
        self.turn = (from + 1) % self.servers.len();
        let is_over = match &outcome {
            // The session ended during the request.
            Ok((Status::BadToken, _)) => false,
            Ok(_) => true,
            Err(_) => map.asks.is_empty(),
        };
        if map.is_wanted && !is_over {
            map.ask_at_us = now_us;
            return;
        }
        map.is_wanted = false;
        map.asked += 1;
        if let Ok((Status::Ok, body)) = outcome
            && let Ok(map) = TabletMap::decode(&body)
        {
            self.replace_map(now_us, index, from, &map);
        }
    }

    fn replace_map(&mut self, now_us: u64, index: usize, from: usize, map: &TabletMap) {
        let servers: Vec<Option<usize>> =
            map.servers().iter().map(|place| self.server_at(place, from)).collect();
        let tablets = map.tablets().iter().map(|tablet| {
            let server = servers[usize::from(tablet.server)]?;
            Some(Tablet { last: tablet.last, server })
        });
        // The map names too many servers and is not trustworthy.
        let Some(tablets) = tablets.collect::<Option<Vec<_>>>() else { return };
        let moving = map.moving().iter().filter_map(|it| {
            let source = servers[usize::from(it.source)]?;
            Some(Moving::new(it.migration, (it.first, it.last), source))
        });
        self.maps[index].replace(map.version(), tablets.into_iter(), moving);
        // A server without tablets is about to receive some.
        let has_none =
            |index: &usize| !map.tablets().iter().any(|tablet| usize::from(tablet.server) == *index);
        for index in (0..map.servers().len()).filter(has_none) {
            if let Some(server) = servers[index] {
                self.reach(now_us, server);
            }
        }
        self.latest = Latest::NONE;
        if self.is_shared() {
            self.servers
                .iter_mut()
                .filter_map(|server| server.state.as_mut())
                .for_each(SessionState::lose_patience);
        }
    }

    /// Returns the index of a server in a map that `from` sent.
    fn server_at(&mut self, place: &ServerPlace, from: usize) -> Option<usize> {
        if place.address.is_empty() {
            return Some(from);
        }
        if let Some(known) = self.servers.iter().position(|server| server.number == Some(place.number)) {
            if known != HOME && self.servers[known].address != place.address {
                self.servers[known].address.clone_from(&place.address);
            }
            return Some(known);
        }
        let home = &mut self.servers[HOME];
        let is_home = home.address == place.address
            || place.address.parse().is_ok_and(|address| self.identity.server == address);
        if home.number.is_none() && is_home {
            home.number = Some(place.number);
            return Some(HOME);
        }
        let server = Server::new(place.number, &place.address);
        if self.servers.len() <= SERVERS_MAX {
            self.servers.push(server);
            return Some(self.servers.len() - 1);
        }
        let is_named = |at| self.maps.iter().any(|map| map.tablets.iter().any(|tablet| tablet.server == at));
        let unused = (1..self.servers.len()).find(|&at| self.servers[at].is_closed() && !is_named(at))?;
        self.servers[unused] = server;
        Some(unused)
    }
}

/// Returns the servers in the order of requests: in turn, silent ones last.
fn by_turns(servers: &[Server], turn: usize) -> Vec<usize> {
    let count = servers.len();
    let mut order: Vec<usize> = (turn..turn + count).map(|at| at % count).collect();
    order.sort_by_key(|&at| servers[at].is_doubted());
    order
}

#[cfg(test)]
mod tests {
    use super::{Server, by_turns};

    #[test]
    fn who_was_silent_is_asked_last_until_it_says_something() {
        let mut servers = [4, 7, 9, 12].map(|number| Server::new(number, "10.0.0.1:7000"));
        assert_eq!(by_turns(&servers, 1), [1, 2, 3, 0]);
        servers[1].doubt(5);
        servers[3].doubt(8);
        assert_eq!(by_turns(&servers, 1), [2, 0, 1, 3]);
        servers[1].heard_us = 6;
        servers[3].heard_us = 6;
        assert_eq!(by_turns(&servers, 1), [1, 2, 0, 3]);
    }
}
