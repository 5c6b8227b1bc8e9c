//! The administrative requests.
//!
//! [`AdminRequest::decode`] checks names, paths and counts, so the server can show and store them. A request borrows
//! from its record. docs/formats.md lists the requests and their fields.

use serde::{Deserialize, Serialize};
use wire::limits::{INSTALL_BODY_BYTES_MAX, LIMIT_CHANGES_MAX, PACKAGE_FILES_MAX};
use wire::{Status, name_is_valid, path_is_valid, qualified_name_is_valid};

use crate::{Durability, LimitChange, MigrationMode, PackageFile, Placement, Right, Subject, TableOptions};

/// An administrative request. The comment of each variant names the reply under `Ok`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
        #[serde(borrow)]
        name: Option<&'a str>,
    },
    /// Changes limits of a tenant, all of them or none: a `Vec` of [`crate::TenantLimitEntry`] with the new values.
    TenantLimitsSet {
        /// Its name.
        name: &'a str,
        /// The changes.
        #[serde(borrow)]
        changes: Vec<LimitChange<'a>>,
        /// Whether `sandbox` becomes wasm even where a kept version has no module, so that it runs no more.
        #[serde(default)]
        force: bool,
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
    /// Creates a table of several tablets: [`crate::TableId`]. Each goes to the server with the fewest tablets.
    TableCreateSpread {
        /// Its name.
        name: &'a str,
        /// Its options.
        options: TableOptions,
        /// Number of tablets.
        tablets: u16,
    },
    /// Changes the durability of a table: empty. In a cluster only between written and synced. From or to memory it is
    /// answered when all objects are rewritten.
    TableAlter {
        /// Its name.
        name: &'a str,
        /// The durability from now on.
        durability: Durability,
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
        #[serde(borrow)]
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
    /// Reads a piece of a version's module, to run it elsewhere: [`crate::ExtensionModule`].
    ExtensionModule {
        /// Its name. One that is granted is refused.
        name: &'a str,
        /// The version; 0 for the current one.
        version: u32,
        /// Bytes of the module that the caller has.
        from: u64,
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
    /// Traces an extension's invocations for some seconds and reads the traces: [`crate::Traces`].
    ExtensionTraces {
        /// Its name, or `owner/name` of a granted one: then only the caller's invocations.
        name: &'a str,
        /// [`wire::function_hash`] of the function; `None` for all.
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
        #[serde(borrow)]
        tenant: Option<&'a str>,
    },
    /// Lists the present servers of the cluster: a `Vec` of [`crate::ServerEntry`], empty for a single server.
    ServerList,
    /// Lists the tablets of all tables, by table and hash: a `Vec` of [`crate::TabletEntry`].
    TabletList,
    /// Splits a tablet in front of a hash: empty.
    TabletSplit {
        /// `owner/name` of the table.
        table: &'a str,
        /// The first hash of the upper tablet.
        at: u64,
    },
    /// Merges the tablets below and above a boundary: empty.
    TabletMerge {
        /// `owner/name` of the table.
        table: &'a str,
        /// The first hash of the upper tablet.
        at: u64,
    },
    /// Lists the migrations that have a record: a `Vec` of [`crate::MigrationEntry`].
    MigrationList,
    /// Reads the progress of the server's present and latest migrations: a `Vec` of [`crate::MigrationProgress`].
    MigrationProgress,
    /// Starts a migration: [`crate::MigrationEntry`]. One server must own all of its hashes.
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
    /// Gives a lost server's tablets, now without objects, to other servers: [`crate::Adopted`].
    ClusterAdopt {
        /// Number of the server.
        server: u32,
        /// Also those that others would recover from the replicas of its log.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gives_up_replicas: bool,
    },
    /// Requests the abort of a migration: [`crate::MigrationEntry`] at that moment.
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
    /// Reads the audit log as visible to the caller: a `Vec` of [`crate::AuditEntry`], oldest first.
    AuditRead {
        /// Entries behind this one, oldest first; 0 asks for the newest of all.
        after: u64,
        /// Maximum number of entries.
        count: u32,
    },
    /// Grants another tenant a right on a table or extension: empty. Replaces an earlier grant.
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
    /// Begins an archive of a tenant: [`crate::ArchiveBegun`]. Replaces one of the tenant that has begun.
    ArchiveBegin {
        /// The tenant; `None` for the tenant of the stream.
        #[serde(borrow)]
        tenant: Option<&'a str>,
    },
    /// Reads a piece of an archive: [`crate::ArchivePiece`]. All keys can be read, then all objects, and again.
    ArchiveRead {
        /// Number of the archive.
        id: u64,
        /// Whether only keys are read, not objects.
        keys_only: bool,
        /// Number of the piece, from 0: the next one, or the last one again.
        piece: u32,
        /// Whether this checks the log: then only keys are read, damaged entries are left out and counted, and the hash
        /// of a record is that of the key alone (XXH3, 64 bits).
        #[serde(default)]
        check: bool,
    },
    /// Reads a piece of the source of an extension's version: [`crate::ArchiveSource`].
    ArchiveSource {
        /// Number of the archive.
        id: u64,
        /// Name of the extension.
        extension: &'a str,
        /// The version.
        version: u32,
        /// Bytes before the piece.
        from: u64,
    },
    /// Ends an archive: empty. One that nobody reads ends by itself.
    ArchiveEnd {
        /// Number of the archive.
        id: u64,
    },
    /// Stores objects of an archive in a table, with their versions and expiry: [`crate::Restored`]. An object is skipped
    /// if the table has a version as new, so the request can be repeated.
    ArchiveRestore {
        /// Name of the table.
        table: &'a str,
        /// Entries as the log has them, one after the other.
        #[serde(serialize_with = "crate::extension::as_bytes")]
        objects: &'a [u8],
    },
}

impl<'a> AdminRequest<'a> {
    /// Returns the body of the request's record.
    ///
    /// # Errors
    /// [`Status::LimitExceeded`] if an installation has more files or bytes than a record may carry, or there are too
    /// many changes of limits.
    pub fn encode(&self) -> Result<Vec<u8>, Status> {
        self.check_counts()?;
        let body = crate::encode(self);
        if body.len() > INSTALL_BODY_BYTES_MAX { Err(Status::LimitExceeded) } else { Ok(body) }
    }

    /// Decodes and checks the body of a record.
    ///
    /// # Errors
    /// [`Status::UnknownOpcode`] for a request of a newer version, [`Status::Malformed`], [`Status::NameInvalid`] for
    /// an invalid or repeated name or path, [`Status::LimitExceeded`] for too many files or changes.
    pub fn decode(body: &'a [u8]) -> Result<AdminRequest<'a>, Status> {
        let request: AdminRequest<'a> = crate::decode(body)?;
        request.check_counts()?;
        request.check()?;
        Ok(request)
    }

    fn check_counts(&self) -> Result<(), Status> {
        let is_within = match self {
            AdminRequest::TenantLimitsSet { changes, .. } => changes.len() <= LIMIT_CHANGES_MAX,
            AdminRequest::ExtensionInstall { files, .. } => files.len() <= PACKAGE_FILES_MAX,
            _ => true,
        };
        if is_within { Ok(()) } else { Err(Status::LimitExceeded) }
    }

    fn check(&self) -> Result<(), Status> {
        let are_valid = match self {
            AdminRequest::TenantList
            | AdminRequest::TenantLimits { name: None }
            | AdminRequest::TableList
            | AdminRequest::ExtensionList
            | AdminRequest::Statistics { tenant: None }
            | AdminRequest::ServerList
            | AdminRequest::TabletList
            | AdminRequest::MigrationList
            | AdminRequest::MigrationProgress
            | AdminRequest::MigrationAbort { .. }
            | AdminRequest::ClusterStatus
            | AdminRequest::ClusterDrain { .. }
            | AdminRequest::ClusterBalance
            | AdminRequest::ClusterStop { .. }
            | AdminRequest::ClusterAdopt { .. }
            | AdminRequest::SessionList
            | AdminRequest::SessionRevoke { .. }
            | AdminRequest::AuditRead { .. }
            | AdminRequest::ArchiveBegin { tenant: None }
            | AdminRequest::ArchiveRead { .. }
            | AdminRequest::ArchiveEnd { .. }
            | AdminRequest::GrantList => true,
            AdminRequest::TenantCreate { name }
            | AdminRequest::TenantDrop { name }
            | AdminRequest::TenantLimits { name: Some(name) }
            | AdminRequest::TenantRotate { name }
            | AdminRequest::TableCreate { name, .. }
            | AdminRequest::TableCreateSpread { name, .. }
            | AdminRequest::TableAlter { name, .. }
            | AdminRequest::TableDrop { name }
            | AdminRequest::TableStat { name }
            | AdminRequest::ExtensionRemove { name, .. }
            | AdminRequest::ExtensionRollback { name, .. }
            | AdminRequest::ExtensionPin { name, .. }
            | AdminRequest::ExtensionPromote { name }
            | AdminRequest::ArchiveBegin { tenant: Some(name) }
            | AdminRequest::ArchiveSource { extension: name, .. }
            | AdminRequest::ArchiveRestore { table: name, .. }
            | AdminRequest::Statistics { tenant: Some(name) } => name_is_valid(name),
            AdminRequest::TableOpen { name }
            | AdminRequest::ExtensionDescribe { name }
            | AdminRequest::ExtensionResolve { name }
            | AdminRequest::ExtensionModule { name, .. }
            | AdminRequest::ExtensionLogs { name, .. }
            | AdminRequest::ExtensionTraces { name, .. }
            | AdminRequest::ExtensionTracesEnd { name }
            | AdminRequest::TabletSplit { table: name, .. }
            | AdminRequest::TabletMerge { table: name, .. }
            | AdminRequest::MigrationBegin { table: name, .. } => qualified_name_is_valid(name),
            AdminRequest::GrantCreate { name, to, .. } | AdminRequest::GrantRevoke { name, to, .. } => {
                name_is_valid(name) && name_is_valid(to)
            }
            AdminRequest::TenantLimitsSet { name, changes, .. } => {
                let names: Vec<&str> = changes.iter().map(|change| change.limit).collect();
                name_is_valid(name) && names.iter().all(|name| name_is_valid(name)) && are_distinct(&names)
            }
            AdminRequest::ExtensionInstall { name, files, placement } => {
                if matches!(placement, Placement::Canary(0 | 100..)) {
                    return Err(Status::Malformed);
                }
                name_is_valid(name) && PackageFile::are_valid(files)
            }
        };
        if are_valid { Ok(()) } else { Err(Status::NameInvalid) }
    }
}

impl PackageFile<'_> {
    /// Returns whether every path is valid and occurs once.
    fn are_valid(files: &[PackageFile<'_>]) -> bool {
        let paths: Vec<&str> = files.iter().map(|file| file.path).collect();
        paths.iter().all(|path| path_is_valid(path)) && are_distinct(&paths)
    }
}

/// Returns whether no text occurs twice. Compares all pairs, for short lists.
fn are_distinct(texts: &[&str]) -> bool {
    texts.iter().enumerate().all(|(index, text)| !texts[..index].contains(text))
}
