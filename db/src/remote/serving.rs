//! Serves the questions of another server: a worker answers each record, and what shows something that the disk does not have
//! yet waits here, while the stream goes on.
//!
//! ```text
//!   record ──► a worker ──► answers ─────────────────────────────────► stream
//!                      └──► answers with a cut ──► it is stable ──────►
//!                                             └──► not in time, or the disk has failed: "later"
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::{Stream, StreamError};

use crate::control_plane::Control;
use crate::limits::{
    REMOTE_DISK_LOOK_MS, REMOTE_DISK_MS, REMOTE_DISK_PATIENCE_MS, REMOTE_MESSAGE_BYTES_MAX,
    REMOTE_WAITING_BYTES_MAX, REMOTE_WAITING_MAX, STREAM_ANSWER_TIMEOUT_MS, STREAM_LOOK_MS,
};
use crate::sync::oneshot::oneshot;
use crate::view::change::{Change, PeerAnswer, PeerAnswerOfCut, PeerReads};

/// Serves a stream until the other server leaves or this one stops.
pub fn serve(control: &Control, mut stream: Stream) {
    let (look, often) = (Duration::from_millis(STREAM_LOOK_MS), Duration::from_millis(REMOTE_DISK_LOOK_MS));
    let patience = Duration::from_millis(STREAM_ANSWER_TIMEOUT_MS);
    let (mut record, mut waiting) = (Vec::new(), Waiting::default());
    for worker in control.workers.iter().cycle() {
        loop {
            if !send_due(control, &mut stream, &mut waiting) {
                return;
            }
            let timeout = if waiting.answers.is_empty() { look } else { often };
            match stream.read_record(&mut record, timeout, REMOTE_MESSAGE_BYTES_MAX) {
                Ok(()) => break,
                Err(StreamError::Idle) => {}
                Err(_) => return,
            }
        }
        let (answer, answered) = oneshot();
        let reads = Arc::new(PeerReads { record: std::mem::take(&mut record), answer });
        if !worker.send(Change::Reads(reads)) {
            return;
        }
        let Ok(Some(PeerAnswer { now, of_cut })) = answered.receive_within(patience) else { return };
        if now.is_some_and(|body| !write(&mut stream, &body)) {
            return;
        }
        if let Some(of_cut) = of_cut {
            if let Some(log) = &control.log {
                log.wake_for(&control.store, of_cut.cuts);
                // Mostly it takes one write of the disk, or one receipt.
                if waiting.answers.is_empty() {
                    let patience = Duration::from_millis(REMOTE_DISK_MS);
                    let _ = log.await_cuts(&control.store, of_cut.cuts, patience);
                }
            }
            waiting.bytes += of_cut.body.len();
            waiting.answers.push_back((Instant::now(), of_cut));
        }
    }
}

/// Answers that wait for the disk.
#[derive(Default)]
struct Waiting {
    answers: VecDeque<(Instant, PeerAnswerOfCut)>,
    bytes: usize,
}

impl Waiting {
    /// Returns whether there are too many: the oldest one is to be asked for again.
    fn is_full(&self) -> bool {
        self.answers.len() > REMOTE_WAITING_MAX || self.bytes > REMOTE_WAITING_BYTES_MAX
    }
}

/// Sends what waits no more; returns false if the stream is gone.
fn send_due(control: &Control, stream: &mut Stream, waiting: &mut Waiting) -> bool {
    let reached = control.store.reached_cuts();
    let is_reached = |answer: &PeerAnswerOfCut| control.log.is_none() || answer.cuts.are_reached(reached);
    let has_failed = control.log.as_ref().is_some_and(|log| log.waker.has_failed());
    let patience = Duration::from_millis(REMOTE_DISK_PATIENCE_MS);
    loop {
        let is_full = waiting.is_full();
        let is_due = |(since, answer): &mut (Instant, PeerAnswerOfCut)| {
            is_reached(answer) || has_failed || is_full || since.elapsed() > patience
        };
        let Some((_, answer)) = waiting.answers.pop_front_if(is_due) else { return true };
        waiting.bytes -= answer.body.len();
        let body = if is_reached(&answer) { answer.body } else { answer.later };
        if !write(stream, &body) {
            return false;
        }
    }
}

fn write(stream: &mut Stream, body: &[u8]) -> bool {
    stream.write_record(&(body.len() as u32).to_le_bytes(), body).is_ok()
}
