//! Asks for memory before it is needed: for what many sessions, tenants and extensions have each for themselves.
//!
//! ```text
//!   groups of a frame     session ─▶ account ─▶ the worker's page of its ledger
//!   requests of a chunk   table as the tenant knows it ─▶ its part ─▶ the index ─▶ the bucket ─▶ the object
//!                         extension ─▶ its library, the worker's cells of its measures ─▶ those
//! ```
//! Requests of one session touch what the one before them has touched. Those of a thousand tenants each follow
//! pointers of their own, and each step waits for the one before. So the first step is taken for all of a frame or a
//! chunk, then the second for all: the misses of a step overlap. Where there is one of a kind nothing is asked for.

use std::sync::Arc;

use arrayvec::ArrayVec;
use store::Table;
use wire::{FrameReader, Request, Status};

use super::catalog::WorkerCatalog;
use crate::extension::Extension;
use crate::extension::invocation::Invocations;
use crate::limits::CHUNK_REQUESTS;
use crate::ops::write::WriteTarget;
use crate::ops::{WorkerEnvironment, read};
use crate::session::{Origin, Session};
use crate::tablet::TableEntry;

/// Groups of a frame whose sessions are looked up ahead.
const GROUPS_AHEAD: usize = 32;

/// The sessions of the first groups of a frame.
pub struct Sessions<'w> {
    found: [Option<&'w Arc<Session>>; GROUPS_AHEAD],
    count: usize,
}

impl<'w> Sessions<'w> {
    /// Looks up those of a frame and asks for what a worker will touch of them.
    #[inline]
    pub fn of(reader: &FrameReader<'_>, catalog: &'w WorkerCatalog, worker: usize) -> Self {
        let (mut found, mut count) = ([None; GROUPS_AHEAD], 0);
        for (place, group) in found.iter_mut().zip(reader.groups().map_while(Result::ok)) {
            *place = catalog.session(group.token);
            count += 1;
        }
        if count > 1 {
            let sessions = || found[..count].iter().copied().flatten();
            sessions().for_each(|session| session.prefetch());
            let mut first = sessions();
            let account = first.next().map(|session| &session.account);
            if !first.all(|session| account.is_some_and(|account| Arc::ptr_eq(account, &session.account))) {
                sessions().for_each(|session| session.account.prefetch(worker));
                sessions().for_each(|session| session.account.ledger.prefetch(worker));
            }
        }
        Self { found, count }
    }

    /// The session of the group at `index`, whose token is `token`.
    #[inline]
    pub fn session(&self, index: usize, token: u64, catalog: &'w WorkerCatalog) -> Option<&'w Arc<Session>> {
        if index < self.count { self.found[index] } else { catalog.session(token) }
    }
}

/// Asks for what a worker will touch of the extensions that a chunk of requests invokes, and of their tenants.
#[inline]
pub fn prefetch_extensions<'b>(
    requests: impl Iterator<Item = &'b Request<'b>> + Clone,
    catalog: &WorkerCatalog,
    invocations: &Invocations<Origin>,
    worker: usize,
) {
    let mut invoked = requests.filter_map(|request| match request {
        Request::Invoke { extension, function, .. } => Some((*extension, *function)),
        _ => None,
    });
    let mut others = invoked.clone();
    let Some(first) = others.next() else { return };
    if others.any(|other| other.0 != first.0) {
        prefetch_mixed(&mut invoked, catalog, invocations, worker);
    }
}

#[cold]
fn prefetch_mixed(
    invoked: &mut dyn Iterator<Item = (u32, u32)>,
    catalog: &WorkerCatalog,
    invocations: &Invocations<Origin>,
    worker: usize,
) {
    let mut found: ArrayVec<(&Extension, u32), CHUNK_REQUESTS> = ArrayVec::new();
    for (extension, function) in invoked {
        if let Some(lineup) = catalog.extension(extension) {
            lineup.current().prefetch();
            found.push((lineup.current(), function));
        }
    }
    found.iter().for_each(|(extension, _)| extension.prefetch_behind(worker));
    for (extension, function) in &found {
        extension.prefetch_last(worker, *function);
        invocations.prefetch(extension.tenant);
    }
}

/// Where a request goes: its table, the part of it that has its key, and the key's hash, if it has them.
#[derive(Clone, Copy, Default)]
pub struct Located<'w> {
    /// The table, if the tenant may use it.
    pub entry: Option<&'w TableEntry>,
    /// The part, if the key is owned.
    pub part: Option<&'w Table>,
    /// Of the key.
    pub hash: u64,
}

impl<'w> Located<'w> {
    /// Where a write of the key goes.
    #[inline]
    #[must_use]
    pub fn target(&self) -> Option<WriteTarget<'w>> {
        let (entry, part) = (self.entry?, self.part?);
        Some(WriteTarget { writable: entry.writable, part, hash: self.hash })
    }

    /// Why a request of a session for the table, or a key of it, has nothing to go to: `Retry` where the table may be one
    /// of which this server of a cluster has still to hear.
    #[cold]
    #[must_use]
    pub fn missing(&self, environment: &WorkerEnvironment<'_>, session: &Session, table: u32) -> Status {
        let may_come = || environment.remote.is_some() && environment.tables.may_come(session.tenant, table);
        match self.entry {
            Some(_) => Status::NotOwned,
            None if may_come() => Status::Retry,
            None => Status::UnknownTable,
        }
    }
}

/// The tables of the requests of a chunk.
#[derive(Default)]
pub struct TablePrefetch<'w> {
    /// That of the request before; 0 before the first.
    latest: u32,
    /// Requests of others, by their places in the chunk: their entries are asked for, and not looked at yet.
    waiting: ArrayVec<(usize, &'w TableEntry), CHUNK_REQUESTS>,
}

impl<'w> TablePrefetch<'w> {
    /// Finds the table of the request that is to be `place` in the chunk and asks for the bucket of its key, if the one
    /// before was of the same or there was none: a batch of one table takes no further step. Otherwise asks for the table
    /// alone.
    #[inline]
    pub fn locate(
        &mut self,
        environment: &WorkerEnvironment<'w>,
        session: &Session,
        request: &Request<'_>,
        place: usize,
    ) -> Located<'w> {
        let Some((table, _)) = target(request) else { return locate(environment, session, request) };
        let before = std::mem::replace(&mut self.latest, table);
        if before == table || before == 0 {
            return locate(environment, session, request);
        }
        self.wait_for(environment, table, place);
        Located::default()
    }

    #[cold]
    fn wait_for(&mut self, environment: &WorkerEnvironment<'w>, table: u32, place: usize) {
        if let Some(entry) = environment.tables.prefetch(table) {
            self.waiting.push((place, entry));
        }
    }

    /// Locates what is not yet, a step at a time for all requests of a chunk.
    #[inline]
    pub fn locate_all<R>(
        &mut self,
        environment: &WorkerEnvironment<'w>,
        chunk: &mut [R],
        parts: impl Fn(&mut R) -> (&mut Located<'w>, &Session, &Request<'_>),
    ) {
        if !self.waiting.is_empty() {
            self.locate_waiting(environment, chunk, parts);
        }
    }

    #[cold]
    fn locate_waiting<R>(
        &mut self,
        environment: &WorkerEnvironment<'w>,
        chunk: &mut [R],
        parts: impl Fn(&mut R) -> (&mut Located<'w>, &Session, &Request<'_>),
    ) {
        self.waiting.retain(|(place, entry)| {
            let is_tenants = entry.tenant == parts(&mut chunk[*place]).1.tenant;
            if is_tenants {
                read::prefetch_table(entry);
            }
            is_tenants
        });
        for (_, entry) in &self.waiting {
            read::prefetch_index(environment.pin, entry);
        }
        for (place, entry) in self.waiting.drain(..) {
            let (located, _, request) = parts(&mut chunk[place]);
            let key = target(request).and_then(|(_, key)| key);
            *located = locate_in(environment, entry, key);
        }
    }
}

/// The table of a request, and its key if it has one.
fn target<'r>(request: &Request<'r>) -> Option<(u32, Option<&'r [u8]>)> {
    match *request {
        Request::Get { table, key }
        | Request::GetNow { table, key }
        | Request::Put { table, key, .. }
        | Request::PutFor { table, key, .. }
        | Request::Delete { table, key, .. }
        | Request::Increment { table, key, .. }
        | Request::IncrementFloat { table, key, .. }
        | Request::Invoke { table, key, .. } => Some((table, Some(key))),
        // These prefetch for themselves.
        Request::MultiGet { table, .. }
        | Request::Enumerate { table, .. }
        | Request::Scan { table, .. }
        | Request::Verify { table, .. }
        | Request::Tablets { table } => Some((table, None)),
        Request::Ping => None,
    }
}

/// Finds the table of a request and the part that has its key, and asks for the bucket of the key.
#[inline]
pub fn locate<'w>(
    environment: &WorkerEnvironment<'w>,
    session: &Session,
    request: &Request<'_>,
) -> Located<'w> {
    let Some((table, key)) = target(request) else { return Located::default() };
    match environment.tables.get(session.tenant, table) {
        Some(entry) => locate_in(environment, entry, key),
        None => Located::default(),
    }
}

/// The same in a table.
#[inline]
fn locate_in<'w>(
    environment: &WorkerEnvironment<'w>,
    entry: &'w TableEntry,
    key: Option<&[u8]>,
) -> Located<'w> {
    let Some(key) = key else { return Located { entry: Some(entry), ..Located::default() } };
    let hash = store::hash(key);
    let part = entry.parts.find(hash);
    if let Some(part) = part {
        read::prefetch_bucket(environment.pin, part, hash);
    }
    Located { entry: Some(entry), part, hash }
}
