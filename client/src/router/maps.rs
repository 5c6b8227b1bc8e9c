//! The servers that own the hashes of a table, as far as the session knows, and the requests for these maps.
//!
//! A new table is assumed to belong to the home server, until that server has answered. A map lags behind the cut that
//! it describes, so the router requests it when its table is first used, without delaying requests, and again when a
//! server reports that it does not own a key; after a pause if the previous map did not help. It asks one server, and
//! the next one too while the first is slow. Silent servers come last, until they reply or owe no reply.
//!
//! A reply is untrusted, and decides only where a request is tried: the router ignores a map that is invalid or would
//! name more servers than a cluster has.

use wire::limits::{SERVERS_MAX, TABLETS_PER_TABLE_MAX};
use wire::{Body, Journey, KeyRange, Request, ServerPlace, Status, TabletMap, position, tagged_positions};
use xxhash_rust::xxh3::xxh3_64;

use super::server::{Reach, Server};
use super::{HOME, Latest, ROUTERS_TAGS, Router};
use crate::both_sides::{self, Moving, Outcome};
use crate::limits::NEXT_MAP_AFTER_US;
use crate::session_state::{SessionState, SessionStatistics};

/// Position of the server's index in a tag. The bits below hold the table.
pub(super) const TABLE_BITS: u32 = 32;
/// Minimum pause after a map that did not help, in microseconds.
const LAG_US_MIN: u64 = 500;
/// Maximum of that pause, in microseconds. In between it is a fraction of the time that the request has taken.
const LAG_US_MAX: u64 = 50_000;
/// Divisor of that fraction. A late request for a map prolongs the wait by at most a fourth.
const LAG_PART: u64 = 4;

/// A range of hashes up to and including `last`, and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tablet {
    pub(super) last: u64,
    pub(super) server: usize,
}

/// The known tablets of a table.
pub(super) struct TableMap {
    pub(super) table: u32,
    /// The map with the higher version is the newer one.
    pub(super) version: u64,
    /// Number of map requests that were answered, or that no server answered.
    pub(super) asked: u64,
    /// A map is needed, and no server has answered yet.
    pub(super) is_wanted: bool,
    /// Servers with an unanswered map request; each at most once.
    pub(super) asks: Vec<usize>,
    /// Time to ask the next server, unless one has answered by then.
    pub(super) ask_at_us: u64,
    /// Time that the next server has before another one is asked.
    pub(super) patience_us: u64,
    /// Tablets in the order of their hashes; never empty.
    pub(super) tablets: Vec<Tablet>,
    /// Whether tablets are ranges of [`position`]s, which stand for hashes then.
    pub(super) is_tagged: bool,
    /// Migrations for which reads may ask both servers.
    pub(super) moving: Vec<Moving>,
    /// Hashes that others recover, first and last.
    pub(super) recovered: Vec<(u64, u64)>,
    /// A server has said that there is no such table.
    is_gone: bool,
}

/// The destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// One server.
    Server(usize),
    /// Several servers, in parts.
    Parts,
}

impl TableMap {
    /// Returns the map of a table about which nothing is known yet.
    pub(super) fn new(table: u32) -> TableMap {
        let tablets = vec![Tablet { last: u64::MAX, server: HOME }];
        TableMap {
            table,
            version: 0,
            asked: 0,
            is_wanted: true,
            asks: Vec::new(),
            ask_at_us: 0,
            patience_us: NEXT_MAP_AFTER_US,
            tablets,
            is_tagged: false,
            moving: Vec::new(),
            recovered: Vec::new(),
            is_gone: false,
        }
    }

    /// Returns whether others recover the hash of a request's key, or any of the table if it has none.
    pub(super) fn is_recovered(&self, request: &Request<'_>) -> bool {
        let has =
            |position: u64| self.recovered.iter().any(|(first, last)| (*first..=*last).contains(&position));
        request.position(|key| self.position(key)).map_or(!self.recovered.is_empty(), has)
    }

    /// Returns the server that owns the whole table, if there is one.
    pub(super) fn whole(&self) -> Option<usize> {
        match self.tablets[..] {
            [Tablet { server, .. }] => Some(server),
            _ => None,
        }
    }

    /// Returns whether a tablet is at this server.
    pub(super) fn names(&self, server: usize) -> bool {
        !self.is_gone && self.tablets.iter().any(|tablet| tablet.server == server)
    }

    /// Returns the position of a key, by which the table is divided.
    #[inline]
    pub(super) fn position(&self, key: &[u8]) -> u64 {
        position(key, xxh3_64(key), self.is_tagged, xxh3_64)
    }

    /// Returns the server that owns a position.
    pub(super) fn server_of(&self, position: u64) -> usize {
        let at = self.tablets.partition_point(|tablet| tablet.last < position);
        self.tablets[at].server
    }

    /// Returns the server of a request with one key, or with a cursor.
    pub(super) fn server_of_request(&self, request: &Request<'_>) -> Option<usize> {
        request.position(|key| self.position(key)).map(|position| self.server_of(position))
    }

    /// Returns the server of all keys with this prefix; `None` if they may be at several.
    pub(super) fn server_of_prefix(&self, prefix: &[u8]) -> Option<usize> {
        let of_tag = || self.is_tagged.then(|| tagged_positions(prefix, xxh3_64)).flatten();
        self.whole().or_else(|| of_tag().map(|(first, _)| self.server_of(first)))
    }

    /// Returns the destination of a request. `is_first`: no server has refused it.
    pub(super) fn route(&self, request: &Request<'_>, is_first: bool) -> Route {
        if let Some(server) = self.whole() {
            return Route::Server(server);
        }
        match *request {
            Request::MultiGet { keys, .. } => {
                let mut servers = keys.map(|key| self.server_of(self.position(key)));
                let first = servers.next().unwrap_or(HOME);
                if servers.all(|server| server == first) { Route::Server(first) } else { Route::Parts }
            }
            Request::Scan { range: KeyRange { hashes: Some((first, last)), .. }, .. } => {
                match self.pieces(first, last).as_slice() {
                    [(_, server)] => Route::Server(*server),
                    _ => Route::Parts,
                }
            }
            Request::Scan { range: KeyRange { prefix, .. }, .. } => {
                self.server_of_prefix(prefix).map_or(Route::Parts, Route::Server)
            }
            // A function without a key runs on any server.
            Request::Invoke { key: [], .. } if is_first => Route::Server(HOME),
            _ => Route::Server(self.server_of_request(request).unwrap_or(HOME)),
        }
    }

    /// Splits a range of hashes by owner: first and last hash, server.
    pub(super) fn pieces(&self, first: u64, last: u64) -> Vec<((u64, u64), usize)> {
        let at = self.tablets.partition_point(|tablet| tablet.last < first);
        let (mut pieces, mut from) = (Vec::new(), first);
        for tablet in &self.tablets[at..] {
            pieces.push(((from, tablet.last.min(last)), tablet.server));
            if tablet.last >= last {
                break;
            }
            from = tablet.last + 1;
        }
        pieces
    }

    /// Splits the tablet around `last` so that its first part ends there, if none does. Returns whether there is room for
    /// it.
    pub(super) fn cut(&mut self, last: u64) -> bool {
        let at = self.tablets.partition_point(|tablet| tablet.last < last);
        if self.tablets[at].last == last {
            return true;
        }
        if self.tablets.len() >= 2 * TABLETS_PER_TABLE_MAX {
            return false;
        }
        let server = self.tablets[at].server;
        self.tablets.insert(at, Tablet { last, server });
        debug_assert!(self.is_whole(), "a cut leaves every hash with one server");
        true
    }

    /// Returns whether every hash has exactly one tablet.
    fn is_whole(&self) -> bool {
        self.tablets.is_sorted_by(|low, high| low.last < high.last)
            && self.tablets.last().is_some_and(|tablet| tablet.last == u64::MAX)
    }

    /// Replaces the map, unless the present one is newer.
    pub(super) fn replace(
        &mut self,
        version: u64,
        tablets: impl Iterator<Item = Tablet>,
        moving: impl Iterator<Item = Moving>,
    ) {
        if version < self.version {
            return;
        }
        both_sides::follow(&mut self.moving, moving);
        self.version = version;
        self.tablets.clear();
        for tablet in tablets {
            // Adjacent tablets of one server are requested together, unless each has a part of its own there.
            match self.tablets.last_mut() {
                Some(before) if before.server == tablet.server && !self.is_tagged => {
                    before.last = tablet.last
                }
                _ => self.tablets.push(tablet),
            }
        }
        debug_assert!(self.is_whole(), "a map gives every hash to one server");
    }
}

impl Router {
    /// Schedules a new request for a table's map. Pauses first if `in_vain` was sent by the present map and refused.
    /// Returns the number of map requests after that one.
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

    /// Schedules a request for all maps if a server's view has changed. Its ownership has changed, or will.
    pub(super) fn see_views(&mut self, now_us: u64) {
        let mut is_news = false;
        for server in &mut self.servers {
            let view = server.state.as_ref().map_or(server.view, |state| state.view);
            is_news |= std::mem::replace(&mut server.view, view) != view;
        }
        for index in 0..self.maps.len() * usize::from(is_news) {
            self.want(now_us, index, None);
        }
    }

    /// Schedules requests for the maps that name a server.
    pub(super) fn want_maps_of(&mut self, now_us: u64, server: usize) {
        for index in 0..self.maps.len() {
            if self.maps[index].names(server) {
                self.want(now_us, index, None);
            }
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
        // The next request goes to another server: of the two servers of a migration, one is informed earlier.
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
        (map.is_wanted, map.asked) = (false, map.asked + 1);
        map.is_gone = matches!(outcome, Ok((Status::UnknownTable, _)));
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
        let owner = |hash: u64| map.tablets().iter().find(|tablet| hash <= tablet.last).map(|it| it.server);
        let (recovered, moving): (Vec<&wire::Moving>, Vec<&wire::Moving>) =
            map.moving().iter().partition(|it| owner(it.first) == Some(it.source));
        let moving = moving.into_iter().filter_map(|it| {
            let source = servers[usize::from(it.source)]?;
            Some(Moving::new(it.migration, (it.first, it.last), source))
        });
        // It never changes, but a server of an older release does not tell it.
        self.maps[index].is_tagged |= map.is_tagged();
        if map.version() >= self.maps[index].version {
            self.maps[index].recovered = recovered.into_iter().map(|it| (it.first, it.last)).collect();
        }
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
        let is_home = place.address.parse().is_ok_and(|address| self.settings.identity.server == address);
        let is_named = |(at, server): (usize, &Server)| {
            server.number.is_none() && (server.address == place.address || at == HOME && is_home)
        };
        if let Some(named) = self.servers.iter().enumerate().position(is_named) {
            self.servers[named].number = Some(place.number);
            return Some(named);
        }
        let server = Server::new(place.number, &place.address);
        if self.servers.len() <= SERVERS_MAX {
            self.servers.push(server);
            return Some(self.servers.len() - 1);
        }
        let is_named = |at| self.maps.iter().any(|map| map.names(at));
        let is_unused = |at: &usize| self.servers[*at].is_closed() && !self.servers[*at].is_awaited();
        let unused = (1..self.servers.len()).filter(is_unused).find(|&at| !is_named(at))?;
        self.servers[unused] = server;
        Some(unused)
    }
}

/// Returns the servers in the order of requests, silent ones last.
fn by_turns(servers: &[Server], turn: usize) -> Vec<usize> {
    let count = servers.len();
    let mut order: Vec<usize> = (turn..turn + count).map(|at| at % count).collect();
    order.sort_by_key(|&at| servers[at].is_doubted());
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::iter;

    use wire::{KeyRange, Request};

    use super::{Route, Server, TableMap, Tablet, by_turns};

    fn map(tablets: &[(u64, usize)]) -> TableMap {
        let mut map = TableMap::new(1);
        map.replace(1, tablets.iter().map(|&(last, server)| Tablet { last, server }), iter::empty());
        map
    }

    #[test]
    fn what_follows_each_other_at_one_server_is_one_piece_until_that_says_otherwise() {
        let mut map = map(&[(9, 0), (19, 1), (29, 1), (u64::MAX, 2)]);
        assert_eq!(map.pieces(5, 40), [((5, 9), 0), ((10, 29), 1), ((30, 40), 2)]);
        assert_eq!(map.pieces(12, 13), [((12, 13), 1)]);
        // The second request was sent under the same map, or a newer one has the end by now.
        assert!(map.cut(19) && map.cut(19) && map.cut(29));
        assert_eq!(map.pieces(12, 29), [((12, 19), 1), ((20, 29), 1)]);
    }

    #[test]
    fn in_a_tagged_table_keys_of_one_tag_go_to_one_server() {
        let mut map = map(&[(u64::MAX / 2, 0), (u64::MAX, 1)]);
        let keys: Vec<_> = (0..100).map(|key| format!("{{user}}:{key}").into_bytes()).collect();
        let servers = |map: &TableMap| -> BTreeSet<_> {
            let get = |key| map.server_of_request(&Request::Get { table: 1, key });
            keys.iter().map(|key| get(key).expect("it has a key")).collect()
        };
        assert_eq!(servers(&map).len(), 2);
        map.is_tagged = true;
        assert_eq!(servers(&map).len(), 1);
        let (cursor, keys_only, objects_max, bytes_max) = (&[][..], true, 1, 1);
        let scan = |prefix| {
            let range = KeyRange { prefix, ..KeyRange::default() };
            map.route(&Request::Scan { table: 1, range, cursor, keys_only, objects_max, bytes_max }, true)
        };
        assert_eq!(scan(b"{user}:"), Route::Server(*servers(&map).first().expect("one")));
        assert_eq!(scan(b"{user"), Route::Parts);
    }

    #[test]
    fn an_older_map_changes_nothing() {
        let mut map = map(&[(9, 0), (u64::MAX, 1)]);
        map.replace(0, iter::once(Tablet { last: u64::MAX, server: 2 }), iter::empty());
        assert_eq!((map.server_of(9), map.server_of(10)), (0, 1));
    }

    #[test]
    fn an_enumeration_goes_to_the_server_of_where_its_cursor_stands() {
        let map = map(&[(9, 0), (u64::MAX, 1)]);
        let route = |cursor: &[u8]| map.route(&Request::Verify { table: 1, cursor }, true);
        assert_eq!(route(&[]), Route::Server(0));
        assert_eq!(route(&[9, 0, 0, 0, 0, 0, 0, 0, 7]), Route::Server(0));
        let mut behind = [0xff; 16];
        behind[..8].copy_from_slice(&9_u64.to_le_bytes());
        assert_eq!(route(&behind), Route::Server(1));
        assert_eq!(route(&[0xff; 16]), Route::Server(1));
        assert_eq!(route(&[1]), Route::Server(0));
    }

    #[test]
    fn a_scan_of_several_pieces_goes_in_parts() {
        let map = map(&[(9, 0), (u64::MAX, 1)]);
        let (cursor, keys_only, objects_max, bytes_max) = (&[][..], true, 1, 1);
        let route = |hashes| {
            let range = KeyRange { hashes, ..KeyRange::default() };
            map.route(&Request::Scan { table: 1, range, cursor, keys_only, objects_max, bytes_max }, true)
        };
        assert_eq!((route(None), route(Some((5, 10)))), (Route::Parts, Route::Parts));
        assert_eq!((route(Some((5, 9))), route(Some((10, 11)))), (Route::Server(0), Route::Server(1)));
    }

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
