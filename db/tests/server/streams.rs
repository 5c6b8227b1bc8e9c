//! What does not fit a frame goes over streams, under the same sequences and executed as often: once.

use std::time::{Duration, Instant};

use db::limits::{ANSWER_BYTES_MAX, ANSWERS_BYTES_MAX, RECORD_TIMEOUT_MS, RECORDS_BYTES_MAX};
use wire::limits::{INSTALL_BODY_BYTES_MAX, VALUE_BYTES_MAX};
use wire::{Body, Condition, Keys, OpenRequest, Opened, RecordHeader, Request, Status, opcode, reply};

use super::Site;
use super::client::ControlStream;

#[test]
fn a_large_value_goes_in_and_out_over_the_stream() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, table) = site.tenant_with_table("ann");
    let value: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let put = Request::Put { table, key: b"large", value: &value, condition: Condition::Always };
    let sequence = client.requester.reserve_sequence().expect("a sequence");
    client.control.request(sequence, &put).expect("room");
    client.requester.release(sequence);
    let get = Request::Get { table, key: b"large" };
    assert_eq!(client.status(&get), Status::UseStream);
    let answer = client.control.request(sequence + 1, &get).expect("an object");
    assert_eq!(reply::Object::decode(&answer).expect("an object").value, value);
}

#[test]
fn a_copy_over_the_stream_is_answered_from_the_ring() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, table) = site.tenant_with_table("ann");
    let request = Request::Increment { table, key: b"k", delta: 5 };
    let (status, first) = client.call(&request);
    assert_eq!(status, Ok(Status::Ok));
    // The requester gave it sequence 1 and has not yet acknowledged it to the server.
    let copy = client.control.request(1, &request).expect("the stored reply");
    assert_eq!(copy, first);
    let mut attached = attach(&site, client.opened.token).0;
    assert_eq!(attached.request(1, &request).expect("over any stream of the session"), first);
}

#[test]
fn an_attached_stream_learns_where_sequences_stand() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, table) = site.tenant_with_table("ann");
    for _ in 0..10 {
        assert_eq!(client.status(&Request::Increment { table, key: b"k", delta: 1 }), Status::Ok);
    }
    let (_, opened) = attach(&site, client.opened.token);
    assert_eq!((opened.token, opened.next_sequence), (client.opened.token, 11));
}

fn attach(site: &Site, token: u64) -> (ControlStream, Opened) {
    let request = OpenRequest::Attach { token };
    let (stream, answer) = ControlStream::open(site.server.tcp(), &request).expect("an open session");
    (stream, Opened::decode(&answer).expect("an opened session"))
}

#[test]
fn a_multi_get_keeps_its_order_and_says_what_is_absent() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, table) = site.tenant_with_table("ann");
    let names: Vec<[u8; 2]> = (0..200_u16).map(u16::to_be_bytes).collect();
    for name in names.iter().step_by(2) {
        let put = Request::Put { table, key: name, value: name, condition: Condition::Always };
        assert_eq!(client.status(&put), Status::Ok);
    }
    let keys: Vec<&[u8]> = names.iter().map(<[u8; 2]>::as_slice).collect();
    for count in [0, 1, 33, 64] {
        let request = Request::MultiGet { table, keys: Keys::from_slices(&keys[..count]) };
        let (status, body) = client.call(&request);
        assert_eq!(status, Ok(Status::Ok));
        check_entries(&body, &names[..count]);
    }
    let request = Request::MultiGet { table, keys: Keys::from_slices(&keys) };
    assert_eq!(client.status(&request), Status::UseStream);
    let body = client.control.request(1_000, &request).expect("objects");
    check_entries(&body, &names);
}

fn check_entries(body: &[u8], names: &[[u8; 2]]) {
    let entries: Vec<_> = reply::Objects::decode(body).expect("entries").collect();
    assert_eq!(entries.len(), names.len());
    for (index, (entry, name)) in entries.iter().zip(names).enumerate() {
        match index % 2 {
            0 => assert_eq!((entry.status, entry.value), (Status::Ok, name.as_slice())),
            _ => assert_eq!((entry.status, entry.version), (Status::NotFound, 0)),
        }
    }
}

#[test]
fn a_multi_get_beyond_the_reply_limit_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, table) = site.tenant_with_table("ann");
    let value = vec![1; 600_000];
    for (sequence, key) in [(1, b"a"), (2, b"b")] {
        let put = Request::Put { table, key, value: &value, condition: Condition::Always };
        client.control.request(sequence, &put).expect("room");
    }
    let keys: [&[u8]; 2] = [b"a", b"b"];
    let request = Request::MultiGet { table, keys: Keys::from_slices(&keys) };
    assert_eq!(client.status(&request), Status::ReplyTooLarge);
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_a_record_disturbs_nobody() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, table) = site.tenant_with_table("ann");
    for _ in 0..20 {
        let (mut stream, _) = attach(&site, client.opened.token);
        stream.write_raw(&[200, 0, 0, 0, 3, 0, 0]);
    }
    let put = Request::Put { table, key: b"k", value: b"v", condition: Condition::Always };
    assert_eq!(client.status(&put), Status::Ok);
    let started = Instant::now();
    drop(site);
    let patience = Duration::from_millis(RECORD_TIMEOUT_MS);
    assert!(started.elapsed() < patience, "and the server waits for none of them when it stops");
}

/// A stream that begins as long a record as there is and stalls in it.
fn stalled(site: &Site, tenant: &str, secret: &str) -> ControlStream {
    let (mut stream, _) = ControlStream::open(site.server.tcp(), &OpenRequest::Session { tenant, secret })
        .expect("the right secret");
    let header = RecordHeader {
        body_bytes: INSTALL_BODY_BYTES_MAX as u32,
        code: opcode::ADMINISTER,
        ..RecordHeader::default()
    };
    stream.write_raw(&header.encode());
    stream
}

#[test]
fn a_tenant_that_stalls_in_large_records_gets_no_memory_for_more_and_others_have_theirs() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (ann, (mut bob, table)) = (site.create_tenant("ann"), site.tenant_with_table("bob"));
    let most = RECORDS_BYTES_MAX / 2 / INSTALL_BODY_BYTES_MAX;
    // On a machine that was busy for so long that those before it were cut off for stalling, once more.
    let refused = (0..3).find_map(|_| {
        let _held: Vec<_> = (0..most).map(|_| stalled(&site, "ann", &ann)).collect();
        let mut one_more = stalled(&site, "ann", &ann);
        let value = vec![7; 900_000];
        let put = Request::Put { table, key: b"large", value: &value, condition: Condition::Always };
        let sequence = bob.requester.reserve_sequence().expect("a sequence");
        bob.control.request(sequence, &put).expect("room of its own");
        bob.requester.release(sequence);
        one_more.read()
    });
    let (header, _) = refused.expect("an answer");
    assert_eq!(Status::from_u8(header.code), Some(Status::LimitExceeded));
}

/// A stream of a session that asks for an object again and again, and takes no answer.
fn untaken(site: &Site, token: u64, get: &Request<'_>) -> ControlStream {
    let mut body = vec![0; get.body_bytes()];
    get.encode(&mut body);
    let (mut stream, _) = attach(site, token);
    let (code, view) = (get.opcode(), stream.view);
    let header = RecordHeader { code, sequence: 1_000, view, ..RecordHeader::default() };
    for _ in 0..16 {
        stream.write_raw(&header.encode_record(&body));
    }
    stream
}

/// Two tenants with a large object each ask for it; one of them also where it takes no answers.
fn answers_are_bounded(ask: impl Fn(u32) -> Request<'static>) {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let value = vec![7; VALUE_BYTES_MAX];
    let with_large = |name| {
        let (mut client, table) = site.tenant_with_table(name);
        let put = Request::Put { table, key: b"large", value: &value, condition: Condition::Always };
        let sequence = client.requester.reserve_sequence().expect("a sequence");
        client.control.request(sequence, &put).expect("room");
        client.requester.release(sequence);
        (client, ask(table))
    };
    let ((mut ann, of_ann), (mut bob, of_bob)) = (with_large("ann"), with_large("bob"));
    let most = ANSWERS_BYTES_MAX / 2 / ANSWER_BYTES_MAX;
    // On a machine that was busy for so long that those before it were cut off for stalling, once more.
    let refused = (0..3).find_map(|_| {
        let _held: Vec<_> = (0..most).map(|_| untaken(&site, ann.opened.token, &of_ann)).collect();
        (0..500).find_map(|_| {
            bob.control.request(1_000, &of_bob).expect("room of its own");
            ann.control.request(1_000, &of_ann).err()
        })
    });
    let (status, body) = refused.expect("not all get room");
    let held_off = reply::Throttled::decode(&body).expect("a time to wait");
    assert_eq!((status, held_off.limit), (Status::Throttled, &b"answer_bytes_of_streams"[..]));
    // Those streams are closed now, and what was left of their answers with them.
    let answer =
        (0..200).find_map(|_| ann.control.request(1_000, &of_ann).ok()).expect("there is room again");
    assert!(answer.windows(64).any(|part| part == [7; 64]) && answer.len() > VALUE_BYTES_MAX);
}

#[test]
fn a_tenant_that_takes_no_answers_is_held_off_at_a_bound_and_others_get_theirs() {
    answers_are_bounded(|table| Request::Get { table, key: b"large" });
}

#[test]
fn a_tenant_that_takes_no_pages_is_held_off_at_the_same_bound() {
    answers_are_bounded(|table| Request::Enumerate {
        table,
        cursor: &[],
        keys_only: false,
        objects_max: 1,
        bytes_max: 1,
    });
}
