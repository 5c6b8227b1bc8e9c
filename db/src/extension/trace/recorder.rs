//! The recording of one invocation's events. Each worker has one recorder and lends it to the traced invocation; so at
//! most one per worker is traced, and nothing is allocated.
//!
//! ```text
//!   arrived ─ queued ─▶ poll ─ yielded ─▶ poll ─ parked ─▶ poll ─▶ commit ─▶ reply
//!                        └ host calls, by kind: number, duration
//! ```
//! Times are cycles since its arrival. Polls beyond [`TRACE_POLLS_MAX`] are added to the last entry.

use guest::border::CallKind;
use guest::cycles;
use wire::Status;

use crate::limits::{TRACE_POLLS_MAX, TRACE_REST_US};

/// The names of the host calls, in the order of [`CallKind`].
pub const CALL_KINDS: [&str; 10] =
    ["get", "get_many", "scan", "enumerate", "put", "delete", "increment", "table", "log", "now_ms"];

/// How a poll ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PollEnd {
    /// The function ended.
    #[default]
    Ended,
    /// The function yielded.
    Yielded,
    /// It used up its slice.
    Parked,
    /// Its commit met a conflict: it starts again.
    Conflicted,
}

/// The host calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// The number of calls.
    pub count: u64,
    /// The cycles of all of them.
    pub cycles: u64,
}

/// One poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Poll {
    /// Its begin, in cycles since the invocation's arrival.
    pub at: u64,
    /// Its duration, in cycles.
    pub cycles: u64,
    /// How it ended.
    pub end: PollEnd,
    /// The cycles of the commit after it.
    pub commit_cycles: u64,
    /// Host calls by kind.
    pub calls: [Calls; CALL_KINDS.len()],
}

/// The recording of a traced invocation.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// The arrival, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The version of its extension.
    pub version: u32,
    /// The beginning of its function's name.
    pub function: [u8; 64],
    /// Its status.
    pub status: Status,
    /// The cycles from its arrival to its reply.
    pub cycles: u64,
    /// The cycles of the reply.
    pub reply_cycles: u64,
    /// The number of all polls.
    pub polls_made: u64,
    polls: [Poll; TRACE_POLLS_MAX],
    filled: usize,
}

impl Recording {
    /// Returns the recorded polls.
    #[must_use]
    pub fn polls(&self) -> &[Poll] {
        &self.polls[..self.filled]
    }
}

/// Records the events of one invocation at a time.
#[derive(Debug)]
pub struct Recorder {
    recording: Recording,
    /// The counter at the arrival, and at the end of the last event.
    came: u64,
    last: u64,
    /// Nothing is traced before this time, in microseconds.
    rests_until_us: u64,
}

impl Recorder {
    /// Creates an empty recorder.
    #[must_use]
    pub fn new() -> Self {
        let recording = Recording {
            at_ms: 0,
            version: 0,
            function: [0; 64],
            status: Status::Ok,
            cycles: 0,
            reply_cycles: 0,
            polls_made: 0,
            polls: [Poll::default(); TRACE_POLLS_MAX],
            filled: 0,
        };
        Self { recording, came: 0, last: 0, rests_until_us: 0 }
    }

    /// Returns whether it is too early for another recording.
    #[must_use]
    pub fn rests(&self, now_us: u64) -> bool {
        now_us < self.rests_until_us
    }

    /// Starts the recording of an invocation.
    pub fn begin(&mut self, function: &str, version: u32, at_ms: u64) {
        let recording = &mut self.recording;
        (recording.version, recording.at_ms) = (version, at_ms);
        (recording.polls_made, recording.filled) = (0, 0);
        let bytes = function.len().min(recording.function.len());
        recording.function = [0; 64];
        recording.function[..bytes].copy_from_slice(&function.as_bytes()[..bytes]);
        self.came = cycles::now();
        self.last = self.came;
    }

    /// Records the begin of a poll.
    pub fn begin_poll(&mut self) {
        let recording = &mut self.recording;
        recording.polls_made += 1;
        self.last = cycles::now();
        if recording.filled < recording.polls.len() {
            recording.polls[recording.filled] = Poll { at: self.last - self.came, ..Poll::default() };
            recording.filled += 1;
        }
    }

    /// Records a host call.
    pub fn called(&mut self, kind: CallKind, cycles: u64) {
        if let Some(poll) = self.poll() {
            let calls = &mut poll.calls[kind as usize];
            calls.count += 1;
            calls.cycles += cycles;
        }
    }

    /// Records the end of a poll.
    pub fn end_poll(&mut self, end: PollEnd) {
        let now = cycles::now();
        let used = now - self.last;
        self.last = now;
        if let Some(poll) = self.poll() {
            poll.cycles += used;
            poll.end = end;
        }
    }

    /// Records the end of a commit; `conflict` means that it will be retried.
    pub fn committed(&mut self, conflict: bool) {
        let now = cycles::now();
        let used = now - self.last;
        self.last = now;
        if let Some(poll) = self.poll() {
            poll.commit_cycles += used;
            if conflict {
                poll.end = PollEnd::Conflicted;
            }
        }
    }

    /// Ends the recording when the reply is sent, and returns it.
    pub fn end(&mut self, status: Status, now_us: u64) -> &Recording {
        let now = cycles::now();
        self.recording.status = status;
        self.recording.reply_cycles = now - self.last;
        self.recording.cycles = now - self.came;
        self.rests_until_us = now_us + TRACE_REST_US;
        &self.recording
    }

    /// Allows the next recording at once, because this one was not kept.
    pub fn rest_no_more(&mut self) {
        self.rests_until_us = 0;
    }

    fn poll(&mut self) -> Option<&mut Poll> {
        self.recording.polls[..self.recording.filled].last_mut()
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use wire::Status;

    use super::{CallKind, PollEnd, Recorder};
    use crate::limits::TRACE_POLLS_MAX;

    #[test]
    fn parts_add_up_to_no_more_than_the_whole() {
        let mut recorder = Recorder::new();
        recorder.begin(&"f".repeat(100), 3, 7);
        for end in [PollEnd::Yielded, PollEnd::Parked, PollEnd::Ended] {
            recorder.begin_poll();
            recorder.called(CallKind::Put, 5);
            recorder.called(CallKind::Put, 6);
            recorder.end_poll(end);
        }
        recorder.committed(false);
        let recording = *recorder.end(Status::Ok, 1_000);
        let polls = recording.polls();
        assert_eq!((polls.len(), recording.polls_made, recording.version), (3, 3, 3));
        let put = polls[1].calls[CallKind::Put as usize];
        assert_eq!((put.count, put.cycles, polls[1].end), (2, 11, PollEnd::Parked));
        let parts: u64 = polls.iter().map(|poll| poll.cycles + poll.commit_cycles).sum();
        assert!(parts + recording.reply_cycles <= recording.cycles);
        assert!(polls.windows(2).all(|two| two[0].at + two[0].cycles <= two[1].at));
        assert!(recorder.rests(1_000));
        recorder.rest_no_more();
        assert!(!recorder.rests(1_000));
    }

    #[test]
    fn more_polls_than_there_is_room_for_are_added_up() {
        let mut recorder = Recorder::new();
        recorder.begin("f", 1, 0);
        for _ in 0..1_000 {
            recorder.begin_poll();
            recorder.called(CallKind::Get, 1);
            recorder.end_poll(PollEnd::Yielded);
        }
        let recording = recorder.end(Status::ExtensionKilled, 0);
        assert_eq!((recording.polls().len(), recording.polls_made), (TRACE_POLLS_MAX, 1_000));
        let calls: u64 = recording.polls().iter().map(|poll| poll.calls[0].count).sum();
        assert_eq!(calls, 1_000);
    }
}
