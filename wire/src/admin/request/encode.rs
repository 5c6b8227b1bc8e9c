//! Encodes administrative requests as bodies of records.

use super::AdminRequest;
use crate::Body;
use crate::admin::limit::write_changes;
use crate::admin::package::write_installation;
use crate::admin::tablet::MigrationMode;
use crate::body::BodyWriter;
use crate::status::Status;

impl AdminRequest<'_> {
    /// Returns the body.
    ///
    /// # Errors
    /// [`Status::LimitExceeded`] if an installation has more files or bytes than a record may carry, or there are too
    /// many changes of limits.
    pub fn encode(&self) -> Result<Vec<u8>, Status> {
        let mut writer = BodyWriter::new();
        match self {
            AdminRequest::TenantList
            | AdminRequest::TableList
            | AdminRequest::ExtensionList
            | AdminRequest::Statistics { tenant: None }
            | AdminRequest::SessionList
            | AdminRequest::ServerList
            | AdminRequest::TabletList
            | AdminRequest::MigrationList
            | AdminRequest::MigrationProgress
            | AdminRequest::ClusterStatus
            | AdminRequest::ClusterBalance
            | AdminRequest::GrantList => {}
            AdminRequest::Statistics { tenant: Some(name) }
            | AdminRequest::TenantCreate { name }
            | AdminRequest::TenantDrop { name }
            | AdminRequest::TenantRotate { name }
            | AdminRequest::TableDrop { name }
            | AdminRequest::TableStat { name }
            | AdminRequest::TableOpen { name }
            | AdminRequest::ExtensionDescribe { name }
            | AdminRequest::ExtensionPromote { name }
            | AdminRequest::ExtensionTracesEnd { name }
            | AdminRequest::ExtensionResolve { name } => writer.text(name),
            AdminRequest::TableCreate { .. } | AdminRequest::TableCreateSpread { .. } => {
                self.write_of_creation(&mut writer);
            }
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
            AdminRequest::TabletSplit { .. }
            | AdminRequest::TabletMerge { .. }
            | AdminRequest::MigrationBegin { .. }
            | AdminRequest::MigrationAbort { .. }
            | AdminRequest::ClusterDrain { .. }
            | AdminRequest::ClusterStop { .. }
            | AdminRequest::ClusterAdopt { .. } => self.write_of_cluster(&mut writer),
            AdminRequest::SessionRevoke { client_id } => writer.u64(*client_id),
            AdminRequest::ExtensionTraces { .. }
            | AdminRequest::ExtensionLogs { .. }
            | AdminRequest::AuditRead { .. } => self.write_of_watching(&mut writer),
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
        }
        Ok(writer.into_bytes())
    }

    fn write_of_creation(&self, writer: &mut BodyWriter) {
        if let AdminRequest::TableCreate { name, options }
        | AdminRequest::TableCreateSpread { name, options, .. } = self
        {
            writer.text(name);
            options.write(writer);
        }
        if let AdminRequest::TableCreateSpread { tablets, .. } = self {
            writer.u16(*tablets);
        }
    }

    fn write_of_watching(&self, writer: &mut BodyWriter) {
        match self {
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
            AdminRequest::AuditRead { after, count } => {
                writer.u64(*after);
                writer.u32(*count);
            }
            _ => {}
        }
    }

    fn write_of_cluster(&self, writer: &mut BodyWriter) {
        match self {
            AdminRequest::TabletSplit { table, at } | AdminRequest::TabletMerge { table, at } => {
                writer.text(table);
                writer.u64(*at);
            }
            AdminRequest::MigrationBegin { table, first, last, target, mode } => {
                writer.text(table);
                writer.u64(*first);
                writer.u64(*last);
                writer.u32(*target);
                MigrationMode::write_or_none(*mode, writer);
            }
            AdminRequest::MigrationAbort { id: number }
            | AdminRequest::ClusterDrain { server: number }
            | AdminRequest::ClusterStop { plan: number }
            | AdminRequest::ClusterAdopt { server: number } => writer.u32(*number),
            _ => {}
        }
    }
}
