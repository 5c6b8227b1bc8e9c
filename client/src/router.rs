//! One session over the servers of a cluster: which of them gets a request, and what becomes of one that is another's.
//!
//! ```text
//! submit ─▶ map of the table ─▶ exchange of its server ─▶ frames      a session each, opened when first needed
//!              ▲      └─ several servers ─▶ parts ─▶ gather           answers of parts make one
//!              └─ asked for at the first use of a table, and when a server answers `NotOwned`
//! ```
//! The way of a request for the table of the one before is known (`sending.rs`): with a single server that is a comparison of
//! two numbers, with several a hash and a search besides. A request that was refused for its key is made again, under a new
//! sequence of another session, only where the refusal says that it cannot be executed any more where it was
//! (`wire/src/requester/receive.rs`). What has no way to its server waits until that is settled, or fails; requests for
//! others go on. See "Views" in docs/formats.md.

mod asking;
mod both;
mod finalize;
mod frames;
mod gather;
mod maps;
mod opening;
mod sending;
mod server;

use std::collections::VecDeque;

use net::Waker;
use wire::{CompletionError, Journey, SessionLimits, Status};

use self::both::Boths;
use self::gather::Gather;
use self::maps::TableMap;
use self::sending::Latest;
pub(crate) use self::server::Server;
use crate::ClientConfig;
use crate::config::Identity;
use crate::session_state::SessionState;

/// The server that was named.
pub(crate) const HOME: usize = 0;
/// Tags from here on are of requests that the router makes.
pub(crate) const ROUTERS_TAGS: u64 = 3 << 62;

/// See the file's head.
pub(crate) struct Router {
    servers: Vec<Server>,
    /// Sessions that are over, until what they have on the stream is settled.
    leaving: Vec<SessionState>,
    maps: Vec<TableMap>,
    latest: Latest,
    waiting: VecDeque<Waiting>,
    gathers: Vec<Option<Gather>>,
    boths: Boths,
    /// Completions of requests that the router has made.
    inbox: Vec<Arrived>,
    /// Requests of callers without a completion.
    owed: usize,
    /// There is more to do than what exchanges do by themselves.
    is_restless: bool,
    /// With several servers: when they are looked after next.
    look_at_us: u64,
    /// Where the next map is asked for.
    turn: usize,
    identity: Identity,
    config: ClientConfig,
    /// That of servers besides the one that was named.
    others_config: ClientConfig,
    frame_bytes_max: usize,
    waker: Waker,
    limits: SessionLimits,
    credits: u16,
    client_id: u64,
    call_timeout_us: u64,
    source_patience_us: u64,
}

/// A request that has no way at present.
struct Waiting {
    tag: u64,
    journey: Journey,
    code: u8,
    body: Vec<u8>,
    /// Not before the map of its table has been asked for so often.
    asked: u64,
    /// What the latest server answered.
    refusal: Option<Status>,
}

/// A completion to be dealt with when the batch that brought it is through.
struct Arrived {
    tag: u64,
    outcome: gather::Outcome,
}

impl Router {
    /// Routes over the session that an exchange has opened.
    pub(crate) fn new(
        exchange: SessionState,
        identity: Identity,
        frame_bytes_max: usize,
        waker: Waker,
    ) -> Router {
        let config = exchange.config().clone();
        let others_config = ClientConfig { core_addresses: Vec::new(), ..config.clone() };
        let (limits, credits, client_id) = (exchange.limits(), exchange.credits(), exchange.client_id());
        let [call_timeout_us, source_patience_us] = [config.call_timeout, config.source_patience]
            .map(|timeout| u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX));
        Router {
            servers: vec![Server::home(exchange, identity.address.clone())],
            leaving: Vec::new(),
            maps: Vec::new(),
            latest: Latest::NONE,
            waiting: VecDeque::new(),
            gathers: Vec::new(),
            boths: Boths::default(),
            inbox: Vec::new(),
            owed: 0,
            is_restless: false,
            look_at_us: u64::MAX,
            turn: HOME,
            identity,
            config,
            others_config,
            frame_bytes_max,
            waker,
            limits,
            credits,
            client_id,
            call_timeout_us,
            source_patience_us,
        }
    }

    /// The index of what is known of a table.
    fn index_of(&mut self, table: u32) -> usize {
        self.maps.iter().position(|map| map.table == table).unwrap_or_else(|| {
            self.maps.push(TableMap::new(table));
            self.is_restless = true;
            self.maps.len() - 1
        })
    }

    /// The number within this session of the server that has a key of a table, as far as is known.
    pub(crate) fn server_of(&mut self, table: u32, key: &[u8]) -> usize {
        let index = self.index_of(table);
        self.maps[index].server_of(xxhash_rust::xxh3::xxh3_64(key))
    }

    /// Whether there are several servers.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.servers.len() > 1
    }

    /// Whether a request would be accepted now, and sent at once where there is one server.
    #[inline]
    pub(crate) fn can_submit(&self) -> bool {
        let has_place = match &self.servers[..] {
            [Server { exchange: Some(exchange), .. }] => exchange.can_submit(),
            _ => true,
        };
        // Some may wait outside of the window.
        has_place && self.owed < self.credits.into()
    }

    /// Requests without a completion.
    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.owed
    }

    /// The exchange with a server, if there is a session.
    #[inline]
    pub(crate) fn server(&mut self, server: usize) -> Option<&mut Server> {
        self.servers.get_mut(server)
    }

    /// Closes the streams until they are needed again.
    pub(crate) fn rest_streams(&self) {
        self.servers.iter().filter_map(|server| server.exchange.as_ref()).for_each(SessionState::rest_stream);
    }

    /// Servers, with a session or without.
    #[inline]
    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// The exchange with the server that was named, if there is a session.
    pub(crate) fn home(&self) -> Option<&SessionState> {
        self.servers[HOME].exchange.as_ref()
    }

    pub(crate) fn limits(&self) -> SessionLimits {
        self.limits
    }

    pub(crate) fn credits(&self) -> u16 {
        self.credits
    }

    pub(crate) fn client_id(&self) -> u64 {
        self.home().map_or(self.client_id, SessionState::client_id)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.config
    }
}

/// The error of what has no way to a server.
fn away(server: &Server) -> CompletionError {
    CompletionError::Away { server: server.number.unwrap_or_default() }
}
