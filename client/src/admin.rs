//! The operator's connection: tenants and their limits, counters and sessions of the whole server.

use std::ops::RangeInclusive;

use control::{
    AdminRequest, Adopted, ArchiveBegun, ArchivePiece, AuditEntry, ClusterStatus, DeserializeOwned,
    LimitChange, MigrationEntry, MigrationMode, MigrationProgress, PlanEntry, ServerEntry, SessionEntry,
    Statistic, TabletEntry, TenantCreated, TenantEntry, TenantLimitEntry,
};

use crate::admin_call::{AdminCall, decode_answer};
use crate::archive::{self, ArchivedSource};
use crate::connection::Opening;
use crate::reach::{Reached, reach};
use crate::reconnecting_stream::ReconnectingStream;
use crate::{ClientConfig, Error};

/// A stream opened with the administrator's secret.
pub struct Admin {
    stream: ReconnectingStream,
}

impl Admin {
    /// Connects to a server with the administrator's secret. `address` is its host and TCP port, or a list as for
    /// [`crate::Session::open`] if the servers have the same secret.
    ///
    /// # Errors
    /// [`Error::Unreachable`], or the server's refusal.
    pub fn connect(address: &str, secret: &str, config: ClientConfig) -> Result<Admin, Error> {
        let opening = Opening::Admin { secret: secret.to_owned() };
        let Reached { server, connection, .. } = reach(address, &opening, &config)?;
        Ok(Admin { stream: ReconnectingStream::new(connection, server, opening, config) })
    }

    /// Creates a tenant. Returns the secret that opens its sessions, only this once.
    ///
    /// # Errors
    /// `AlreadyExists`, another refusal, or no reply.
    pub fn tenant_create(&mut self, name: &str) -> Result<String, Error> {
        self.call::<TenantCreated>(&AdminRequest::TenantCreate { name }).map(|created| created.secret)
    }

    /// Gives a tenant a new secret, which is returned only this once. The old one opens no more sessions; open sessions
    /// continue.
    ///
    /// # Errors
    /// `UnknownTenant`, another refusal, or no reply.
    pub fn tenant_rotate(&mut self, name: &str) -> Result<String, Error> {
        self.call::<TenantCreated>(&AdminRequest::TenantRotate { name }).map(|created| created.secret)
    }

    /// Lists the tenants.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn tenant_list(&mut self) -> Result<Vec<TenantEntry>, Error> {
        self.call(&AdminRequest::TenantList)
    }

    /// Drops a tenant with its tables and extensions.
    ///
    /// # Errors
    /// `UnknownTenant`, another refusal, or no reply.
    pub fn tenant_drop(&mut self, name: &str) -> Result<(), Error> {
        self.call(&AdminRequest::TenantDrop { name })
    }

    /// Reads the limits of a tenant.
    ///
    /// # Errors
    /// `UnknownTenant`, another refusal, or no reply.
    pub fn tenant_limits(&mut self, name: &str) -> Result<Vec<TenantLimitEntry>, Error> {
        self.call(&AdminRequest::TenantLimits { name: Some(name) })
    }

    /// Changes limits of a tenant, all or none, and returns its limits. They apply from the tenant's next request on,
    /// and survive restarts.
    ///
    /// # Errors
    /// `UnknownTenant`, `UnknownLimit`, `OutOfRange`, `Unavailable` if `sandbox` is to become wasm and a kept version has
    /// no module, another refusal, or no reply.
    pub fn tenant_limits_set(
        &mut self,
        name: &str,
        changes: &[LimitChange<'_>],
    ) -> Result<Vec<TenantLimitEntry>, Error> {
        self.call(&AdminRequest::TenantLimitsSet { name, changes: changes.to_vec(), force: false })
    }

    /// As [`Admin::tenant_limits_set`], and `sandbox` becomes wasm even where a kept version has no module: invocations
    /// of such a version are then answered `Unavailable`.
    ///
    /// # Errors
    /// As [`Admin::tenant_limits_set`], but not `Unavailable` for a missing module.
    pub fn tenant_limits_force(
        &mut self,
        name: &str,
        changes: &[LimitChange<'_>],
    ) -> Result<Vec<TenantLimitEntry>, Error> {
        self.call(&AdminRequest::TenantLimitsSet { name, changes: changes.to_vec(), force: true })
    }

    /// Reads the server's counters.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn statistics(&mut self) -> Result<Vec<Statistic>, Error> {
        self.call(&AdminRequest::Statistics { tenant: None })
    }

    /// Reads the counters of a tenant.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn tenant_statistics(&mut self, tenant: &str) -> Result<Vec<Statistic>, Error> {
        self.call(&AdminRequest::Statistics { tenant: Some(tenant) })
    }

    /// Lists the registered servers of the cluster. The list is empty outside of a cluster.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn server_list(&mut self) -> Result<Vec<ServerEntry>, Error> {
        self.call(&AdminRequest::ServerList)
    }

    /// Lists the tablets of all tables, by table and hash. The list is empty outside of a cluster.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn tablet_list(&mut self) -> Result<Vec<TabletEntry>, Error> {
        self.call(&AdminRequest::TabletList)
    }

    /// Splits the tablets of the table `owner/name` at a hash. Does nothing if a tablet begins there.
    ///
    /// # Errors
    /// `UnknownTable`, `WrongTablets` if the tablets do not allow it, `Unavailable` if the server is not in a cluster,
    /// another refusal, or no reply.
    pub fn tablet_split(&mut self, table: &str, at: u64) -> Result<(), Error> {
        self.call(&AdminRequest::TabletSplit { table, at })
    }

    /// Merges the tablets on both sides of a hash. The table is `owner/name`; one server must own both tablets.
    ///
    /// # Errors
    /// As [`Admin::tablet_split`].
    pub fn tablet_merge(&mut self, table: &str, at: u64) -> Result<(), Error> {
        self.call(&AdminRequest::TabletMerge { table, at })
    }

    /// Lists the migrations that have a record, ended ones included.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn migration_list(&mut self) -> Result<Vec<MigrationEntry>, Error> {
        self.call(&AdminRequest::MigrationList)
    }

    /// Returns the progress of the connected server's present and latest migrations.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn migration_progress(&mut self) -> Result<Vec<MigrationProgress>, Error> {
        self.call(&AdminRequest::MigrationProgress)
    }

    /// Begins to move hashes of the table `owner/name` to another server. One server must own all of them. `mode` is
    /// by default that of the table. Returns while they move.
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

    /// Requests that a migration be undone; returns its state at that moment. One that has ended does not change.
    ///
    /// # Errors
    /// `NotFound` if its record was removed, another refusal, or no reply.
    pub fn migration_abort(&mut self, id: u32) -> Result<MigrationEntry, Error> {
        self.call(&AdminRequest::MigrationAbort { id })
    }

    /// Returns the cluster's servers, registered or not, and its plans. Both are empty outside of a cluster.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn cluster_status(&mut self) -> Result<ClusterStatus, Error> {
        self.call(&AdminRequest::ClusterStatus)
    }

    /// Begins to move everything that a server owns to others by migrations.
    ///
    /// # Errors
    /// `WrongTablets` if it is not registered, no other server is, or another plan runs; `Unavailable` if the server is
    /// not in a cluster, another refusal, or no reply.
    pub fn cluster_drain(&mut self, server: u32) -> Result<PlanEntry, Error> {
        self.call(&AdminRequest::ClusterDrain { server })
    }

    /// Begins to move tablets until all servers own the same amount.
    ///
    /// # Errors
    /// As [`Admin::cluster_drain`].
    pub fn cluster_balance(&mut self) -> Result<PlanEntry, Error> {
        self.call(&AdminRequest::ClusterBalance)
    }

    /// Stops a plan: it begins no more migrations, and running ones continue.
    ///
    /// # Errors
    /// `NotFound`, another refusal, or no reply.
    pub fn cluster_stop(&mut self, plan: u32) -> Result<PlanEntry, Error> {
        self.call(&AdminRequest::ClusterStop { plan })
    }

    /// Gives other servers, empty, the tablets of a permanently lost server.
    ///
    /// # Errors
    /// `WrongTablets` if it is registered, or no other server is; `Unavailable`, another refusal, or no reply.
    pub fn cluster_adopt(&mut self, server: u32) -> Result<Adopted, Error> {
        self.call(&AdminRequest::ClusterAdopt { server, gives_up_replicas: false })
    }

    /// As [`Admin::cluster_adopt`], with the tablets that others would recover from replicas: for those of which too many are
    /// lost.
    ///
    /// # Errors
    /// As for [`Admin::cluster_adopt`].
    pub fn cluster_give_up(&mut self, server: u32) -> Result<Adopted, Error> {
        self.call(&AdminRequest::ClusterAdopt { server, gives_up_replicas: true })
    }

    /// Lists the open sessions of all tenants.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn session_list(&mut self) -> Result<Vec<SessionEntry>, Error> {
        self.call(&AdminRequest::SessionList)
    }

    /// Ends a session.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn session_revoke(&mut self, client_id: u64) -> Result<(), Error> {
        self.call(&AdminRequest::SessionRevoke { client_id })
    }

    /// Reads the audit log, oldest entry first. Returns the oldest entries after entry `after`, at most `count`; with
    /// `after` 0 the newest.
    ///
    /// # Errors
    /// A refusal, or no reply.
    pub fn audit(&mut self, after: u64, count: u32) -> Result<Vec<AuditEntry>, Error> {
        self.call(&AdminRequest::AuditRead { after, count })
    }

    /// Begins an archive of a tenant as of one cut of the log, and ends an earlier one of that tenant.
    ///
    /// # Errors
    /// `Unavailable` without a disk, `LimitExceeded` if the server reads as many as it may, `NotPermitted`, another
    /// refusal, or no reply.
    pub fn archive_begin(&mut self, tenant: &str) -> Result<ArchiveBegun, Error> {
        self.call(&AdminRequest::ArchiveBegin { tenant: Some(tenant) })
    }

    /// Reads a piece of an archive, all keys from piece 0 on or all objects: [`crate::archived_keys`],
    /// [`crate::archived_objects`].
    ///
    /// # Errors
    /// `NotFound` if the archive has ended, `StorageFull` if the server's disk needed the room, `StorageFailed` if its
    /// log cannot be read, another refusal, or no reply.
    pub fn archive_read(&mut self, id: u64, piece: u32, keys_only: bool) -> Result<ArchivePiece, Error> {
        self.call(&AdminRequest::ArchiveRead { id, keys_only, piece, check: false })
    }

    /// Reads the source of a version of an extension: paths and bytes.
    ///
    /// # Errors
    /// `NotFound` if it was removed since, another refusal, or no reply.
    pub fn archive_source(
        &mut self,
        id: u64,
        extension: &str,
        version: u32,
    ) -> Result<ArchivedSource, Error> {
        archive::source(|request| self.call(request), (id, extension, version))
    }

    /// Ends an archive.
    ///
    /// # Errors
    /// `NotFound` if it has ended, another refusal, or no reply.
    pub fn archive_end(&mut self, id: u64) -> Result<(), Error> {
        self.call(&AdminRequest::ArchiveEnd { id })
    }

    fn call<T: DeserializeOwned>(&mut self, request: &AdminRequest<'_>) -> Result<T, Error> {
        let call = AdminCall::new(request, &self.stream.config)?;
        decode_answer(self.stream.administer(&call)?)
    }
}
