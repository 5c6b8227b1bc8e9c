//! The operator's connection: tenants and their limits, counters and sessions of the whole server.

use std::ops::RangeInclusive;

use wire::{
    AdminRequest, Adopted, AuditEntry, Body, ClusterStatus, LimitChange, MigrationEntry, MigrationMode,
    MigrationProgress, PlanEntry, ServerEntry, SessionEntry, Statistic, TabletEntry, TenantCreated,
    TenantEntry, TenantLimitEntry,
};

use crate::client::{only_reads, read_answer};
use crate::reach::{Opening, Reached, reach};
use crate::reconnecting_stream::{ReconnectingStream, StreamEntrance};
use crate::{ClientConfig, Error};

/// A stream opened with the administrator's secret.
pub struct Admin {
    lane: ReconnectingStream,
    config: ClientConfig,
}

impl Admin {
    /// Connects to the server at `address` (host and TCP port) with the administrator's secret. Several may be named as for
    /// [`crate::Session::open`], where they have the same secret.
    ///
    /// # Errors
    /// [`Error::Unreachable`], or the server's refusal.
    pub fn connect(address: &str, secret: &str, config: ClientConfig) -> Result<Admin, Error> {
        let secret = secret.to_owned();
        let opening = Opening::Admin { secret: secret.clone() };
        let Reached { server, connection, .. } = reach(address, &opening, &config)?;
        let door = StreamEntrance::Admin { secret };
        Ok(Admin { lane: ReconnectingStream::new(connection, server, door, config.clone()), config })
    }

    /// Creates a tenant; returns the secret that opens its sessions, which is shown this once.
    ///
    /// # Errors
    /// `AlreadyExists`, another refusal, or no answer.
    pub fn tenant_create(&mut self, name: &str) -> Result<String, Error> {
        self.call::<TenantCreated>(&AdminRequest::TenantCreate { name }).map(|created| created.secret)
    }

    /// Gives a tenant a new secret, which is returned this once; the one before opens nothing any more. Sessions
    /// that are open go on.
    ///
    /// # Errors
    /// `UnknownTenant`, another refusal, or no answer.
    pub fn tenant_rotate(&mut self, name: &str) -> Result<String, Error> {
        self.call::<TenantCreated>(&AdminRequest::TenantRotate { name }).map(|created| created.secret)
    }

    /// Lists the tenants.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn tenant_list(&mut self) -> Result<Vec<TenantEntry>, Error> {
        self.call(&AdminRequest::TenantList)
    }

    /// Drops a tenant with all it has.
    ///
    /// # Errors
    /// `UnknownTenant`, another refusal, or no answer.
    pub fn tenant_drop(&mut self, name: &str) -> Result<(), Error> {
        self.call(&AdminRequest::TenantDrop { name })
    }

    /// Reads the limits of a tenant.
    ///
    /// # Errors
    /// `UnknownTenant`, another refusal, or no answer.
    pub fn tenant_limits(&mut self, name: &str) -> Result<Vec<TenantLimitEntry>, Error> {
        self.call(&AdminRequest::TenantLimits { name: Some(name) })
    }

    /// Changes limits of a tenant, all of them or none, and returns all as they are then. The next request of
    /// the tenant meets the new ones; they last over restarts.
    ///
    /// # Errors
    /// `UnknownTenant`, `UnknownLimit`, `OutOfRange`, another refusal, or no answer.
    pub fn tenant_limits_set(
        &mut self,
        name: &str,
        changes: &[LimitChange<'_>],
    ) -> Result<Vec<TenantLimitEntry>, Error> {
        self.call(&AdminRequest::TenantLimitsSet { name, changes: changes.to_vec() })
    }

    /// Reads the server's counters.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn statistics(&mut self) -> Result<Vec<Statistic>, Error> {
        self.call(&AdminRequest::Statistics { tenant: None })
    }

    /// Reads the counters of a tenant.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn tenant_statistics(&mut self, tenant: &str) -> Result<Vec<Statistic>, Error> {
        self.call(&AdminRequest::Statistics { tenant: Some(tenant) })
    }

    /// Lists the servers of the cluster that are there; none when the server is alone.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn server_list(&mut self) -> Result<Vec<ServerEntry>, Error> {
        self.call(&AdminRequest::ServerList)
    }

    /// Lists the tablets of all tables, by table and hash; none when the server is alone.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn tablet_list(&mut self) -> Result<Vec<TabletEntry>, Error> {
        self.call(&AdminRequest::TabletList)
    }

    /// Makes a hash of the table `owner/name` the first one of a tablet; nothing happens where it is one.
    ///
    /// # Errors
    /// `UnknownTable`, `WrongTablets` where they do not allow it, `Unavailable` when the server is alone, another
    /// refusal, or no answer.
    pub fn tablet_split(&mut self, table: &str, at: u64) -> Result<(), Error> {
        self.call(&AdminRequest::TabletSplit { table, at })
    }

    /// Makes one tablet of those on both sides of a hash of the table `owner/name`, which one server must own.
    ///
    /// # Errors
    /// As [`Admin::tablet_split`].
    pub fn tablet_merge(&mut self, table: &str, at: u64) -> Result<(), Error> {
        self.call(&AdminRequest::TabletMerge { table, at })
    }

    /// Lists the migrations that are not over, or not cleared away.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn migration_list(&mut self) -> Result<Vec<MigrationEntry>, Error> {
        self.call(&AdminRequest::MigrationList)
    }

    /// How far the migrations are in which the server that is asked has a part, and how the latest ones went that are over.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn migration_progress(&mut self) -> Result<Vec<MigrationProgress>, Error> {
        self.call(&AdminRequest::MigrationProgress)
    }

    /// Begins to move hashes of the table `owner/name`, which one server must own, to another, in this mode or in the
    /// table's. They move while this returns.
    ///
    /// # Errors
    /// As [`Admin::tablet_split`].
    pub fn migration_begin(
        &mut self,
        table: &str,
        hashes: RangeInclusive<u64>,
        target: u32,
        mode: impl Into<Option<MigrationMode>>,
    ) -> Result<MigrationEntry, Error> {
        let mode = mode.into();
        let (first, last) = (*hashes.start(), *hashes.end());
        self.call(&AdminRequest::MigrationBegin { table, first, last, target, mode })
    }

    /// Asks for a migration to be undone, and says how far it is at that moment. One that is over stays as it is.
    ///
    /// # Errors
    /// `NotFound` when it was cleared away, another refusal, or no answer.
    pub fn migration_abort(&mut self, id: u32) -> Result<MigrationEntry, Error> {
        self.call(&AdminRequest::MigrationAbort { id })
    }

    /// The servers of the cluster, there or not, and its plans; none when the server is alone.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn cluster_status(&mut self) -> Result<ClusterStatus, Error> {
        self.call(&AdminRequest::ClusterStatus)
    }

    /// Begins to move all that a server owns to others, migration by migration.
    ///
    /// # Errors
    /// `WrongTablets` when it is not there, no other one is, or another plan runs; `Unavailable` when the server is alone,
    /// another refusal, or no answer.
    pub fn cluster_drain(&mut self, server: u32) -> Result<PlanEntry, Error> {
        self.call(&AdminRequest::ClusterDrain { server })
    }

    /// Begins to move tablets until all servers own the same.
    ///
    /// # Errors
    /// As [`Admin::cluster_drain`].
    pub fn cluster_balance(&mut self) -> Result<PlanEntry, Error> {
        self.call(&AdminRequest::ClusterBalance)
    }

    /// Stops a plan: nothing more is begun, and what is on the move goes on.
    ///
    /// # Errors
    /// `NotFound`, another refusal, or no answer.
    pub fn cluster_stop(&mut self, plan: u32) -> Result<PlanEntry, Error> {
        self.call(&AdminRequest::ClusterStop { plan })
    }

    /// Gives to others, empty, what a server owned that is gone for good.
    ///
    /// # Errors
    /// `WrongTablets` when it is there, or no other one is; `Unavailable`, another refusal, or no answer.
    pub fn cluster_adopt(&mut self, server: u32) -> Result<Adopted, Error> {
        self.call(&AdminRequest::ClusterAdopt { server })
    }

    /// Lists the open sessions of all tenants.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn session_list(&mut self) -> Result<Vec<SessionEntry>, Error> {
        self.call(&AdminRequest::SessionList)
    }

    /// Ends a session.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn session_revoke(&mut self, client_id: u64) -> Result<(), Error> {
        self.call(&AdminRequest::SessionRevoke { client_id })
    }

    /// Reads the audit log, oldest first: of what is behind entry `after` the oldest, at most `count`; with
    /// `after` 0 the newest.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub fn audit(&mut self, after: u64, count: u32) -> Result<Vec<AuditEntry>, Error> {
        self.call(&AdminRequest::AuditRead { after, count })
    }

    fn call<T: Body>(&mut self, request: &AdminRequest<'_>) -> Result<T, Error> {
        let body = request.encode().map_err(|status| Error::Refused { status, text: String::new() })?;
        let timeout = self.config.admin_timeout;
        read_answer(self.lane.administer(request.opcode(), &body, only_reads(request), timeout)?)
    }
}
