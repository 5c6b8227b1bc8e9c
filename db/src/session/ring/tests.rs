//! The ring under every order of copies, acknowledgements and threads that a network can produce.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wire::Status;

use super::{Claim, Ring, SEQUENCE_MAX};
use crate::limits::{SESSION_REPLY_BYTES_MAX, WINDOW_RECORDS};

const WINDOW: u64 = WINDOW_RECORDS as u64;

fn stored(ring: &Ring, sequence: u64) -> Option<(Status, Vec<u8>)> {
    ring.replay(sequence, |status, body| (status, body.to_vec()))
}

#[test]
fn a_copy_gets_the_stored_reply() {
    let ring = Ring::new();
    assert_eq!(ring.claim(1), Claim::Execute);
    assert_eq!(ring.claim(1), Claim::InFlight);
    ring.complete(1, Status::Ok, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(ring.claim(1), Claim::Replay);
    assert_eq!(stored(&ring, 1), Some((Status::Ok, vec![1, 2, 3, 4, 5, 6, 7, 8, 9])));
}

#[test]
fn long_replies_are_kept_until_acknowledged() {
    let ring = Ring::new();
    let body: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    assert_eq!(ring.claim(5), Claim::Execute);
    ring.complete(5, Status::ExtensionError, &body);
    assert_eq!(ring.claim(5), Claim::Replay);
    assert_eq!(stored(&ring, 5), Some((Status::ExtensionError, body)));
    ring.acknowledge(6);
    assert_eq!(ring.claim(5), Claim::Expired);
    assert_eq!(ring.long_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn below_the_window_nothing_runs_again() {
    let ring = Ring::new();
    assert_eq!(ring.claim(1), Claim::Execute);
    ring.complete(1, Status::Ok, &[]);
    ring.acknowledge(2);
    assert_eq!(ring.claim(1), Claim::Expired);
    assert_eq!(ring.claim(1 + WINDOW), Claim::Execute);
    ring.complete(1 + WINDOW, Status::Ok, &[]);
    assert_eq!(ring.claim(1), Claim::Expired);
}

#[test]
fn ahead_of_the_window_is_refused() {
    let ring = Ring::new();
    assert_eq!(ring.claim(WINDOW), Claim::Ahead);
    ring.acknowledge(1);
    assert_eq!(ring.claim(WINDOW), Claim::Execute);
    ring.acknowledge(u64::MAX);
    assert_eq!(ring.claim(u64::MAX), Claim::Ahead);
    assert_eq!(ring.claim(SEQUENCE_MAX), Claim::Execute);
}

#[test]
fn a_released_request_may_come_again() {
    let ring = Ring::new();
    assert_eq!(ring.claim(9), Claim::Execute);
    ring.release(9);
    assert_eq!(stored(&ring, 9), None);
    assert_eq!(ring.claim(9), Claim::Execute);
    ring.complete(9, Status::Ok, &[]);
    assert_eq!(ring.claim(9), Claim::Replay);
}

#[test]
fn a_read_runs_unless_a_copy_of_it_was_begun_as_a_write() {
    let ring = Ring::new();
    assert_eq!((ring.begin_read(9), ring.begin_read(9)), (Claim::Execute, Claim::Execute));
    assert_eq!((ring.look(9), stored(&ring, 9)), (Claim::Execute, None), "it leaves no trace");
    assert_eq!((ring.begin_write(9), ring.begin_read(9)), (Claim::Execute, Claim::InFlight));
    assert_eq!((ring.begin_read(8), ring.begin_read(10)), (Claim::Execute, Claim::Execute));
    ring.release(9);
    assert_eq!(ring.begin_read(9), Claim::Execute, "nothing was written");
    assert_eq!(ring.begin_write(9), Claim::Execute);
    ring.complete(9, Status::Ok, &[1]);
    assert_eq!(ring.begin_write(12), Claim::Execute);
    assert_eq!(ring.begin_read(9), Claim::Replay);
    ring.acknowledge(20);
    assert_eq!(ring.begin_read(12 + WINDOW), Claim::Execute, "whoever has its record");
}

#[test]
fn a_record_is_not_taken_from_a_request_that_runs() {
    let ring = Ring::new();
    assert_eq!(ring.claim(1), Claim::Execute);
    ring.acknowledge(2);
    assert_eq!(ring.claim(1 + WINDOW), Claim::Busy);
    ring.complete(1, Status::Ok, &[]);
    assert_eq!(ring.claim(1 + WINDOW), Claim::Execute);
}

#[test]
fn stored_replies_are_bounded() {
    let ring = Ring::new();
    let body = vec![0; SESSION_REPLY_BYTES_MAX / 4 + 1];
    for sequence in 1..=4 {
        assert_eq!(ring.claim(sequence), Claim::Execute);
        ring.complete(sequence, Status::Ok, &body);
    }
    assert_eq!(ring.claim(5), Claim::Busy);
    ring.acknowledge(2);
    assert_eq!(ring.claim(5), Claim::Execute);
}

#[test]
fn replies_of_requests_that_were_all_claimed_before_the_first_was_stored_are_bounded() {
    let ring = Ring::new();
    let body = vec![7; SESSION_REPLY_BYTES_MAX / 4];
    for sequence in 1..=100 {
        assert_eq!(ring.claim(sequence), Claim::Execute);
    }
    for sequence in 1..=100 {
        ring.complete(sequence, Status::Ok, &body);
    }
    let kept =
        (1..=100).filter(|sequence| stored(&ring, *sequence) == Some((Status::Ok, body.clone()))).count();
    assert_eq!(kept, 8);
    // The others have run, and do not run again.
    assert_eq!(ring.claim(100), Claim::Replay);
    assert_eq!(stored(&ring, 100), Some((Status::ReplyForgotten, Vec::new())));
    ring.acknowledge(101);
    assert_eq!(ring.claim(101), Claim::Execute);
    ring.acknowledge(102);
    ring.complete(101, Status::Ok, &body);
    assert_eq!(stored(&ring, 101), Some((Status::ReplyForgotten, Vec::new())));
}

#[test]
fn restored_replies_are_answered_and_nothing_else_is_taken_for_executed() {
    let ring = Ring::new();
    let long = vec![3; 5_000];
    let found: [(u64, Status, &[u8]); 7] = [
        (12, Status::ConditionFailed, &[1; 8]),
        (10, Status::Ok, &long),
        (9, Status::Ok, &[2]),
        (12, Status::Ok, &[4]),
        (10 + WINDOW, Status::Ok, &[5]),
        (u64::MAX, Status::Ok, &[6]),
        (9 + WINDOW, Status::Ok, &[]),
    ];
    ring.restore(10, found);
    assert_eq!(ring.acknowledged(), 10);
    assert_eq!(
        (ring.claim(9), ring.claim(10), ring.claim(12)),
        (Claim::Expired, Claim::Replay, Claim::Replay)
    );
    assert_eq!(stored(&ring, 10), Some((Status::Ok, long)));
    assert_eq!(stored(&ring, 12), Some((Status::ConditionFailed, vec![1; 8])), "the first of two counts");
    assert_eq!(ring.look(10 + WINDOW), Claim::Ahead);
    assert_eq!(ring.next_sequence(), 10 + WINDOW, "beyond all that was restored");
    // A read-only version of a function that may have written looks for the reply.
    assert_eq!((ring.begin_read(12), ring.begin_read(11)), (Claim::Replay, Claim::Execute));
    assert_eq!(ring.claim(11), Claim::Execute);
    ring.complete(11, Status::Ok, &[7]);
    ring.acknowledge(13);
    assert_eq!(ring.long_bytes.load(Ordering::Relaxed), 0);
    assert_eq!(ring.claim(10 + WINDOW), Claim::Execute);
}

#[test]
fn restored_replies_that_are_too_many_are_forgotten_and_do_not_run_again() {
    let ring = Ring::new();
    let body = vec![7; SESSION_REPLY_BYTES_MAX / 4];
    ring.restore(1, (1..=20).map(|sequence| (sequence, Status::Ok, &body[..])));
    assert!((1..=20).all(|sequence| ring.look(sequence) == Claim::Replay));
    let kept = (1..=20).filter(|&sequence| stored(&ring, sequence) == Some((Status::Ok, body.clone())));
    assert_eq!(kept.count(), 8);
    assert_eq!(stored(&ring, 20), Some((Status::ReplyForgotten, Vec::new())));
}

#[test]
fn of_many_threads_one_executes() {
    let ring = Arc::new(Ring::new());
    let executed: Arc<Vec<AtomicU64>> = Arc::new((0..4000).map(|_| AtomicU64::new(0)).collect());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (ring, executed) = (Arc::clone(&ring), Arc::clone(&executed));
            scope.spawn(move || {
                for sequence in 1..4000_u64 {
                    run_until_answered(&ring, &executed, sequence);
                }
            });
        }
    });
    for sequence in 1..4000 {
        assert_eq!(executed[sequence].load(Ordering::Relaxed), 1, "sequence {sequence}");
    }
}

/// A copy of a request that insists until it sees an answer or hears that it is over.
fn run_until_answered(ring: &Ring, executed: &[AtomicU64], sequence: u64) {
    ring.acknowledge(sequence.saturating_sub(WINDOW / 2));
    loop {
        match ring.claim(sequence) {
            Claim::Execute => {
                executed[sequence as usize].fetch_add(1, Ordering::Relaxed);
                let body = vec![sequence as u8; (sequence % 40) as usize];
                return ring.complete(sequence, Status::Ok, &body);
            }
            Claim::Replay => {
                let Some((status, body)) = stored(ring, sequence) else { continue };
                assert_eq!(status, Status::Ok);
                assert_eq!(body, vec![sequence as u8; (sequence % 40) as usize]);
                return;
            }
            Claim::InFlight | Claim::Busy => std::thread::yield_now(),
            Claim::Expired => return,
            Claim::Ahead => panic!("the window moves with the slowest thread"),
        }
    }
}

/// Waits for something that another thread does; false where that does not come.
fn comes(happened: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !happened() && began.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    happened()
}

/// Of a worker that answers a copy, which may take as long as sending what is before it in the frame.
#[test]
fn nobody_waits_for_a_worker_that_is_answering_a_copy() {
    let ring = Ring::new();
    let body = |sequence: u64| vec![sequence as u8; 100];
    assert_eq!(ring.claim(1), Claim::Execute);
    ring.complete(1, Status::Ok, &body(1));
    let (is_answering, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let was_done = ring.replay(1, |_, stored| {
                is_answering.store(true, Ordering::Relaxed);
                let was_done = comes(|| is_done.load(Ordering::Relaxed));
                assert_eq!(stored, body(1), "it stays as it is");
                was_done
            });
            assert_eq!(was_done, Some(true), "others waited");
        });
        assert!(comes(|| is_answering.load(Ordering::Relaxed)));
        for sequence in 2..3 * WINDOW {
            ring.acknowledge(sequence);
            assert_eq!(ring.claim(sequence), Claim::Execute);
            ring.complete(sequence, Status::Ok, &body(sequence));
            assert_eq!(stored(&ring, sequence), Some((Status::Ok, body(sequence))));
        }
        is_done.store(true, Ordering::Relaxed);
    });
    ring.acknowledge(3 * WINDOW);
    assert_eq!(ring.long_bytes.load(Ordering::Relaxed), 0);
}
