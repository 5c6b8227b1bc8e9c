//! A session over the servers of a cluster: routes requests, and redirects those refused by a server.
//!
//! ```text
//! submit ─▶ map of the table ─▶ state of its server ─▶ frames      a session each, opened when first needed
//!              ▲      └─ several servers ─▶ parts ─▶ gather           answers of parts make one
//!              └─ asked for at the first use of a table, and when a server answers `NotOwned`
//! ```
//! The fast path of a request costs a comparison, and a hash if several servers own its table. It applies if the table
//! is that of the previous request, there is a session with the server, its window has room, and no migration of the
//! table lets reads ask both sides. The slow path goes by the table's map. A request refused for its key is repeated,
//! with a new sequence in another session, only if the refusal rules out its execution at the first server
//! (`wire/src/requester/receive.rs`). A request whose server is unreachable waits until that is settled, or fails;
//! requests to other servers continue. See "Views" in docs/formats.md.

#[cfg(feature = "tokio")]
mod deferred;
mod finalize;
mod gather;
mod maps;
mod server;

use std::collections::VecDeque;

use net::Port;
use wire::{
    Completion, CompletionError, FrameError, FrameReader, Group, Journey, Opened, Request, RequestDurability,
    SessionLimits, Status,
};

use self::gather::{Boths, Gather};
use self::maps::{Route, TableMap};
use self::server::Reach;
pub(crate) use self::server::Server;
use crate::both_sides::Outcome;
use crate::config::{Identity, SessionSettings};
use crate::connection::Connection;
use crate::owned_request::OwnedRequest;
use crate::session_state::{SessionState, SessionStatistics};
use crate::transport::{Channels, insist, patience};
use crate::{ClientConfig, Error};

/// Index of the server that the session was opened with.
pub(crate) const HOME: usize = 0;
/// Tags from here on belong to requests of the router.
pub(crate) const ROUTERS_TAGS: u64 = 3 << 62;

/// Routes the requests of one session to the servers of a cluster.
pub(crate) struct Router {
    servers: Vec<Server>,
    /// Ended sessions that still have requests on their streams.
    leaving: Vec<SessionState>,
    maps: Vec<TableMap>,
    latest: Latest,
    waiting: VecDeque<Waiting>,
    gathers: Vec<Option<Gather>>,
    boths: Boths,
    /// Completions of the router's own requests.
    inbox: Vec<Arrived>,
    /// Number of the callers' requests without a completion.
    owed: usize,
    /// The router has work besides that of the sessions.
    is_restless: bool,
    /// With several servers: time of their next check.
    look_at_us: u64,
    /// Index of the server for the next map request.
    turn: usize,
    pub(crate) settings: SessionSettings,
    /// Settings for all servers but the home.
    others_settings: SessionSettings,
    pub(crate) limits: SessionLimits,
    pub(crate) credits: u16,
    client_id: u64,
    call_timeout_us: u64,
    source_patience_us: u64,
    /// What replies to the caller's next requests wait for.
    pub(crate) durability: RequestDurability,
    /// Whether requests may be pushed back.
    pub(crate) may_push_back: bool,
}

/// A request that cannot be sent at present.
struct Waiting {
    request: OwnedRequest,
    /// Number of answered map requests of its table to wait for. 0 for none.
    asked: u64,
    /// Status of the latest refusal.
    refusal: Option<Status>,
}

/// A completion to process after the current batch.
struct Arrived {
    tag: u64,
    outcome: Outcome,
}

/// The table of the latest request, until its map changes.
#[derive(Clone, Copy)]
struct Latest {
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
    const NONE: Latest = Latest { table: u64::MAX, holder: Holder::One(HOME) };
}

/// The outcome of sending a request.
enum Sent {
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
    /// Returns a router over an opened session, whose frames travel over `port`.
    pub(crate) fn over(
        (identity, opened): (Identity, (Connection, Opened)),
        config: ClientConfig,
        port: &mut dyn Port,
        links: &mut Channels,
        now_us: u64,
    ) -> Result<Router, Error> {
        let (frame_bytes_max, waker) = (port.frame_bytes_max(), port.waker());
        let settings = SessionSettings { identity, config, frame_bytes_max, waker };
        let config = &settings.config;
        let mut state = SessionState::over(opened, settings.clone());
        if !settings.identity.others.is_empty() {
            state.lose_patience();
        }
        insist(state.find_way(links, port, (now_us, patience(config))), config)?;
        let others_config = ClientConfig { core_addresses: Vec::new(), ..config.clone() };
        let Opened { limits, credits, client_id, .. } = state.opened;
        let [call_timeout_us, source_patience_us] = [config.call_timeout, config.source_patience]
            .map(|timeout| u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX));
        Ok(Router {
            servers: vec![Server::home(state, settings.identity.address.clone())],
            leaving: Vec::new(),
            maps: Vec::new(),
            latest: Latest::NONE,
            waiting: VecDeque::new(),
            gathers: Vec::new(),
            boths: Boths::default(),
            inbox: Vec::new(),
            owed: 0,
            is_restless: false,
            look_at_us: if settings.identity.others.is_empty() { u64::MAX } else { 0 },
            turn: HOME,
            others_settings: SessionSettings { config: others_config, ..settings.clone() },
            settings,
            limits,
            credits,
            client_id,
            call_timeout_us,
            source_patience_us,
            durability: RequestDurability::OfTable,
            may_push_back: false,
        })
    }

    /// Accepts a request; its completion will carry `tag`. Returns the server that it goes to, if decided.
    #[inline]
    pub(crate) fn submit(
        &mut self,
        now_us: u64,
        tag: u64,
        request: &Request<'_>,
        statistics: &mut SessionStatistics,
    ) -> Result<Option<usize>, Error> {
        let journey = self.journey(now_us);
        let server = match request.table() {
            Some(table) if u64::from(table) != self.latest.table => None,
            Some(_) => self.known_way(request),
            None => Some(HOME),
        };
        let state = server.and_then(|server| self.servers[server].state.as_mut());
        let Some(state) = state.filter(|_| self.owed < self.credits.into()) else {
            return self.submit_by_map(now_us, tag, request, statistics);
        };
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

    /// Returns the only server for a request on the latest table, if any.
    #[inline]
    fn known_way(&self, request: &Request<'_>) -> Option<usize> {
        match (self.latest.holder, request) {
            (Holder::One(server), _) => Some(server),
            // A function without a key runs on any server.
            (Holder::Several(_), Request::Invoke { key: [], .. }) => None,
            (Holder::Several(map), _) => self.maps[map].server_of_request(request),
        }
    }

    /// Begins the journey of a caller's request.
    #[inline]
    fn journey(&self, now_us: u64) -> Journey {
        let (durability, may_push_back) = (self.durability, self.may_push_back);
        Journey { durability, may_push_back, ..Journey::begin(now_us, self.call_timeout_us) }
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
        let journey = self.journey(now_us);
        let sent = self.send(now_us, (tag, journey), request, statistics)?;
        statistics.requests += 1;
        self.owed += 1;
        let asked = match sent {
            Sent::To(server) => return Ok(Some(server)),
            Sent::InParts => return Ok(None),
            Sent::Waits(asked) => asked,
            Sent::Away(_) => 0,
        };
        let request = OwnedRequest::new(tag, journey, request);
        self.wait(Waiting { request, asked, refusal: None });
        Ok(None)
    }

    fn wait(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
        self.is_restless = true;
    }

    /// Sends a request to its server, if there is a session.
    fn send(
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
                    // It has no key, or the home server owns it all.
                    Route::Server(HOME) if matches!(request, Request::Invoke { key: [], .. }) => {
                        self.usable()
                    }
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

    /// Opens a session with a server in the background, if needed. Does nothing shortly after a failed attempt.
    fn reach(&mut self, now_us: u64, server: usize) -> Reach {
        let settings = if server == HOME { &self.settings } else { &self.others_settings };
        self.servers[server].reach(now_us, settings)
    }

    /// Returns a server that can be asked at once, if there is one: the home server, or another one.
    fn usable(&self) -> usize {
        self.servers.iter().position(Server::is_usable).unwrap_or(HOME)
    }

    /// Returns whether any server may reply.
    fn is_reachable(&self, now_us: u64) -> bool {
        self.servers.iter().any(|server| !server.is_away(now_us))
    }

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
        let is_its = |server: &Server| server.state.as_ref().is_some_and(|state| state.opened.token == token);
        self.servers.iter().position(is_its)
    }

    /// Processes a received group of this server's session.
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

    /// Returns whether a reply from a server, or to the router, needs a second step.
    #[inline]
    pub(crate) fn is_troubled(&self, server: usize) -> bool {
        let state = self.servers[server].state.as_ref();
        !self.inbox.is_empty() || state.is_some_and(SessionState::is_troubled)
    }

    /// Returns the index of a table's map. Adds the map if it is new.
    fn index_of(&mut self, table: u32) -> usize {
        self.maps.iter().position(|map| map.table == table).unwrap_or_else(|| {
            self.maps.push(TableMap::new(table));
            self.is_restless = true;
            self.maps.len() - 1
        })
    }

    /// Returns the index of a key's server, if any server has told of the table's tablets.
    pub(crate) fn server_of(&mut self, table: u32, key: &[u8]) -> Option<usize> {
        let index = self.index_of(table);
        let map = &self.maps[index];
        (map.version > 0 || !map.is_wanted).then(|| map.server_of(map.position(key)))
    }

    /// Returns the index of the server of all keys with a prefix, `None` if they may be at several; if any server has told of the
    /// table's tablets.
    pub(crate) fn server_of_prefix(&mut self, table: u32, prefix: &[u8]) -> Option<Option<usize>> {
        let index = self.index_of(table);
        let map = &self.maps[index];
        (map.version > 0 || !map.is_wanted).then(|| map.server_of_prefix(prefix))
    }

    /// Returns whether there are several servers.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.servers.len() > 1
    }

    /// Returns whether a request would be accepted now. With one server, it would also be sent at once.
    #[inline]
    pub(crate) fn can_submit(&self) -> bool {
        let has_place = match &self.servers[..] {
            [Server { state: Some(state), .. }] => state.requester.can_submit(),
            _ => true,
        };
        // Some requests may wait outside of the window.
        has_place && self.owed < self.credits.into()
    }

    /// Returns the number of requests without a completion.
    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.owed
    }

    /// Returns a server, with or without a session.
    #[inline]
    pub(crate) fn server(&mut self, server: usize) -> Option<&mut Server> {
        self.servers.get_mut(server)
    }

    /// Closes the streams until they are needed again.
    pub(crate) fn rest_streams(&self) {
        let states = self.servers.iter().filter_map(|server| server.state.as_ref());
        states.for_each(|state| state.stream_worker.stream().close());
    }

    /// Returns the number of servers, with or without a session.
    #[inline]
    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Returns the session with the home server, if there is one.
    pub(crate) fn home(&self) -> Option<&SessionState> {
        self.servers[HOME].state.as_ref()
    }

    pub(crate) fn client_id(&self) -> u64 {
        self.home().map_or(self.client_id, |state| state.opened.client_id)
    }
}

/// Returns the error of a request whose server is unreachable.
fn away(server: &Server) -> CompletionError {
    CompletionError::Away { server: server.number.unwrap_or_default() }
}

/// Passes a completion to the caller, or keeps one of the router.
#[inline]
fn sort(
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
