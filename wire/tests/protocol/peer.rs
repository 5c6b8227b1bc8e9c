//! The network and the server of a requester under test: the test itself, frame by frame.

use wire::limits::FRAME_BYTES_MAX;
use wire::{CompletionError, FrameReader, FrameWriter, Request, Requester, RequesterConfig, Status};

pub const TOKEN: u64 = 0xfeed;
pub const CONFIG: RequesterConfig = RequesterConfig {
    call_timeout_us: 1_000_000,
    resend_initial_us: 5_000,
    resend_min_us: 1_000,
    resend_max_us: 200_000,
    frame_bytes_max: FRAME_BYTES_MAX,
};
pub const GET: Request<'static> = Request::Get { table: 1, key: b"key" };

/// What a completion said, owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    pub tag: u64,
    pub sequence: u64,
    pub status: Result<Status, CompletionError>,
    pub body: Vec<u8>,
}

impl Done {
    pub fn new(tag: u64, sequence: u64, status: Result<Status, CompletionError>) -> Done {
        Done { tag, sequence, status, body: Vec::new() }
    }
}

pub fn requester(first_sequence: u64, credits: u16) -> Requester {
    Requester::new(TOKEN, first_sequence, credits, CONFIG)
}

/// Sequences, acknowledgement included, of every frame that the requester wants to send now.
pub fn transmit(requester: &mut Requester, now_us: u64) -> (Vec<u64>, u64) {
    transmit_under(requester, now_us, 3)
}

pub fn transmit_under(requester: &mut Requester, now_us: u64, view: u64) -> (Vec<u64>, u64) {
    let mut buffer = [0; 2_048];
    let (mut sequences, mut first_unacknowledged) = (Vec::new(), 0);
    while let Some(frame_bytes) = requester.poll_transmit(now_us, view, &mut buffer) {
        assert!(frame_bytes <= FRAME_BYTES_MAX);
        let frame = FrameReader::new(&buffer[..frame_bytes]).expect("a requester sends whole frames");
        assert_eq!(frame.view(), view);
        for group in frame.groups() {
            let group = group.expect("a requester sends whole groups");
            assert_eq!(group.token, TOKEN);
            first_unacknowledged = group.first_unacknowledged;
            for message in group.messages() {
                let message = message.expect("a requester sends whole messages");
                assert!(Request::decode(message.code, message.body).is_ok());
                sequences.push(group.sequence(message.sequence_low));
            }
        }
    }
    (sequences, first_unacknowledged)
}

pub fn answer(token: u64, replies: &[(u64, u8, &[u8])]) -> Vec<u8> {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    let mut writer = FrameWriter::new();
    writer.start(&mut buffer, 4);
    assert!(writer.group(&mut buffer, token, 0, 1));
    for (sequence, code, body) in replies {
        let place = writer.message(&mut buffer, *code, 0, *sequence as u32, body.len()).expect("it fits");
        place.copy_from_slice(body);
    }
    let frame_bytes = writer.finish(&mut buffer);
    buffer.truncate(frame_bytes);
    buffer
}

pub fn receive(requester: &mut Requester, now_us: u64, replies: &[(u64, u8, &[u8])]) -> Vec<Done> {
    let mut done = Vec::new();
    let view = requester.on_frame(now_us, &answer(TOKEN, replies), &mut |completion| {
        done.push(Done {
            tag: completion.tag,
            sequence: completion.sequence,
            status: completion.status,
            body: completion.body.to_vec(),
        });
    });
    assert_eq!(view, Ok(4));
    done
}

pub fn expire(requester: &mut Requester, now_us: u64) -> Vec<Done> {
    let mut done = Vec::new();
    requester.on_timer(now_us, &mut |completion| {
        assert!(completion.body.is_empty());
        done.push(Done::new(completion.tag, completion.sequence, completion.status));
    });
    done
}

pub fn submit(requester: &mut Requester, now_us: u64, count: u64) -> Vec<u64> {
    (0..count).map(|tag| requester.submit(now_us, 100 + tag, &GET).expect("there is room")).collect()
}

/// The code of a good answer.
pub const OK: u8 = Status::Ok as u8;
