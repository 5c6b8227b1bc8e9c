//! Prefetches the memory that each session, tenant and extension has separately.
//!
//! ```text
//!   groups of a frame     session ─▶ account ─▶ the worker's page of its ledger
//!   requests of a chunk   the tenant's entry of the table ─▶ its part ─▶ the index ─▶ the bucket ─▶ the object
//!                         extension ─▶ its library ─▶ the worker's cells of its metrics
//! ```
//! Requests of one session touch the same memory as the one before. Requests of a thousand tenants each follow their
//! own pointers, and each step waits for the one before. So the first step is taken for all items of a frame or a
//! chunk, then the second for all: the misses of a step overlap. If all items share one session, table or extension,
//! nothing is prefetched.

use std::sync::Arc;

use arrayvec::ArrayVec;
use store::Table;
use wire::{FrameReader, Request, Status};

use crate::extension::Extension;
use crate::extension::invocation::Invocations;
use crate::limits::CHUNK_REQUESTS;
use crate::ops::write::WriteTarget;
use crate::ops::{WorkerEnvironment, read};
use crate::session::{Origin, Session};
use crate::tablet::TableEntry;
use crate::view::catalog::WorkerCatalog;

/// Maximum number of groups of a frame whose sessions are looked up ahead.
const GROUPS_AHEAD: usize = 32;

/// The sessions of the first groups of a frame.
pub struct Sessions<'w> {
    found: [Option<&'w Arc<Session>>; GROUPS_AHEAD],
    count: usize,
}

impl<'w> Sessions<'w> {
    /// Looks up the sessions of a frame and prefetches the memory that a worker touches in them.
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

    /// Returns the session of the group at `index`, whose token is `token`.
    #[inline]
    pub fn session(&self, index: usize, token: u64, catalog: &'w WorkerCatalog) -> Option<&'w Arc<Session>> {
        if index < self.count { self.found[index] } else { catalog.session(token) }
    }
}

/// Prefetches the extensions that a chunk invokes, and their tenants' queues, for a worker.
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
        if let Some(active) = catalog.extension(extension) {
            active.current().prefetch();
            found.push((active.current(), function));
        }
    }
    found.iter().for_each(|(extension, _)| extension.prefetch_behind(worker));
    for (extension, function) in &found {
        extension.prefetch_last(worker, *function);
        invocations.prefetch(extension.tenant);
    }
}

/// The place of a request: its table, the part that has its key, and the key's hash, if it has them.
#[derive(Clone, Copy, Default)]
pub struct Located<'w> {
    /// The table, if the tenant may use it.
    pub entry: Option<&'w TableEntry>,
    /// The part, if the key is owned.
    pub part: Option<&'w Table>,
    /// The key's hash.
    pub hash: u64,
}

impl<'w> Located<'w> {
    /// Returns the target of a write of the key.
    #[inline]
    #[must_use]
    pub fn target(&self) -> Option<WriteTarget<'w>> {
        let (entry, part) = (self.entry?, self.part?);
        Some(WriteTarget { writable: entry.writable, part, hash: self.hash })
    }

    /// Returns the status for a request whose table or key has no part here: `Retry` if another server of the cluster
    /// may have created the table and this one has not heard of it yet.
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

/// Prefetches the tables of a chunk's requests.
#[derive(Default)]
pub struct TablePrefetch<'w> {
    /// Table of the previous request; 0 before the first.
    latest: u32,
    /// Requests of other tables, by their places in the chunk: their entries are prefetched, but not read yet.
    waiting: ArrayVec<(usize, &'w TableEntry), CHUNK_REQUESTS>,
}

impl<'w> TablePrefetch<'w> {
    /// Locates the request that takes `place` in the chunk and prefetches its key's bucket, if the previous request
    /// had the same table or there was none: a batch of one table needs no further step. Otherwise prefetches only the
    /// table's entry.
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

    /// Locates the remaining requests of a chunk, one step at a time for all of them.
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

/// Returns the table of a request, and its key if it has one.
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
        Request::Commit { changes } => changes.first().map(|(table, key)| (table, Some(key))),
        // These prefetch for themselves.
        Request::MultiGet { table, .. }
        | Request::Enumerate { table, .. }
        | Request::Scan { table, .. }
        | Request::Verify { table, .. }
        | Request::Tablets { table } => Some((table, None)),
        Request::Ping => None,
    }
}

/// Finds the table of a request and the part that has its key, and prefetches the key's bucket.
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

/// Finds the part of a table that has the key, and prefetches the key's bucket.
#[inline]
fn locate_in<'w>(
    environment: &WorkerEnvironment<'w>,
    entry: &'w TableEntry,
    key: Option<&[u8]>,
) -> Located<'w> {
    let Some(key) = key else { return Located { entry: Some(entry), ..Located::default() } };
    let hash = store::hash(key);
    let part = entry.parts.find(key, hash);
    if let Some(part) = part {
        read::prefetch_bucket(environment.pin, part, hash);
    }
    Located { entry: Some(entry), part, hash }
}
