//! Which way a request goes: at once where the table is that of the request before, else by the map of its table.
//!
//! The first needs no more than a comparison, and a hash where several servers have the table. It is taken as long as
//! there is a session with the server, a place in its window, and nothing of the table on the move so that reads ask both
//! sides; all else is sorted out by the second.

use wire::{Journey, Request};
use xxhash_rust::xxh3::xxh3_64;

use super::gather::Gather;
use super::maps::Route;
use super::server::Reach;
use super::{HOME, Router, Waiting};
use crate::{Error, SessionStatistics};

/// The table of the latest request, until another map of it comes.
#[derive(Clone, Copy)]
pub(super) struct Latest {
    /// Its number, beyond those that there are for none.
    table: u64,
    holder: Holder,
}

/// Who has the hashes of a table.
#[derive(Clone, Copy)]
enum Holder {
    /// A server has all of it.
    One(usize),
    /// Several have, by the map with this index.
    Several(usize),
}

impl Latest {
    /// No table.
    pub(super) const NONE: Latest = Latest { table: u64::MAX, holder: Holder::One(HOME) };
}

/// What became of a request that was to be sent.
pub(super) enum Sent {
    /// It is this server's.
    To(usize),
    /// It goes to several, in parts.
    InParts,
    /// It has to wait, for the map to be asked for so often.
    Waits(u64),
    /// There is no way to this server.
    Away(usize),
}

impl Router {
    /// Accepts a request; its completion will carry `tag`. Returns the server that it goes to, if that is settled.
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
        let exchange = server.and_then(|server| self.servers[server].exchange.as_mut());
        let Some(exchange) = exchange.filter(|_| self.owed < self.credits.into()) else {
            return self.submit_by_map(now_us, tag, request, statistics);
        };
        let journey = Journey::begin(now_us, self.call_timeout_us);
        match exchange.submit(journey, tag, request, statistics) {
            Ok(()) => {
                statistics.requests += 1;
                self.owed += 1;
                Ok(server)
            }
            Err(Error::Full) => self.submit_by_map(now_us, tag, request, statistics),
            Err(error) => Err(error),
        }
    }

    /// The server that a request for the latest table goes to, if that is one.
    #[inline]
    fn known_way(&self, request: &Request<'_>) -> Option<usize> {
        match (self.latest.holder, request) {
            (Holder::One(server), _) => Some(server),
            // A function without a key works where it was asked for.
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

    /// Sends a request on its way, if there is one.
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
                if map.asked == 0 && self.servers[HOME].exchange.is_none() && self.is_reachable(now_us) {
                    return Ok(Sent::Waits(1));
                }
                if !moves {
                    let holder = map.whole().map_or(Holder::Several(index), Holder::One);
                    self.latest = Latest { table: table.into(), holder };
                }
                match map.way(request, journey.moves == 0) {
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
        let Some(exchange) = &mut self.servers[server].exchange else { return Ok(Sent::Waits(0)) };
        match exchange.submit(journey, tag, request, statistics) {
            Ok(()) => Ok(Sent::To(server)),
            // An older one holds the window back.
            Err(Error::Full) => Ok(Sent::Waits(0)),
            Err(error) => Err(error),
        }
    }

    /// Makes sure that there is a session with a server, or will be, unless there was no way a moment ago.
    pub(super) fn reach(&mut self, now_us: u64, server: usize) -> Reach {
        let Router { servers, identity, config, others_config, frame_bytes_max, waker, .. } = self;
        let config = if server == HOME { config } else { others_config };
        servers[server].reach(now_us, identity, config, (*frame_bytes_max, waker))
    }

    /// Whether there may be a server that answers.
    pub(super) fn is_reachable(&self, now_us: u64) -> bool {
        self.servers.iter().any(|server| !server.is_away(now_us))
    }
}
