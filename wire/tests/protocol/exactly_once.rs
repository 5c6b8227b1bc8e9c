//! Exactly once over a network that loses, repeats, delays and reorders.
//!
//! A tiny server keeps the records that docs/formats.md asks for and counts how often it executes each
//! sequence; the requester keeps its window full. In the end each increment that completed has happened once,
//! and none happened twice.

use std::collections::BTreeMap;

use crate::seed;
use fastrand::Rng;
use wire::limits::FRAME_BYTES_MAX;
use wire::{CompletionError, FrameReader, FrameWriter, Request, Requester, RequesterConfig, Status, reply};

const TOKEN: u64 = 99;
const CREDITS: u16 = 24;

/// The server's side of one session.
#[derive(Default)]
struct Server {
    first_unacknowledged: u64,
    records: BTreeMap<u64, (Status, Vec<u8>)>,
    executions: BTreeMap<u64, u32>,
    sum: i64,
    view: u64,
}

impl Server {
    /// Answers one frame.
    fn serve(&mut self, rng: &mut Rng, frame: &[u8]) -> Vec<u8> {
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        let mut writer = FrameWriter::new();
        self.view += u64::from(rng.u8(..30) == 0);
        writer.start(&mut buffer, self.view);
        let frame = FrameReader::new(frame).expect("the network breaks no frame");
        for group in frame.groups() {
            let group = group.expect("the network breaks no frame");
            self.first_unacknowledged = self.first_unacknowledged.max(group.first_unacknowledged);
            self.records = self.records.split_off(&self.first_unacknowledged);
            assert!(writer.group(&mut buffer, group.token, 0, 0));
            for message in group.messages() {
                let message = message.expect("the network breaks no frame");
                let sequence = group.sequence(message.sequence_low);
                let request = Request::decode(message.code, message.body).expect("the requester is honest");
                let (status, body) = if frame.view() == self.view {
                    self.answer(rng, sequence, &request)
                } else {
                    (Status::WrongView, Vec::new())
                };
                let place = writer
                    .message(&mut buffer, status as u8, 0, sequence as u32, body.len())
                    .expect("it fits");
                place.copy_from_slice(&body);
            }
        }
        let frame_bytes = writer.finish(&mut buffer);
        buffer.truncate(frame_bytes);
        buffer
    }

    fn answer(&mut self, rng: &mut Rng, sequence: u64, request: &Request<'_>) -> (Status, Vec<u8>) {
        assert!(sequence < self.first_unacknowledged + u64::from(CREDITS), "the window holds");
        if sequence < self.first_unacknowledged {
            return (Status::Expired, Vec::new());
        }
        if let Some(record) = self.records.get(&sequence) {
            return record.clone();
        }
        if rng.u8(..10) == 0 {
            return (Status::Retry, reply::encode_retry(rng.u32(..3_000)).to_vec());
        }
        let Request::Increment { delta, .. } = *request else { panic!("only increments are sent") };
        *self.executions.entry(sequence).or_default() += 1;
        self.sum += delta;
        let body = reply::Number { version: sequence, value: delta }.encode().to_vec();
        let status = if rng.u8(..20) == 0 { Status::UseStream } else { Status::Ok };
        self.records.insert(sequence, (status, if status == Status::Ok { body } else { Vec::new() }));
        (status, self.records[&sequence].1.clone())
    }
}

/// Frames under way, by the time of their arrival.
#[derive(Default)]
struct Network {
    under_way: BTreeMap<(u64, u64), Vec<u8>>,
    sent: u64,
}

impl Network {
    /// `loss` in percent; a tenth arrives twice, a few very late.
    fn send(&mut self, rng: &mut Rng, now_us: u64, loss: u8, frame: &[u8]) {
        let copies = if rng.u8(..10) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            if rng.u8(..100) < loss {
                continue;
            }
            let delay_us = if rng.u8(..50) == 0 { rng.u64(..400_000) } else { rng.u64(20..2_000) };
            self.sent += 1;
            self.under_way.insert((now_us + delay_us, self.sent), frame.to_vec());
        }
    }

    fn receive(&mut self, now_us: u64) -> Option<Vec<u8>> {
        let entry = self.under_way.first_entry()?;
        (entry.key().0 <= now_us).then(|| entry.remove())
    }
}

/// Runs `calls` increments; returns how many completed with an answer.
fn run(rng: &mut Rng, first_sequence: u64, calls: u64, loss: u8) -> u64 {
    let config = RequesterConfig { call_timeout_us: 1_500_000, ..RequesterConfig::default() };
    let mut requester = Requester::new(TOKEN, first_sequence, CREDITS, config);
    let (mut requests, mut replies, mut server) = (Network::default(), Network::default(), Server::default());
    let mut outcomes: BTreeMap<u64, Result<Status, CompletionError>> = BTreeMap::new();
    let (mut now_us, mut submitted, mut view) = (1, 0, 0);
    let mut buffer = [0; FRAME_BYTES_MAX];
    while submitted < calls || requester.outstanding() > 0 {
        while submitted < calls && requester.can_submit() && rng.u8(..4) != 0 {
            let request = Request::Increment { table: 1, key: b"sum", delta: submitted as i64 };
            let sequence = requester.submit(now_us, submitted, &request).expect("there is room");
            assert_eq!(sequence, first_sequence + submitted);
            submitted += 1;
        }
        while let Some(frame_bytes) = requester.poll_transmit(now_us, view, &mut buffer) {
            requests.send(rng, now_us, loss, &buffer[..frame_bytes]);
        }
        while let Some(frame) = requests.receive(now_us) {
            let answer = server.serve(rng, &frame);
            replies.send(rng, now_us, loss, &answer);
        }
        let mut over_stream = Vec::new();
        let mut complete = |completion: wire::Completion<'_>| {
            assert_eq!(completion.sequence, first_sequence + completion.tag);
            if completion.status == Ok(Status::Ok) {
                let number = reply::Number::decode(completion.body).expect("the server is honest");
                assert_eq!(number.value, completion.tag as i64, "the answer belongs to its request");
            } else if completion.status == Ok(Status::UseStream) {
                over_stream.push(completion.sequence);
            }
            assert_eq!(outcomes.insert(completion.sequence, completion.status), None, "it completed twice");
        };
        while let Some(frame) = replies.receive(now_us) {
            let seen = requester.on_frame(now_us, &frame, &mut complete);
            view = view.max(seen.expect("the network breaks no frame"));
        }
        requester.on_timer(now_us, &mut complete);
        for sequence in over_stream {
            assert!(server.records.contains_key(&sequence), "the record waits for the stream");
            assert!(requester.release(sequence));
        }
        now_us += rng.u64(1..500);
    }
    check(&server, &outcomes, first_sequence, calls)
}

fn check(
    server: &Server,
    outcomes: &BTreeMap<u64, Result<Status, CompletionError>>,
    first_sequence: u64,
    calls: u64,
) -> u64 {
    assert_eq!(outcomes.len() as u64, calls, "every call completes");
    assert!(server.executions.values().all(|times| *times == 1), "nothing executes twice");
    let executed = |sequence: &u64| server.executions.contains_key(sequence);
    let mut answered = 0;
    for (sequence, outcome) in outcomes {
        match outcome {
            Ok(Status::Ok | Status::UseStream) => {
                assert!(executed(sequence), "an answer without an execution");
                answered += 1;
            }
            Err(CompletionError::NotSent) => assert!(!executed(sequence)),
            Err(CompletionError::TimedOut | CompletionError::Overloaded | CompletionError::Throttled) => {}
            other => panic!("sequence {sequence}: {other:?}"),
        }
    }
    let sum: i64 = server.executions.keys().map(|sequence| (sequence - first_sequence) as i64).sum();
    assert_eq!(server.sum, sum);
    answered
}

#[test]
fn every_increment_happens_once_over_a_bad_network() {
    let mut rng = seed::rng("every_increment_happens_once_over_a_bad_network");
    let calls = seed::budget(3_000, 300_000) as u64;
    let answered = run(&mut rng, 1, calls, 15);
    assert!(answered > calls * 9 / 10, "{answered} of {calls} were answered");
}

#[test]
fn nothing_happens_twice_when_most_frames_are_lost() {
    let mut rng = seed::rng("nothing_happens_twice_when_most_frames_are_lost");
    let calls = seed::budget(300, 20_000) as u64;
    run(&mut rng, 1, calls, 70);
}

#[test]
fn exactly_once_holds_where_the_low_half_wraps() {
    let mut rng = seed::rng("exactly_once_holds_where_the_low_half_wraps");
    for high in [1, 2, 0xffff_ffff] {
        run(&mut rng, (high << 32) - 500, 1_000, 15);
    }
}
