//! One message of each kind, and what becomes of it on its way.

use std::any::type_name;
use std::fmt::Debug;

use control::{
    Actor, AdminRequest, Adopted, ArchiveBegun, ArchivePiece, ArchiveSource, ArchivedExtension,
    ArchivedTable, AuditEntry, ByteString, ClusterStatus, DeserializeOwned, Durability, ExtensionDescription,
    ExtensionEntry, ExtensionInstalled, ExtensionModule, ExtensionResolved, FunctionEntry, FunctionMode,
    GrantEntry, LimitChange, LogEntry, LogLines, Measured, MemberEntry, MigrationEntry, MigrationMode,
    MigrationPhase, MigrationProgress, MigrationWait, OwnedPositions, PackageFile, Placement, PlanEntry,
    PlanProgress, Restored, Right, ServerEntry, SessionEntry, Statistic, Subject, TableEntry, TableId,
    TableOptions, TableStatistics, TabletEntry, TenantCreated, TenantEntry, TenantLimitEntry, TraceEntry,
    TracedCalls, TracedPoll, Traces, VersionDescription, VersionEntry, VersionState,
};
use serde::Serialize;

/// A message of these tests.
pub struct Message {
    /// What it is: `request`, or the type of a reply.
    pub kind: String,
    /// It as text.
    pub text: String,
    /// Its bytes.
    pub body: Vec<u8>,
    /// Whether bytes are a message of this kind.
    pub is_one: fn(&[u8]) -> bool,
}

/// The messages of these tests.
#[derive(Default)]
pub struct Seen(pub Vec<Message>);

impl Seen {
    /// A reply arrives as it was sent, and no part of it does.
    fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(&mut self, reply: T) {
        let body = control::encode(&reply);
        assert_eq!(control::decode::<T>(&body).as_ref(), Ok(&reply));
        for cut in 1..body.len() {
            assert!(control::decode::<T>(&body[..cut]).is_err(), "{reply:?} cut at {cut}");
        }
        let name = type_name::<T>();
        let list = if name.contains("Vec<") { "list-of-" } else { "" };
        let kind = format!("{list}{}", name.rsplit("::").next().unwrap_or(name).trim_end_matches('>'));
        let is_one = |bytes: &[u8]| control::decode::<T>(bytes).is_ok();
        self.0.push(Message { kind, text: format!("{reply:?}"), body, is_one });
    }
}

/// Checks each message on its way and returns all of them, requests first.
pub fn seen() -> Seen {
    let mut seen = Seen::default();
    for request in requests() {
        let body = request.encode().expect("it is small");
        assert_eq!(AdminRequest::decode(&body), Ok(request.clone()));
        for cut in 0..body.len() {
            assert!(AdminRequest::decode(&body[..cut]).is_err(), "{request:?} cut at {cut}");
        }
        let is_one = |bytes: &[u8]| AdminRequest::decode(bytes).is_ok();
        seen.0.push(Message { kind: "request".into(), text: format!("{request:?}"), body, is_one });
    }
    replies_to_tenants(&mut seen);
    replies_about_extensions(&mut seen);
    replies_about_the_server(&mut seen);
    replies_about_tablets(&mut seen);
    replies_about_archives(&mut seen);
    seen
}

/// About servers, tablets, migrations and plans.
fn cluster_requests() -> Vec<AdminRequest<'static>> {
    vec![
        AdminRequest::ServerList,
        AdminRequest::TabletList,
        AdminRequest::TabletSplit { table: "acme/users", at: 1 << 63 },
        AdminRequest::TabletMerge { table: "acme/users", at: u64::MAX },
        AdminRequest::MigrationList,
        AdminRequest::MigrationProgress,
        AdminRequest::MigrationBegin {
            table: "acme/users",
            first: 7,
            last: u64::MAX,
            target: 3,
            mode: Some(MigrationMode::StopAndCopy),
        },
        AdminRequest::MigrationAbort { id: 9 },
        AdminRequest::ClusterStatus,
        AdminRequest::ClusterDrain { server: 4 },
        AdminRequest::ClusterBalance,
        AdminRequest::ClusterStop { plan: 5 },
        AdminRequest::ClusterAdopt { server: 6, gives_up_replicas: true },
    ]
}

pub fn requests() -> Vec<AdminRequest<'static>> {
    [requests_about_tenants(), cluster_requests(), archive_requests()].concat()
}

fn requests_about_tenants() -> Vec<AdminRequest<'static>> {
    let name = "tao-2.1";
    let files = vec![
        PackageFile { path: "Cargo.toml", bytes: b"[package]" },
        PackageFile { path: "src/lib.rs", bytes: b"" },
    ];
    vec![
        AdminRequest::TenantCreate { name },
        AdminRequest::TenantList,
        AdminRequest::TenantDrop { name },
        AdminRequest::TenantLimits { name: Some(name) },
        AdminRequest::TenantLimits { name: None },
        AdminRequest::TenantLimitsSet {
            name,
            changes: vec![
                LimitChange { limit: "weight", value: Some(u64::MAX) },
                LimitChange { limit: "memory_bytes", value: None },
            ],
            force: false,
        },
        AdminRequest::TenantLimitsSet { name, changes: Vec::new(), force: true },
        AdminRequest::TenantRotate { name },
        AdminRequest::TableCreate { name, options: TableOptions::default() },
        AdminRequest::TableCreate {
            name,
            options: TableOptions {
                ordered: true,
                cache_bytes: Some(0),
                migration: MigrationMode::Cooperative,
                durability: Some(Durability::Memory),
                tagged: true,
            },
        },
        AdminRequest::TableCreateSpread { name, options: TableOptions::default(), tablets: 9 },
        AdminRequest::TableAlter { name, durability: Durability::Synced },
        AdminRequest::TableList,
        AdminRequest::TableDrop { name },
        AdminRequest::TableStat { name },
        AdminRequest::TableOpen { name },
        AdminRequest::ExtensionInstall { name, files, placement: Placement::Canary(99) },
        AdminRequest::ExtensionInstall { name, files: Vec::new(), placement: Placement::Pinned },
        AdminRequest::ExtensionInstall { name, files: Vec::new(), placement: Placement::Current },
        AdminRequest::ExtensionList,
        AdminRequest::ExtensionDescribe { name },
        AdminRequest::ExtensionRemove { name, version: 3 },
        AdminRequest::ExtensionRollback { name, version: 0 },
        AdminRequest::ExtensionPin { name, version: u32::MAX },
        AdminRequest::ExtensionPromote { name },
        AdminRequest::ExtensionLogs { name, level: 2, after: 7, count: 100 },
        AdminRequest::ExtensionTraces { name, function: Some(9), slower_than_us: 100, after: u64::MAX },
        AdminRequest::ExtensionTraces { name: "acme/tao", function: None, slower_than_us: 0, after: 7 },
        AdminRequest::ExtensionTracesEnd { name: "acme/tao" },
        AdminRequest::ExtensionResolve { name },
        AdminRequest::ExtensionModule { name, version: 3, from: 1 << 20 },
        AdminRequest::Statistics { tenant: None },
        AdminRequest::Statistics { tenant: Some(name) },
        AdminRequest::SessionList,
        AdminRequest::SessionRevoke { client_id: u64::MAX - 1 },
        AdminRequest::AuditRead { after: 7, count: 100 },
        AdminRequest::TableOpen { name: "acme/users" },
        AdminRequest::GrantCreate { name, to: "acme", right: Right::Write },
        AdminRequest::GrantList,
        AdminRequest::GrantRevoke { subject: Subject::Extension, name, to: "acme" },
    ]
}

fn archive_requests() -> Vec<AdminRequest<'static>> {
    vec![
        AdminRequest::ArchiveBegin { tenant: None },
        AdminRequest::ArchiveBegin { tenant: Some("acme") },
        AdminRequest::ArchiveRead { id: 1, keys_only: true, piece: 2, check: false },
        AdminRequest::ArchiveSource { id: 1, extension: "tao", version: 2, from: 3 },
        AdminRequest::ArchiveEnd { id: u64::MAX },
        AdminRequest::ArchiveRestore { table: "users", objects: b"\xff\x00" },
    ]
}

fn replies_about_archives(seen: &mut Seen) {
    let state = VersionState { current: 1, canary: 2, canary_percent: 10, pinned: true };
    let grant = GrantEntry {
        owner: "acme".into(),
        name: "users".into(),
        to: "other".into(),
        right: Right::Read,
        granted_ms: 3,
    };
    let weight = TenantLimitEntry { name: "weight".into(), value: 1, default: 2, least: 3, most: u64::MAX };
    let options = TableOptions { durability: Some(Durability::Synced), ..TableOptions::default() };
    seen.survives(ArchiveBegun {
        id: 1,
        tenant: "acme".into(),
        cut: 2,
        clock_ms: 3,
        tables: vec![ArchivedTable { id: 4, name: "users".into(), options, tablets: 2 }],
        left_out: vec!["volatile".into()],
        extensions: vec![ArchivedExtension { name: "tao".into(), versions: vec![1, 2], state }],
        limits: vec![weight],
        grants: vec![grant],
        server: 3,
        owned: vec![OwnedPositions { table: 4, first: 1, last: u64::MAX }],
    });
    let records = ByteString(vec![0, 0xff]);
    seen.survives(ArchivePiece {
        records,
        segment: 1,
        is_last: true,
        done_bytes: 2,
        all_bytes: 3,
        damaged_blocks: 4,
        damaged_bytes: 5,
    });
    seen.survives(ArchiveSource { bytes: ByteString(vec![1]), all_bytes: 9 });
    seen.survives(Restored { stored: 1, late: 2 });
}

fn function() -> FunctionEntry {
    FunctionEntry {
        name: "assoc_range".into(),
        hash: wire::function_hash("assoc_range"),
        mode: FunctionMode::Read,
        doc: "Lists ä".into(),
    }
}

fn description() -> ExtensionDescription {
    let measured = Measured {
        ends: vec![Statistic { name: "ok".into(), value: 9 }],
        pushed_back: 7,
        cpu_ns: 1,
        timed: 2,
        ns_p50: 3,
        ns_p99: 4,
        ns_p999: 5,
    };
    let version = VersionDescription {
        version: 2,
        content_hash: "00ff".into(),
        artefact_bytes: 3,
        source_bytes: 4,
        source_checked: Some(true),
        installed_ms: 5,
        compile_ms: 6,
        measured,
        no_module: None,
    };
    ExtensionDescription {
        extension: 1,
        name: "tao".into(),
        state: VersionState { current: 2, ..VersionState::default() },
        functions: vec![function(), FunctionEntry { mode: FunctionMode::Write, ..function() }],
        limits: vec![Statistic { name: "arena_bytes".into(), value: 1 << 20 }],
        versions: vec![version],
        sandbox: Some("wasm".into()),
        no_module: Some(String::new()),
    }
}

fn traces() -> Traces {
    let calls = vec![TracedCalls { kind: "get".into(), count: 2, ns: 300 }];
    let polls = vec![TracedPoll { at_ns: 1, ns: 2, end: 0, commit_ns: 3, calls }];
    let (function, status) = ("assoc_range".into(), 0);
    let entry =
        TraceEntry { at_ms: 4, version: 5, function, status, ns: 6, reply_ns: 7, polls_made: 1, polls };
    Traces { looked_at: 8, missed: 9, traces: vec![entry] }
}

/// What tables hold, with and without what is not of every table.
fn replies_about_tables(seen: &mut Seen) {
    let (objects, bytes) = (1, u64::MAX);
    let (name, ordered, index_bytes) = ("users".into(), true, 256);
    let (cache_bytes, evicted) = (Some(1 << 28), 99);
    seen.survives(vec![
        TableEntry {
            id: 7,
            name,
            ordered,
            objects,
            bytes,
            index_bytes,
            cache_bytes,
            evicted,
            emptied_ms: Some(9),
            durability: Some(Durability::Written),
            rewritten_bytes: Some(5),
            tagged: true,
        };
        3
    ]);
    seen.survives(TableStatistics {
        id: 7,
        objects: 1,
        bytes: 2,
        index_bytes: 3,
        cache_bytes: None,
        evicted: 0,
        emptied_ms: None,
        durability: None,
        rewritten_bytes: None,
    });
}

fn replies_to_tenants(seen: &mut Seen) {
    seen.survives(());
    seen.survives(TenantCreated { secret: "f00d".into() });
    seen.survives(vec![TenantEntry {
        name: "a".into(),
        tables: 1,
        extensions: 2,
        sessions: 3,
        objects: 4,
        bytes: 5,
    }]);
    seen.survives(vec![TenantLimitEntry {
        name: "weight".into(),
        value: 1,
        default: 2,
        least: 3,
        most: u64::MAX,
    }]);
    seen.survives(TableId { id: 7 });
    replies_about_tables(seen);
}

fn replies_about_extensions(seen: &mut Seen) {
    seen.survives(ExtensionInstalled {
        extension: 1,
        version: 2,
        current: 1,
        compile_ms: 3,
        diagnostics: "warning: unused\n".into(),
        no_module: Some("wasm unavailable: no tools".into()),
    });
    let state = VersionState { current: 1, canary: 2, canary_percent: 10, pinned: true };
    seen.survives(state);
    seen.survives(vec![ExtensionEntry {
        extension: 1,
        name: "tao".into(),
        state,
        functions: 9,
        versions: vec![VersionEntry { version: 2, installed_ms: 3 }],
    }]);
    seen.survives(description());
    seen.survives(traces());
    seen.survives(ExtensionResolved { extension: 1, version: 2, functions: vec![function()] });
    seen.survives(ExtensionModule {
        extension: 1,
        version: 2,
        border: 1,
        source_checked: true,
        functions: vec![function()],
        limits: vec![Statistic { name: "invocation_reads".into(), value: 9 }],
        sha256: "ab".repeat(32),
        all_bytes: 5,
        bytes: ByteString(vec![0, 97]),
    });
    let line = LogEntry { number: 8, at_ms: 1, level: 3, version: 2, text: "ä".into() };
    seen.survives(LogLines { looked_at: 9, missed: 1, lines: vec![line; 2] });
}

fn replies_about_the_server(seen: &mut Seen) {
    for right in [Right::Read, Right::Write, Right::Invoke] {
        let (owner, name, to) = ("acme".into(), "users".into(), "other".into());
        seen.survives(vec![GrantEntry { owner, name, to, right, granted_ms: 3 }]);
    }
    seen.survives(vec![Statistic { name: "requests".into(), value: u64::MAX }]);
    let tenant = Actor::Tenant { name: "acme".into(), client_id: 3, peer: "127.0.0.1:9".into() };
    for actor in [Actor::Server, Actor::Administrator, tenant] {
        seen.survives(vec![AuditEntry {
            sequence: 1,
            at_ms: 2,
            actor,
            act: "table drop t".into(),
            outcome: 11,
        }]);
    }
    for (is_asked, frame_ports) in [(true, vec![7, u16::MAX]), (false, Vec::new())] {
        let (tcp, version) = ("127.0.0.1:7".into(), "0.1.0".into());
        seen.survives(vec![ServerEntry {
            id: 3,
            is_asked,
            tcp,
            frame_ports,
            view: 1,
            started_ms: 2,
            version,
        }]);
    }
    seen.survives(vec![SessionEntry {
        client_id: 1,
        tenant: "acme".into(),
        peer: "127.0.0.1:9".into(),
        opened_ms: 2,
        home_core: 3,
    }]);
}

fn replies_about_tablets(seen: &mut Seen) {
    let table = String::from("acme/users");
    let (first, last) = (1 << 63, u64::MAX);
    seen.survives(Adopted { tablets: 3, remaining: true });
    let (tcp, replicas, missing_ms) = ("10.0.0.1:7".into(), Some(2), Some(1_500));
    let (is_present, is_drained) = (true, false);
    let member = MemberEntry { id: 1, tcp, starts: 4, is_present, is_drained, replicas, missing_ms };
    let plan = |progress| {
        let (id, drains, begun_ms, moves, in_flight, done, failed) = (6, 2, 9, 7, 2, 4, 1);
        PlanEntry { id, drains, progress, begun_ms, moves, in_flight, done, failed }
    };
    let plans = [PlanProgress::Running, PlanProgress::Done, PlanProgress::Stopped].map(plan).to_vec();
    seen.survives(ClusterStatus { asked: 1, coordinator: 2, members: vec![member; 2], plans });
    seen.survives(vec![TabletEntry { table: table.clone(), id: 4, first, last, server: 2, emptied_ms: 8 }]);
    for (mode, phase, is_aborted) in [
        (MigrationMode::Rocksteady, MigrationPhase::Preparing, false),
        (MigrationMode::PreCopy, MigrationPhase::Preparing, false),
        (MigrationMode::StopAndCopy, MigrationPhase::Moving, true),
        (MigrationMode::Rocksteady, MigrationPhase::Returning, true),
        (MigrationMode::StopAndCopy, MigrationPhase::Finished, false),
        (MigrationMode::Rocksteady, MigrationPhase::Ended, true),
    ] {
        let (table, begun_ms) = (table.clone(), 11);
        let (id, source, target) = (5, 1, 2);
        let migration =
            MigrationEntry { id, table, first, last, source, target, mode, phase, is_aborted, begun_ms };
        seen.survives(vec![migration.clone()]);
        let awaited = match phase {
            MigrationPhase::Preparing => MigrationWait::Slot,
            MigrationPhase::Moving => MigrationWait::Nothing,
            MigrationPhase::Returning => MigrationWait::Peer,
            MigrationPhase::Finished => MigrationWait::Disk,
            MigrationPhase::Ended => MigrationWait::Records,
        };
        seen.survives(vec![MigrationProgress {
            migration,
            is_source: is_aborted,
            is_over: !is_aborted,
            awaited,
            ahead: 8,
            objects_expected: 1,
            log_bytes: is_aborted.then_some(9),
            log_bytes_expected: is_aborted.then_some(10),
            objects: 2,
            bytes: 3,
            bytes_per_second: 4,
            second_read_bytes: 5,
            pause_us: 6,
            took_ms: 7,
        }]);
    }
}
