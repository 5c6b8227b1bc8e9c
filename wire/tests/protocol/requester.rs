//! The requester over time: losses, answers to come again, deadlines, round trips.

use crate::peer::{
    Done, GET, OK, TOKEN, answer, expire, receive, requester, submit, transmit, transmit_under,
};
use wire::limits::FRAME_BYTES_MAX;
use wire::{
    Accepted, CompletionError, Condition, FrameReader, Journey, Request, RequestDurability, Requester,
    Status, reply,
};

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
    assert!(!requester.wants_transmit(1 << 40), "no timer is left");
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
    submit(&mut requester, 399, 1);
    assert_eq!(transmit(&mut requester, 399).0, [3], "a new request does not move the time");
    assert_eq!(transmit(&mut requester, 400), (vec![1], 1));
    assert_eq!(receive(&mut requester, 410, &[(3, OK, b""), (2, OK, b""), (1, OK, b"")]).len(), 3);
}

#[test]
fn what_a_limit_of_the_tenant_holds_off_is_sent_again_and_says_so_at_its_deadline() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 2);
    transmit(&mut requester, 0);
    let held_off = |after_us| {
        let throttled = reply::Throttled { after_us, limit: b"operations_per_second" };
        let mut body = vec![0; throttled.body_bytes()];
        throttled.encode(&mut body);
        assert_eq!(reply::Throttled::decode(&body), Ok(throttled));
        body
    };
    let code = Status::Throttled as u8;
    let (soon, late) = (held_off(2_000), held_off(u32::MAX));
    assert_eq!(receive(&mut requester, 100, &[(1, code, &soon), (2, code, &soon)]), []);
    assert_eq!(transmit(&mut requester, 2_099).0, []);
    assert_eq!(transmit(&mut requester, 2_100), (vec![1, 2], 1));
    assert_eq!(receive(&mut requester, 2_200, &[(1, OK, b""), (2, code, &late)]).len(), 1);
    assert_eq!(expire(&mut requester, 1_000_000), [Done::new(101, 2, Err(CompletionError::Throttled))]);
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
    receive(&mut requester, 20, &[(1, wrong_view, b"")]);
    assert_eq!(transmit_under(&mut requester, 20, 4).0, [1], "the view has changed once more");
    receive(&mut requester, 30, &[(1, wrong_view, b"")]);
    let again = transmit_under(&mut requester, 30, 4).0;
    assert_eq!(again, [], "a server that keeps refusing is not asked all the time");
    assert_eq!(transmit_under(&mut requester, 30 + 200_000, 4).0[0], 1);
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
fn a_call_that_was_on_its_way_before_keeps_its_deadline_and_can_be_read_back() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 1);
    let durability = RequestDurability::Synced;
    let journey = Journey { deadline_us: 400_000, moves: 2, durability, may_push_back: true };
    let request = Request::Get { table: 3, key: b"far" };
    assert_eq!(requester.submit_on(journey, 7, &request), Ok(2));
    let mut body = vec![0; request.body_bytes()];
    request.encode(&mut body);
    let accepted = Accepted { tag: 7, journey, code: request.opcode(), body: &body, was_repeated: false };
    transmit(&mut requester, 0);
    assert_eq!(requester.accepted(2), accepted);
    assert_eq!(expire(&mut requester, 399_999), []);
    transmit(&mut requester, 399_999);
    assert_eq!(expire(&mut requester, 400_000), [Done::new(7, 2, Err(CompletionError::TimedOut))]);
    assert_eq!(requester.accepted(2), Accepted { was_repeated: true, ..accepted }, "it was lost once");
    assert_eq!(expire(&mut requester, 999_999), []);
    assert_eq!(expire(&mut requester, 1_000_000), [Done::new(100, 1, Err(CompletionError::TimedOut))]);
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
fn a_write_of_which_a_copy_had_no_answer_may_be_done_whatever_others_were_told() {
    let mut requester = requester(1, 8);
    let put = Request::Put { table: 3, key: b"key", value: b"value", condition: Condition::Always };
    for (tag, request) in [(1, put), (2, GET)] {
        requester.submit(0, tag, &request).expect("there is room");
    }
    assert_eq!(transmit(&mut requester, 0).0, [1, 2]);
    let mut now_us = 0;
    while transmit(&mut requester, now_us).0 != [1, 2] {
        now_us += 1_000;
    }
    let retry = reply::encode_retry(1_000_000);
    let both = [1, 2].map(|sequence| (sequence, Status::Retry as u8, &retry[..]));
    assert_eq!(receive(&mut requester, now_us + 1, &both), []);
    let done = expire(&mut requester, 1_000_000);
    let errors = [CompletionError::TimedOut, CompletionError::Overloaded];
    assert_eq!(done, [Done::new(1, 1, Err(errors[0])), Done::new(2, 2, Err(errors[1]))]);
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
fn every_status_completes_the_call_also_an_unknown_one() {
    for code in 0..=u8::MAX {
        let mut requester = requester(1, 1);
        submit(&mut requester, 0, 1);
        transmit(&mut requester, 0);
        let expected = match Status::from_u8(code) {
            Some(Status::Retry | Status::Throttled | Status::WrongView) => continue,
            known => known.unwrap_or(Status::Internal),
        };
        assert_eq!(receive(&mut requester, 1, &[(1, code, b"")]), [Done::new(100, 1, Ok(expected))]);
    }
}

#[test]
fn a_resumed_session_sends_again_what_had_no_answer_under_its_sequences() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 3);
    transmit(&mut requester, 0);
    assert_eq!(receive(&mut requester, 10, &[(1, OK, b"")]).len(), 1);
    let refused = receive(&mut requester, 20, &[(2, Status::BadToken as u8, b"")]);
    assert_eq!(refused, [Done::new(101, 2, Ok(Status::BadToken))]);
    let stream = requester.reserve_sequence().expect("the window has room");
    submit(&mut requester, 30, 1);
    assert_eq!((requester.first_unacknowledged(), requester.outstanding()), (2, 4));
    assert_eq!(requester.calls().map(|(sequence, _)| sequence).collect::<Vec<_>>(), [2, 3, 5]);

    requester.resume(TOKEN + 1);
    assert_eq!(requester.token(), TOKEN + 1);
    let (mut buffer, mut sent) = (vec![0; FRAME_BYTES_MAX], Vec::new());
    let frame_bytes = requester.poll_transmit(40, 4, &mut buffer).expect("requests to send");
    for group in FrameReader::new(&buffer[..frame_bytes]).expect("a frame").groups() {
        let group = group.expect("a group");
        assert_eq!((group.token, group.first_unacknowledged), (TOKEN + 1, 2));
        sent.extend(group.messages().map(|message| message.expect("a message").sequence_low));
    }
    assert_eq!(sent, [2, 3, 5]);
    assert_eq!(receive(&mut requester, 50, &[(2, OK, b"")]), [], "a reply to the former session");
    let late = answer(TOKEN + 1, &[(2, OK, b""), (3, OK, b""), (5, OK, b"")]);
    let mut done = 0;
    requester.on_frame(60, &late, &mut |_| done += 1).expect("a frame");
    assert!(requester.release(stream));
    assert_eq!((done, requester.outstanding()), (3, 0));
}

#[test]
fn requests_that_are_too_old_to_resume_are_closed_alone() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 3);
    transmit(&mut requester, 0);
    assert_eq!(receive(&mut requester, 20, &[(1, Status::BadToken as u8, b"")]).len(), 1);
    let stream = requester.reserve_sequence().expect("the window has room");
    let mut done = Vec::new();
    let is_old = |call: &Accepted<'_>| call.tag < 102;
    requester.close_where(is_old, &mut |it| done.push(Done::new(it.tag, it.sequence, it.status)));
    let closed = Err(CompletionError::Closed);
    assert_eq!(done, [Done::new(100, 1, closed), Done::new(101, 2, closed)]);
    assert_eq!((requester.first_unacknowledged(), requester.outstanding()), (3, 2));
    assert!(requester.release(stream));
}

#[test]
fn a_request_of_an_unknown_session_keeps_its_deadline_when_it_is_resumed() {
    let mut requester = requester(1, 8);
    submit(&mut requester, 0, 1);
    transmit(&mut requester, 0);
    assert_eq!(receive(&mut requester, 20, &[(1, Status::BadToken as u8, b"")]).len(), 1);
    requester.resume(TOKEN);
    assert_eq!(expire(&mut requester, 1_000_000), [Done::new(100, 1, Err(CompletionError::TimedOut))]);
    submit(&mut requester, 1_000_000, 1);
    transmit(&mut requester, 1_000_000);
    assert_eq!(receive(&mut requester, 1_000_010, &[(2, Status::BadToken as u8, b"")]).len(), 1);
    assert!(requester.release(2) && !requester.release(2));
    assert_eq!(requester.outstanding(), 0);
}
