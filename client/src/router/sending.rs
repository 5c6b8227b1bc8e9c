//! Routing of a request: at once if its table is that of the previous request, else by the table's map.
//!
//! The fast path costs a comparison, and a hash if several servers own the table. It applies if there is a session with
//! the server, its window has room, and no migration of the table lets reads ask both sides. The slow path handles all
//! else.

use wire::{Journey, Request};
use xxhash_rust::xxh3::xxh3_64;

use super::gather::Gather;
use super::maps::Route;
use super::server::Reach;
use super::{HOME, Router, Waiting};
use crate::{Error, SessionStatistics};

/// The table of the latest request, until its map changes.
#[derive(Clone, Copy)]
pub(super) struct Latest {
    /// Id of the table; a number beyond all ids for none.
    table: u64,
    holder: Holder,
}

/// The owners of a table.
#[derive(Clone, Copy)]
enum Holder {
    /// One server owns the whole table.
    One(usize),
    /// Several servers own it, by the map with this index.
    Several(usize),
}

impl Latest {
    /// No table.
    pub(super) const NONE: Latest = Latest { table: u64::MAX, holder: Holder::One(HOME) };
}

/// The outcome of sending a request.
pub(super) enum Sent {
    /// It went to this server.
    To(usize),
    /// It goes to several servers, in parts.
    InParts,
    /// It waits until the map was requested this many times.
    Waits(u64),
    /// This server is unreachable.
    Away(usize),
}

impl Router {
    /// Accepts a request; its completion will carry `tag`. Returns the server that it goes to, if decided.
    #[inline]
    pub(crate) fn submit(
        &mut self,
        now_us: u64,
        tag: u64,
        request: &Request<'_>,
        statistics: &mut SessionStatistics,
    ) -> Result<Option<usize>, Error> {
        let server = match request.table() {
            Some(table) if u64::from(table) != self.latest.table => None,
            Some(_) => self.known_way(request),
            None => Some(HOME),
        };
        let state = server.and_then(|server| self.servers[server].state.as_mut());
        let Some(state) = state.filter(|_| self.owed < self.credits.into()) else {
            return self.submit_by_map(now_us, tag, request, statistics);
        };
        let journey = Journey::begin(now_us, self.call_timeout_us);
        match state.submit(journey, tag, request, statistics) {
            Ok(()) => {
                statistics.requests += 1;
                self.owed += 1;
                Ok(server)
            }
            Err(Error::Full) => self.submit_by_map(now_us, tag, request, statistics),
            Err(error) => Err(error),
        }
    }

    /// Returns the server for a request on the latest table, if there is exactly one.
    #[inline]
    fn known_way(&self, request: &Request<'_>) -> Option<usize> {
        match (self.latest.holder, request) {
            (Holder::One(server), _) => Some(server),
            // A function without a key runs on any server.
            (Holder::Several(_), Request::Invoke { key: [], .. }) => None,
            (Holder::Several(map), _) => request.hash(xxh3_64).map(|hash| self.maps[map].server_of(hash)),
        }
    }

    #[inline(never)]
    fn submit_by_map(
        &mut self,
        now_us: u64,
        tag: u64,
        request: &Request<'_>,
        statistics: &mut SessionStatistics,
    ) -> Result<Option<usize>, Error> {
        if self.owed >= self.credits.into() {
            return Err(Error::Full);
        }
        let refused = |status| Error::Refused { status, text: String::new() };
        request.check().map_err(refused)?;
        let journey = Journey::begin(now_us, self.call_timeout_us);
        let sent = self.send(now_us, (tag, journey), request, statistics)?;
        statistics.requests += 1;
        self.owed += 1;
        let asked = match sent {
            Sent::To(server) => return Ok(Some(server)),
            Sent::InParts => return Ok(None),
            Sent::Waits(asked) => asked,
            Sent::Away(_) => 0,
        };
        let mut body = vec![0; request.body_bytes()];
        request.encode(&mut body);
        let code = request.opcode();
        self.wait(Waiting { tag, journey, code, body, asked, refusal: None });
        Ok(None)
    }

    pub(super) fn wait(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
        self.is_restless = true;
    }

    /// Sends a request to its server, if there is a session.
    pub(super) fn send(
        &mut self,
        now_us: u64,
        (tag, journey): (u64, Journey),
        request: &Request<'_>,
        statistics: &mut SessionStatistics,
    ) -> Result<Sent, Error> {
        let server = match request.table() {
            None => HOME,
            Some(table) => {
                let index = self.index_of(table);
                let moves = !self.maps[index].moving.is_empty();
                if moves && self.ask_both(now_us, (tag, journey), request, index, statistics) {
                    return Ok(Sent::InParts);
                }
                let map = &self.maps[index];
                if map.asked == 0 && self.servers[HOME].state.is_none() && self.is_reachable(now_us) {
                    return Ok(Sent::Waits(1));
                }
                if !moves {
                    let holder = map.whole().map_or(Holder::Several(index), Holder::One);
                    self.latest = Latest { table: table.into(), holder };
                }
                match map.route(request, journey.moves == 0) {
                    Route::Server(server) => server,
                    Route::Parts => {
                        let (gather, parts) = Gather::begin((tag, journey), request, map);
                        self.send_parts(gather, parts);
                        return Ok(Sent::InParts);
                    }
                }
            }
        };
        match self.reach(now_us, server) {
            Reach::Open => {}
            Reach::Opening => return Ok(Sent::Waits(0)),
            Reach::Away => return Ok(Sent::Away(server)),
        }
        let Some(state) = &mut self.servers[server].state else { return Ok(Sent::Waits(0)) };
        match state.submit(journey, tag, request, statistics) {
            Ok(()) => Ok(Sent::To(server)),
            // An older request holds the window back.
            Err(Error::Full) => Ok(Sent::Waits(0)),
            Err(error) => Err(error),
        }
    }

    /// Opens a session with a server in the background if there is none, unless the last attempt failed a moment ago.
    pub(super) fn reach(&mut self, now_us: u64, server: usize) -> Reach {
        let Router { servers, identity, config, others_config, frame_bytes_max, waker, .. } = self;
        let config = if server == HOME { config } else { others_config };
        servers[server].reach(now_us, identity, config, (*frame_bytes_max, waker))
    }

    /// Returns whether any server may reply.
    pub(super) fn is_reachable(&self, now_us: u64) -> bool {
        self.servers.iter().any(|server| !server.is_away(now_us))
    }
}
