//! State of the control plane: shared data of control threads, and the changes that they make.
//!
//! Every change takes the same steps: it is written to the metadata (durable or refused), sent to all workers, then
//! reported to the client. One lock serializes the changes, so that the workers' catalogs match the metadata; only
//! metadata operations are slow under it. A second lock protects the ownership of tables, which migrations change
//! under time pressure. Workers never use this state.
//!
//! Its parts: [`acts`] for the audit log, [`archives`] that are read, [`grant`]s to other tenants, the [`home_balancer`], the
//! [`lease_cache`] that replaces the metadata while it does not answer, running [`migrations`], [`ownership`] of tables,
//! [`promises`] of other servers, [`recovered_replies`] of other servers, [`resumption`] of sessions after a restart, [`streams`]' permits.

pub mod acts;
pub mod archives;
pub mod grant;
pub mod home_balancer;
pub mod lease_cache;
pub mod listener_status;
pub mod migrations;
pub mod ownership;
pub mod ownership_guard;
pub mod promises;
pub mod recovered_replies;
mod refusal;
pub mod resumption;
pub mod streams;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, atomic::AtomicU64};
use std::thread::Thread;
use std::time::Duration;

use cluster::limits::VERSIONS_RESERVED;
use cluster::metadata::{Metadata, MetadataError, TenantRow};
use cluster::moment::Moment;
use cluster::records::RecordsError;
use cluster::secret::{SecretHash, random_token};
use store::Store;
use wire::limits::SESSION_IDLE_MS;
use wire::{Status, TenantId};

pub use self::refusal::Refusal;

use self::acts::Acts;
use self::archives::Archives;
use self::grant::Grant;
use self::home_balancer::{HomeBalancer, Look, Move};
use self::lease_cache::LeaseCache;
use self::listener_status::ListenerStatus;
use self::migrations::Migrations;
use self::ownership_guard::OwnershipGuard;
use self::recovered_replies::RecoveredReplies;
use self::resumption::Resumption;
use self::streams::{Counts, Streams};
use crate::clock::Clock;
use crate::durability::log_thread::LogHandle;
use crate::durability::replicas::backup_thread::BackupHost;
use crate::extension::log::ExtensionLog;
use crate::extension::registry::Registry;
use crate::limits::{ETCD_OPENING_MS, SESSIONS_MAX, SESSIONS_PER_TENANT_MAX};
use crate::metrics::{Counter, WorkerMetrics};
use crate::session::Session;
use crate::session::completions::Completions;
use crate::sync::lock;
use crate::tablet::{PartsMade, TableEntry};
use crate::tenant::account::Accounts;
use crate::view::catalog::Ended;
use crate::view::change::{Change, ChangeSender, broadcast};
use crate::view::{Fence, Views};
use crate::worker::ports::FramePorts;
use crate::worker::response_limiter::ResponseLimiter;

/// An open session with the details shown in lists.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// The session.
    pub session: Arc<Session>,
    /// Name of the tenant.
    pub tenant: String,
    /// The client's address.
    pub peer: SocketAddr,
    /// Time of opening, in milliseconds since the Unix epoch.
    pub opened_ms: u64,
}

/// Tables by owner and name.
pub type TableNames = BTreeMap<(TenantId, String), Arc<TableEntry>>;

/// State shared by control threads.
pub struct Control {
    /// The server's clock.
    pub clock: Clock,
    /// Records that survive a restart.
    pub metadata: Metadata,
    /// Substitute for the metadata while a cluster's metadata does not answer.
    pub lease_cache: LeaseCache,
    /// The last commit of a cluster's metadata that this server's copy has.
    pub metadata_copied: AtomicU64,
    /// The thread that shares limits over a cluster, once it runs.
    pub limit_sharing: OnceLock<Thread>,
    /// Migrations of tablets; `None` outside a cluster.
    pub migrations: Option<Migrations>,
    /// The loaded extensions.
    pub registry: Registry,
    /// Limits and counters of tenants.
    pub accounts: Accounts,
    /// The store, in which the parts of tables are made.
    pub store: Arc<Store>,
    /// The log of durable tables; `None` without a disk.
    pub log: Option<LogHandle>,
    /// The machine, and the replicas of other servers' logs there.
    pub host: BackupHost,
    /// Archives that are read from the log.
    pub archives: Archives,
    /// Clients whose completion records may be needed.
    pub completions: Arc<Completions>,
    /// Which clients may resume their sessions.
    pub resumption: Resumption,
    /// What clients of servers whose logs were recovered here may ask for.
    pub recovered_replies: RecoveredReplies,
    /// The parts that were made.
    pub parts_made: PartsMade,
    /// Time at which each table last lost objects because a server ended, in milliseconds since the Unix epoch, by
    /// table number.
    pub emptied: Mutex<BTreeMap<u32, u64>>,
    /// The workers' queues.
    pub workers: Vec<ChangeSender>,
    /// The workers' counters.
    pub metrics: Vec<Arc<WorkerMetrics>>,
    /// The workers' frame ports.
    pub ports: FramePorts,
    /// Shared-memory listener for local clients; `None` if there is none.
    pub shm_listener: Option<ListenerStatus>,
    /// The server's views.
    pub views: Arc<Views>,
    /// Administrative acts not yet in the audit log.
    pub acts: Acts,
    /// The time until which workers may serve tablets that others may come to own.
    pub fence: Arc<Fence>,
    /// Guards what the server owns on its disk, once others may recover it.
    pub ownership_guard: OwnershipGuard,
    /// Hash of the administrator's secret.
    pub administrator: SecretHash,
    /// Hash of a secret that nobody has, compared when the tenant does not exist.
    pub nobody: SecretHash,
    /// Connection permits of clients' streams.
    pub streams: Arc<Streams>,
    /// Rate limit for wrong secrets and tokens, per source.
    pub attempts: Mutex<ResponseLimiter>,
    /// Open sessions by token.
    pub sessions: Mutex<HashMap<u64, OpenSession>>,
    /// Sessions that have ended.
    pub ended: Mutex<Ended>,
    /// Tables of all tenants.
    pub tables: Mutex<TableNames>,
    /// Grants between tenants.
    pub grants: Mutex<Vec<Grant>>,
    /// Tenants with tracing switched on, each with its log.
    pub traced: Mutex<Vec<(TenantId, Arc<ExtensionLog>)>>,
    /// Reserved client numbers.
    pub client_ids: Mutex<Range<u64>>,
    /// Lock for changes of the catalog.
    pub changing: Mutex<()>,
    /// Lock for changes of a table's ownership and of the workers' copy of it. A thread that holds both locks took
    /// `changing` first. No thread queries the metadata under this lock, so that a cut waits for no disk and no other
    /// server.
    pub owning: Mutex<()>,
}

/// Returns the refusal for a tenant name that does not exist.
pub(super) fn unknown_tenant(name: &str) -> Refusal {
    Refusal::new(Status::UnknownTenant, format!("there is no tenant `{name}`"))
}

/// The result of a tenant lookup: in the metadata, or as last seen if a cluster's metadata does not answer.
#[derive(Debug)]
pub struct KnownTenant {
    /// The tenant, if it exists.
    pub row: Option<TenantRow>,
    /// The reason why the result is only the last known state; a tenant missing from it may exist by now.
    pub doubt: Option<MetadataError>,
}

impl Control {
    /// Returns the number of the tenant with this name.
    pub(super) fn tenant_number(&self, name: &str) -> Result<TenantId, Refusal> {
        let row = self.metadata.tenant_find(name)?;
        row.map(|row| row.id).ok_or_else(|| unknown_tenant(name))
    }

    /// Lets this server's shares of limits be computed now.
    pub fn share_limits(&self) {
        self.limit_sharing.get().into_iter().for_each(Thread::unpark);
    }

    /// Returns the refusal for a wrong secret or token, or `Retry` if the source exceeds its rate.
    pub(super) fn wrong(&self, peer: SocketAddr, refusal: Refusal) -> Refusal {
        let now_us = self.clock.now_us();
        if lock(&self.attempts).take_for(peer, now_us) { refusal } else { Status::Retry.into() }
    }

    /// Sends a change to all workers and waits until they applied it.
    ///
    /// # Errors
    /// `Unavailable` if a worker does not acknowledge it.
    pub fn tell(&self, change: &Change) -> Result<(), Refusal> {
        broadcast(&self.workers, change)
            .map_err(|_| Refusal::new(Status::Unavailable, "a worker of the server does not answer"))
    }

    /// Opens a session for a tenant whose secret was checked.
    ///
    /// # Errors
    /// `LimitExceeded`; `BadSecret` if the tenant was dropped or its secret changed meanwhile; or a failure of
    /// numbers, workers or the metadata.
    pub fn open_session(&self, checked: TenantRow, peer: SocketAddr) -> Result<Arc<Session>, Refusal> {
        let client_id = self.next_client_id()?;
        self.begin_session(checked, peer, (client_id, 0))
    }

    /// Opens a session under this client id, which has the replies below `first_unacknowledged`; the others that a start
    /// found for it are in its ring before any worker knows it. Errors as [`Control::open_session`].
    fn begin_session(
        &self,
        checked: TenantRow,
        peer: SocketAddr,
        (client_id, first_unacknowledged): (u64, u64),
    ) -> Result<Arc<Session>, Refusal> {
        let token = random_token().map_err(|error| Refusal::new(Status::Internal, error.to_string()))?;
        let account = self.accounts.of(checked.id);
        let session = Session::new(token, client_id, account, self.clock.now_us());
        let session = Arc::new(session.opened_from(peer.ip()));
        let (tenant, opened_ms) = (checked.name.clone(), self.clock.wall_ms());
        // Registered before the tenant is checked again: a drop from then on ends this session too.
        self.admit(OpenSession { session: Arc::clone(&session), tenant, peer, opened_ms })?;
        let replies = self.completions.opened(&session);
        let found = replies.iter().map(|reply| (reply.sequence, reply.status, &*reply.body));
        session.ring.restore(first_unacknowledged, found);
        let confirmed = self.confirm(&checked, &session);
        if confirmed.is_err() {
            lock(&self.sessions).remove(&token);
            if !replies.is_empty() {
                self.completions.not_opened(client_id, replies, self.resumption.replies_until_us());
            }
        }
        confirmed.map(|()| session)
    }

    /// Announces a session to the workers if its tenant is unchanged.
    fn confirm(&self, checked: &TenantRow, session: &Arc<Session>) -> Result<(), Refusal> {
        let gone =
            || Refusal::new(Status::BadSecret, "the tenant was just dropped, or its secret was changed");
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

    /// Adds a session to the control plane, within the limits.
    fn admit(&self, open: OpenSession) -> Result<(), Refusal> {
        let tenant = open.session.tenant;
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= SESSIONS_MAX {
            return Err(Refusal::new(Status::LimitExceeded, "the server has reached its session limit"));
        }
        let own = sessions.values().filter(|open| open.session.tenant == tenant).count();
        if own >= SESSIONS_PER_TENANT_MAX {
            return Err(Refusal::new(Status::LimitExceeded, "the tenant has reached its session limit"));
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

    /// Ends a session and everything that it runs on every worker. Does nothing if it has ended; if another thread is
    /// ending it, waits for the workers too.
    ///
    /// # Errors
    /// If workers fail.
    pub fn close_session(&self, token: u64) -> Result<(), Refusal> {
        let Some(open) = lock(&self.sessions).get(&token).cloned() else { return Ok(()) };
        open.session.close();
        self.tell(&Change::SessionClosed(token))?;
        lock(&self.ended).note(token);
        lock(&self.sessions).remove(&token);
        Ok(())
    }

    /// Returns the number of ended workers: a worker holds its counters while it runs.
    #[must_use]
    pub fn workers_ended(&self) -> usize {
        self.metrics.iter().filter(|metrics| Arc::strong_count(metrics) == 1).count()
    }

    /// Does periodic work: ends idle sessions, unloads unused extensions, records acts that could not be recorded
    /// before, logs streams that were closed or refused.
    pub fn tidy(&self) {
        self.acts.catch_up(&self.metadata);
        self.close_idle_sessions();
        self.completions.tidy(self.clock.now_us());
        self.resumption.tidy(self.clock.now_us());
        self.recovered_replies.tidy(self.clock.now_us());
        self.registry.collect();
        if let Some(counts) = self.streams.news() {
            let Counts { evicted, turned_away, refused, ceded } = counts;
            let text = "streams were closed or refused because a stream limit was reached";
            tracing::warn!(closed = evicted, turned_away, refused, ceded, text);
        }
    }

    /// Reserves more versions before the server's reservation is used up.
    pub fn keep_versions(&self) {
        let tables: Vec<_> = lock(&self.tables).values().cloned().collect();
        let parts = tables.iter().flat_map(|entry| entry.parts.held());
        let newest = parts.map(|part| part.newest_version()).max().unwrap_or_default();
        let soon = newest.saturating_add(VERSIONS_RESERVED / 2);
        if soon > self.parts_made.versions_above() + VERSIONS_RESERVED
            && let Err(error) = self.metadata.reserve_versions_to(soon)
        {
            tracing::warn!(%error, "cannot reserve more versions; retrying");
        }
    }

    /// Moves one tenant's home core if the load requires it.
    pub fn balance(&self, balancer: &mut HomeBalancer) {
        let accounts = self.accounts.all();
        let look = Look::of(self.clock.now_us(), &self.metrics, &accounts);
        let Some(Move { tenant, from, to }) = balancer.look(look) else { return };
        if let Some(account) = accounts.iter().find(|account| account.tenant == tenant) {
            account.move_home(to);
            // The only counter that no worker counts.
            self.metrics[usize::from(from)].count(Counter::HomesMoved);
            tracing::debug!(tenant = tenant.0, from, to, "a tenant's home moved");
        }
    }

    /// Ends sessions that were idle for [`SESSION_IDLE_MS`].
    fn close_idle_sessions(&self) {
        let now_us = self.clock.now_us();
        let idle: Vec<u64> = lock(&self.sessions)
            .values()
            .filter(|open| open.session.idle_ms(now_us) >= SESSION_IDLE_MS)
            .map(|open| open.session.token)
            .collect();
        for token in idle {
            // Fails only if a worker has ended, which serves no session any more.
            let _ = self.close_session(token);
        }
    }

    /// Returns a tenant's table by its name.
    #[must_use]
    pub fn table(&self, tenant: TenantId, name: &str) -> Option<Arc<TableEntry>> {
        lock(&self.tables).get(&(tenant, name.to_owned())).cloned()
    }

    /// Returns the tables of a tenant.
    #[must_use]
    pub fn tables_of(&self, tenant: TenantId) -> Vec<Arc<TableEntry>> {
        let tables = lock(&self.tables);
        let own = (tenant, String::new())..(TenantId(tenant.0 + 1), String::new());
        tables.range(own).map(|(_, entry)| Arc::clone(entry)).collect()
    }

    /// Returns the tenant of a name, to open a session. If the metadata does not answer, or does not answer soon and
    /// the last known state `fits`, returns that state. A state that does not fit may have changed since; and the time
    /// that this takes does not reveal whether the tenant exists.
    ///
    /// # Errors
    /// If the metadata cannot be read and no last known state may replace it.
    pub fn tenant_named(
        &self,
        name: &str,
        fits: impl FnOnce(Option<&TenantRow>) -> bool,
    ) -> Result<KnownTenant, MetadataError> {
        let patience = Duration::from_millis(ETCD_OPENING_MS);
        match self.known(name, self.metadata.tenant_find_within(name, patience)) {
            Ok(known) if known.doubt.is_none() || fits(known.row.as_ref()) => Ok(known),
            _ => self.known(name, self.metadata.tenant_find(name)),
        }
    }

    /// Returns the metadata's answer, or the last known state if it is unavailable.
    fn known(
        &self,
        name: &str,
        found: Result<Option<TenantRow>, MetadataError>,
    ) -> Result<KnownTenant, MetadataError> {
        match found {
            Ok(row) => Ok(KnownTenant { row, doubt: None }),
            Err(error @ MetadataError::Records(RecordsError::Unavailable(_))) => {
                match self.lease_cache.tenant(name, Moment::now()) {
                    Some(row) => Ok(KnownTenant { row, doubt: Some(error) }),
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the names of all tenants; in a cluster as this server last saw them, so that they can be shown without
    /// the metadata.
    ///
    /// # Errors
    /// If the metadata of a server outside a cluster cannot be read.
    pub fn tenant_names(&self) -> Result<BTreeMap<TenantId, String>, MetadataError> {
        if self.metadata.records().is_shared() {
            return Ok(self.lease_cache.names());
        }
        Ok(self.metadata.tenants()?.into_iter().map(|row| (row.id, row.name)).collect())
    }
}
