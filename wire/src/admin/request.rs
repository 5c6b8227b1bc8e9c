//! The requests of administration.
//!
//! Names and paths are checked by the decoder ([`crate::name_is_valid`], [`crate::path_is_valid`]), so what
//! the server gets may be shown and stored. What a request holds is borrowed from the record.

use super::limit::{read_changes, write_changes};
use super::package::{read_files, write_installation};
use crate::body::{BodyReader, BodyWriter};
use crate::opcode;
use crate::status::Status;
use crate::{Body, LimitChange, PackageFile, Placement, Right, Subject};

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
        }
    }

    /// The body.
    ///
    /// # Errors
    /// [`Status::LimitExceeded`] when an installation has more files or bytes than a record may carry, or there
    /// are too many changes of limits.
    pub fn encode(&self) -> Result<Vec<u8>, Status> {
        let mut writer = BodyWriter::new();
        match self {
            AdminRequest::TenantList
            | AdminRequest::TableList
            | AdminRequest::ExtensionList
            | AdminRequest::Statistics { tenant: None }
            | AdminRequest::SessionList
            | AdminRequest::GrantList => {}
            AdminRequest::Statistics { tenant: Some(name) }
            | AdminRequest::TenantCreate { name }
            | AdminRequest::TenantDrop { name }
            | AdminRequest::TenantRotate { name }
            | AdminRequest::TableCreate { name }
            | AdminRequest::TableDrop { name }
            | AdminRequest::TableStat { name }
            | AdminRequest::TableOpen { name }
            | AdminRequest::ExtensionDescribe { name }
            | AdminRequest::ExtensionPromote { name }
            | AdminRequest::ExtensionTracesEnd { name }
            | AdminRequest::ExtensionResolve { name } => writer.text(name),
            AdminRequest::TenantLimits { name } => writer.text(name.unwrap_or_default()),
            AdminRequest::TenantLimitsSet { name, changes } => {
                writer.text(name);
                write_changes(&mut writer, changes)?;
            }
            AdminRequest::ExtensionRemove { name, version }
            | AdminRequest::ExtensionRollback { name, version }
            | AdminRequest::ExtensionPin { name, version } => {
                writer.text(name);
                writer.u32(*version);
            }
            AdminRequest::ExtensionInstall { name, files, placement } => {
                write_installation(&mut writer, name, files, *placement)?;
            }
            AdminRequest::SessionRevoke { client_id } => writer.u64(*client_id),
            AdminRequest::ExtensionTraces { name, function, slower_than_us, after } => {
                writer.text(name);
                writer.flag(function.is_some());
                writer.u32(function.unwrap_or(0));
                writer.u64(*slower_than_us);
                writer.u64(*after);
            }
            AdminRequest::ExtensionLogs { name, level, after, count } => {
                writer.text(name);
                writer.u8(*level);
                writer.u64(*after);
                writer.u32(*count);
            }
            AdminRequest::GrantCreate { name, to, right } => {
                right.write(&mut writer);
                writer.text(name);
                writer.text(to);
            }
            AdminRequest::GrantRevoke { subject, name, to } => {
                subject.write(&mut writer);
                writer.text(name);
                writer.text(to);
            }
            AdminRequest::AuditRead { after, count } => {
                writer.u64(*after);
                writer.u32(*count);
            }
        }
        Ok(writer.into_bytes())
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`Status::UnknownOpcode`], [`Status::Malformed`], [`Status::NameInvalid`] for a name or a path that
    /// may not be used or comes twice, [`Status::LimitExceeded`] for too many files or changes.
    pub fn decode(number: u8, body: &'a [u8]) -> Result<AdminRequest<'a>, Status> {
        let mut reader = BodyReader::new(body);
        let request = match number {
            opcode::TENANT_CREATE => AdminRequest::TenantCreate { name: reader.name()? },
            opcode::TENANT_LIST => AdminRequest::TenantList,
            opcode::TENANT_DROP => AdminRequest::TenantDrop { name: reader.name()? },
            opcode::TENANT_LIMITS => AdminRequest::TenantLimits { name: reader.optional_name()? },
            opcode::TENANT_LIMITS_SET => {
                AdminRequest::TenantLimitsSet { name: reader.name()?, changes: read_changes(&mut reader)? }
            }
            opcode::TENANT_ROTATE => AdminRequest::TenantRotate { name: reader.name()? },
            opcode::TABLE_CREATE => AdminRequest::TableCreate { name: reader.name()? },
            opcode::TABLE_LIST => AdminRequest::TableList,
            opcode::TABLE_DROP => AdminRequest::TableDrop { name: reader.name()? },
            opcode::TABLE_STAT => AdminRequest::TableStat { name: reader.name()? },
            opcode::TABLE_OPEN => AdminRequest::TableOpen { name: reader.qualified_name()? },
            opcode::EXTENSION_INSTALL => {
                let (name, files) = (reader.name()?, read_files(&mut reader)?);
                AdminRequest::ExtensionInstall { name, files, placement: Placement::read(&mut reader)? }
            }
            opcode::EXTENSION_LIST => AdminRequest::ExtensionList,
            opcode::EXTENSION_DESCRIBE => AdminRequest::ExtensionDescribe { name: reader.qualified_name()? },
            opcode::EXTENSION_REMOVE => {
                AdminRequest::ExtensionRemove { name: reader.name()?, version: reader.u32()? }
            }
            opcode::EXTENSION_RESOLVE => AdminRequest::ExtensionResolve { name: reader.qualified_name()? },
            opcode::EXTENSION_ROLLBACK => {
                AdminRequest::ExtensionRollback { name: reader.name()?, version: reader.u32()? }
            }
            opcode::EXTENSION_PIN => {
                AdminRequest::ExtensionPin { name: reader.name()?, version: reader.u32()? }
            }
            opcode::EXTENSION_PROMOTE => AdminRequest::ExtensionPromote { name: reader.name()? },
            opcode::EXTENSION_TRACES => read_traces(&mut reader)?,
            opcode::EXTENSION_TRACES_END => {
                AdminRequest::ExtensionTracesEnd { name: reader.qualified_name()? }
            }
            opcode::EXTENSION_LOGS => AdminRequest::ExtensionLogs {
                name: reader.qualified_name()?,
                level: reader.u8()?,
                after: reader.u64()?,
                count: reader.u32()?,
            },
            opcode::STATISTICS if reader.bytes_left() == 0 => AdminRequest::Statistics { tenant: None },
            opcode::STATISTICS => AdminRequest::Statistics { tenant: Some(reader.name()?) },
            opcode::SESSION_LIST => AdminRequest::SessionList,
            opcode::SESSION_REVOKE => AdminRequest::SessionRevoke { client_id: reader.u64()? },
            opcode::AUDIT_READ => AdminRequest::AuditRead { after: reader.u64()?, count: reader.u32()? },
            opcode::GRANT_CREATE => {
                let right = Right::read(&mut reader)?;
                AdminRequest::GrantCreate { right, name: reader.name()?, to: reader.name()? }
            }
            opcode::GRANT_LIST => AdminRequest::GrantList,
            opcode::GRANT_REVOKE => {
                let subject = Subject::read(&mut reader)?;
                AdminRequest::GrantRevoke { subject, name: reader.name()?, to: reader.name()? }
            }
            _ => return Err(Status::UnknownOpcode),
        };
        reader.finish()?;
        Ok(request)
    }
}

fn read_traces<'a>(reader: &mut BodyReader<'a>) -> Result<AdminRequest<'a>, Status> {
    let (name, named, function) = (reader.qualified_name()?, reader.flag()?, reader.u32()?);
    if !named && function != 0 {
        return Err(Status::Malformed);
    }
    let (function, slower_than_us, after) = (named.then_some(function), reader.u64()?, reader.u64()?);
    Ok(AdminRequest::ExtensionTraces { name, function, slower_than_us, after })
}
