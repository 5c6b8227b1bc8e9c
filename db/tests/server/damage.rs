//! Frames and records that are wrong in every way: answered or counted, never fatal, nobody else disturbed.

use control::{AdminRequest, TableOptions};
use wire::limits::{FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use wire::{Body, Condition, FrameReader, OpenRequest, RecordHeader, Request, Status, VersionRange, opcode};

use super::Site;
use super::client::{Client, ControlStream, frame};

/// Status and sequence of each message of frames.
fn statuses(frames: &[Vec<u8>]) -> Vec<(Status, u32)> {
    let mut found = Vec::new();
    for frame in frames {
        for group in FrameReader::new(frame).expect("a good frame").groups() {
            for message in group.expect("a good group").messages() {
                let message = message.expect("a good message");
                found.push((Status::from_u8(message.code).expect("a status"), message.sequence_low));
            }
        }
    }
    found
}

fn still_serves(client: &mut Client, table: u32) {
    let put = Request::Put { table, key: b"alive", value: b"v", condition: Condition::Always };
    assert_eq!(client.status(&put), Status::Ok);
    assert_eq!(client.status(&Request::Get { table, key: b"alive" }), Status::Ok);
}

#[test]
fn every_wrong_request_is_answered_with_its_status() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, mut other, table) = site.two_clients("ann");
    let (token, view) = (other.opened.token, other.opened.view);
    // Each is a request of its own: copies of one that was refused for good get its answer.
    let mut sequence = 0;
    let mut ask = |view, code, body: &[u8]| {
        sequence += 1;
        let answers = statuses(&other.exchange_frame(&frame(token, view, code, sequence, body)));
        assert!(answers.iter().all(|answer| answer.1 == sequence), "{answers:?}");
        answers.into_iter().map(|answer| answer.0).collect::<Vec<_>>()
    };
    assert_eq!(ask(view, 0, &[]), [Status::UnknownOpcode]);
    assert_eq!(ask(view, 255, &[]), [Status::UnknownOpcode]);
    assert_eq!(ask(view, opcode::ADMINISTER, &[]), [Status::UnknownOpcode]);
    assert_eq!(ask(view, opcode::GET, &[1]), [Status::Malformed]);
    assert_eq!(ask(view, opcode::PUT, &[0; 7]), [Status::Malformed]);
    assert_eq!(ask(view, opcode::PING, &[9; 3]), [Status::Malformed]);
    assert_eq!(ask(view, opcode::INVOKE, &[0; 20]), [Status::UnknownExtension]);
    assert_eq!(ask(view + 1, opcode::PING, &[]), [Status::WrongView]);
    assert_eq!(ask(view, opcode::PING, &[]), [Status::Ok]);
    still_serves(&mut client, table);
}

#[test]
fn a_message_whose_length_lies_ends_its_group_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, mut other, table) = site.two_clients("ann");
    let mut lie = frame(other.opened.token, other.opened.view, opcode::PING, 3, &[]);
    lie[FRAME_HEADER_BYTES + GROUP_HEADER_BYTES] = 200;
    assert!(other.try_frame(&lie).is_empty());
    still_serves(&mut client, table);
}

#[test]
fn sizes_at_and_beyond_the_limits_get_their_status() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, mut other, table) = site.two_clients("ann");
    let key = vec![b'k'; KEY_BYTES_MAX];
    let value = vec![7; VALUE_BYTES_MAX];
    let put = Request::Put { table, key: &key, value: &value, condition: Condition::Always };
    other.control.request(1, &put).expect("exactly at the limits");
    let answer = other.control.request(2, &Request::Get { table, key: &key }).expect("an object");
    assert_eq!(answer[8..], value);
    // A value one byte longer, and a key one byte longer, encoded by hand.
    let mut body = vec![0; put.body_bytes()];
    put.encode(&mut body);
    body.push(7);
    let refused = other.control.exchange(opcode::PUT, 3, &body);
    assert_eq!(refused.expect_err("too long").0, Status::ValueTooLarge);
    let mut body = table.to_le_bytes().to_vec();
    body.extend(vec![b'k'; KEY_BYTES_MAX + 1]);
    let refused = other.control.exchange(opcode::GET, 4, &body);
    assert_eq!(refused.expect_err("too long").0, Status::KeyTooLarge);
    still_serves(&mut client, table);
}

#[test]
fn a_record_beyond_every_limit_is_refused_and_the_stream_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, table) = site.tenant_with_table("ann");
    let mut header = RecordHeader { code: opcode::PUT, ..RecordHeader::default() }.encode_record(&[]);
    header[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    client.control.write_raw(&header);
    let (answer, _) = client.control.read().expect("one answer");
    assert_eq!(Status::from_u8(answer.code), Some(Status::LimitExceeded));
    assert!(client.control.read().is_none(), "then the stream is closed");
    still_serves(&mut client, table);
}

#[test]
fn openings_that_are_none_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let good = OpenRequest::Session { tenant: "ann", secret: "x" }.encode(VersionRange::OURS);
    let mut magic = good.clone();
    magic[0] ^= 1;
    let future = OpenRequest::Attach { token: 1 }.encode(VersionRange { min: 200, max: 201 });
    let long = OpenRequest::Session { tenant: &"n".repeat(60_000), secret: "x" }.encode(VersionRange::OURS);
    let climbing = OpenRequest::Session { tenant: "../etc", secret: "x" }.encode(VersionRange::OURS);
    let cases = [
        (opcode::OPEN_SESSION, magic, Status::Malformed),
        (opcode::OPEN_SESSION, good[..5].to_vec(), Status::Malformed),
        (opcode::OPEN_SESSION, long, Status::Malformed),
        (opcode::OPEN_SESSION, climbing, Status::NameInvalid),
        (opcode::ATTACH, future, Status::UnsupportedVersion),
        (opcode::ADMINISTER, good.clone(), Status::UnknownOpcode),
        (opcode::PUT, good, Status::UnknownOpcode),
    ];
    for (code, body, status) in cases {
        let mut stream = ControlStream::connect(site.server.tcp());
        let refused = stream.exchange(code, 0, &body).expect_err("no opening");
        assert_eq!(refused.0, status);
        if status == Status::UnsupportedVersion {
            assert_eq!(VersionRange::decode(&refused.1), Ok(VersionRange::OURS));
        }
        assert!(stream.read().is_none(), "then the stream is closed");
    }
}

#[test]
fn names_that_may_not_be_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut client, table) = site.tenant_with_table("ann");
    let long = "n".repeat(10_000);
    for name in ["", "..", "../t", "a/b", "-t", long.as_str()] {
        for request in [
            AdminRequest::TableCreate { name, options: TableOptions::default() },
            AdminRequest::TableDrop { name },
            AdminRequest::ExtensionRemove { name, version: 0 },
        ] {
            let refused = client.control.ask(&request).expect_err("no name");
            assert_eq!(refused.0, Status::NameInvalid, "{name}");
        }
    }
    let no_text = b"\x81\xaatable-drop\x81\xa4name\xa2\xff\xfe";
    let later = b"\x81\xactenant-freeze\x80";
    for (body, status) in
        [(&no_text[..], Status::Malformed), (later, Status::UnknownOpcode), (&[0xc1], Status::Malformed)]
    {
        let refused = client.control.exchange(opcode::ADMINISTER, 0, body).expect_err("no request");
        assert_eq!(refused.0, status);
    }
    still_serves(&mut client, table);
}
