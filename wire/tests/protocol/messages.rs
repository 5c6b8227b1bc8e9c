//! Every data request, answer and record means the same on both sides.

use std::ops::Range;

use crate::samples::{self, Material};
use crate::seed;
use wire::limits::{
    ARGUMENTS_BYTES_MAX, COMMIT_RANGES_MAX, COMMIT_READS_MAX, COMMIT_WRITES_MAX, KEY_BYTES_MAX,
    MULTI_GET_KEYS_MAX, STREAM_BODY_BYTES_MAX, VALUE_BYTES_MAX,
};
use wire::{
    Changes, CommitRange, CommitRead, CommitWrite, Condition, KeyRange, Keys, RecordHeader, Request, Status,
    opcode, reply,
};

#[test]
fn every_data_request_survives_the_wire() {
    let mut rng = seed::rng("every_data_request_survives_the_wire");
    for _ in 0..seed::budget(5_000, 500_000) {
        let material = Material::new(&mut rng);
        let slices = material.slices();
        let lists = material.lists(&mut rng, &slices);
        let request = material.request(&mut rng, &slices, &lists);
        let body = samples::encode(&request);
        assert_eq!(request.check(), Ok(()));
        assert_eq!(Request::decode(request.opcode(), &body), Ok(request));
    }
}

#[test]
fn every_data_answer_survives_the_wire() {
    for ttl_ms in [None, Some(0), Some(u64::MAX)] {
        let object = reply::Object { version: 3, ttl_ms, value: b"value" };
        let mut body = vec![0; object.body_bytes()];
        object.encode(&mut body);
        assert_eq!(reply::Object::decode(&body), Ok(object));
    }
    let mut body = vec![0; reply::Verified::body_bytes(b"cursor", 2)];
    reply::Verified::encode(&mut body, b"cursor", (5, 700), &[1, u64::MAX]);
    let verified = reply::Verified::decode(&body).expect("it was encoded here");
    assert_eq!((verified.cursor, verified.objects, verified.bytes), (&b"cursor"[..], 5, 700));
    assert_eq!(verified.corrupted().collect::<Vec<_>>(), [1, u64::MAX]);
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
fn a_page_of_an_enumeration_survives_the_wire() {
    let listed = |status, version, key: &'static [u8], value: &'static [u8]| reply::Listed {
        status,
        version,
        ttl_ms: None,
        key,
        value,
    };
    let objects = [
        listed(Status::Ok, 1, b"one", b"value"),
        reply::Listed { ttl_ms: Some(u64::MAX), ..listed(Status::Ok, 3, b"goes", b"soon") },
        listed(Status::Ok, 2, b"", b""),
        listed(Status::Corrupted, u64::MAX, b"", b""),
    ];
    for cursor in [&b""[..], b"cursor"] {
        let bytes = objects.iter().map(reply::Listed::bytes).sum();
        let mut body = vec![0; reply::Listing::body_bytes(cursor, bytes)];
        let mut place = reply::Listing::encode_head(&mut body, cursor, objects.len());
        for object in &objects {
            place = reply::Listing::encode_object(place, object);
        }
        assert!(place.is_empty());
        let listing = reply::Listing::decode(&body).expect("it was encoded here");
        assert_eq!(listing.cursor().unwrap_or_default(), cursor);
        assert_eq!(listing.collect::<Vec<_>>(), objects);
        for cut in 0..body.len() {
            assert_eq!(reply::Listing::decode(&body[..cut]).err(), Some(Status::Malformed));
        }
    }
}

#[test]
fn times_cursors_and_pages_beyond_their_limits_are_refused_by_both_sides() {
    let put =
        |ttl_ms| Request::PutFor { table: 1, key: b"k", value: b"v", condition: Condition::Always, ttl_ms };
    let page = |objects_max, bytes_max| Request::Enumerate {
        table: 1,
        cursor: &[],
        keys_only: false,
        objects_max,
        bytes_max,
    };
    let long = [7; 65];
    let cursor = Request::Verify { table: 1, cursor: &long };
    let longest = vec![7; wire::limits::SCAN_CURSOR_BYTES_MAX + 1];
    let scan = |cursor, objects_max, bytes_max| Request::Scan {
        table: 1,
        range: KeyRange::default(),
        cursor,
        keys_only: false,
        objects_max,
        bytes_max,
    };
    for (request, status) in [
        (put(0), Status::OutOfRange),
        (put(wire::limits::TTL_MS_MAX + 1), Status::OutOfRange),
        (put(u64::MAX), Status::OutOfRange),
        (page(0, 1), Status::OutOfRange),
        (page(1, 0), Status::OutOfRange),
        (page(u16::MAX, 1), Status::OutOfRange),
        (page(1, u32::MAX), Status::OutOfRange),
        (cursor, Status::CursorInvalid),
        (scan(&longest, 1, 1), Status::CursorInvalid),
        (scan(&[], 0, 1), Status::OutOfRange),
        (scan(&[], 1, u32::MAX), Status::OutOfRange),
    ] {
        assert_eq!(request.check(), Err(status));
        assert_eq!(Request::decode(request.opcode(), &samples::encode(&request)), Err(status));
    }
    assert_eq!(put(1).check(), Ok(()));
    assert_eq!(put(wire::limits::TTL_MS_MAX).check(), Ok(()));
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
fn commits_beyond_a_limit_or_of_nothing_are_refused_by_both_sides() {
    let refused = |changes: Changes<'_>, status: Status| {
        let request = Request::Commit { changes };
        assert_eq!(request.check(), Err(status));
        assert_eq!(Request::decode(opcode::COMMIT, &samples::encode(&request)), Err(status));
    };
    let long = vec![0; VALUE_BYTES_MAX + 1];
    let read = CommitRead { table: 1, key: b"k", version: 0 };
    let write = CommitWrite { table: 1, key: b"k", value: None, ttl_ms: None };
    let range = CommitRange { table: 1, range: KeyRange::default(), until: None, reads: 0..0 };
    refused(Changes::listed(&[], &[], &[]), Status::Malformed);
    refused(Changes::listed(&vec![read; COMMIT_READS_MAX + 1], &[], &[]), Status::LimitExceeded);
    refused(Changes::listed(&[], &vec![range.clone(); COMMIT_RANGES_MAX + 1], &[]), Status::LimitExceeded);
    refused(Changes::listed(&[], &[], &vec![write; COMMIT_WRITES_MAX + 1]), Status::LimitExceeded);
    let key = &long[..KEY_BYTES_MAX + 1];
    let too_long = [CommitRead { key, ..read }];
    assert_eq!(
        Request::Commit { changes: Changes::listed(&too_long, &[], &[]) }.check(),
        Err(Status::KeyTooLarge)
    );
    let too_large = CommitWrite { value: Some(&long), ..write };
    refused(Changes::listed(&[], &[], &[too_large]), Status::ValueTooLarge);
    for ttl_ms in [0, wire::limits::TTL_MS_MAX + 1] {
        let late = CommitWrite { value: Some(b"v"), ttl_ms: Some(ttl_ms), ..write };
        refused(Changes::listed(&[], &[], &[late]), Status::OutOfRange);
    }
    // Two ranges with one read, more reads than there are, and one that ends before it begins.
    let own = CommitRange { reads: 0..1, ..range.clone() };
    refused(Changes::listed(&[read], &[own.clone(), own], &[]), Status::Malformed);
    for reads in [0..2, Range { start: 1, end: 0 }] {
        refused(Changes::listed(&[read], &[CommitRange { reads, ..range.clone() }], &[]), Status::Malformed);
    }
    let by_hash = KeyRange { hashes: Some((0, 1)), ..KeyRange::default() };
    refused(Changes::listed(&[], &[CommitRange { range: by_hash, ..range }], &[]), Status::Malformed);
}

#[test]
fn bytes_behind_the_last_field_are_refused() {
    let keys = [b"a".as_slice(), b"".as_slice(), b"ccc".as_slice()];
    let reads = [CommitRead { table: 1, key: b"k", version: 2 }];
    let requests = [
        Request::Ping,
        Request::Delete { table: 1, key: b"k", condition: Condition::Version(2) },
        Request::MultiGet { table: 1, keys: Keys::from_slices(&keys) },
        Request::Commit { changes: Changes::listed(&reads, &[], &[]) },
    ];
    for request in requests {
        let mut body = samples::encode(&request);
        assert_eq!(Request::decode(request.opcode(), &body), Ok(request));
        body.push(0);
        assert_eq!(Request::decode(request.opcode(), &body), Err(Status::Malformed));
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
fn a_record_header_tells_how_much_follows() {
    let header = RecordHeader {
        body_bytes: 5,
        code: opcode::PUT,
        flags: 0,
        sequence: u64::MAX,
        first_unacknowledged: 1 << 40,
        view: 1 << 50 | 3,
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
    head[..4].copy_from_slice(&(STREAM_BODY_BYTES_MAX as u32 + 29).to_le_bytes());
    assert_eq!(RecordHeader::decode(&head), Err(Status::LimitExceeded));
    head[4] = opcode::ADMINISTER;
    assert!(RecordHeader::decode(&head).is_ok());
    head[..4].copy_from_slice(&27_u32.to_le_bytes());
    assert_eq!(RecordHeader::decode(&head), Err(Status::Malformed));
    head[..4].copy_from_slice(&28_u32.to_le_bytes());
    head[6] = 1;
    assert_eq!(RecordHeader::decode(&head), Err(Status::Malformed));
}
