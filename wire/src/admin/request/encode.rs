//! Requests of administration become bodies of records.

use super::AdminRequest;
use crate::Body;
use crate::admin::limit::write_changes;
use crate::admin::package::write_installation;
use crate::body::BodyWriter;
use crate::status::Status;

impl AdminRequest<'_> {
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
            | AdminRequest::ServerList
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
            AdminRequest::TableCreate { name, options } => {
                writer.text(name);
                options.write(&mut writer);
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
}
