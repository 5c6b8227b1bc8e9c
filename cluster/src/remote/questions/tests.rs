//! Tests of reads at servers that answer, lose ownership, refuse, or never answer, in virtual time.

use std::net::SocketAddr;

use super::{End, OpenQuestions, Owner};
use crate::limits::{
    REMOTE_BATCH_READS, REMOTE_OUTSTANDING_MAX, REMOTE_PAUSE_US_MAX, REMOTE_READ_US_MAX, REMOTE_REOPEN_US,
};

const NOBODY: fn(&u32) -> Owner = |_| Owner::Unknown;

fn at(server: u32) -> Owner {
    Owner::Server(server, SocketAddr::from(([10, 0, 0, 1], server as u16)))
}

/// Opens the stream to a server for its waiting reads.
fn up(questions: &mut OpenQuestions<u32>, server: u32, now_us: u64) {
    assert_eq!(questions.to_open(now_us).map(|(server, _)| server), Some(server));
    assert_eq!(questions.to_open(now_us), None, "one at a time");
    questions.opened(server);
}

#[test]
fn what_is_wanted_of_a_server_goes_together_and_comes_back_once() {
    let mut questions = OpenQuestions::default();
    (0..3).for_each(|what| questions.take(what, at(2), 0));
    up(&mut questions, 2, 0);
    let batch = questions.batch(2, |_| 1);
    assert_eq!((batch.len(), questions.batch(2, |_| 1).len()), (3, 0));
    assert_eq!(questions.answered(3, batch[0]), None, "another server was not asked");
    let answers: Vec<_> = batch.iter().map(|&number| questions.answered(2, number)).collect();
    assert_eq!(answers, [0, 1, 2].map(Some));
    assert_eq!((questions.answered(2, batch[0]), questions.is_empty()), (None, true));
    assert_eq!(questions.next_due_us(), None);
}

#[test]
fn an_object_that_went_to_another_server_is_asked_for_there() {
    let mut questions = OpenQuestions::default();
    questions.take(7, at(2), 0);
    up(&mut questions, 2, 0);
    let [number] = questions.batch(2, |_| 1)[..] else { panic!("one") };
    questions.not_answered(2, number, 10);
    assert!(questions.step(10, |_| at(3)).is_empty() && questions.to_open(10).is_none(), "it pauses");
    let due_us = questions.next_due_us().expect("a pause");
    assert!(questions.step(due_us, |_| at(3)).is_empty());
    up(&mut questions, 3, due_us);
    assert_eq!(questions.batch(3, |_| 1), [number]);
    assert_eq!((questions.answered(2, number), questions.answered(3, number)), (None, Some(7)));
}

#[test]
fn what_came_here_meanwhile_is_told_so_after_a_pause() {
    let mut questions = OpenQuestions::default();
    questions.take(7, Owner::Here, 0);
    assert!(questions.step(0, NOBODY).is_empty());
    assert_eq!(questions.step(REMOTE_PAUSE_US_MAX, NOBODY), [(7, End::Here)]);
}

#[test]
fn nobody_waits_beyond_its_deadline_wherever_it_is() {
    let mut questions = OpenQuestions::default();
    questions.take(1, at(2), 0);
    up(&mut questions, 2, 0);
    let asked = questions.batch(2, |_| 1);
    questions.take(2, at(3), 0);
    questions.take(3, Owner::Unknown, 0);
    let (mut now_us, mut over) = (0, Vec::new());
    while let Some(due_us) = questions.next_due_us() {
        assert!(due_us <= REMOTE_READ_US_MAX + REMOTE_PAUSE_US_MAX, "nothing is due later");
        now_us = due_us.max(now_us);
        over.extend(questions.step(now_us, NOBODY));
    }
    over.sort_unstable_by_key(|(what, _)| *what);
    assert_eq!((over, now_us), (vec![(1, End::Away), (2, End::Away), (3, End::Away)], REMOTE_READ_US_MAX));
    assert_eq!((questions.answered(2, asked[0]), questions.len()), (None, 0));
    questions.take(4, at(2), now_us);
    assert_eq!(questions.batch(2, |_| 1).len(), 1, "what was not answered is not counted as under way");
}

#[test]
fn who_cannot_be_reached_holds_nobody_up_and_is_tried_again_later() {
    let mut questions = OpenQuestions::default();
    questions.take(1, at(2), 0);
    questions.take(2, at(3), 0);
    assert_eq!(questions.to_open(0).map(|(server, _)| server), Some(2));
    assert_eq!(questions.refused(2, 5), [1]);
    up(&mut questions, 3, 5);
    questions.take(3, at(2), 6);
    assert_eq!(questions.to_open(6), None);
    up(&mut questions, 2, 5 + REMOTE_REOPEN_US);
    assert_eq!(questions.len(), 2);
}

#[test]
fn what_was_asked_over_a_stream_that_broke_is_asked_again() {
    let mut questions = OpenQuestions::default();
    questions.take(1, at(2), 0);
    up(&mut questions, 2, 0);
    let first = questions.batch(2, |_| 1);
    questions.lost(2, 1);
    let due_us = questions.next_due_us().expect("a pause");
    assert!(questions.step(due_us, |_| at(2)).is_empty());
    up(&mut questions, 2, due_us);
    assert_eq!(questions.batch(2, |_| 1), first);
    assert_eq!(questions.answered(2, first[0]), Some(1));
}

#[test]
fn a_server_that_does_not_answer_is_asked_so_much_and_others_go_on() {
    let mut questions = OpenQuestions::default();
    (0..2 * REMOTE_OUTSTANDING_MAX as u32).for_each(|what| questions.take(what, at(2), 0));
    up(&mut questions, 2, 0);
    let mut asked = Vec::new();
    loop {
        let batch = questions.batch(2, |_| 1);
        assert!(batch.len() <= REMOTE_BATCH_READS);
        if batch.is_empty() {
            break;
        }
        asked.extend(batch);
    }
    assert_eq!(asked.len(), REMOTE_OUTSTANDING_MAX);
    questions.take(u32::MAX, at(3), 0);
    up(&mut questions, 3, 0);
    assert_eq!(questions.batch(3, |_| 1).len(), 1);
    assert!(questions.answered(2, asked[0]).is_some());
    assert_eq!(questions.batch(2, |_| 1).len(), 1);
}
