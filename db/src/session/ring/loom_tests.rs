//! The ring under loom, with so few records that a request soon finds that of another one.
//!
//! Run: `RUSTFLAGS="--cfg loom_model" cargo test --release -p splinter-server --lib loom`

use std::sync::Arc;

use loom::sync::atomic::AtomicBool;
use loom::thread::{self, JoinHandle};
use wire::Status;

use super::{Claim, RECORDS, Ring};
use crate::sync::Ordering;

const LONG: [u8; 17] = [7; 17];
const LONGER: [u8; 20] = [9; 20];

/// Another thread at the ring.
fn beside<T: 'static>(ring: &Arc<Ring>, work: impl FnOnce(&Ring) -> T + 'static) -> JoinHandle<T> {
    let ring = Arc::clone(ring);
    thread::spawn(move || work(&ring))
}

fn stored(ring: &Ring, sequence: u64) -> Option<(Status, Vec<u8>)> {
    ring.replay(sequence, |status, body| (status, body.to_vec()))
}

/// A copy that runs if it may, with that reply. Whether it ran, and what it was answered, if anything.
fn run(ring: &Ring, sequence: u64, reply: &[u8]) -> (bool, Option<Vec<u8>>) {
    match ring.claim(sequence) {
        Claim::Execute => {
            ring.complete(sequence, Status::Ok, reply);
            (true, Some(reply.to_vec()))
        }
        Claim::Replay => (false, stored(ring, sequence).map(|(_, body)| body)),
        Claim::InFlight => (false, None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn loom_of_two_copies_one_executes_and_the_other_gets_its_answer_or_none() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        let other = beside(&ring, |ring| run(ring, 1, b"other"));
        let (ran, own) = run(&ring, 1, b"own");
        let (other_ran, other) = other.join().expect("no panic");
        assert!(ran != other_ran);
        let answer = if ran { b"own".to_vec() } else { b"other".to_vec() };
        assert!(own.is_none_or(|own| own == answer) && other.is_none_or(|other| other == answer));
        assert_eq!(stored(&ring, 1), Some((Status::Ok, answer)));
    });
}

#[test]
fn loom_a_copy_that_was_given_back_is_executed_by_another_one_at_most_once() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        let other = beside(&ring, |ring| run(ring, 1, b"other").0);
        if ring.claim(1) == Claim::Execute {
            ring.release(1);
        }
        let own = run(&ring, 1, b"own").0;
        assert!(!(own && other.join().expect("no panic")));
    });
}

/// At one worker the function writes, at the other it reads.
#[test]
fn loom_a_read_that_could_see_what_a_copy_has_written_is_answered_as_that_one() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        let has_written = Arc::new(AtomicBool::new(false));
        let writing = {
            let has_written = Arc::clone(&has_written);
            beside(&ring, move |ring| {
                assert_eq!(ring.begin_write(1), Claim::Execute);
                has_written.store(true, Ordering::Release);
                ring.complete(1, Status::Ok, b"written");
            })
        };
        let could_see = has_written.load(Ordering::Acquire);
        let read = ring.begin_read(1);
        assert!(!(could_see && read == Claim::Execute));
        writing.join().expect("no panic");
        assert_eq!(ring.begin_read(1), Claim::Replay);
    });
}

/// While a copy of an old request is answered, the request is acknowledged and its record used by another one.
#[test]
fn loom_a_copy_is_never_given_the_answer_of_the_request_that_has_its_record_now() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        assert_eq!(run(&ring, 1, b"old old old").0, true);
        let other = beside(&ring, |ring| {
            ring.acknowledge(2);
            run(ring, 1 + RECORDS as u64, b"new new new").0
        });
        let old = stored(&ring, 1);
        assert!(old.is_none_or(|old| old == (Status::Ok, b"old old old".to_vec())));
        assert!(other.join().expect("no panic"));
    });
}

/// A long reply is stored while its request is acknowledged.
#[test]
fn loom_what_is_acknowledged_while_it_is_stored_is_not_kept() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        assert_eq!(ring.claim(1), Claim::Execute);
        let other = beside(&ring, |ring| ring.acknowledge(2));
        ring.complete(1, Status::Ok, &LONG);
        other.join().expect("no panic");
        assert!(matches!(stored(&ring, 1), None | Some((Status::ReplyForgotten, _))));
        assert_eq!(ring.long_bytes.load(Ordering::Relaxed), 0);
    });
}

/// A copy of an old request is answered while that is acknowledged, and another one stores a long reply in its place.
#[test]
fn loom_a_long_reply_outlives_a_copy_of_the_request_before_it() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        assert!(run(&ring, 1, &LONG).0);
        let other = beside(&ring, |ring| {
            let old = stored(ring, 1);
            assert!(old.is_none_or(|old| old == (Status::Ok, LONG.to_vec())));
        });
        ring.acknowledge(2);
        assert!(run(&ring, 1 + RECORDS as u64, &LONGER).0);
        other.join().expect("no panic");
        assert_eq!(stored(&ring, 1 + RECORDS as u64), Some((Status::Ok, LONGER.to_vec())));
        assert_eq!(ring.long_bytes.load(Ordering::Relaxed), LONGER.len());
    });
}

/// Two copies are answered at once: each with the whole reply or not at all, and a later one is.
#[test]
fn loom_copies_that_are_answered_at_once_leave_the_reply_to_a_later_one() {
    loom::model(|| {
        let ring = Arc::new(Ring::new());
        assert!(run(&ring, 1, &LONG).0);
        let other = beside(&ring, |ring| stored(ring, 1));
        let answers = [stored(&ring, 1), other.join().expect("no panic"), stored(&ring, 1)];
        assert!(answers.iter().flatten().all(|answer| *answer == (Status::Ok, LONG.to_vec())));
        assert!(answers[2].is_some());
    });
}
