//! The requester's window: credits, sequences, reservations, and how frames are packed from it.

use crate::peer::{CONFIG, Done, GET, OK, expire, receive, requester, submit, transmit};
use wire::limits::FRAME_BYTES_MAX;
use wire::{CompletionError, FrameReader, FrameWriter, Request, Requester, Status, SubmitError, opcode};

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
    assert!(!requester.wants_transmit(0));
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
        assert!(requester.poll_group(0, 0, &mut writer, &mut buffer));
        assert!(requester.poll_group(0, 0, &mut writer, &mut buffer), "nothing is left");
    }
    let mut last = Requester::new(21, 1, 64, CONFIG);
    submit(&mut last, 0, 64);
    assert!(!last.poll_group(0, 0, &mut writer, &mut buffer), "the frame is full");
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

#[test]
fn a_reply_beyond_a_full_window_is_nobodys() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 8);
    transmit(&mut requester, 0);
    assert_eq!(receive(&mut requester, 1, &[(9, OK, b""), (0, OK, b"")]), []);
    assert_eq!(requester.outstanding(), 8);
}

#[test]
fn a_slot_of_a_call_that_was_never_sent_serves_the_next_one() {
    let mut requester = requester(1, 1);
    for sequence in 1..5 {
        assert_eq!(submit(&mut requester, sequence, 1), [sequence]);
        requester.close(&mut |completion| assert_eq!(completion.sequence, sequence));
    }
    submit(&mut requester, 9, 1);
    assert_eq!(transmit(&mut requester, 9), (vec![5], 5));
}
