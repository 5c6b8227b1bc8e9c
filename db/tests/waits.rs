//! Workers wait for nobody: other threads are stopped wherever they are, and workers get on.

#[path = "support/stopper.rs"]
mod stopper;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;

use db::server::change::{Change, change_queue};
use db::sync::AtomicBox;
use db::sync::oneshot::oneshot;
use net::{Faults, LoopbackClock, LoopbackNetwork, Port};

use stopper::{Bump, Stopper, own_thread};

#[global_allocator]
static ALLOCATOR: Bump = Bump;

/// Waits until a thread has told its number.
fn told(thread: &AtomicI32) -> i32 {
    while thread.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    thread.load(Ordering::Relaxed)
}

#[test]
fn a_worker_waits_for_no_control_thread_that_loses_its_core_while_it_tells_a_change() {
    let stopper = Stopper::new();
    let network = LoopbackNetwork::new(1, Faults::default(), LoopbackClock::Real);
    let (sender, mut changes) = change_queue(network.port().expect("a port").waker());
    let (is_over, first, second) = (AtomicBool::new(false), AtomicI32::new(0), AtomicI32::new(0));
    let (looks, told_of, heard_of) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for own in [&first, &second] {
            let (sender, is_over, told_of, heard_of) = (sender.clone(), &is_over, &told_of, &heard_of);
            scope.spawn(move || {
                own.store(own_thread(), Ordering::Relaxed);
                while !is_over.load(Ordering::Relaxed) {
                    if told_of.load(Ordering::Relaxed) < heard_of.load(Ordering::Relaxed) + 1_000 {
                        let is_told = sender.send(Change::SessionClosed(1));
                        assert!(is_told || is_over.load(Ordering::Relaxed));
                        told_of.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let (ended, looks_of, heard_of) = (&is_over, &looks, &heard_of);
        scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                if !changes.is_empty() && changes.take(|_| ()) {
                    heard_of.fetch_add(1, Ordering::Relaxed);
                }
                looks_of.fetch_add(1, Ordering::Relaxed);
            }
        });
        let first = told(&first);
        let stuck = (0..400).find(|_| !stopper.others_get_on(first, &looks, 2_000));
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(stuck, None, "the worker waited for a thread that was stopped");
    });
    assert!(told_of.into_inner() > 0 && heard_of.into_inner() > 0);
}

#[test]
fn a_worker_waits_for_no_stream_thread_that_loses_its_core_while_it_waits_for_an_answer() {
    let stopper = Stopper::new();
    let (is_over, waiting, looks) = (AtomicBool::new(false), AtomicI32::new(0), AtomicU64::new(0));
    let (asked, answered) = (AtomicBox::empty(), AtomicU64::new(0));
    thread::scope(|scope| {
        let control = scope.spawn(|| {
            waiting.store(own_thread(), Ordering::Relaxed);
            while !is_over.load(Ordering::Relaxed) {
                let (sender, receiver) = oneshot();
                assert!(asked.put(Box::new(sender)).is_none(), "the worker takes one at a time");
                answered.fetch_add(receiver.receive().unwrap_or_default(), Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if let Some(sender) = asked.take() {
                    sender.send(1);
                }
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        let waiting = told(&waiting);
        let stuck = (0..20_000).find(|_| !stopper.others_get_on(waiting, &looks, 200));
        is_over.store(true, Ordering::Relaxed);
        // The worker may end before it has answered the last one.
        while !control.is_finished() {
            drop(asked.take());
        }
        assert_eq!(stuck, None, "the worker waited for a thread that was stopped");
    });
    assert!(answered.into_inner() > 0);
}
