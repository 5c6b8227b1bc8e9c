//! The requests that change something, as the audit log names them.
//!
//! Every request is an act or only reads; no other place says which.

use crate::{
    AdminRequest, Durability, LimitChange, MigrationMode, Placement, Right, Subject, TableOptions, limit_word,
};

impl AdminRequest<'_> {
    /// Returns whether the request only reads, and so may be repeated. That of an archive's objects may be, too: it writes
    /// objects, as data requests do, and changes nothing the second time.
    pub fn only_reads(&self) -> bool {
        self.act().is_none()
    }

    /// Returns the text of a request that changes something; `None` for one that only reads.
    pub fn act(&self) -> Option<String> {
        Some(match self {
            AdminRequest::TenantCreate { name } => format!("tenant create {name}"),
            AdminRequest::TenantDrop { name } => format!("tenant drop {name}"),
            AdminRequest::TenantRotate { name } => format!("tenant rotate {name}"),
            AdminRequest::TenantLimitsSet { name, changes, force } => limits_change(name, changes, *force),
            AdminRequest::TableCreate { name, options } => table_creation(name, *options),
            AdminRequest::TableCreateSpread { name, options, tablets } => {
                format!("{} --tablets {tablets}", table_creation(name, *options))
            }
            AdminRequest::TableAlter { name, durability } => {
                format!("table alter {name} --durability {}", durability.name())
            }
            AdminRequest::TableDrop { name } => format!("table drop {name}"),
            AdminRequest::ExtensionInstall { name, placement, .. } => installation(name, *placement),
            AdminRequest::ExtensionRemove { name, version: 0 } => format!("extension remove {name}"),
            AdminRequest::ExtensionRemove { name, version } => format!("extension remove {name}@{version}"),
            AdminRequest::ExtensionRollback { name, version: 0 } => format!("extension rollback {name}"),
            AdminRequest::ExtensionRollback { name, version } => {
                format!("extension rollback {name} to {version}")
            }
            AdminRequest::ExtensionPin { name, version: 0 } => format!("extension unpin {name}"),
            AdminRequest::ExtensionPin { name, version } => format!("extension pin {name}@{version}"),
            AdminRequest::ExtensionPromote { name } => format!("extension promote {name}"),
            AdminRequest::GrantCreate { name, to, right } => grant(name, to, *right),
            AdminRequest::GrantRevoke { subject, name, to } => revocation(*subject, name, to),
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
            AdminRequest::ClusterAdopt { server, gives_up_replicas } => adoption(*server, *gives_up_replicas),
            AdminRequest::ArchiveBegin { tenant } => format!("archive create {}", tenant.unwrap_or_default()),
            AdminRequest::SessionRevoke { client_id } => format!("session revoke {client_id}"),
            AdminRequest::TenantList
            | AdminRequest::TenantLimits { .. }
            | AdminRequest::TableList
            | AdminRequest::TableStat { .. }
            | AdminRequest::TableOpen { .. }
            | AdminRequest::ExtensionList
            | AdminRequest::ExtensionDescribe { .. }
            | AdminRequest::ExtensionResolve { .. }
            | AdminRequest::ExtensionModule { .. }
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
            | AdminRequest::ArchiveRead { .. }
            | AdminRequest::ArchiveSource { .. }
            | AdminRequest::ArchiveEnd { .. }
            | AdminRequest::ArchiveRestore { .. }
            | AdminRequest::AuditRead { .. } => return None,
        })
    }
}

fn adoption(server: u32, gives_up_replicas: bool) -> String {
    format!("cluster adopt {server}{}", if gives_up_replicas { ", without its replicas" } else { "" })
}

fn revocation(subject: Subject, name: &str, to: &str) -> String {
    let subject = match subject {
        Subject::Table => "table",
        Subject::Extension => "extension",
    };
    format!("revoke {subject} {name} from {to}")
}

fn limits_change(name: &str, changes: &[LimitChange<'_>], force: bool) -> String {
    let word = |change: &LimitChange<'_>| {
        let value = match change.value {
            Some(u64::MAX) => "unlimited".to_owned(),
            Some(value) => limit_word(change.limit, value).map_or_else(|| value.to_string(), str::to_owned),
            None => "default".to_owned(),
        };
        format!(" {}={value}", change.limit)
    };
    let words: String = changes.iter().map(word).collect();
    format!("tenant limits {name}:{words}{}", if force { " --force" } else { "" })
}

fn table_creation(name: &str, options: TableOptions) -> String {
    let cache = options.cache_bytes.map_or_else(String::new, |bytes| format!(" --cache {bytes}"));
    let ordered = if options.ordered { " --ordered" } else { "" };
    let migration = match options.migration {
        mode if mode == MigrationMode::default() => String::new(),
        mode => format!(" --migration {}", mode.name()),
    };
    let named = |durability: Durability| format!(" --durability {}", durability.name());
    let durability = options.durability.map_or_else(String::new, named);
    let tagged = if options.tagged { " --tagged" } else { "" };
    format!("table create {name}{ordered}{cache}{migration}{durability}{tagged}")
}

fn installation(name: &str, placement: Placement) -> String {
    match placement {
        Placement::Current => format!("extension install {name}"),
        Placement::Pinned => format!("extension install {name}, pinned"),
        Placement::Canary(percent) => format!("extension install {name}, canary {percent} %"),
    }
}

fn grant(name: &str, to: &str, right: Right) -> String {
    match right {
        Right::Read => format!("grant table {name} to {to}: read"),
        Right::Write => format!("grant table {name} to {to}: write"),
        Right::Invoke => format!("grant extension {name} to {to}: invoke"),
    }
}
