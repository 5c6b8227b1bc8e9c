//! What a broken or malicious peer sends: damaged frames and records, foreign versions, replays, floods.
//!
//! Each gets a typed refusal or silence, nothing is executed twice, the server lives on, and a well-behaved
//! client beside it notices nothing.

use std::io::Write;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use client::{Client, Request, Status};
use db::limits::{ATTEMPTS_BURST, ATTEMPTS_PER_SECOND, REFUSALS_BURST, REFUSALS_PER_SECOND};
use tests::effort::{rng, rounds};
use tests::raw::{self, RawSession, RawStream};
use tests::server::Server;
use wire::limits::{FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, MESSAGE_HEADER_BYTES};
use wire::{Condition, OpenRequest, RecordHeader, VersionRange, opcode, reply};

/// Long enough for an answer on loopback, short enough to wait for silence.
const SILENCE: Duration = Duration::from_millis(200);

/// How often a rate has let somebody through since then at the most.
fn at_most(burst: u32, per_second: u32, began: Instant) -> u64 {
    u64::from(burst) + u64::from(per_second) * (began.elapsed().as_secs() + 1)
}

/// A server, a hostile session of the tenant `mallory`, and a client of `acme` that must not notice.
struct HostileStage {
    server: Server,
    hostile: RawSession,
    /// Mallory's table.
    table: u32,
    acme: Client,
    acme_table: u32,
}

impl HostileStage {
    fn new() -> Self {
        let server = Server::start();
        let tenant = server.tenant("mallory");
        let table = server.client(&tenant).table_create("data").unwrap();
        let hostile = RawSession::open(server.address(), &tenant.name, &tenant.secret).unwrap();
        let (mut acme, acme_table) = server.tenant_with_table("acme");
        acme.put(acme_table, b"k", b"untouched").unwrap();
        Self { server, hostile, table, acme, acme_table }
    }

    /// The neighbour reads and writes as if nothing had happened, and Mallory may behave again.
    fn is_unharmed(&mut self, next_sequence: u64) {
        assert!(self.server.is_running(), "{}", self.server.log());
        assert_eq!(self.acme.get(self.acme_table, b"k").unwrap().unwrap().value, b"untouched");
        self.acme.put(self.acme_table, b"other", b"x").unwrap();
        let answer = self.hostile.call(next_sequence, &Request::Ping).unwrap();
        assert_eq!(answer.status, Status::Ok);
        let log = self.server.log();
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn truncated_frames_are_refused_or_ignored() {
    let mut stage = HostileStage::new();
    let put = Request::Put { table: stage.table, key: b"k", value: &[1; 50], condition: Condition::Always };
    let whole = stage.hostile.frame(1, &put);
    for bytes in 0..whole.len() {
        stage.hostile.send(&whole[..bytes]).unwrap();
    }
    while let Ok(answers) = stage.hostile.receive(SILENCE) {
        assert!(answers.iter().all(|answer| answer.status != Status::Ok), "{answers:?}");
    }
    let answer = stage.hostile.call(2, &Request::Get { table: stage.table, key: b"k" }).unwrap();
    assert_eq!(answer.status, Status::NotFound, "no part of a frame is executed");
    stage.is_unharmed(3);
}

#[test]
fn oversized_and_random_frames_do_no_harm() {
    let mut random = rng();
    let mut stage = HostileStage::new();
    for bytes in [1_473, 2_048, 2_049, 9_000, 65_507] {
        stage.hostile.send(&vec![0xff; bytes]).unwrap();
    }
    let valid = stage.hostile.frame(1, &Request::Ping);
    for round in 0..rounds(20_000, 300_000) {
        let length = random.usize(0..1_472);
        let mut noise: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        // Half of them get past the first look.
        if random.bool() {
            let head = valid.len().min(length);
            noise[..head].copy_from_slice(&valid[..head]);
        }
        stage.hostile.send(&noise).unwrap();
        if round % 256 == 0 {
            while stage.hostile.receive(Duration::from_millis(1)).is_ok() {}
        }
    }
    while stage.hostile.receive(SILENCE).is_ok() {}
    stage.is_unharmed(2);
}

#[test]
fn mutated_frames_do_no_harm() {
    let mut random = rng();
    let mut stage = HostileStage::new();
    let requests = [
        Request::Get { table: stage.table, key: b"key" },
        Request::Increment { table: stage.table, key: b"n", delta: 1 },
        Request::MultiGet { table: stage.table, keys: wire::Keys::from_slices(&[b"a", b"b", b"c"]) },
        Request::Enumerate {
            table: stage.table,
            cursor: &[7; 24],
            keys_only: false,
            objects_max: 9,
            bytes_max: 900,
        },
        Request::Verify { table: stage.table, cursor: &[] },
        Request::Invoke {
            extension: 1,
            version: 0,
            function: 2,
            table: stage.table,
            key: b"k",
            arguments: b"a",
        },
    ];
    for round in 0..rounds(20_000, 300_000) {
        let mut frame = stage.hostile.frame(1, &requests[round % requests.len()]);
        for _ in 0..random.usize(1..4) {
            let at = random.usize(0..frame.len());
            frame[at] ^= 1 << random.u8(0..8);
        }
        // Whatever a flipped bit makes of the acknowledgement must not move the window of later tests.
        let ack = FRAME_HEADER_BYTES + 8..FRAME_HEADER_BYTES + 16;
        frame[ack].copy_from_slice(&1_u64.to_le_bytes());
        stage.hostile.send(&frame).unwrap();
        if round % 64 == 0 {
            while stage.hostile.receive(Duration::from_millis(1)).is_ok() {}
        }
    }
    while stage.hostile.receive(SILENCE).is_ok() {}
    // A sequence that no bit flip of 1 leads to.
    stage.is_unharmed(7);
}

#[test]
fn a_message_that_cannot_be_read_gets_its_own_refusal() {
    let mut stage = HostileStage::new();
    let get = Request::Get { table: stage.table, key: b"k" };
    let message = FRAME_HEADER_BYTES + GROUP_HEADER_BYTES;
    let mut frame = stage.hostile.frame(1, &get);
    frame[message + 2] = 99;
    stage.hostile.send(&frame).unwrap();
    assert_eq!(stage.hostile.receive(raw::PATIENCE).unwrap()[0].status, Status::UnknownOpcode);
    let mut frame = stage.hostile.frame(2, &get);
    frame[message + 2] = opcode::INCREMENT;
    stage.hostile.send(&frame).unwrap();
    let answer = &stage.hostile.receive(raw::PATIENCE).unwrap()[0];
    assert_eq!((answer.status, answer.sequence_low), (Status::Malformed, 2));
    stage.is_unharmed(3);
}

#[test]
fn frames_of_another_protocol_are_not_executed() {
    let mut stage = HostileStage::new();
    let put = Request::Put { table: stage.table, key: b"k", value: b"v", condition: Condition::Always };
    for (at, value) in [(0, 0x00), (1, 0x00), (2, 0), (2, 2), (2, 255), (3, 1), (3, 255)] {
        let mut frame = stage.hostile.frame(1, &put);
        frame[at] = value;
        stage.hostile.send(&frame).unwrap();
        let answers = stage.hostile.receive(SILENCE).unwrap_or_default();
        assert!(answers.iter().all(|answer| answer.status != Status::Ok), "{answers:?}");
    }
    let answer = stage.hostile.call(2, &Request::Get { table: stage.table, key: b"k" }).unwrap();
    assert_eq!(answer.status, Status::NotFound);
    stage.is_unharmed(3);
}

#[test]
fn a_replayed_frame_gets_the_stored_answer_and_is_not_executed_again() {
    let mut stage = HostileStage::new();
    let increment = Request::Increment { table: stage.table, key: b"n", delta: 1 };
    let frame = stage.hostile.frame(1, &increment);
    let mut answers = Vec::new();
    for _ in 0..100 {
        stage.hostile.send(&frame).unwrap();
        answers.extend(stage.hostile.receive(raw::PATIENCE).unwrap());
    }
    assert!(answers.iter().all(|answer| answer == &answers[0]), "each replay gets the same answer");
    assert_eq!(reply::Number::decode(&answers[0].body).unwrap().value, 1);
    // The next request acknowledges the first; its replay is too late for an answer and for an execution.
    let second = stage.hostile.call(2, &increment).unwrap();
    assert_eq!(reply::Number::decode(&second.body).unwrap().value, 2);
    stage.hostile.send(&frame).unwrap();
    assert_eq!(stage.hostile.receive(raw::PATIENCE).unwrap()[0].status, Status::Expired);
    let third = stage.hostile.call(3, &increment).unwrap();
    assert_eq!(reply::Number::decode(&third.body).unwrap().value, 3);
    stage.is_unharmed(4);
}

#[test]
fn more_than_the_window_is_refused() {
    let mut stage = HostileStage::new();
    let increment = Request::Increment { table: stage.table, key: b"n", delta: 1 };
    let far = 1 << 20;
    stage.hostile.send(&stage.hostile.frame(far, &increment)).unwrap();
    assert_eq!(stage.hostile.receive(raw::PATIENCE).unwrap()[0].status, Status::TooManyOutstanding);
    let answer = stage.hostile.call(1, &Request::Get { table: stage.table, key: b"n" }).unwrap();
    assert_eq!(answer.status, Status::NotFound);
    stage.is_unharmed(2);
}

#[test]
fn strangers_get_no_more_bytes_than_they_send() {
    let mut stage = HostileStage::new();
    let port = stage.hostile.opened.core_ports[0];
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.connect((stage.server.address().ip(), port)).unwrap();
    stranger.set_read_timeout(Some(SILENCE)).unwrap();
    let get = Request::Get { table: stage.table, key: b"k" };
    let datagrams = [
        vec![0; 16],
        raw::frame((1, 1), 1, 1, &get),
        raw::frame((2, 1), 1, 1, &Request::Ping),
        vec![0; 1472],
    ];
    for datagram in &datagrams {
        stranger.send(datagram).unwrap();
        let mut answer = [0; 65_536];
        if let Ok(bytes) = stranger.recv(&mut answer) {
            assert!(bytes <= datagram.len(), "{bytes} bytes for {}", datagram.len());
            let answers = raw::answers(&answer[..bytes]).unwrap();
            assert!(answers.iter().all(|answer| answer.status == Status::BadToken), "{answers:?}");
        }
    }
    // A flood of them is answered at a bounded rate, however long it takes.
    let flood = 5_000;
    let began = Instant::now();
    for sequence in 0..flood {
        stranger.send(&raw::frame((sequence, 1), 1, sequence, &Request::Ping)).unwrap();
    }
    let mut answered = 0;
    let mut answer = [0; 65_536];
    while stranger.recv(&mut answer).is_ok() {
        answered += 1;
    }
    let most = at_most(REFUSALS_BURST, REFUSALS_PER_SECOND, began);
    assert!(answered <= most, "{answered} of {flood} frames of a stranger were answered, not {most}");
    stage.is_unharmed(1);
}

#[test]
fn damaged_records_end_their_stream_and_nothing_else() {
    let mut random = rng();
    let mut stage = HostileStage::new();
    let address = stage.server.address();
    for round in 0..300 {
        let mut stream = RawStream::connect(address).unwrap();
        let mut noise: Vec<u8> = (0..random.usize(0..400)).map(|_| random.u8(..)).collect();
        if round % 3 == 0 && noise.len() >= 4 {
            // A length that the record keeps, so that its content is looked at.
            let rest = noise.len() as u32 - 4;
            noise[..4].copy_from_slice(&rest.to_le_bytes());
        }
        let _ = stream.tcp.write_all(&noise);
        let _ = stream.tcp.shutdown(std::net::Shutdown::Write);
        if let Ok((status, ..)) = stream.receive() {
            assert_ne!(status, Status::Ok, "noise opens nothing");
        }
    }
    stage.is_unharmed(1);
}

#[test]
fn a_record_longer_than_any_limit_is_refused_before_it_is_read() {
    let mut stage = HostileStage::new();
    for record_bytes in [u32::MAX, 1 << 30, (2 << 20) + 4096] {
        let mut stream = RawStream::connect(stage.server.address()).unwrap();
        let mut head = RecordHeader { code: opcode::OPEN_SESSION, ..RecordHeader::default() }.encode();
        head[..4].copy_from_slice(&record_bytes.to_le_bytes());
        stream.tcp.write_all(&head).unwrap();
        // A refusal, or the end of the stream; in any case without waiting for a gigabyte.
        if let Ok((status, ..)) = stream.receive() {
            assert!(matches!(status, Status::LimitExceeded | Status::Malformed), "{status:?}");
        }
    }
    stage.is_unharmed(1);
}

#[test]
fn a_client_of_another_version_is_told_which_ones_are_spoken() {
    let mut stage = HostileStage::new();
    let mut stream = RawStream::connect(stage.server.address()).unwrap();
    let request = OpenRequest::Admin { secret: "x" };
    let body = request.encode(VersionRange { min: 200, max: 201 });
    let (status, answer) = stream.call(request.opcode(), &body).unwrap();
    assert_eq!(status, Status::UnsupportedVersion);
    assert_eq!(answer, [VersionRange::OURS.min, VersionRange::OURS.max]);
    stage.is_unharmed(1);
}

#[test]
fn secrets_cannot_be_guessed_quickly() {
    let stage = HostileStage::new();
    let (began, mut tried) = (Instant::now(), 0);
    for attempt in 0..200 {
        let mut stream = RawStream::connect(stage.server.address()).unwrap();
        let secret = format!("{attempt:064}");
        match stream.open(&OpenRequest::Session { tenant: "acme", secret: &secret }) {
            Ok((Status::BadSecret, _)) => tried += 1,
            Ok((Status::Ok, _)) => panic!("a guess was right"),
            _ => {}
        }
    }
    let most = at_most(ATTEMPTS_BURST, ATTEMPTS_PER_SECOND, began);
    assert!(tried <= most, "{tried} of 200 guesses in a row were looked at, not {most}");
    assert!(stage.server.admin_secret().len() >= 32);
}

#[test]
fn frames_within_a_message_of_the_largest_size_are_served() {
    let mut stage = HostileStage::new();
    let room = 1_472 - FRAME_HEADER_BYTES - GROUP_HEADER_BYTES - MESSAGE_HEADER_BYTES;
    let value = vec![5; room - 8 - 1];
    let put = Request::Put { table: stage.table, key: b"k", value: &value, condition: Condition::Always };
    assert_eq!(stage.hostile.frame(1, &put).len(), 1_472);
    assert_eq!(stage.hostile.call(1, &put).unwrap().status, Status::Ok);
    let answer = stage.hostile.call(2, &Request::Get { table: stage.table, key: b"k" }).unwrap();
    assert_eq!(reply::Object::decode(&answer.body).unwrap().value, value);
    stage.is_unharmed(3);
}
