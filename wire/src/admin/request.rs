//! The requests of administration.
//!
//! The decoder checks names and paths ([`crate::name_is_valid`], [`crate::path_is_valid`]), so the server can show
//! and store them. A request borrows the record.

mod decode;
mod encode;

use crate::opcode;
use crate::{LimitChange, MigrationMode, PackageFile, Placement, Right, Subject, TableOptions};

/// An administrative request. The comment of each variant names the reply under `Ok`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdminRequest<'a> {
    /// Creates a tenant: [`crate::TenantCreated`].
    TenantCreate {
        /// Its name.
        name: &'a str,
    },
    /// Lists the tenants: a `Vec` of [`crate::TenantEntry`].
    TenantList,
    /// Drops a tenant with all its data: empty.
    TenantDrop {
        /// Its name.
        name: &'a str,
    },
    /// Reads the limits of a tenant: a `Vec` of [`crate::TenantLimitEntry`].
    TenantLimits {
        /// Its name; `None` for the tenant of the stream.
        name: Option<&'a str>,
    },
    /// Changes limits of a tenant, all of them or none: a `Vec` of [`crate::TenantLimitEntry`] with the new values.
    TenantLimitsSet {
        /// Its name.
        name: &'a str,
        /// The changes.
        changes: Vec<LimitChange<'a>>,
    },
    /// Gives a tenant a new secret: [`crate::TenantCreated`].
    TenantRotate {
        /// Its name.
        name: &'a str,
    },
    /// Creates a table: [`crate::TableId`].
    TableCreate {
        /// Its name.
        name: &'a str,
        /// Its options.
        options: TableOptions,
    },
    /// Creates a table of several tablets, each at the server with the fewest: [`crate::TableId`].
    TableCreateSpread {
        /// Its name.
        name: &'a str,
        /// Its options.
        options: TableOptions,
        /// Number of tablets.
        tablets: u16,
    },
    /// Lists the tables: a `Vec` of [`crate::TableEntry`].
    TableList,
    /// Drops a table with its objects: empty.
    TableDrop {
        /// Its name.
        name: &'a str,
    },
    /// Reads the statistics of a table: [`crate::TableStatistics`].
    TableStat {
        /// Its name.
        name: &'a str,
    },
    /// Finds a table: [`crate::TableId`].
    TableOpen {
        /// Its name, or `owner/name` of a granted one.
        name: &'a str,
    },
    /// Compiles and installs an extension: [`crate::ExtensionInstalled`]. An existing name gets a new version.
    ExtensionInstall {
        /// Its name.
        name: &'a str,
        /// Its source.
        files: Vec<PackageFile<'a>>,
        /// The invocations that get the new version.
        placement: Placement,
    },
    /// Lists the extensions: a `Vec` of [`crate::ExtensionEntry`].
    ExtensionList,
    /// Describes an extension: [`crate::ExtensionDescription`].
    ExtensionDescribe {
        /// Its name.
        name: &'a str,
    },
    /// Removes an extension, or one version of it: empty.
    ExtensionRemove {
        /// Its name.
        name: &'a str,
        /// The version; 0 for all of them.
        version: u32,
    },
    /// Finds the numbers that an invocation needs: [`crate::ExtensionResolved`].
    ExtensionResolve {
        /// Its name, or `owner/name` of a granted one.
        name: &'a str,
    },
    /// Makes an earlier version current: [`crate::VersionState`].
    ExtensionRollback {
        /// Its name.
        name: &'a str,
        /// The version; 0 ends the canary, or, without one, takes the version before the current one.
        version: u32,
    },
    /// Makes a version current and keeps it current across installations: [`crate::VersionState`].
    ExtensionPin {
        /// Its name.
        name: &'a str,
        /// The version; 0 lets the next installation become current again.
        version: u32,
    },
    /// Makes the canary current: [`crate::VersionState`].
    ExtensionPromote {
        /// Its name.
        name: &'a str,
    },
    /// Reads the log of an extension, oldest first: [`crate::LogLines`].
    ExtensionLogs {
        /// Its name, or `owner/name` of a granted one: then only lines logged for the caller.
        name: &'a str,
        /// Lines up to this level: 0 only errors, 1 warnings, 2 information, 3 all.
        level: u8,
        /// Lines behind this one, oldest first; 0 asks for the newest of all.
        after: u64,
        /// Maximum number of lines.
        count: u32,
    },
    /// Traces invocations of an extension for some seconds, and reads the traces, oldest first: [`crate::Traces`].
    ExtensionTraces {
        /// Its name, or `owner/name` of a granted one: then only the caller's invocations.
        name: &'a str,
        /// [`crate::function_hash`] of the function; `None` for all.
        function: Option<u32>,
        /// Minimum duration, in microseconds.
        slower_than_us: u64,
        /// Traces behind this one; `u64::MAX` for future ones.
        after: u64,
    },
    /// Ends the tracing of an extension's invocations, if active: empty.
    ExtensionTracesEnd {
        /// Its name, or `owner/name` of a granted one.
        name: &'a str,
    },
    /// Reads the counters that the caller may see: a `Vec` of [`crate::Statistic`].
    Statistics {
        /// The tenant; `None` for all, which for a tenant means its own.
        tenant: Option<&'a str>,
    },
    /// Lists the present servers of the cluster: a `Vec` of [`crate::ServerEntry`], empty for a single server.
    ServerList,
    /// Lists the tablets of all tables, by table and hash: a `Vec` of [`crate::TabletEntry`].
    TabletList,
    /// Splits a tablet, so that a hash becomes the first one of a tablet: empty.
    TabletSplit {
        /// `owner/name` of the table.
        table: &'a str,
        /// The hash.
        at: u64,
    },
    /// Merges the tablets on both sides of a hash: empty.
    TabletMerge {
        /// `owner/name` of the table.
        table: &'a str,
        /// The first hash of the upper tablet.
        at: u64,
    },
    /// Lists the migrations that have not ended, or are not cleared away: a `Vec` of [`crate::MigrationEntry`].
    MigrationList,
    /// Reads the progress of the server's present and latest migrations: a `Vec` of [`crate::MigrationProgress`].
    MigrationProgress,
    /// Starts to move hashes of a table, all of one server, to another: [`crate::MigrationEntry`].
    MigrationBegin {
        /// `owner/name` of the table.
        table: &'a str,
        /// The first hash.
        first: u64,
        /// The last hash.
        last: u64,
        /// Number of the target server.
        target: u32,
        /// The mode; `None` for the table's.
        mode: Option<MigrationMode>,
    },
    /// Reads the present and former servers of the cluster, and its plans: [`crate::ClusterStatus`].
    ClusterStatus,
    /// Starts to move all tablets of a server to others: [`crate::PlanEntry`].
    ClusterDrain {
        /// Number of the server.
        server: u32,
    },
    /// Starts to move tablets until all servers own an equal share: [`crate::PlanEntry`].
    ClusterBalance,
    /// Stops a plan; running migrations continue: [`crate::PlanEntry`].
    ClusterStop {
        /// Number of the plan.
        plan: u32,
    },
    /// Gives the tablets of a lost server to others, empty: [`crate::Adopted`].
    ClusterAdopt {
        /// Number of the server.
        server: u32,
    },
    /// Requests that a migration is undone: [`crate::MigrationEntry`] at that moment.
    MigrationAbort {
        /// Its number.
        id: u32,
    },
    /// Lists the open sessions: a `Vec` of [`crate::SessionEntry`].
    SessionList,
    /// Ends a session: empty.
    SessionRevoke {
        /// Its client's id.
        client_id: u64,
    },
    /// Reads the part of the audit log visible to the caller, oldest first: a `Vec` of [`crate::AuditEntry`].
    AuditRead {
        /// Entries behind this one, oldest first; 0 asks for the newest of all.
        after: u64,
        /// Maximum number of entries.
        count: u32,
    },
    /// Grants another tenant a right on a table or an extension, replacing an earlier grant: empty.
    GrantCreate {
        /// Its name.
        name: &'a str,
        /// The other tenant.
        to: &'a str,
        /// The right.
        right: Right,
    },
    /// Lists the grants of the tenant and to it: a `Vec` of [`crate::GrantEntry`].
    GrantList,
    /// Revokes a grant: empty.
    GrantRevoke {
        /// The kind of object.
        subject: Subject,
        /// Its name.
        name: &'a str,
        /// The other tenant.
        to: &'a str,
    },
}

impl<'a> AdminRequest<'a> {
    /// Returns the request's number, one of [`crate::opcode`].
    pub const fn opcode(&self) -> u8 {
        match self {
            AdminRequest::TenantCreate { .. } => opcode::TENANT_CREATE,
            AdminRequest::TenantList => opcode::TENANT_LIST,
            AdminRequest::TenantDrop { .. } => opcode::TENANT_DROP,
            AdminRequest::TenantLimits { .. } => opcode::TENANT_LIMITS,
            AdminRequest::TenantLimitsSet { .. } => opcode::TENANT_LIMITS_SET,
            AdminRequest::TenantRotate { .. } => opcode::TENANT_ROTATE,
            AdminRequest::TableCreate { .. } => opcode::TABLE_CREATE,
            AdminRequest::TableCreateSpread { .. } => opcode::TABLE_CREATE_SPREAD,
            AdminRequest::TableList => opcode::TABLE_LIST,
            AdminRequest::TableDrop { .. } => opcode::TABLE_DROP,
            AdminRequest::TableStat { .. } => opcode::TABLE_STAT,
            AdminRequest::TableOpen { .. } => opcode::TABLE_OPEN,
            AdminRequest::ExtensionInstall { .. } => opcode::EXTENSION_INSTALL,
            AdminRequest::ExtensionList => opcode::EXTENSION_LIST,
            AdminRequest::ExtensionDescribe { .. } => opcode::EXTENSION_DESCRIBE,
            AdminRequest::ExtensionRemove { .. } => opcode::EXTENSION_REMOVE,
            AdminRequest::ExtensionResolve { .. } => opcode::EXTENSION_RESOLVE,
            AdminRequest::ExtensionRollback { .. } => opcode::EXTENSION_ROLLBACK,
            AdminRequest::ExtensionPin { .. } => opcode::EXTENSION_PIN,
            AdminRequest::ExtensionPromote { .. } => opcode::EXTENSION_PROMOTE,
            AdminRequest::ExtensionLogs { .. } => opcode::EXTENSION_LOGS,
            AdminRequest::ExtensionTraces { .. } => opcode::EXTENSION_TRACES,
            AdminRequest::ExtensionTracesEnd { .. } => opcode::EXTENSION_TRACES_END,
            AdminRequest::Statistics { .. } => opcode::STATISTICS,
            AdminRequest::SessionList => opcode::SESSION_LIST,
            AdminRequest::SessionRevoke { .. } => opcode::SESSION_REVOKE,
            AdminRequest::AuditRead { .. } => opcode::AUDIT_READ,
            AdminRequest::GrantCreate { .. } => opcode::GRANT_CREATE,
            AdminRequest::GrantList => opcode::GRANT_LIST,
            AdminRequest::GrantRevoke { .. } => opcode::GRANT_REVOKE,
            AdminRequest::ServerList => opcode::SERVER_LIST,
            AdminRequest::TabletList => opcode::TABLET_LIST,
            AdminRequest::TabletSplit { .. } => opcode::TABLET_SPLIT,
            AdminRequest::TabletMerge { .. } => opcode::TABLET_MERGE,
            AdminRequest::MigrationList => opcode::MIGRATION_LIST,
            AdminRequest::MigrationProgress => opcode::MIGRATION_PROGRESS,
            AdminRequest::MigrationBegin { .. } => opcode::MIGRATION_BEGIN,
            AdminRequest::MigrationAbort { .. } => opcode::MIGRATION_ABORT,
            AdminRequest::ClusterStatus => opcode::CLUSTER_STATUS,
            AdminRequest::ClusterDrain { .. } => opcode::CLUSTER_DRAIN,
            AdminRequest::ClusterBalance => opcode::CLUSTER_BALANCE,
            AdminRequest::ClusterStop { .. } => opcode::CLUSTER_STOP,
            AdminRequest::ClusterAdopt { .. } => opcode::CLUSTER_ADOPT,
        }
    }
}
