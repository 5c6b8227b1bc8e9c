//! Every message means the same on both sides.

use crate::samples::{self, Material};
use crate::seed;
use wire::limits::{
    ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX, MULTI_GET_KEYS_MAX, PACKAGE_FILES_MAX, STREAM_BODY_BYTES_MAX,
    VALUE_BYTES_MAX,
};
use wire::{
    AdminRequest, Body, Condition, ExtensionDescription, ExtensionEntry, ExtensionInstalled,
    ExtensionResolved, FunctionEntry, FunctionMode, Keys, OpenRequest, Opened, PackageFile, RecordHeader,
    Request, SessionEntry, SessionLimits, Statistic, Status, TableEntry, TableId, TableStatistics,
    TenantCreated, TenantEntry, VersionRange, opcode, reply,
};

fn admin_requests() -> Vec<AdminRequest<'static>> {
    let name = "tao-2.1";
    let files = vec![
        PackageFile { path: "Cargo.toml", bytes: b"[package]" },
        PackageFile { path: "src/lib.rs", bytes: b"" },
    ];
    vec![
        AdminRequest::TenantCreate { name },
        AdminRequest::TenantList,
        AdminRequest::TenantDrop { name },
        AdminRequest::TableCreate { name },
        AdminRequest::TableList,
        AdminRequest::TableDrop { name },
        AdminRequest::TableStat { name },
        AdminRequest::TableOpen { name },
        AdminRequest::ExtensionInstall { name, files },
        AdminRequest::ExtensionList,
        AdminRequest::ExtensionDescribe { name },
        AdminRequest::ExtensionRemove { name },
        AdminRequest::ExtensionResolve { name },
        AdminRequest::Statistics,
        AdminRequest::SessionList,
        AdminRequest::SessionRevoke { client_id: u64::MAX - 1 },
    ]
}

fn open_requests() -> [OpenRequest<'static>; 3] {
    [
        OpenRequest::Session { tenant: "acme", secret: "s3cret" },
        OpenRequest::Attach { token: 0x0123_4567_89ab_cdef },
        OpenRequest::Admin { secret: "root" },
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
    ExtensionDescription {
        extension: 1,
        version: 2,
        name: "tao".into(),
        content_hash: "00ff".into(),
        artefact_bytes: 3,
        source_bytes: 4,
        installed_ms: 5,
        compile_ms: 6,
        functions: vec![function(), FunctionEntry { mode: FunctionMode::Write, ..function() }],
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
fn every_data_request_survives_the_wire() {
    let mut rng = seed::rng("every_data_request_survives_the_wire");
    for _ in 0..seed::budget(5_000, 500_000) {
        let material = Material::new(&mut rng);
        let slices = material.slices();
        let request = material.request(&mut rng, &slices);
        let body = samples::encode(&request);
        assert_eq!(request.check(), Ok(()));
        assert_eq!(Request::decode(request.opcode(), &body), Ok(request));
    }
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

#[test]
fn every_answer_survives_the_wire() {
    fn survives<T: Body + PartialEq + core::fmt::Debug>(answer: T) {
        let body = answer.encode();
        assert_eq!(T::decode(&body), Ok(answer));
        assert_eq!(T::decode(&[body.as_slice(), &[0]].concat()).err(), Some(Status::Malformed));
        for cut in 0..body.len() {
            assert!(T::decode(&body[..cut]).is_err());
        }
    }
    survives(());
    survives(opened());
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
    survives(TableId { id: 7 });
    survives(vec![TableEntry { id: 7, name: "users".into() }; 3]);
    survives(TableStatistics { id: 7, objects: 1, bytes: 2, index_bytes: 3 });
    survives(ExtensionInstalled {
        extension: 1,
        version: 2,
        compile_ms: 3,
        diagnostics: "warning: unused\n".into(),
    });
    survives(vec![ExtensionEntry { extension: 1, version: 2, name: "tao".into(), functions: 9 }]);
    survives(description());
    survives(ExtensionResolved { extension: 1, version: 2, functions: vec![function()] });
    survives(vec![Statistic { name: "requests".into(), value: u64::MAX }]);
    survives(vec![SessionEntry {
        client_id: 1,
        tenant: "acme".into(),
        peer: "127.0.0.1:9".into(),
        opened_ms: 2,
    }]);
}

#[test]
fn every_data_answer_survives_the_wire() {
    let object = reply::Object { version: 3, value: b"value" };
    let mut body = vec![0; object.body_bytes()];
    object.encode(&mut body);
    assert_eq!(reply::Object::decode(&body), Ok(object));
    assert_eq!(reply::decode_version(&reply::encode_version(9)), Ok(9));
    assert_eq!(reply::decode_retry(&reply::encode_retry(250)), Ok(250));
    let number = reply::Number { version: 4, value: -5 };
    assert_eq!(reply::Number::decode(&number.encode()), Ok(number));
    let failure = reply::ExtensionFailure { code: 42, message: b"no such node" };
    let mut body = vec![0; failure.body_bytes()];
    failure.encode(&mut body);
    assert_eq!(reply::ExtensionFailure::decode(&body), Ok(failure));
}

#[test]
fn a_multi_get_answer_keeps_the_order_of_its_keys() {
    let entries = [
        reply::Entry { status: Status::Ok, version: 1, value: b"one" },
        reply::Entry { status: Status::NotFound, version: 0, value: b"" },
        reply::Entry { status: Status::Ok, version: 3, value: b"" },
    ];
    let mut body = vec![0; reply::Objects::body_bytes(entries.len(), 3)];
    let mut place = reply::Objects::encode_count(&mut body, entries.len());
    for entry in &entries {
        place = reply::Objects::encode_entry(place, entry).expect("it fits");
    }
    assert!(place.is_empty());
    assert_eq!(reply::Objects::encode_entry(place, &entries[0]), None);
    let decoded: Vec<_> = reply::Objects::decode(&body).expect("it was encoded here").collect();
    assert_eq!(decoded, entries);
    body.push(0);
    assert_eq!(reply::Objects::decode(&body).err(), Some(Status::Malformed));
}

#[test]
fn requests_beyond_a_limit_are_named_by_both_sides() {
    let long = vec![0; VALUE_BYTES_MAX + 1];
    let key = &long[..KEY_BYTES_MAX + 1];
    let put = Request::Put { table: 1, key: b"k", value: &long, condition: Condition::Always };
    assert_eq!(put.check(), Err(Status::ValueTooLarge));
    assert_eq!(Request::decode(opcode::PUT, &samples::encode(&put)), Err(Status::ValueTooLarge));
    let invoke = Request::Invoke {
        extension: 1,
        version: 0,
        function: 2,
        table: 3,
        key: b"",
        arguments: &long[..ARGUMENTS_BYTES_MAX + 1],
    };
    assert_eq!(invoke.check(), Err(Status::ArgumentsTooLarge));
    assert_eq!(Request::decode(opcode::INVOKE, &samples::encode(&invoke)), Err(Status::ArgumentsTooLarge));
    let get = Request::Get { table: 1, key };
    assert_eq!(get.check(), Err(Status::KeyTooLarge));
    assert_eq!(Request::decode(opcode::GET, &samples::encode(&get)), Err(Status::KeyTooLarge));
    let keys = vec![b"k".as_slice(); MULTI_GET_KEYS_MAX + 1];
    let multi_get = Request::MultiGet { table: 1, keys: Keys::from_slices(&keys) };
    assert_eq!(multi_get.check(), Err(Status::LimitExceeded));
    assert_eq!(Request::decode(opcode::MULTI_GET, &samples::encode(&multi_get)), Err(Status::LimitExceeded));
    let keys = [b"k".as_slice(), key];
    assert_eq!(
        Request::MultiGet { table: 1, keys: Keys::from_slices(&keys) }.check(),
        Err(Status::KeyTooLarge)
    );
}

#[test]
fn bytes_behind_the_last_field_are_refused() {
    let keys = [b"a".as_slice(), b"".as_slice(), b"ccc".as_slice()];
    let requests = [
        Request::Ping,
        Request::Delete { table: 1, key: b"k", condition: Condition::Version(2) },
        Request::MultiGet { table: 1, keys: Keys::from_slices(&keys) },
    ];
    for request in requests {
        let mut body = samples::encode(&request);
        assert_eq!(Request::decode(request.opcode(), &body), Ok(request));
        body.push(0);
        assert_eq!(Request::decode(request.opcode(), &body), Err(Status::Malformed));
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
fn the_largest_key_and_value_fit_in_a_record() {
    let (key, value) = (vec![1; KEY_BYTES_MAX], vec![2; VALUE_BYTES_MAX]);
    let put = Request::Put { table: 1, key: &key, value: &value, condition: Condition::Version(9) };
    let body = samples::encode(&put);
    assert!(body.len() <= STREAM_BODY_BYTES_MAX);
    assert_eq!(Request::decode(opcode::PUT, &body), Ok(put));
}

#[test]
fn names_that_may_not_be_used_are_refused_at_the_edge() {
    for name in ["", "../x", "a/b", &"n".repeat(10_240)] {
        let body = AdminRequest::TableCreate { name }.encode().expect("it is small");
        assert_eq!(AdminRequest::decode(opcode::TABLE_CREATE, &body), Err(Status::NameInvalid));
    }
    assert_eq!(AdminRequest::decode(opcode::TABLE_CREATE, &[1, 0, 0xff]), Err(Status::NameInvalid));
    assert_eq!(AdminRequest::decode(200, &[]), Err(Status::UnknownOpcode));
}

#[test]
fn packages_that_climb_repeat_or_swell_are_refused() {
    let file = |path| PackageFile { path, bytes: b"" };
    let refusal = |files| {
        let request = AdminRequest::ExtensionInstall { name: "x", files };
        AdminRequest::decode(opcode::EXTENSION_INSTALL, &request.encode().expect("it is small")).err()
    };
    assert_eq!(refusal(vec![file("src/lib.rs"), file("../../x")]), Some(Status::NameInvalid));
    assert_eq!(refusal(vec![file("lib.rs"), file("lib.rs")]), Some(Status::NameInvalid));
    let many = AdminRequest::ExtensionInstall { name: "x", files: vec![file("a"); PACKAGE_FILES_MAX + 1] };
    assert_eq!(many.encode(), Err(Status::LimitExceeded));
    let huge = vec![0; 17 << 20];
    let files = vec![PackageFile { path: "a", bytes: &huge }];
    let huge = AdminRequest::ExtensionInstall { name: "x", files };
    assert_eq!(huge.encode(), Err(Status::LimitExceeded));
}

#[test]
fn a_record_header_tells_how_much_follows() {
    let header = RecordHeader {
        body_bytes: 5,
        code: opcode::PUT,
        flags: 0,
        sequence: u64::MAX,
        first_unacknowledged: 1 << 40,
    };
    assert_eq!(RecordHeader::decode(&header.encode()), Ok(header));
    let record = header.encode_record(b"abcde");
    let (length, rest) = record.split_at(RecordHeader::LENGTH_BYTES);
    assert_eq!(length, (rest.len() as u32).to_le_bytes());
    assert_eq!(RecordHeader::split(rest), Ok((header, b"abcde".as_slice())));
}

#[test]
fn records_beyond_their_limit_are_refused_by_their_header() {
    let mut head = RecordHeader { code: opcode::PUT, ..RecordHeader::default() }.encode();
    head[..4].copy_from_slice(&(STREAM_BODY_BYTES_MAX as u32 + 21).to_le_bytes());
    assert_eq!(RecordHeader::decode(&head), Err(Status::LimitExceeded));
    head[4] = opcode::EXTENSION_INSTALL;
    assert!(RecordHeader::decode(&head).is_ok());
    head[..4].copy_from_slice(&19_u32.to_le_bytes());
    assert_eq!(RecordHeader::decode(&head), Err(Status::Malformed));
    head[..4].copy_from_slice(&20_u32.to_le_bytes());
    head[6] = 1;
    assert_eq!(RecordHeader::decode(&head), Err(Status::Malformed));
}
