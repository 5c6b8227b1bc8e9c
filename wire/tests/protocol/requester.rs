//! The requester, one behaviour at a time: the test is the network and the server.

use wire::limits::FRAME_BYTES_MAX;
use wire::{
    CompletionError, FrameReader, FrameWriter, Request, Requester, RequesterConfig, Status, SubmitError,
    opcode, reply,
};

const TOKEN: u64 = 0xfeed;
const CONFIG: RequesterConfig = RequesterConfig {
    call_timeout_us: 1_000_000,
    resend_initial_us: 5_000,
    resend_min_us: 1_000,
    resend_max_us: 200_000,
    frame_bytes_max: FRAME_BYTES_MAX,
};
const GET: Request<'static> = Request::Get { table: 1, key: b"key" };

/// What a completion said, owned.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Done {
    tag: u64,
    sequence: u64,
    status: Result<Status, CompletionError>,
    body: Vec<u8>,
}

impl Done {
    fn new(tag: u64, sequence: u64, status: Result<Status, CompletionError>) -> Done {
        Done { tag, sequence, status, body: Vec::new() }
    }
}

fn requester(first_sequence: u64, credits: u16) -> Requester {
    Requester::new(TOKEN, first_sequence, credits, CONFIG)
}

/// Sequences, acknowledgement included, of every frame that the requester wants to send now.
fn transmit(requester: &mut Requester, now_us: u64) -> (Vec<u64>, u64) {
    let mut buffer = [0; 2_048];
    let (mut sequences, mut first_unacknowledged) = (Vec::new(), 0);
    while let Some(frame_bytes) = requester.poll_transmit(now_us, 3, &mut buffer) {
        assert!(frame_bytes <= FRAME_BYTES_MAX);
        let frame = FrameReader::new(&buffer[..frame_bytes]).expect("a requester sends whole frames");
        assert_eq!(frame.view(), 3);
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

fn answer(token: u64, replies: &[(u64, u8, &[u8])]) -> Vec<u8> {
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

fn receive(requester: &mut Requester, now_us: u64, replies: &[(u64, u8, &[u8])]) -> Vec<Done> {
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

fn expire(requester: &mut Requester, now_us: u64) -> Vec<Done> {
    let mut done = Vec::new();
    requester.on_timer(now_us, &mut |completion| {
        assert!(completion.body.is_empty());
        done.push(Done::new(completion.tag, completion.sequence, completion.status));
    });
    done
}

fn submit(requester: &mut Requester, now_us: u64, count: u64) -> Vec<u64> {
    (0..count).map(|tag| requester.submit(now_us, 100 + tag, &GET).expect("there is room")).collect()
}

const OK: u8 = Status::Ok as u8;

#[test]
fn a_request_is_sent_once_and_completed_once() {
    let mut requester = requester(1, 8);
    assert_eq!(submit(&mut requester, 0, 1), [1]);
    assert_eq!(transmit(&mut requester, 0), (vec![1], 1));
    assert_eq!(transmit(&mut requester, 10), (vec![], 0));
    let done = receive(&mut requester, 20, &[(1, OK, b"body")]);
    assert_eq!(done, [Done { body: b"body".to_vec(), ..Done::new(100, 1, Ok(Status::Ok)) }]);
    assert_eq!((requester.outstanding(), requester.first_unacknowledged()), (0, 2));
    assert_eq!(requester.next_deadline_us(), None);
    assert_eq!(requester.home_core(), Some(1));
    assert_eq!(receive(&mut requester, 30, &[(1, OK, b"body")]), [], "a repeated reply is ignored");
}

#[test]
fn a_lost_request_is_sent_again_under_its_sequence_at_doubling_times() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 1);
    assert_eq!(transmit(&mut requester, 0).0, [1]);
    let mut at_us = 0;
    for interval_us in [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 200_000, 200_000] {
        assert_eq!(requester.next_deadline_us(), Some(at_us + interval_us));
        assert_eq!(transmit(&mut requester, at_us + interval_us - 1).0, []);
        at_us += interval_us;
        assert_eq!(transmit(&mut requester, at_us).0, [1]);
    }
}

#[test]
fn only_what_was_lost_is_sent_again() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 4);
    assert_eq!(transmit(&mut requester, 0).0, [1, 2, 3, 4]);
    assert_eq!(receive(&mut requester, 10, &[(1, OK, b""), (3, OK, b"")]).len(), 2);
    let resend_at_us = requester.next_deadline_us().expect("two are outstanding");
    assert_eq!(transmit(&mut requester, resend_at_us.max(5_000)), (vec![2, 4], 2));
}

#[test]
fn replies_in_any_order_complete_by_tag_and_move_the_acknowledgement_when_they_can() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 4);
    transmit(&mut requester, 0);
    for (sequence, acknowledged) in [(3, 1), (1, 2), (4, 2), (2, 5)] {
        let done = receive(&mut requester, 10, &[(sequence, OK, b"")]);
        assert_eq!(done, [Done::new(99 + sequence, sequence, Ok(Status::Ok))]);
        assert_eq!(requester.first_unacknowledged(), acknowledged);
    }
}

#[test]
fn replies_to_nobody_are_ignored() {
    let mut requester = requester(10, 8);
    submit(&mut requester, 0, 1);
    assert_eq!(receive(&mut requester, 0, &[(10, OK, b"")]), [], "it was not sent yet");
    transmit(&mut requester, 0);
    let nobody = [(9, OK, b"".as_slice()), (11, OK, b""), (18, OK, b""), (10 + (1 << 31), OK, b"")];
    assert_eq!(receive(&mut requester, 1, &nobody), []);
    let stranger = answer(TOKEN + 1, &[(10, OK, b"")]);
    let taken = requester.on_frame(1, &stranger, &mut |_| panic!("another session's reply"));
    assert_eq!(taken, Ok(4));
    assert!(requester.on_frame(1, b"garbage", &mut |_| panic!("no reply")).is_err());
    assert_eq!(requester.outstanding(), 1);
}

#[test]
fn a_retry_puts_off_that_request_alone() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 2);
    transmit(&mut requester, 0);
    let retry = reply::encode_retry(300);
    assert_eq!(receive(&mut requester, 100, &[(1, Status::Retry as u8, &retry)]), []);
    assert_eq!(requester.next_deadline_us(), Some(400));
    assert_eq!(transmit(&mut requester, 399).0, []);
    assert_eq!(transmit(&mut requester, 400), (vec![1], 1));
    assert_eq!(receive(&mut requester, 410, &[(2, OK, b""), (1, OK, b"")]).len(), 2);
}

#[test]
fn a_request_of_another_view_is_sent_again_at_once_under_its_sequence() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 3);
    transmit(&mut requester, 0);
    let wrong_view = Status::WrongView as u8;
    assert_eq!(
        receive(&mut requester, 9, &[(1, wrong_view, b""), (2, OK, b""), (3, wrong_view, b"")]).len(),
        1
    );
    assert_eq!(transmit(&mut requester, 9), (vec![1, 3], 1));
}

#[test]
fn a_retry_that_asks_for_hours_or_cannot_be_read_is_put_off_for_a_second() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 2);
    transmit(&mut requester, 0);
    let hours = reply::encode_retry(u32::MAX);
    let retry = Status::Retry as u8;
    assert_eq!(receive(&mut requester, 0, &[(1, retry, &hours), (2, retry, b"?")]), []);
    assert_eq!(transmit(&mut requester, 999_999).0, []);
    assert_eq!(transmit(&mut requester, 1_000_000).0, [1, 2]);
}

#[test]
fn a_call_past_its_deadline_says_how_far_it_came() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 2);
    transmit(&mut requester, 0);
    submit(&mut requester, 0, 1);
    receive(&mut requester, 1, &[(2, Status::Retry as u8, &reply::encode_retry(1_000_000))]);
    assert_eq!(expire(&mut requester, 999_999), []);
    let done = expire(&mut requester, 1_000_000);
    let expected = [
        Done::new(100, 1, Err(CompletionError::TimedOut)),
        Done::new(101, 2, Err(CompletionError::Overloaded)),
        Done::new(100, 3, Err(CompletionError::NotSent)),
    ];
    assert_eq!(done, expected);
    assert_eq!(requester.next_deadline_us(), None);
    assert_eq!(transmit(&mut requester, 1_000_000).0, [], "nothing of it is sent any more");
    assert_eq!(receive(&mut requester, 1_000_001, &[(1, OK, b"")]), [], "it comes too late");
    assert_eq!(submit(&mut requester, 1_000_002, 1), [4]);
    assert_eq!(transmit(&mut requester, 1_000_002), (vec![4], 4));
}

#[test]
fn credits_bound_the_window_and_come_back_in_order() {
    for credits in [1, 3, 8] {
        let mut requester = requester(1, credits);
        let sequences = submit(&mut requester, 0, u64::from(credits));
        assert_eq!(requester.submit(0, 0, &GET), Err(SubmitError::Full));
        assert_eq!(requester.reserve_sequence(), None);
        transmit(&mut requester, 0);
        for sequence in sequences.iter().skip(1) {
            receive(&mut requester, 1, &[(*sequence, OK, b"")]);
            assert!(!requester.can_submit(), "the oldest holds the window");
        }
        receive(&mut requester, 1, &[(1, OK, b"")]);
        assert_eq!(submit(&mut requester, 2, u64::from(credits)).len(), usize::from(credits));
    }
}

#[test]
fn sequences_go_on_where_their_low_half_wraps() {
    let first = (1 << 32) - 3;
    let mut requester = requester(first, 8);
    let sequences = submit(&mut requester, 0, 8);
    assert_eq!(transmit(&mut requester, 0), (sequences.clone(), first));
    for sequence in sequences.into_iter().rev() {
        let done = receive(&mut requester, 1, &[(sequence, OK, b"")]);
        assert_eq!(done, [Done::new(100 + sequence - first, sequence, Ok(Status::Ok))]);
    }
    assert_eq!(requester.first_unacknowledged(), (1 << 32) + 5);
}

#[test]
fn an_answer_for_the_stream_keeps_its_sequence_until_it_is_released() {
    let mut requester = requester(1, 4);
    submit(&mut requester, 0, 2);
    transmit(&mut requester, 0);
    let use_stream = [(1, Status::UseStream as u8, b"".as_slice()), (2, OK, b"")];
    let done = receive(&mut requester, 1, &use_stream);
    assert_eq!(done[0], Done::new(100, 1, Ok(Status::UseStream)));
    assert_eq!((requester.outstanding(), requester.first_unacknowledged()), (1, 1));
    assert_eq!(requester.next_deadline_us(), None, "the stream has timeouts of its own");
    assert_eq!(transmit(&mut requester, 900_000).0, []);
    assert_eq!(expire(&mut requester, 9_000_000), []);
    assert_eq!(receive(&mut requester, 2, &use_stream), []);
    assert!(requester.release(1));
    assert!(!requester.release(1) && !requester.release(0) && !requester.release(3));
    assert_eq!((requester.outstanding(), requester.first_unacknowledged()), (0, 3));
}

#[test]
fn reserved_sequences_share_the_window_and_are_never_framed() {
    let mut requester = requester(1, 4);
    assert_eq!(requester.reserve_sequence(), Some(1));
    assert_eq!(transmit(&mut requester, 0).0, []);
    assert_eq!(submit(&mut requester, 0, 1), [2]);
    assert_eq!(requester.reserve_sequence(), Some(3));
    assert_eq!(submit(&mut requester, 0, 1), [4]);
    assert!(!requester.can_submit());
    assert_eq!(transmit(&mut requester, 0), (vec![2, 4], 1));
    assert_eq!(
        receive(&mut requester, 1, &[(1, OK, b""), (2, OK, b""), (3, OK, b""), (4, OK, b"")]).len(),
        2
    );
    assert!(requester.release(3));
    assert_eq!(requester.first_unacknowledged(), 1);
    assert!(requester.release(1));
    assert_eq!((requester.first_unacknowledged(), requester.outstanding()), (5, 0));
}

#[test]
fn round_trips_are_measured_on_requests_sent_once() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 1);
    transmit(&mut requester, 0);
    transmit(&mut requester, 5_000);
    receive(&mut requester, 5_010, &[(1, OK, b"")]);
    assert_eq!(requester.round_trip_us(), None, "either transmission may have been answered");
    submit(&mut requester, 6_000, 1);
    transmit(&mut requester, 6_000);
    receive(&mut requester, 6_080, &[(2, OK, b"")]);
    assert_eq!(requester.round_trip_us(), Some(80));
    submit(&mut requester, 7_000, 1);
    transmit(&mut requester, 7_000);
    assert_eq!(requester.next_deadline_us(), Some(8_000), "the interval follows, down to its minimum");
}

#[test]
fn a_path_slower_than_the_timer_is_measured_again() {
    let mut requester = requester(1, 8);
    let mut now_us = 0;
    let mut call = |requester: &mut Requester, delay_us: u64| {
        let sequence = requester.submit(now_us, 0, &GET).expect("there is room");
        let end_us = now_us + delay_us;
        let mut transmissions = 0;
        while now_us < end_us {
            transmissions += transmit(requester, now_us).0.len();
            now_us += 100;
        }
        receive(requester, now_us, &[(sequence, OK, b"")]);
        transmissions
    };
    for _ in 0..10 {
        assert_eq!(call(&mut requester, 100), 1);
    }
    assert!(call(&mut requester, 10_000) > 1);
    let late: usize = (0..20).map(|_| call(&mut requester, 10_000) - 1).sum();
    assert!(late <= 4, "{late} needless transmissions");
}

#[test]
fn many_requests_are_packed_into_whole_frames() {
    let mut requester = requester(1, 256);
    let sequences = submit(&mut requester, 0, 256);
    let mut buffer = [0; FRAME_BYTES_MAX];
    let mut frames = 0;
    while requester.poll_transmit(0, 0, &mut buffer).is_some() {
        frames += 1;
    }
    assert_eq!(frames, 256_usize.div_ceil((FRAME_BYTES_MAX - 40) / 15));
    assert_eq!(transmit(&mut requester, 5_000).0, sequences, "and so are retransmissions");
}

#[test]
fn sessions_share_a_frame() {
    let mut buffer = [0; FRAME_BYTES_MAX];
    let mut writer = FrameWriter::new();
    writer.start(&mut buffer, 0);
    for token in 1..=20 {
        let mut requester = Requester::new(token, 1, 4, CONFIG);
        submit(&mut requester, 0, 2);
        assert!(requester.poll_group(0, &mut writer, &mut buffer));
        assert!(requester.poll_group(0, &mut writer, &mut buffer), "nothing is left");
    }
    let mut last = Requester::new(21, 1, 64, CONFIG);
    submit(&mut last, 0, 64);
    assert!(!last.poll_group(0, &mut writer, &mut buffer), "the frame is full");
    let frame_bytes = writer.finish(&mut buffer);
    let frame = FrameReader::new(&buffer[..frame_bytes]).expect("it was written here");
    let tokens: Vec<_> = frame.groups().map(|group| group.expect("it was written here").token).collect();
    assert_eq!(tokens, (1..=21).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_framed_is_refused_before_it_is_queued() {
    let mut requester = requester(1, 8);
    let value = vec![0; 2 << 20];
    let put = |bytes: usize| Request::Put {
        table: 1,
        key: b"key",
        value: &value[..bytes],
        condition: wire::Condition::Always,
    };
    let most = FRAME_BYTES_MAX - 48 - 8 - 3;
    assert_eq!(requester.submit(0, 0, &put(most + 1)), Err(SubmitError::TooLarge));
    assert_eq!(requester.submit(0, 0, &put(2 << 20)), Err(SubmitError::Refused(Status::ValueTooLarge)));
    assert_eq!(requester.submit(0, 0, &put(most)), Ok(1));
    let mut buffer = [0; FRAME_BYTES_MAX];
    assert_eq!(requester.poll_transmit(0, 0, &mut buffer), Some(FRAME_BYTES_MAX));
}

#[test]
fn every_status_completes_the_call_also_an_unknown_one() {
    for code in 0..=u8::MAX {
        let mut requester = requester(1, 1);
        submit(&mut requester, 0, 1);
        transmit(&mut requester, 0);
        let expected = match Status::from_u8(code) {
            Some(Status::Retry | Status::WrongView) => continue,
            known => known.unwrap_or(Status::Internal),
        };
        assert_eq!(receive(&mut requester, 1, &[(1, code, b"")]), [Done::new(100, 1, Ok(expected))]);
    }
}

#[test]
fn closing_gives_up_every_call_and_reservation() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 2);
    transmit(&mut requester, 0);
    assert_eq!(requester.reserve_sequence(), Some(3));
    submit(&mut requester, 0, 1);
    let mut closed = Vec::new();
    requester.close(&mut |completion| closed.push((completion.sequence, completion.status)));
    assert_eq!(closed, [1, 2, 4].map(|sequence| (sequence, Err(CompletionError::Closed))));
    assert_eq!((requester.outstanding(), requester.first_unacknowledged()), (0, 5));
    assert_eq!(transmit(&mut requester, 900_000).0, []);
}

#[test]
fn the_opcode_travels_with_its_request() {
    let mut requester = requester(1, 8);
    requester.submit(0, 0, &Request::Ping).expect("there is room");
    requester.submit(0, 0, &Request::Increment { table: 1, key: b"k", delta: 1 }).expect("there is room");
    let mut buffer = [0; FRAME_BYTES_MAX];
    let frame_bytes = requester.poll_transmit(0, 0, &mut buffer).expect("there are two");
    let frame = FrameReader::new(&buffer[..frame_bytes]).expect("it was written here");
    let group = frame.groups().next().expect("there is one").expect("it was written here");
    let codes: Vec<_> = group.messages().map(|message| message.expect("it was written here").code).collect();
    assert_eq!(codes, [opcode::PING, opcode::INCREMENT]);
}
