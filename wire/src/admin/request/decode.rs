//! Decodes bodies of records into administrative requests, or into the status of the refusal.
//!
//! Everything is checked here, so that the server can show and store it. Nothing is copied.

use super::AdminRequest;
use crate::admin::limit::read_changes;
use crate::admin::package::read_files;
use crate::body::BodyReader;
use crate::opcode;
use crate::status::Status;
use crate::{Body, MigrationMode, Placement, Right, Subject, TableOptions};

impl<'a> AdminRequest<'a> {
    /// Decodes a body.
    ///
    /// # Errors
    /// [`Status::UnknownOpcode`], [`Status::Malformed`], [`Status::NameInvalid`] for an invalid or repeated name or
    /// path, [`Status::LimitExceeded`] for too many files or changes.
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
            opcode::TABLE_CREATE => {
                AdminRequest::TableCreate { name: reader.name()?, options: TableOptions::read(&mut reader)? }
            }
            opcode::TABLE_CREATE_SPREAD => AdminRequest::TableCreateSpread {
                name: reader.name()?,
                options: TableOptions::read(&mut reader)?,
                tablets: reader.u16()?,
            },
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
            opcode::SERVER_LIST..=opcode::MIGRATION_PROGRESS => read_of_cluster(number, &mut reader)?,
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

/// Reads a request about servers, tablets and migrations.
fn read_of_cluster<'a>(number: u8, reader: &mut BodyReader<'a>) -> Result<AdminRequest<'a>, Status> {
    Ok(match number {
        opcode::SERVER_LIST => AdminRequest::ServerList,
        opcode::TABLET_LIST => AdminRequest::TabletList,
        opcode::TABLET_SPLIT => {
            AdminRequest::TabletSplit { table: reader.qualified_name()?, at: reader.u64()? }
        }
        opcode::TABLET_MERGE => {
            AdminRequest::TabletMerge { table: reader.qualified_name()?, at: reader.u64()? }
        }
        opcode::MIGRATION_LIST => AdminRequest::MigrationList,
        opcode::MIGRATION_PROGRESS => AdminRequest::MigrationProgress,
        opcode::MIGRATION_BEGIN => AdminRequest::MigrationBegin {
            table: reader.qualified_name()?,
            first: reader.u64()?,
            last: reader.u64()?,
            target: reader.u32()?,
            mode: MigrationMode::read_or_none(reader)?,
        },
        opcode::MIGRATION_ABORT => AdminRequest::MigrationAbort { id: reader.u32()? },
        opcode::CLUSTER_STATUS => AdminRequest::ClusterStatus,
        opcode::CLUSTER_DRAIN => AdminRequest::ClusterDrain { server: reader.u32()? },
        opcode::CLUSTER_BALANCE => AdminRequest::ClusterBalance,
        opcode::CLUSTER_STOP => AdminRequest::ClusterStop { plan: reader.u32()? },
        opcode::CLUSTER_ADOPT => AdminRequest::ClusterAdopt { server: reader.u32()? },
        _ => return Err(Status::UnknownOpcode),
    })
}

fn read_traces<'a>(reader: &mut BodyReader<'a>) -> Result<AdminRequest<'a>, Status> {
    let (name, named, function) = (reader.qualified_name()?, reader.flag()?, reader.u32()?);
    if !named && function != 0 {
        return Err(Status::Malformed);
    }
    let (function, slower_than_us, after) = (named.then_some(function), reader.u64()?, reader.u64()?);
    Ok(AdminRequest::ExtensionTraces { name, function, slower_than_us, after })
}
