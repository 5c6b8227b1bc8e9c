//! The audit log: administrative acts, their authors and outcomes.
//!
//! Every request that changes something is an act, whether it was allowed or refused; reading is not. An act is
//! recorded after it ended and before the client gets its answer; later if the metadata does not answer. Records
//! contain names and statuses, never a secret, a token or a source. See [`crate::server::acts`] for acts that cannot
//! be recorded.

use control::{
    Actor, AdminRequest, ExtensionInstalled, MigrationMode, Placement, Right, Subject, TableOptions,
};
use wire::{Status, TenantId};

use super::limits;
use crate::limits::{AUDIT_ACT_BYTES_MAX, AUDIT_ENTRIES_READ_MAX};
use crate::server::acts::Act;
use crate::server::control::{Control, Refusal};
use crate::server::opening::Role;
use crate::sync::lock;

/// The author of a request, determined before it is served, because it may end the session.
pub(super) struct Author {
    tenant: Option<TenantId>,
    actor: Actor,
}

pub(super) fn author(control: &Control, role: &Role) -> Author {
    match role {
        Role::Administrator => Author { tenant: None, actor: Actor::Administrator },
        Role::Tenant(session) => {
            let open = lock(&control.sessions).get(&session.token).cloned();
            let (name, peer) = open.map(|open| (open.tenant, open.peer.to_string())).unwrap_or_default();
            let actor = Actor::Tenant { name, client_id: session.client_id, peer };
            Author { tenant: Some(session.tenant), actor }
        }
    }
}

/// Returns the text of a request that is an act; `None` otherwise.
pub(super) fn act_of(request: &AdminRequest<'_>) -> Option<String> {
    Some(match request {
        AdminRequest::TenantCreate { name } => format!("tenant create {name}"),
        AdminRequest::TenantDrop { name } => format!("tenant drop {name}"),
        AdminRequest::TenantRotate { name } => format!("tenant rotate {name}"),
        AdminRequest::TenantLimitsSet { name, changes } => limits::act_of(name, changes),
        AdminRequest::TableCreate { name, options } => creation(name, *options),
        AdminRequest::TableCreateSpread { name, options, tablets } => {
            format!("{} --tablets {tablets}", creation(name, *options))
        }
        AdminRequest::TableDrop { name } => format!("table drop {name}"),
        AdminRequest::ExtensionInstall { name, placement, .. } => match placement {
            Placement::Current => format!("extension install {name}"),
            Placement::Pinned => format!("extension install {name}, pinned"),
            Placement::Canary(percent) => format!("extension install {name}, canary {percent} %"),
        },
        AdminRequest::ExtensionRemove { name, version: 0 } => format!("extension remove {name}"),
        AdminRequest::ExtensionRemove { name, version } => format!("extension remove {name}@{version}"),
        AdminRequest::ExtensionRollback { name, version: 0 } => format!("extension rollback {name}"),
        AdminRequest::ExtensionRollback { name, version } => {
            format!("extension rollback {name} to {version}")
        }
        AdminRequest::ExtensionPin { name, version: 0 } => format!("extension unpin {name}"),
        AdminRequest::ExtensionPin { name, version } => format!("extension pin {name}@{version}"),
        AdminRequest::ExtensionPromote { name } => format!("extension promote {name}"),
        AdminRequest::GrantCreate { name, to, right } => match right {
            Right::Read => format!("grant table {name} to {to}: read"),
            Right::Write => format!("grant table {name} to {to}: write"),
            Right::Invoke => format!("grant extension {name} to {to}: invoke"),
        },
        AdminRequest::GrantRevoke { subject: Subject::Table, name, to } => {
            format!("revoke table {name} from {to}")
        }
        AdminRequest::GrantRevoke { subject: Subject::Extension, name, to } => {
            format!("revoke extension {name} from {to}")
        }
        AdminRequest::TabletSplit { table, at } => format!("cluster split {table} {at:016x}"),
        AdminRequest::TabletMerge { table, at } => format!("cluster merge {table} {at:016x}"),
        AdminRequest::MigrationBegin { table, first, last, target, mode } => {
            let mode = mode.map_or("in the table's mode", MigrationMode::name);
            format!("cluster migrate {table} {first:016x}..{last:016x} to {target}, {mode}")
        }
        AdminRequest::MigrationAbort { id } => format!("cluster abort {id}"),
        AdminRequest::ClusterDrain { server } => format!("cluster drain {server}"),
        AdminRequest::ClusterBalance => "cluster balance".to_owned(),
        AdminRequest::ClusterStop { plan } => format!("cluster stop {plan}"),
        AdminRequest::ClusterAdopt { server } => format!("cluster adopt {server}"),
        AdminRequest::SessionRevoke { client_id } => format!("session revoke {client_id}"),
        AdminRequest::TenantList
        | AdminRequest::TenantLimits { .. }
        | AdminRequest::TableList
        | AdminRequest::TableStat { .. }
        | AdminRequest::TableOpen { .. }
        | AdminRequest::ExtensionList
        | AdminRequest::ExtensionDescribe { .. }
        | AdminRequest::ExtensionResolve { .. }
        | AdminRequest::ExtensionLogs { .. }
        | AdminRequest::ExtensionTraces { .. }
        | AdminRequest::ExtensionTracesEnd { .. }
        | AdminRequest::GrantList
        | AdminRequest::Statistics { .. }
        | AdminRequest::SessionList
        | AdminRequest::ServerList
        | AdminRequest::TabletList
        | AdminRequest::MigrationList
        | AdminRequest::MigrationProgress
        | AdminRequest::ClusterStatus
        | AdminRequest::AuditRead { .. } => return None,
    })
}

fn creation(name: &str, options: TableOptions) -> String {
    let cache = options.cache_bytes.map_or_else(String::new, |bytes| format!(" --cache {bytes}"));
    let ordered = if options.ordered { " --ordered" } else { "" };
    let migration = match options.migration {
        mode if mode == MigrationMode::default() => String::new(),
        mode => format!(" --migration {}", mode.name()),
    };
    format!("table create {name}{ordered}{cache}{migration}")
}

/// Records an act and its outcome.
pub(super) fn record(control: &Control, author: Author, mut act: String, answer: &Result<Vec<u8>, Refusal>) {
    let outcome = match answer {
        Ok(body) => {
            // The version number is known only now.
            if act.starts_with("extension install")
                && let Ok(installed) = control::decode::<ExtensionInstalled>(body)
            {
                act.push_str(&format!(": version {}", installed.version));
            }
            Status::Ok
        }
        Err(refusal) => refusal.status,
    };
    append(control, author.tenant, author.actor, act, outcome);
}

/// Records an act of the server itself on a tenant's table or extension.
pub(super) fn record_own(control: &Control, tenant: TenantId, act: String, outcome: Status) {
    append(control, Some(tenant), Actor::Server, act, outcome);
}

fn append(control: &Control, tenant: Option<TenantId>, actor: Actor, mut act: String, outcome: Status) {
    act.truncate(act.floor_char_boundary(AUDIT_ACT_BYTES_MAX));
    let at_ms = control.clock.wall_ms();
    control.acts.record(&control.metadata, Act { tenant, at_ms, actor, text: act, outcome });
}

/// Returns the entries of the log that the caller may see.
pub(super) fn read(control: &Control, role: &Role, after: u64, count: u32) -> Result<Vec<u8>, Refusal> {
    let tenant = match role {
        Role::Administrator => None,
        Role::Tenant(session) => Some(session.tenant),
    };
    let count = count.min(AUDIT_ENTRIES_READ_MAX) as usize;
    Ok(control::encode(&control.metadata.audit_read(tenant, after, count)?))
}
