//! The simple face: one call, one answer.
//!
//! A [`Client`] is a session and what it has looked up: table ids and functions by name. Calls block; a
//! read that was lost with its session is made again by itself, a write never is. For many requests at a
//! time use [`Client::session`].

mod count;
mod data;
mod enumerate;
mod extension;
mod grant;
mod many;
mod scan;
mod table;

pub use count::CountedTable;
pub use enumerate::{Cursor, Enumeration, Listed, Page, PageSize, Verification};
pub use many::Write;

use std::collections::HashMap;
use std::time::Duration;

use wire::{Body, FunctionMode, Request, Status};

use crate::{ClientConfig, Error, Session};

/// A tenant's connection to a server.
pub struct Client {
    session: Session,
    functions: HashMap<String, Function>,
    /// Bytes of the latest answer.
    body: Vec<u8>,
    /// Bytes that an object takes in the answer of a multi-get, as the latest answers show.
    entry_bytes: usize,
}

/// An object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its value.
    pub value: Vec<u8>,
    /// Its version, which grows with every write.
    pub version: u64,
    /// How long it is there yet, in milliseconds; `None` where it stays. A multi-get does not tell.
    pub ttl_ms: Option<u64>,
}

/// What an invocation names a function by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The extension's id.
    pub extension: u32,
    /// Which version of it; 0 is the current one at each call.
    pub version: u32,
    /// [`wire::function_hash`] of the function's name.
    pub function: u32,
    /// What it may do.
    pub mode: FunctionMode,
}

impl Function {
    /// The request that invokes it.
    #[must_use]
    #[inline]
    pub fn request<'a>(&self, table: u32, key: &'a [u8], arguments: &'a [u8]) -> Request<'a> {
        Request::Invoke {
            extension: self.extension,
            version: self.version,
            function: self.function,
            table,
            key,
            arguments,
        }
    }
}

impl Client {
    /// Opens a session of a tenant with the server at `address` (host and TCP port); of several with commas between them
    /// with the first that answers, as [`Session::open`].
    ///
    /// # Errors
    /// [`Error::Unreachable`], or the server's refusal.
    pub fn connect(address: &str, tenant: &str, secret: &str) -> Result<Client, Error> {
        Client::connect_with(address, tenant, secret, ClientConfig::default())
    }

    /// Opens a session with settings of the caller's.
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

    /// The simple face of an open session.
    #[must_use]
    pub fn over(session: Session) -> Client {
        Client { session, functions: HashMap::new(), body: Vec::new(), entry_bytes: data::ENTRY_BYTES_FIRST }
    }

    /// The server that the session was opened with, as it was named.
    #[must_use]
    pub fn address(&self) -> &str {
        self.session.address()
    }

    /// The session, to pipeline requests.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Gives the session back.
    #[must_use]
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Asks the server's home core of the tenant for an answer; returns the time that it took.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn ping(&mut self) -> Result<Duration, Error> {
        let started = std::time::Instant::now();
        self.call(&Request::Ping)?;
        Ok(started.elapsed())
    }

    /// Makes a request and checks that it ended well; its answer is in `self.body` then.
    fn call(&mut self, request: &Request<'_>) -> Result<(), Error> {
        match self.session.call(request, &mut self.body)? {
            Status::Ok => Ok(()),
            status => Err(Error::of_answer(status, &self.body)),
        }
    }
}

/// Makes an administrative request of a session and reads its answer.
fn administer<T: Body>(session: &mut Session, request: &wire::AdminRequest<'_>) -> Result<T, Error> {
    let body = request.encode().map_err(|status| Error::Refused { status, text: String::new() })?;
    let repeatable = only_reads(request);
    read_answer(session.administer(request.opcode(), &body, repeatable)?)
}

/// Reads the answer to an administrative request.
pub(crate) fn read_answer<T: Body>((status, body): (Status, Vec<u8>)) -> Result<T, Error> {
    if status != Status::Ok {
        return Err(Error::of_answer(status, &body));
    }
    T::decode(&body).map_err(|_| Error::Unintelligible { expected: "an answer to the request" })
}

/// Whether making the request twice changes nothing.
pub(crate) fn only_reads(request: &wire::AdminRequest<'_>) -> bool {
    use wire::AdminRequest::{
        AuditRead, ExtensionDescribe, ExtensionList, ExtensionLogs, ExtensionResolve, ExtensionTraces,
        ExtensionTracesEnd, GrantList, MigrationList, MigrationProgress, ServerList, SessionList, Statistics,
        TableList, TableOpen, TableStat, TabletList, TenantLimits, TenantList,
    };
    matches!(
        request,
        TenantList
            | TenantLimits { .. }
            | TableList
            | TableStat { .. }
            | TableOpen { .. }
            | ExtensionList
            | ExtensionDescribe { .. }
            | ExtensionResolve { .. }
            | ExtensionLogs { .. }
            | ExtensionTraces { .. }
            | ExtensionTracesEnd { .. }
            | Statistics { .. }
            | SessionList
            | ServerList
            | TabletList
            | MigrationList
            | MigrationProgress
            | AuditRead { .. }
            | GrantList
    )
}
