//! Describes an extension: functions, limits in force, versions and figures of their invocations. A tenant with a
//! grant sees its functions and the limits of the tenant's own invocations; only the owner sees its costs. The form in
//! which invocations run is the caller's too, whoever owns the extension.

use control::{ExtensionDescription, Measured, Statistic, Subject, VersionDescription, VersionState};
use guest::limits::EXTENSION_STACK_BYTES;
use wire::TenantId;

use super::extensions::{functions, milliseconds};
use super::grants;
use super::missing::unknown_extension;
use crate::control_plane::{Control, Refusal};
use crate::extension::allowance::{Allowance, Limit};
use crate::extension::registry::Installed;
use crate::extension::version_metrics::{ENDS, MeasuredSummary};
use crate::extension::{NO_MODULE_OF_ANOTHER, Provenance};
use crate::limits::{COMMIT_TRIES_MAX, EXTENSION_LOG_LINES_MAX, TRANSACTION_READS_MAX};
use crate::sync::lock;
use crate::tenant::account::Account;
use crate::tenant::limit::TenantLimit;

pub(super) fn describe(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    // Waits for a switch under way, so that the answer shows the versions in force.
    let _changing = lock(&control.changing);
    let account = control.accounts.of(tenant);
    let limits = limits(&account);
    let mut description = match grants::find(control, tenant, Subject::Extension, name) {
        Some(grant) => {
            let mut description = described(control, grant.row.owner, &grant.row.name, limits)?;
            (description.extension, description.name) = (grant.row.id, name.to_owned());
            description.versions.clear();
            if let Some(why) = description.no_module.as_mut().filter(|why| !why.is_empty()) {
                NO_MODULE_OF_ANOTHER.clone_into(why);
            }
            description
        }
        None => described(control, tenant, name, limits)?,
    };
    description.sandbox =
        control::limit_word(control::SANDBOX, Allowance::of(&account).sandbox.value()).map(str::to_owned);
    Ok(control::encode(&description))
}

fn described(
    control: &Control,
    owner: TenantId,
    name: &str,
    limits: Vec<Statistic>,
) -> Result<ExtensionDescription, Refusal> {
    let row = control.metadata.extension_find(owner, name)?;
    let row = row.ok_or_else(|| unknown_extension(name))?;
    let history = control.registry.history(owner, name).ok_or_else(|| unknown_extension(name))?;
    Ok(ExtensionDescription {
        extension: row.id,
        name: row.name,
        state: VersionState::from(&row.state),
        functions: history.current().map_or_else(Vec::new, |installed| functions(installed)),
        limits,
        versions: history.versions.values().map(|installed| version(installed)).collect(),
        sandbox: None,
        no_module: history.current().map(|installed| installed.extension.no_module().to_owned()),
    })
}

fn version(installed: &Installed) -> VersionDescription {
    VersionDescription {
        version: installed.extension.version,
        content_hash: installed.content_hash.clone(),
        artefact_bytes: installed.artefact_bytes,
        source_bytes: installed.source_bytes,
        source_checked: Some(installed.extension.provenance() == Provenance::CheckedSource),
        installed_ms: installed.installed_ms,
        compile_ms: milliseconds(installed.compile_ms),
        measured: measured(&installed.extension.metrics.summary()),
        no_module: Some(installed.extension.no_module().to_owned()),
    }
}

fn measured(summary: &MeasuredSummary) -> Measured {
    let ends = ENDS.iter().zip(summary.ends).filter(|(_, count)| *count > 0);
    Measured {
        ends: ends.map(|(name, value)| Statistic { name: (*name).to_owned(), value }).collect(),
        pushed_back: summary.pushed_back,
        cpu_ns: summary.cpu_ns(),
        timed: summary.timed,
        ns_p50: summary.quantile_ns(500),
        ns_p99: summary.quantile_ns(990),
        ns_p999: summary.quantile_ns(999),
    }
}

/// Returns the limits of a tenant's invocation, by the names under which they are changed, and the fixed limits.
pub(super) fn limits(account: &Account) -> Vec<Statistic> {
    let own = [
        TenantLimit::InvocationCpuUs,
        TenantLimit::InvocationWallUs,
        TenantLimit::InvocationYields,
        TenantLimit::InvocationArenaBytes,
        TenantLimit::InvocationReads,
        TenantLimit::InvocationReadBytes,
        TenantLimit::InvocationWrites,
        TenantLimit::InvocationWriteBytes,
        TenantLimit::InvocationReplyBytes,
    ];
    let fixed = [
        ("stack_bytes", EXTENSION_STACK_BYTES as u64),
        (Limit::NotedReads.name(), TRANSACTION_READS_MAX as u64),
        ("commit_tries", u64::from(COMMIT_TRIES_MAX)),
        ("log_lines", u64::from(EXTENSION_LOG_LINES_MAX)),
    ];
    let own = own.map(|limit| (limit.name(), account.limit(limit)));
    let statistic = |(name, value): (&str, u64)| Statistic { name: name.to_owned(), value };
    own.into_iter().chain(fixed).map(statistic).collect()
}
