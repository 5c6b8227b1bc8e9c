//! Log lines of a tenant's extensions.

use control::{LogEntry, LogLines, Subject};
use wire::TenantId;

use super::grants;
use super::missing::unknown_extension;
use crate::control_plane::{Control, Refusal};
use crate::extension::log::LogLine;

/// Returns lines of one extension up to `level`: `count` lines after line `after`, or the newest.
pub(super) fn read(
    control: &Control,
    tenant: TenantId,
    name: &str,
    (level, after, count): (u8, u64, u32),
) -> Result<Vec<u8>, Refusal> {
    // A granted extension logs into the log of the tenant for which it runs.
    let id = match grants::find(control, tenant, Subject::Extension, name) {
        Some(grant) => grant.row.id,
        None => control.metadata.extension_find(tenant, name)?.ok_or_else(|| unknown_extension(name))?.id,
    };
    let wanted = |line: &LogLine| line.extension == id && line.level <= level;
    let log = control.registry.log(tenant);
    let (lines, looked_at, missed) = log.lines_after(after, count as usize, wanted);
    Ok(control::encode(&LogLines { looked_at, missed, lines: lines.into_iter().map(entry).collect() }))
}

fn entry(line: LogLine) -> LogEntry {
    let LogLine { number, level, version, at_ms, text, .. } = line;
    LogEntry { number, at_ms, level, version, text }
}
