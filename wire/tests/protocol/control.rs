//! Opening and administration mean the same on both sides.

use wire::limits::{LIMIT_CHANGES_MAX, PACKAGE_FILES_MAX};
use wire::{
    Actor, AdminRequest, Adopted, Attach, AuditEntry, Body, ClusterStatus, ExtensionDescription,
    ExtensionEntry, ExtensionInstalled, ExtensionResolved, FunctionEntry, FunctionMode, GrantEntry,
    LimitChange, LogEntry, LogLines, Measured, MemberEntry, MigrationAwaited, MigrationEntry, MigrationMode,
    MigrationPhase, MigrationProgress, OpenRequest, Opened, PackageFile, Placement, PlanEntry, PlanProgress,
    Right, ServerEntry, SessionEntry, SessionLimits, ShmEndpoint, Statistic, Status, Subject, TableEntry,
    TableId, TableOptions, TableStatistics, TabletEntry, TenantCreated, TenantEntry, TenantLimitEntry,
    VersionDescription, VersionEntry, VersionRange, VersionState, opcode,
};

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
        AdminRequest::ClusterAdopt { server: 6 },
    ]
}

pub fn admin_requests() -> Vec<AdminRequest<'static>> {
    [requests_about_tenants(), cluster_requests()].concat()
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
        },
        AdminRequest::TenantLimitsSet { name, changes: Vec::new() },
        AdminRequest::TenantRotate { name },
        AdminRequest::TableCreate { name, options: TableOptions::default() },
        AdminRequest::TableCreate {
            name,
            options: TableOptions {
                ordered: true,
                cache_bytes: Some(0),
                migration: MigrationMode::Cooperative,
            },
        },
        AdminRequest::TableCreateSpread { name, options: TableOptions::default(), tablets: 9 },
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

pub fn open_requests() -> [OpenRequest<'static>; 4] {
    [
        OpenRequest::Session { tenant: "acme", secret: "s3cret" },
        OpenRequest::Attach { token: 0x0123_4567_89ab_cdef },
        OpenRequest::Admin { secret: "root" },
        OpenRequest::Peer { server: 7, nonce: std::array::from_fn(|byte| byte as u8) },
    ]
}

fn opened() -> Opened {
    Opened {
        version: 1,
        token: 7,
        client_id: 8,
        home_core: 1,
        core_ports: vec![4_000, 4_001],
        limits: SessionLimits {
            key_bytes_max: 1,
            value_bytes_max: 2,
            reply_bytes_max: 3,
            arguments_bytes_max: 4,
        },
        credits: 64,
        view: 9,
        next_sequence: 1,
        shm: Some(ShmEndpoint { machine: [5; 16], user: 1_000, path: "/run/splinter/shm".into() }),
    }
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
        installed_ms: 5,
        compile_ms: 6,
        measured,
    };
    ExtensionDescription {
        extension: 1,
        name: "tao".into(),
        state: VersionState { current: 2, ..VersionState::default() },
        functions: vec![function(), FunctionEntry { mode: FunctionMode::Write, ..function() }],
        limits: vec![Statistic { name: "arena_bytes".into(), value: 1 << 20 }],
        versions: vec![version],
    }
}

/// One body of each control message, under the code of a request or 0.
pub fn control_bodies() -> Vec<(u8, Vec<u8>)> {
    let mut bodies: Vec<(u8, Vec<u8>)> = admin_requests()
        .iter()
        .map(|request| (request.opcode(), request.encode().expect("it is small")))
        .collect();
    bodies.extend(open_requests().iter().map(|open| (open.opcode(), open.encode(VersionRange::OURS))));
    bodies.push((0, opened().encode()));
    bodies.push((0, description().encode()));
    bodies
}

#[test]
fn every_admin_request_survives_the_wire() {
    for request in admin_requests() {
        let body = request.encode().expect("it is small");
        assert_eq!(AdminRequest::decode(request.opcode(), &body), Ok(request.clone()));
        let longer = [body.as_slice(), &[0]].concat();
        assert_eq!(AdminRequest::decode(request.opcode(), &longer), Err(Status::Malformed));
    }
}

#[test]
fn every_opening_survives_the_wire() {
    for request in open_requests() {
        let body = request.encode(VersionRange { min: 0, max: 9 });
        let (version, decoded) = OpenRequest::decode(request.opcode(), &body).expect("it was encoded here");
        assert!(version == 1 && decoded == request);
        assert!(!format!("{decoded:?}").contains("s3cret"), "secrets stay out of logs");
    }
    let newer = open_requests()[0].encode(VersionRange { min: 2, max: 3 });
    assert_eq!(OpenRequest::decode(opcode::OPEN_SESSION, &newer), Err(Status::UnsupportedVersion));
}

/// An answer arrives as it was sent, and no part of it or more than it does.
fn survives<T: Body + PartialEq + core::fmt::Debug>(answer: T) {
    let body = answer.encode();
    assert_eq!(T::decode(&body), Ok(answer));
    assert_eq!(T::decode(&[body.as_slice(), &[0]].concat()).err(), Some(Status::Malformed));
    for cut in 0..body.len() {
        assert!(T::decode(&body[..cut]).is_err());
    }
}

/// What tables hold, with and without what is not of every table.
fn survives_of_tables() {
    let (objects, bytes) = (1, u64::MAX);
    let (name, ordered, index_bytes) = ("users".into(), true, 256);
    let (cache_bytes, evicted) = (Some(1 << 28), 99);
    survives(vec![
        TableEntry {
            id: 7,
            name,
            ordered,
            objects,
            bytes,
            index_bytes,
            cache_bytes,
            evicted,
            emptied_ms: Some(9)
        };
        3
    ]);
    survives(TableStatistics {
        id: 7,
        objects: 1,
        bytes: 2,
        index_bytes: 3,
        cache_bytes: None,
        evicted: 0,
        emptied_ms: None,
    });
}

#[test]
fn every_answer_survives_the_wire() {
    survives(());
    survives(opened());
    survives(Opened { shm: None, ..opened() });
    survives(Attach { token: 7, core: 3 });
    survives(VersionRange { min: 1, max: 2 });
    survives(TenantCreated { secret: "f00d".into() });
    survives(vec![TenantEntry {
        name: "a".into(),
        tables: 1,
        extensions: 2,
        sessions: 3,
        objects: 4,
        bytes: 5,
    }]);
    survives(vec![TenantLimitEntry {
        name: "weight".into(),
        value: 1,
        default: 2,
        least: 3,
        most: u64::MAX,
    }]);
    survives(TableId { id: 7 });
    survives_of_tables();
    survives(ExtensionInstalled {
        extension: 1,
        version: 2,
        current: 1,
        compile_ms: 3,
        diagnostics: "warning: unused\n".into(),
    });
    let state = VersionState { current: 1, canary: 2, canary_percent: 10, pinned: true };
    survives(state);
    survives(vec![ExtensionEntry {
        extension: 1,
        name: "tao".into(),
        state,
        functions: 9,
        versions: vec![VersionEntry { version: 2, installed_ms: 3 }],
    }]);
    survives(description());
    survives(ExtensionResolved { extension: 1, version: 2, functions: vec![function()] });
    let line = LogEntry { number: 8, at_ms: 1, level: 3, version: 2, text: "ä".into() };
    survives(LogLines { looked_at: 9, missed: 1, lines: vec![line; 2] });
    for right in [Right::Read, Right::Write, Right::Invoke] {
        let (owner, name, to) = ("acme".into(), "users".into(), "other".into());
        survives(vec![GrantEntry { owner, name, to, right, granted_ms: 3 }]);
    }
    survives(vec![Statistic { name: "requests".into(), value: u64::MAX }]);
    let tenant = Actor::Tenant { name: "acme".into(), client_id: 3, peer: "127.0.0.1:9".into() };
    for actor in [Actor::Server, Actor::Administrator, tenant] {
        survives(vec![AuditEntry { sequence: 1, at_ms: 2, actor, act: "table drop t".into(), outcome: 11 }]);
    }
    for (is_asked, frame_ports) in [(true, vec![7, u16::MAX]), (false, Vec::new())] {
        let (tcp, version) = ("127.0.0.1:7".into(), "0.1.0".into());
        survives(vec![ServerEntry { id: 3, is_asked, tcp, frame_ports, view: 1, started_ms: 2, version }]);
    }
    survives(vec![SessionEntry {
        client_id: 1,
        tenant: "acme".into(),
        peer: "127.0.0.1:9".into(),
        opened_ms: 2,
        home_core: 3,
    }]);
}

#[test]
fn every_answer_about_tablets_survives_the_wire() {
    let table = String::from("acme/users");
    let (first, last) = (1 << 63, u64::MAX);
    survives(Adopted { tablets: 3, are_left: true });
    let member =
        MemberEntry { id: 1, tcp: "10.0.0.1:7".into(), starts: 4, is_there: true, is_drained: false };
    let plan = |progress| {
        let (id, drains, begun_ms, moves, on_the_way, done, failed) = (6, 2, 9, 7, 2, 4, 1);
        PlanEntry { id, drains, progress, begun_ms, moves, on_the_way, done, failed }
    };
    let plans = [PlanProgress::Running, PlanProgress::Done, PlanProgress::Stopped].map(plan).to_vec();
    survives(ClusterStatus { asked: 1, coordinator: 2, members: vec![member; 2], plans });
    survives(vec![TabletEntry { table: table.clone(), id: 4, first, last, server: 2, emptied_ms: 8 }]);
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
        survives(vec![migration.clone()]);
        let awaited = match phase {
            MigrationPhase::Preparing => MigrationAwaited::Slot,
            MigrationPhase::Moving => MigrationAwaited::Nothing,
            MigrationPhase::Returning => MigrationAwaited::Peer,
            MigrationPhase::Finished | MigrationPhase::Ended => MigrationAwaited::Records,
        };
        survives(vec![MigrationProgress {
            migration,
            is_source: is_aborted,
            is_over: !is_aborted,
            awaited,
            ahead: 8,
            objects_expected: 1,
            objects: 2,
            bytes: 3,
            bytes_per_second: 4,
            second_read_bytes: 5,
            pause_us: 6,
            took_ms: 7,
        }]);
    }
}

#[test]
fn a_session_without_its_home_core_or_without_credits_is_refused() {
    let answers = [Opened { home_core: 2, ..opened() }, Opened { credits: 0, ..opened() }];
    for answer in answers {
        assert_eq!(Opened::decode(&answer.encode()), Err(Status::Malformed));
    }
}

#[test]
fn names_that_may_not_be_used_are_refused_at_the_edge() {
    for name in ["", "../x", "a/b", &"n".repeat(10_240)] {
        let body = AdminRequest::TableCreate { name, options: TableOptions::default() }
            .encode()
            .expect("it is small");
        assert_eq!(AdminRequest::decode(opcode::TABLE_CREATE, &body), Err(Status::NameInvalid));
    }
    assert_eq!(AdminRequest::decode(opcode::TABLE_CREATE, &[1, 0, 0xff]), Err(Status::NameInvalid));
    assert_eq!(AdminRequest::decode(200, &[]), Err(Status::UnknownOpcode));
}

#[test]
fn packages_that_climb_repeat_or_swell_are_refused() {
    let file = |path| PackageFile { path, bytes: b"" };
    let refusal = |files| {
        let request = AdminRequest::ExtensionInstall { name: "x", files, placement: Placement::Current };
        AdminRequest::decode(opcode::EXTENSION_INSTALL, &request.encode().expect("it is small")).err()
    };
    assert_eq!(refusal(vec![file("src/lib.rs"), file("../../x")]), Some(Status::NameInvalid));
    assert_eq!(refusal(vec![file("lib.rs"), file("lib.rs")]), Some(Status::NameInvalid));
    let files = vec![file("a"); PACKAGE_FILES_MAX + 1];
    let many = AdminRequest::ExtensionInstall { name: "x", files, placement: Placement::Current };
    assert_eq!(many.encode(), Err(Status::LimitExceeded));
    let huge = vec![0; 17 << 20];
    let files = vec![PackageFile { path: "a", bytes: &huge }];
    let huge = AdminRequest::ExtensionInstall { name: "x", files, placement: Placement::Current };
    assert_eq!(huge.encode(), Err(Status::LimitExceeded));
}

#[test]
fn changes_of_limits_that_repeat_swell_or_say_two_things_are_refused() {
    let change = |limit| LimitChange { limit, value: Some(7) };
    let body = |changes| AdminRequest::TenantLimitsSet { name: "acme", changes }.encode();
    let refusal = |body: &[u8]| AdminRequest::decode(opcode::TENANT_LIMITS_SET, body).err();
    let twice = body(vec![change("weight"), change("weight")]).expect("it is small");
    assert_eq!(refusal(&twice), Some(Status::NameInvalid));
    let nameless = body(vec![change("")]).expect("it is small");
    assert_eq!(refusal(&nameless), Some(Status::NameInvalid));
    assert_eq!(body(vec![change("weight"); LIMIT_CHANGES_MAX + 1]), Err(Status::LimitExceeded));
    let mut many = body(Vec::new()).expect("it is small");
    let count = many.len() - 2;
    many[count..].copy_from_slice(&(LIMIT_CHANGES_MAX as u16 + 1).to_le_bytes());
    assert_eq!(refusal(&many), Some(Status::LimitExceeded));
    let mut reset = body(vec![change("weight")]).expect("it is small");
    let flag = reset.len() - 9;
    reset[flag] = 0;
    assert_eq!(refusal(&reset), Some(Status::Malformed), "back to the default, and a value");
}

#[test]
fn a_canary_gets_a_part_and_never_all_or_nothing() {
    for (kind, percent) in [(0, 1), (1, 1), (2, 0), (2, 100), (3, 0)] {
        assert_eq!(Placement::decode(&[kind, percent]), Err(Status::Malformed), "{kind} {percent}");
    }
}

#[test]
fn only_what_may_be_anothers_has_a_qualified_name() {
    let name = "acme/users";
    for request in [
        AdminRequest::TableOpen { name },
        AdminRequest::ExtensionResolve { name },
        AdminRequest::ExtensionLogs { name, level: 0, after: 0, count: 0 },
    ] {
        let body = request.encode().expect("it is small");
        assert!(AdminRequest::decode(request.opcode(), &body).is_ok(), "{request:?}");
    }
    for request in [
        AdminRequest::TableDrop { name },
        AdminRequest::TableStat { name },
        AdminRequest::ExtensionRemove { name, version: 0 },
        AdminRequest::GrantCreate { name, to: "acme", right: Right::Read },
        AdminRequest::GrantRevoke { subject: Subject::Table, name, to: "acme" },
    ] {
        let body = request.encode().expect("it is small");
        let decoded = AdminRequest::decode(request.opcode(), &body);
        assert_eq!(decoded, Err(Status::NameInvalid), "{request:?}");
    }
}
