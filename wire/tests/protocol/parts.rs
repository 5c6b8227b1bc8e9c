//! Answers in parts: put together whatever order they come in, never out of two executions, asked for once.

use wire::limits::{ASKS_SYNCED, ASKS_WRITTEN, FRAME_BYTES_MAX, IS_PART, TAKES_PARTS};
use wire::reply::Part;
use wire::{Condition, FrameReader, FrameWriter, Journey, Request, RequestDurability, Requester, Status};

use crate::peer::{GET, OK, TOKEN, expire, requester, transmit};

/// Hands over one part of an answer; what completes.
fn deliver(requester: &mut Requester, sequence: u64, part: &Part<'_>) -> Vec<Vec<u8>> {
    let mut buffer = [0; FRAME_BYTES_MAX];
    let mut writer = FrameWriter::new();
    writer.start(&mut buffer, 4);
    assert!(writer.group(&mut buffer, TOKEN, 0, 1));
    let place = writer.message(&mut buffer, OK, IS_PART, sequence as u32, part.body_bytes());
    part.encode(place.expect("a part fits"));
    let (frame_bytes, mut done) = (writer.finish(&mut buffer), Vec::new());
    let taken = requester.on_frame(10, &buffer[..frame_bytes], &mut |completion| {
        assert_eq!((completion.sequence, completion.status), (sequence, Ok(Status::Ok)));
        done.push(completion.body.to_vec());
    });
    assert_eq!(taken, Ok(4));
    done
}

/// Flags of the messages that the requester wants to send now.
fn flags(requester: &mut Requester, now_us: u64) -> Vec<u8> {
    let mut buffer = [0; FRAME_BYTES_MAX];
    let Some(frame_bytes) = requester.poll_transmit(now_us, 3, &mut buffer) else { return Vec::new() };
    let frame = FrameReader::new(&buffer[..frame_bytes]).expect("a whole frame");
    let messages = frame.groups().flat_map(|group| group.expect("a whole group").messages());
    messages.map(|message| message.expect("a whole message").flags).collect()
}

fn whole(salt: u8) -> Vec<u8> {
    (0..7_001_u32).map(|at| (at % 253) as u8 ^ salt).collect()
}

#[test]
fn an_answer_is_complete_when_all_its_parts_are_there_in_any_order_and_number() {
    let mut requester = requester(1, 8);
    (0..2).for_each(|tag| assert!(requester.submit(0, tag, &GET).is_ok()));
    transmit(&mut requester, 0);
    let (first, second) = (whole(0), whole(1));
    let (first, second): (Vec<_>, Vec<_>) =
        (Part::split(1, &first, 1_412).collect(), Part::split(2, &second, 1_412).collect());
    for index in [4, 0, 2, 2, 0, 1] {
        assert_eq!(deliver(&mut requester, 1, &first[index]), Vec::<Vec<u8>>::new());
        assert_eq!(deliver(&mut requester, 2, &second[index]), Vec::<Vec<u8>>::new());
    }
    assert_eq!(deliver(&mut requester, 2, &second[3]), [whole(1)]);
    assert_eq!(deliver(&mut requester, 1, &first[3]), [whole(0)]);
    assert_eq!(deliver(&mut requester, 1, &first[3]), Vec::<Vec<u8>>::new(), "nobody waits for it any more");
    assert_eq!(requester.outstanding(), 0);
}

#[test]
fn parts_of_two_executions_are_not_put_together() {
    let mut requester = requester(1, 8);
    requester.submit(0, 7, &GET).expect("there is room");
    transmit(&mut requester, 0);
    let (old, new) = (whole(0), whole(1));
    let old: Vec<_> = Part::split(1, &old, 1_412).collect();
    let new: Vec<_> = Part::split(2, &new, 1_412).collect();
    old[..4].iter().for_each(|part| assert!(deliver(&mut requester, 1, part).is_empty()));
    assert!(deliver(&mut requester, 1, &new[4]).is_empty(), "it is of another execution");
    new[..3].iter().for_each(|part| assert!(deliver(&mut requester, 1, part).is_empty()));
    assert_eq!(deliver(&mut requester, 1, &new[3]), [whole(1)]);
}

#[test]
fn reads_take_parts_until_an_answer_is_lost_and_writes_never_do() {
    let mut requester = requester(1, 8);
    let put = Request::Put { table: 1, key: b"k", value: b"v", condition: Condition::Always };
    requester.submit(0, 1, &GET).expect("there is room");
    requester.submit(0, 2, &put).expect("there is room");
    assert_eq!(flags(&mut requester, 0), [TAKES_PARTS, 0]);
    let resend_at_us = requester.next_deadline_us().expect("two are outstanding");
    assert_eq!(flags(&mut requester, resend_at_us), [0, 0], "the stream brings it surely");
}

#[test]
fn a_request_carries_what_its_answer_waits_for_each_time_that_it_is_sent() {
    let mut requester = requester(1, 8);
    let put = Request::Put { table: 1, key: b"k", value: b"v", condition: Condition::Always };
    for durability in [RequestDurability::OfTable, RequestDurability::Written, RequestDurability::Synced] {
        let journey = Journey { durability, ..Journey::begin(0, 1_000_000) };
        requester.submit_on(journey, 1, &put).expect("there is room");
        assert_eq!(RequestDurability::of_flags(durability.flags()), durability);
    }
    assert_eq!(flags(&mut requester, 0), [0, ASKS_WRITTEN, ASKS_SYNCED]);
    let resend_at_us = requester.next_deadline_us().expect("three are outstanding");
    assert_eq!(flags(&mut requester, resend_at_us), [0, ASKS_WRITTEN, ASKS_SYNCED]);
    assert_eq!(RequestDurability::of_flags(ASKS_WRITTEN | ASKS_SYNCED), RequestDurability::Synced);
}

#[test]
fn what_has_come_of_an_answer_that_is_given_up_does_not_go_to_the_next() {
    let mut requester = requester(1, 1);
    requester.submit(0, 1, &GET).expect("there is room");
    transmit(&mut requester, 0);
    let answer = whole(0);
    let parts: Vec<_> = Part::split(1, &answer, 1_412).collect();
    parts[1..].iter().for_each(|part| assert!(deliver(&mut requester, 1, part).is_empty()));
    assert_eq!(expire(&mut requester, 2_000_000).len(), 1);
    requester.submit(2_000_000, 2, &GET).expect("there is room");
    transmit(&mut requester, 2_000_000);
    assert!(deliver(&mut requester, 2, &parts[0]).is_empty());
    assert!(deliver(&mut requester, 1, &parts[0]).is_empty());
}
