//! A session over the servers of a cluster: routes requests, and redirects those refused by a server.
//!
//! ```text
//! submit ─▶ map of the table ─▶ state of its server ─▶ frames      a session each, opened when first needed
//!              ▲      └─ several servers ─▶ parts ─▶ gather           answers of parts make one
//!              └─ asked for at the first use of a table, and when a server answers `NotOwned`
//! ```
//! Routing is immediate for a request on the same table as the previous one (`sending.rs`): with a single server it
//! compares two numbers, with several it also hashes and searches. A request refused for its key is repeated, with a
//! new sequence in another session, only if the refusal rules out its execution at the first server
//! (`wire/src/requester/receive.rs`). A request whose server is unreachable waits until that is settled, or fails;
//! requests to other servers continue. See "Views" in docs/formats.md.

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
    identity: Identity,
    config: ClientConfig,
    /// Settings for all servers but the home.
    others_config: ClientConfig,
    frame_bytes_max: usize,
    waker: Waker,
    limits: SessionLimits,
    credits: u16,
    client_id: u64,
    call_timeout_us: u64,
    source_patience_us: u64,
}

/// A request that cannot be sent at present.
struct Waiting {
    tag: u64,
    journey: Journey,
    code: u8,
    body: Vec<u8>,
    /// Number of answered map requests of its table to wait for; 0 for none.
    asked: u64,
    /// Status of the latest refusal.
    refusal: Option<Status>,
}

/// A completion to process after the current batch.
struct Arrived {
    tag: u64,
    outcome: gather::Outcome,
}

impl Router {
    /// Returns a router over an opened session.
    pub(crate) fn new(
        state: SessionState,
        identity: Identity,
        frame_bytes_max: usize,
        waker: Waker,
    ) -> Router {
        let config = state.config().clone();
        let others_config = ClientConfig { core_addresses: Vec::new(), ..config.clone() };
        let (limits, credits, client_id) = (state.limits(), state.credits(), state.client_id());
        let [call_timeout_us, source_patience_us] = [config.call_timeout, config.source_patience]
            .map(|timeout| u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX));
        Router {
            servers: vec![Server::home(state, identity.address.clone())],
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

    /// Returns the index of a table's map; adds the map if it is new.
    fn index_of(&mut self, table: u32) -> usize {
        self.maps.iter().position(|map| map.table == table).unwrap_or_else(|| {
            self.maps.push(TableMap::new(table));
            self.is_restless = true;
            self.maps.len() - 1
        })
    }

    /// Returns this session's index of the server that owns a key, as far as known.
    pub(crate) fn server_of(&mut self, table: u32, key: &[u8]) -> usize {
        let index = self.index_of(table);
        self.maps[index].server_of(xxhash_rust::xxh3::xxh3_64(key))
    }

    /// Returns whether there are several servers.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.servers.len() > 1
    }

    /// Returns whether a request would be accepted now; with one server, whether it would be sent at once.
    #[inline]
    pub(crate) fn can_submit(&self) -> bool {
        let has_place = match &self.servers[..] {
            [Server { state: Some(state), .. }] => state.can_submit(),
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
        self.servers.iter().filter_map(|server| server.state.as_ref()).for_each(SessionState::rest_stream);
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

/// Returns the error of a request whose server is unreachable.
fn away(server: &Server) -> CompletionError {
    CompletionError::Away { server: server.number.unwrap_or_default() }
}
