//! The state of the control plane: what control threads share, and the changes that they make.
//!
//! Every change goes the same way: metadata first (on disk or refused), then all workers, then the client
//! hears of it. One lock makes the changes follow one another, so that what a worker knows is what the
//! metadata says; nothing slow but the metadata happens under it. A second one is for what is owned of tables, which
//! migrations change in a hurry. Workers never come here.

mod tenants;

pub use self::tenants::KnownTenant;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use store::Store;
use wire::Status;
use wire::reply::Throttled;

use super::acts::Acts;
use super::change::{Change, ChangeSender, broadcast};
use super::ended::Ended;
use super::fence::Fence;
use super::grant::Grant;
use super::home_balancer::{HomeBalancer, Look, Move};
use super::lease_cache::LeaseCache;
use super::migrations::Migrations;
use super::ports::FramePorts;
use super::response_limiter::ResponseLimiter;
use super::shm_listener::ListenerStatus;
use super::streams::{Counts, Streams};
use super::view::Views;
use crate::clock::Clock;
use crate::cluster::metadata::{Metadata, MetadataError, TenantRow, VersionStateError};
use crate::cluster::records::{HeldLease, RecordsError};
use crate::extension::log::ExtensionLog;
use crate::extension::registry::Registry;
use crate::limits::{SESSION_IDLE_MS, SESSIONS_MAX, SESSIONS_PER_TENANT_MAX, VERSIONS_RESERVED};
use crate::metrics::{Counter, WorkerMetrics};
use crate::session::Session;
use crate::sync::lock;
use crate::tablet::{PartsMade, TableEntry};
use crate::tenant::TenantId;
use crate::tenant::account::Accounts;
use crate::tenant::limit::TenantLimit;
use crate::tenant::secret::{SecretHash, random_token};

/// A refusal to a client of the control plane: a status and text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What programs read.
    pub status: Status,
    /// What people read; of what is held off the name of the limit.
    pub text: String,
    /// When to come again, of what is held off.
    after_us: u32,
}

impl Refusal {
    /// A refusal in words of its own.
    #[must_use]
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), after_us: 0 }
    }

    /// Not now: a limit of the tenant holds it off for this long.
    #[must_use]
    pub fn throttled(after_us: u64, limit: TenantLimit) -> Self {
        let after_us = u32::try_from(after_us).unwrap_or(u32::MAX);
        Self { status: Status::Throttled, text: limit.name().to_owned(), after_us }
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        if self.status != Status::Throttled {
            return self.text.clone().into_bytes();
        }
        let throttled = Throttled { after_us: self.after_us, limit: self.text.as_bytes() };
        let mut body = vec![0; throttled.body_bytes()];
        throttled.encode(&mut body);
        body
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::new(status, status.text())
    }
}

impl From<MetadataError> for Refusal {
    fn from(error: MetadataError) -> Self {
        let status = match &error {
            MetadataError::AlreadyExists => Status::AlreadyExists,
            MetadataError::NotFound => Status::NotFound,
            MetadataError::LimitExceeded => Status::LimitExceeded,
            MetadataError::Standing(VersionStateError::InUse(_)) => Status::NotPermitted,
            MetadataError::Standing(VersionStateError::NoSuchVersion(_)) => Status::UnknownExtension,
            MetadataError::Standing(_) => Status::NotFound,
            MetadataError::Conflict => Status::Conflict,
            MetadataError::Tablets(_) => Status::WrongTablets,
            MetadataError::Records(RecordsError::StorageFull) => Status::StorageFull,
            MetadataError::Records(RecordsError::TooLarge(_)) => Status::LimitExceeded,
            MetadataError::Records(RecordsError::Unavailable(_) | RecordsError::Uncertain(_)) => {
                tracing::warn!(%error, "metadata refused");
                Status::Unavailable
            }
            MetadataError::Records(_) => {
                tracing::error!(%error, "metadata failed");
                Status::Internal
            }
        };
        Self::new(status, error.to_string())
    }
}

/// An open session and what only lists show of it.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// The session.
    pub session: Arc<Session>,
    /// Name of its tenant.
    pub tenant: String,
    /// Where it was opened from.
    pub peer: SocketAddr,
    /// When it was opened, in milliseconds since the Unix epoch.
    pub opened_ms: u64,
}

/// Tables by owner and name.
pub type TableNames = BTreeMap<(TenantId, String), Arc<TableEntry>>;

/// What control threads share.
pub struct Control {
    /// The server's clock.
    pub clock: Clock,
    /// What survives a restart.
    pub metadata: Metadata,
    /// What a server of a cluster goes by while that does not answer.
    pub interim: LeaseCache,
    /// Tablets on the move; nothing where this server is alone.
    pub migrations: Option<Migrations>,
    /// The extensions that are live.
    pub registry: Registry,
    /// What tenants may use.
    pub accounts: Accounts,
    /// Where the parts of tables are made.
    pub store: Arc<Store>,
    /// Those that were made.
    pub parts_made: PartsMade,
    /// When tables last lost objects since a server ended, in milliseconds since the Unix epoch, by their numbers.
    pub emptied: Mutex<BTreeMap<u32, u64>>,
    /// The workers' queues.
    pub workers: Vec<ChangeSender>,
    /// The workers' counters.
    pub metrics: Vec<Arc<WorkerMetrics>>,
    /// Where the workers take frames.
    pub ports: FramePorts,
    /// Where clients of this host get in, if they do.
    pub door: Option<ListenerStatus>,
    /// The server's views.
    pub views: Arc<Views>,
    /// Acts that are not in the audit log yet.
    pub acts: Acts,
    /// Until when workers may serve what others may come to own.
    pub fence: Arc<Fence>,
    /// What is kept of the administrator's secret.
    pub administrator: SecretHash,
    /// What is kept of a secret that nobody has: what is compared for a tenant that there is not.
    pub nobody: SecretHash,
    /// Who has a stream of clients.
    pub streams: Arc<Streams>,
    /// How often a source may be wrong.
    pub attempts: Mutex<ResponseLimiter>,
    /// Open sessions by token.
    pub sessions: Mutex<HashMap<u64, OpenSession>>,
    /// Sessions that were open.
    pub ended: Mutex<Ended>,
    /// Tables of all tenants.
    pub tables: Mutex<TableNames>,
    /// What tenants have granted each other.
    pub grants: Mutex<Vec<Grant>>,
    /// Tenants that trace, with what they trace into.
    pub traced: Mutex<Vec<(TenantId, Arc<ExtensionLog>)>>,
    /// Reserved numbers of clients.
    pub client_ids: Mutex<Range<u64>>,
    /// Held while the catalog changes.
    pub changing: Mutex<()>,
    /// Held while what is owned of a table changes, or what workers know of it. Whoever holds both took `changing` first;
    /// nobody asks the metadata with it, so that a cut waits for no disk and no other server.
    pub owning: Mutex<()>,
}

/// There is no tenant of this name.
pub(super) fn unknown_tenant(name: &str) -> Refusal {
    Refusal::new(Status::UnknownTenant, format!("there is no tenant `{name}`"))
}

impl Control {
    /// The number of the tenant of this name.
    pub(super) fn tenant_number(&self, name: &str) -> Result<TenantId, Refusal> {
        let row = self.metadata.tenant_find(name)?;
        row.map(|row| row.id).ok_or_else(|| unknown_tenant(name))
    }

    /// The refusal of who is wrong, or of who is wrong too often.
    pub(super) fn wrong(&self, peer: SocketAddr, refusal: Refusal) -> Refusal {
        let now_us = self.clock.now_us();
        if lock(&self.attempts).take_for(peer, now_us) { refusal } else { Status::Retry.into() }
    }

    /// This lease is held, or none.
    pub fn hold(&self, held: Option<HeldLease>) {
        if let Some(HeldLease { lease, until }) = held {
            self.fence.hold(lease, self.clock.us_at(until));
        }
        self.interim.hold(held);
    }

    /// Tells all workers.
    ///
    /// # Errors
    /// `Unavailable` when one of them does not come back.
    pub fn tell(&self, change: &Change) -> Result<(), Refusal> {
        broadcast(&self.workers, change)
            .map_err(|_| Refusal::new(Status::Unavailable, "a worker of the server does not answer"))
    }

    /// Opens a session for a tenant whose secret was checked.
    ///
    /// # Errors
    /// `LimitExceeded`, `BadSecret` when the tenant or its secret has gone meanwhile, or that numbers, workers or the
    /// metadata fail.
    pub fn open_session(&self, checked: TenantRow, peer: SocketAddr) -> Result<Arc<Session>, Refusal> {
        let token = random_token().map_err(|error| Refusal::new(Status::Internal, error.to_string()))?;
        let client_id = self.next_client_id()?;
        let account = self.accounts.of(checked.id);
        let session = Session::new(token, client_id, account, self.clock.now_us());
        let session = Arc::new(session.opened_from(peer.ip()));
        let (tenant, opened_ms) = (checked.name.clone(), self.clock.wall_ms());
        // Known before the tenant is looked at again: whoever drops it from then on ends this session too.
        self.admit(OpenSession { session: Arc::clone(&session), tenant, peer, opened_ms })?;
        let confirmed = self.confirm(&checked, &session);
        if confirmed.is_err() {
            lock(&self.sessions).remove(&token);
        }
        confirmed.map(|()| session)
    }

    /// Tells workers of a session if its tenant is still what it was.
    fn confirm(&self, checked: &TenantRow, session: &Arc<Session>) -> Result<(), Refusal> {
        let gone =
            || Refusal::new(Status::BadSecret, "the tenant has just been dropped, or got a new secret");
        let KnownTenant { row, doubt } = self.tenant_named(&checked.name, |row| row == Some(checked))?;
        if row.as_ref() != Some(checked) {
            if let Some(doubt) = doubt {
                return Err(doubt.into());
            }
            if row.is_none_or(|row| row.id != checked.id) {
                self.accounts.forget(checked.id);
            }
            return Err(gone());
        }
        self.tell(&Change::SessionOpened(Arc::clone(session)))?;
        if session.is_closed() {
            self.tell(&Change::SessionClosed(session.token))?;
            return Err(gone());
        }
        Ok(())
    }

    /// Makes a session known to the control plane, if there may be one more.
    fn admit(&self, open: OpenSession) -> Result<(), Refusal> {
        let tenant = open.session.tenant;
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= SESSIONS_MAX {
            return Err(Refusal::new(Status::LimitExceeded, "the server has as many sessions as it may"));
        }
        let own = sessions.values().filter(|open| open.session.tenant == tenant).count();
        if own >= SESSIONS_PER_TENANT_MAX {
            return Err(Refusal::new(Status::LimitExceeded, "the tenant has as many sessions as it may"));
        }
        sessions.insert(open.session.token, open);
        Ok(())
    }

    fn next_client_id(&self) -> Result<u64, Refusal> {
        let mut reserved = lock(&self.client_ids);
        if let Some(id) = reserved.next() {
            return Ok(id);
        }
        *reserved = self.metadata.reserve_client_ids()?;
        reserved.next().ok_or_else(|| Status::Internal.into())
    }

    /// Ends a session on every worker, with what it has running. Does nothing when it is over already; while another
    /// thread ends it, waits for the workers like that one.
    ///
    /// # Errors
    /// That workers fail.
    pub fn close_session(&self, token: u64) -> Result<(), Refusal> {
        let Some(open) = lock(&self.sessions).get(&token).cloned() else { return Ok(()) };
        open.session.close();
        self.tell(&Change::SessionClosed(token))?;
        lock(&self.ended).note(token);
        lock(&self.sessions).remove(&token);
        Ok(())
    }

    /// Workers that run no more: each holds on to its counters until then.
    #[must_use]
    pub fn workers_ended(&self) -> usize {
        self.metrics.iter().filter(|metrics| Arc::strong_count(metrics) == 1).count()
    }

    /// What is done now and then: ends idle sessions, unloads code that nobody uses any more, records acts that
    /// could not be, says what streams were closed or refused.
    pub fn tidy(&self) {
        self.acts.catch_up(&self.metadata);
        self.close_idle_sessions();
        self.registry.collect();
        if let Some(counts) = self.streams.news() {
            let Counts { evicted, turned_away, refused, ceded } = counts;
            let text = "more streams were asked for than there may be";
            tracing::warn!(closed = evicted, turned_away, refused, ceded, text);
        }
    }

    /// Reserves more versions before those of the server's reservation are used up.
    pub fn keep_versions(&self) {
        let tables: Vec<_> = lock(&self.tables).values().cloned().collect();
        let parts = tables.iter().flat_map(|entry| entry.parts.held());
        let newest = parts.map(|part| part.newest_version()).max().unwrap_or_default();
        let soon = newest.saturating_add(VERSIONS_RESERVED / 2);
        if soon > self.parts_made.versions_above() + VERSIONS_RESERVED
            && let Err(error) = self.metadata.reserve_versions_to(soon)
        {
            tracing::warn!(%error, "no more versions could be reserved; it is tried again");
        }
    }

    /// Moves the home of one tenant if the load asks for it.
    pub fn balance(&self, homes: &mut HomeBalancer) {
        let accounts = self.accounts.all();
        let look = Look::of(self.clock.now_us(), &self.metrics, &accounts);
        let Some(Move { tenant, from, to }) = homes.look(look) else { return };
        if let Some(account) = accounts.iter().find(|account| account.tenant == tenant) {
            account.move_home(to);
            // Of all counters the one that no worker counts.
            self.metrics[usize::from(from)].count(Counter::HomesMoved);
            tracing::debug!(tenant = tenant.0, from, to, "a tenant's home moved");
        }
    }

    /// Ends the sessions that nobody has used for [`SESSION_IDLE_MS`].
    fn close_idle_sessions(&self) {
        let now_us = self.clock.now_us();
        let idle: Vec<u64> = lock(&self.sessions)
            .values()
            .filter(|open| open.session.idle_ms(now_us) >= SESSION_IDLE_MS)
            .map(|open| open.session.token)
            .collect();
        for token in idle {
            // A worker that is gone serves nobody.
            let _ = self.close_session(token);
        }
    }

    /// The table of a tenant by its name.
    #[must_use]
    pub fn table(&self, tenant: TenantId, name: &str) -> Option<Arc<TableEntry>> {
        lock(&self.tables).get(&(tenant, name.to_owned())).cloned()
    }

    /// The tables of a tenant.
    #[must_use]
    pub fn tables_of(&self, tenant: TenantId) -> Vec<Arc<TableEntry>> {
        let tables = lock(&self.tables);
        let own = (tenant, String::new())..(TenantId(tenant.0 + 1), String::new());
        tables.range(own).map(|(_, entry)| Arc::clone(entry)).collect()
    }
}
