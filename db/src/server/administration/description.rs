//! The description of an extension: functions, limits in force, versions and what their invocations came to.

use wire::{Body, ExtensionDescription, Measured, Standing, Statistic, VersionDescription};

use super::extensions::{functions, milliseconds, unknown};
use crate::cluster::metadata::MetadataError;
use crate::extension::measures::{ENDS, Tally};
use crate::extension::registry::Installed;
use crate::limits::{
    ARENA_BYTES, COMMIT_TRIES_MAX, EXTENSION_LOG_LINES_MAX, EXTENSION_STACK_BYTES, INVOCATION_CPU_US_MAX,
    INVOCATION_READS_MAX, INVOCATION_WALL_US_MAX, INVOCATION_YIELDS_MAX, TRANSACTION_BYTES,
    TRANSACTION_READS_MAX, TRANSACTION_WRITES_MAX,
};
use crate::server::control::{Control, Refusal, lock};
use crate::tenant::TenantId;

pub(super) fn describe(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    // What is shown is in force: a switch that is under way comes to its end first.
    let _changing = lock(&control.changing);
    let row = control.metadata.extension_find(tenant, name)?;
    let row = row.ok_or(MetadataError::NotFound).map_err(|_| unknown(name))?;
    let lineage = control.registry.lineage(tenant, name).ok_or_else(|| unknown(name))?;
    let description = ExtensionDescription {
        extension: row.id,
        name: row.name,
        standing: Standing::from(&row.standing),
        functions: lineage.current().map_or_else(Vec::new, |installed| functions(installed)),
        limits: limits(),
        versions: lineage.versions.values().map(|installed| version(installed)).collect(),
    };
    Ok(description.encode())
}

fn version(installed: &Installed) -> VersionDescription {
    VersionDescription {
        version: installed.extension.version,
        content_hash: installed.content_hash.clone(),
        artefact_bytes: installed.artefact_bytes,
        source_bytes: installed.source_bytes,
        installed_ms: installed.installed_ms,
        compile_ms: milliseconds(installed.compile_ms),
        measured: measured(&installed.extension.measures.tally()),
    }
}

fn measured(tally: &Tally) -> Measured {
    let ends = ENDS.iter().zip(tally.ends).filter(|(_, count)| *count > 0);
    Measured {
        ends: ends.map(|(name, value)| Statistic { name: (*name).to_owned(), value }).collect(),
        cpu_ns: tally.cpu_ns(),
        timed: tally.timed,
        ns_p50: tally.quantile_ns(500),
        ns_p99: tally.quantile_ns(990),
        ns_p999: tally.quantile_ns(999),
    }
}

/// What one invocation may use.
fn limits() -> Vec<Statistic> {
    let limits = [
        ("cpu_us", INVOCATION_CPU_US_MAX),
        ("wall_us", INVOCATION_WALL_US_MAX),
        ("stack_bytes", EXTENSION_STACK_BYTES as u64),
        ("memory_bytes", ARENA_BYTES as u64),
        ("reply_bytes", wire::limits::REPLY_BYTES_MAX as u64),
        ("reads", u64::from(INVOCATION_READS_MAX)),
        ("validated_reads", TRANSACTION_READS_MAX as u64),
        ("writes", TRANSACTION_WRITES_MAX as u64),
        ("written_bytes", TRANSACTION_BYTES as u64),
        ("commit_tries", u64::from(COMMIT_TRIES_MAX)),
        ("yields", u64::from(INVOCATION_YIELDS_MAX)),
        ("log_lines", u64::from(EXTENSION_LOG_LINES_MAX)),
    ];
    limits.map(|(name, value)| Statistic { name: name.to_owned(), value }).into()
}
