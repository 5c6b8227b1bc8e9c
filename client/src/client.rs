//! The blocking interface: one call, one reply.
//!
//! A [`Client`] is a session and a cache of the names it has looked up: table ids and functions. Calls block. The
//! client automatically repeats a read that was lost with its session, but never a write. Use [`Client::session`] for
//! many concurrent requests.

mod archive;
mod count;
mod data;
mod enumerate;
mod extension;
mod grant;
mod many;
#[cfg(feature = "modules")]
mod placed;
mod scan;
mod table;
mod transaction;

pub use count::CountedTable;
pub use enumerate::{Enumeration, Verification};
pub use extension::split_function_name;
pub use many::Write;
pub use transaction::Transaction;

use std::collections::HashMap;
use std::time::Duration;

use wire::Request;

use crate::answers::KeyChunks;
use crate::function::Function;
use crate::{ClientConfig, Error, Session};

/// A tenant's connection to a server.
pub struct Client {
    session: Session,
    #[cfg(feature = "modules")]
    function_runs: Option<placed::FunctionRuns>,
    functions: HashMap<String, Function>,
    /// Bytes of the latest reply.
    body: Vec<u8>,
    chunks: KeyChunks,
}

impl Client {
    /// Opens a session of a tenant with a server. `address` is its host and TCP port, or several separated by commas:
    /// the client connects to the first that answers, as [`Session::open`].
    ///
    /// # Errors
    /// [`Error::Unreachable`], or the server's refusal.
    pub fn connect(address: &str, tenant: &str, secret: &str) -> Result<Client, Error> {
        Client::connect_with(address, tenant, secret, ClientConfig::default())
    }

    /// Opens a session with the caller's settings.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_with(
        address: &str,
        tenant: &str,
        secret: &str,
        config: ClientConfig,
    ) -> Result<Client, Error> {
        Ok(Client::over(Session::open(address, tenant, secret, config)?))
    }

    /// Returns a client over an open session.
    #[must_use]
    pub fn over(session: Session) -> Client {
        Client {
            session,
            #[cfg(feature = "modules")]
            function_runs: None,
            functions: HashMap::new(),
            body: Vec::new(),
            chunks: KeyChunks::new(),
        }
    }

    /// Returns the server's address as the caller gave it.
    #[must_use]
    pub fn address(&self) -> &str {
        self.session.address()
    }

    /// Returns the session, to pipeline requests.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Returns the session by value.
    #[must_use]
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Pings the tenant's home core on the server; returns the round-trip time.
    ///
    /// # Errors
    /// If there is no reply.
    pub fn ping(&mut self) -> Result<Duration, Error> {
        let started = std::time::Instant::now();
        self.call(&Request::Ping)?;
        Ok(started.elapsed())
    }

    /// Makes a request and returns the body of its reply, if its status is `Ok`.
    fn call(&mut self, request: &Request<'_>) -> Result<&[u8], Error> {
        let status = self.session.call(request, &mut self.body);
        Error::checked(status, &self.body)
    }
}
