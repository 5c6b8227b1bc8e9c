//! The requests of administration.
//!
//! Names and paths are checked by the decoder ([`crate::name_is_valid`], [`crate::path_is_valid`]), so what
//! the server gets may be shown and stored. What a request holds is borrowed from the record.

mod decode;
mod encode;

use crate::opcode;
use crate::{LimitChange, MigrationMode, PackageFile, Placement, Right, Subject, TableOptions};

/// A request of administration. The comment of each names the answer under `Ok`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdminRequest<'a> {
    /// Creates a tenant: [`crate::TenantCreated`].
    TenantCreate {
        /// Its name.
        name: &'a str,
    },
    /// Lists the tenants: a `Vec` of [`crate::TenantEntry`].
    TenantList,
    /// Drops a tenant with all it has: empty.
    TenantDrop {
        /// Its name.
        name: &'a str,
    },
    /// Reads the limits of a tenant: a `Vec` of [`crate::TenantLimitEntry`].
    TenantLimits {
        /// Its name; nothing for the tenant whose stream it is.
        name: Option<&'a str>,
    },
    /// Changes limits of a tenant, all of them or none: a `Vec` of [`crate::TenantLimitEntry`], as they are then.
    TenantLimitsSet {
        /// Its name.
        name: &'a str,
        /// What changes.
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
        /// How it is made.
        options: TableOptions,
    },
    /// Creates a table of several tablets, each at the server that owns fewest: [`crate::TableId`].
    TableCreateSpread {
        /// Its name.
        name: &'a str,
        /// How it is made.
        options: TableOptions,
        /// How many.
        tablets: u16,
    },
    /// Lists the tables: a `Vec` of [`crate::TableEntry`].
    TableList,
    /// Drops a table with its objects: empty.
    TableDrop {
        /// Its name.
        name: &'a str,
    },
    /// Counts a table: [`crate::TableStatistics`].
    TableStat {
        /// Its name.
        name: &'a str,
    },
    /// Finds a table: [`crate::TableId`].
    TableOpen {
        /// Its name, or `owner/name` of one that is granted.
        name: &'a str,
    },
    /// Compiles and installs an extension: [`crate::ExtensionInstalled`]. A name that exists gets a new
    /// version.
    ExtensionInstall {
        /// Its name.
        name: &'a str,
        /// Its source.
        files: Vec<PackageFile<'a>>,
        /// Who gets the new version.
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
        /// Which version; 0 is all of them.
        version: u32,
    },
    /// Finds what is needed to invoke: [`crate::ExtensionResolved`].
    ExtensionResolve {
        /// Its name, or `owner/name` of one that is granted.
        name: &'a str,
    },
    /// Makes an earlier version current: [`crate::Standing`].
    ExtensionRollback {
        /// Its name.
        name: &'a str,
        /// Which version; 0 ends the canary, or, when there is none, takes the version before the current one.
        version: u32,
    },
    /// Makes a version current and keeps it so when others are installed: [`crate::Standing`].
    ExtensionPin {
        /// Its name.
        name: &'a str,
        /// Which version; 0 lets the next installation become current again.
        version: u32,
    },
    /// Makes the canary current: [`crate::Standing`].
    ExtensionPromote {
        /// Its name.
        name: &'a str,
    },
    /// Reads what an extension logged, oldest first: [`crate::LogLines`].
    ExtensionLogs {
        /// Its name, or `owner/name` of one that is granted: what it logged for the caller.
        name: &'a str,
        /// Lines up to this level: 0 errors alone, 1 warnings, 2 information, 3 all.
        level: u8,
        /// Lines behind this one, the oldest of them; 0 asks for the newest of all.
        after: u64,
        /// How many at most.
        count: u32,
    },
    /// Traces invocations of an extension for some seconds, and reads what was traced, oldest first:
    /// [`crate::Traces`].
    ExtensionTraces {
        /// Its name, or `owner/name` of one that is granted: the caller's invocations of it.
        name: &'a str,
        /// [`crate::function_hash`] of the function; `None` for all.
        function: Option<u32>,
        /// Those that took at least so long, in microseconds.
        slower_than_us: u64,
        /// Traces behind this one; `u64::MAX` for those to come.
        after: u64,
    },
    /// Ends the tracing of an extension's invocations, if they are traced: empty.
    ExtensionTracesEnd {
        /// Its name, or `owner/name` of one that is granted.
        name: &'a str,
    },
    /// Reads the counters that the caller may see: a `Vec` of [`crate::Statistic`].
    Statistics {
        /// Those of this tenant; `None` for all, which to a tenant are its own.
        tenant: Option<&'a str>,
    },
    /// Lists the servers of the cluster that are there: a `Vec` of [`crate::ServerEntry`], empty when the server is alone.
    ServerList,
    /// Lists the tablets of all tables, by table and hash: a `Vec` of [`crate::TabletEntry`].
    TabletList,
    /// Makes a hash the first one of a tablet: empty.
    TabletSplit {
        /// `owner/name` of the table.
        table: &'a str,
        /// The hash.
        at: u64,
    },
    /// Makes one tablet of those on both sides of a hash: empty.
    TabletMerge {
        /// `owner/name` of the table.
        table: &'a str,
        /// The first hash of the upper one.
        at: u64,
    },
    /// Lists the migrations that are not over, or not cleared away: a `Vec` of [`crate::MigrationEntry`].
    MigrationList,
    /// Asks how far the migrations are in which the server has a part, and how the latest ones went: a `Vec` of
    /// [`crate::MigrationProgress`].
    MigrationProgress,
    /// Begins to move hashes of a table, all of one server, to another: [`crate::MigrationEntry`].
    MigrationBegin {
        /// `owner/name` of the table.
        table: &'a str,
        /// The first hash.
        first: u64,
        /// The last one.
        last: u64,
        /// Number of the server that they go to.
        target: u32,
        /// In which way; `None`: in the table's.
        mode: Option<MigrationMode>,
    },
    /// Asks for the servers of the cluster, there or not, and for its plans: [`crate::ClusterStatus`].
    ClusterStatus,
    /// Begins to move all that a server owns to others: [`crate::PlanEntry`].
    ClusterDrain {
        /// Number of the server.
        server: u32,
    },
    /// Begins to move tablets until all servers own the same: [`crate::PlanEntry`].
    ClusterBalance,
    /// Stops a plan; what is on the move goes on: [`crate::PlanEntry`].
    ClusterStop {
        /// Number of the plan.
        plan: u32,
    },
    /// Gives to others, empty, what a server owned that is gone: [`crate::Adopted`].
    ClusterAdopt {
        /// Number of the server.
        server: u32,
    },
    /// Asks for a migration to be undone: [`crate::MigrationEntry`] as it is at that moment.
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
    /// Reads the audit log, as far as the caller may see it, oldest first: a `Vec` of [`crate::AuditEntry`].
    AuditRead {
        /// Entries behind this one, the oldest of them; 0 asks for the newest of all.
        after: u64,
        /// How many at most.
        count: u32,
    },
    /// Lets another tenant use a table or an extension, in place of what was granted before: empty.
    GrantCreate {
        /// Its name.
        name: &'a str,
        /// The other tenant.
        to: &'a str,
        /// For what.
        right: Right,
    },
    /// Lists the grants of the tenant and those to it: a `Vec` of [`crate::GrantEntry`].
    GrantList,
    /// Takes a grant back: empty.
    GrantRevoke {
        /// What kind of thing.
        subject: Subject,
        /// Its name.
        name: &'a str,
        /// The other tenant.
        to: &'a str,
    },
}

impl<'a> AdminRequest<'a> {
    /// The request's number, one of [`crate::opcode`].
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
