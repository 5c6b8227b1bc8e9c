//! The session's stream: carries what no datagram can, and finds its way back when it breaks.
//!
//! Administrative requests use it from the caller's thread. Data requests that are too large go through a
//! thread of their own, started at the first of them, so that polling never waits for a stream; they keep
//! their sequence, so sending one again over a new stream executes nothing twice. Administrative requests
//! have no sequence: one that broke off is reported, never repeated, unless it only reads.
//!
//! ```text
//! poll --Job--> thread --stream--> server
//! poll <--Done-- (and the port's waker)
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use net::Waker;
use wire::{Journey, RecordHeader, Status};

use crate::Error;
use crate::reconnecting_stream::{ReconnectingStream, StreamEntrance};

/// A data request for the stream.
pub(crate) struct Job {
    /// The session it belongs to; an answer for a session that is over is not taken for the next one.
    pub(crate) token: u64,
    pub(crate) tag: u64,
    pub(crate) journey: Journey,
    pub(crate) sequence: u64,
    pub(crate) first_unacknowledged: u64,
    /// No earlier transmission was under a later one.
    pub(crate) view: u64,
    pub(crate) code: u8,
    pub(crate) body: Vec<u8>,
}

/// How it ended.
pub(crate) struct Done {
    pub(crate) job: Job,
    pub(crate) answer: Result<(Status, Vec<u8>), Error>,
}

struct Shared {
    lane: Mutex<ReconnectingStream>,
    done: Mutex<Vec<Done>>,
    waker: Waker,
}

/// The stream of one session.
pub(crate) struct StreamWorker {
    shared: Arc<Shared>,
    jobs: Option<mpsc::Sender<Job>>,
}

impl StreamWorker {
    pub(crate) fn new(lane: ReconnectingStream, waker: Waker) -> StreamWorker {
        let lane = Mutex::new(lane);
        StreamWorker { shared: Arc::new(Shared { lane, done: Mutex::default(), waker }), jobs: None }
    }

    /// Goes on with the stream of a session that was opened anew.
    pub(crate) fn replace(&self, lane: ReconnectingStream) {
        *self.shared.lane() = lane;
    }

    /// Closes the stream until it is needed again.
    pub(crate) fn rest(&self) {
        self.shared.lane().close();
    }

    /// Hands a data request to the thread.
    pub(crate) fn send(&mut self, job: Job) {
        let jobs = self.jobs.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel();
            let shared = Arc::clone(&self.shared);
            // The thread ends when the sender is dropped with the session.
            thread::spawn(move || shared.serve(&receiver));
            sender
        });
        // Nobody receives only when the thread panicked; the job then is as lost as its stream.
        if let Err(mpsc::SendError(job)) = jobs.send(job) {
            self.jobs = None;
            self.shared.finish(job, Err(Error::SessionLost));
        }
    }

    /// Takes what is done.
    pub(crate) fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut self.shared.done.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes an administrative request. `repeatable` ones only read.
    pub(crate) fn administer(
        &self,
        code: u8,
        body: &[u8],
        repeatable: bool,
        timeout: Duration,
    ) -> Result<(Status, Vec<u8>), Error> {
        self.shared.lane().administer(code, body, repeatable, timeout)
    }

    /// Sends the last request, unless the thread is in the middle of one.
    pub(crate) fn send_last(&self, code: u8, body: &[u8]) {
        if let Ok(mut lane) = self.shared.lane.try_lock() {
            lane.send_last(code, body);
        }
    }
}

impl Shared {
    fn lane(&self) -> MutexGuard<'_, ReconnectingStream> {
        // A thread that panicked left at worst a connection in the middle of a record, which answers with
        // nonsense and is then replaced.
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, jobs: &mpsc::Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            let answer = self.carry(&job);
            self.finish(job, answer);
        }
    }

    fn carry(&self, job: &Job) -> Result<(Status, Vec<u8>), Error> {
        let mut lane = self.lane();
        if !matches!(lane.door(), StreamEntrance::Session { token } if *token == job.token) {
            return Err(Error::SessionLost);
        }
        let header = RecordHeader {
            body_bytes: 0,
            code: job.code,
            flags: 0,
            sequence: job.sequence,
            first_unacknowledged: job.first_unacknowledged,
            view: job.view,
        };
        let timeout = lane.call_timeout();
        lane.call(header, &job.body, true, timeout)
    }

    fn finish(&self, job: Job, answer: Result<(Status, Vec<u8>), Error>) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(Done { job, answer });
        self.waker.wake();
    }
}
