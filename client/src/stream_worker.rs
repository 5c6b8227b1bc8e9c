//! The session's stream: carries messages too large for datagrams, and reconnects when it breaks.
//!
//! The caller's thread sends administrative requests over it. Large data requests go through a separate thread, started
//! at the first of them, so that polling never waits for a stream; they keep their sequence, so a retransmission over a
//! new stream executes nothing twice. Administrative requests have no sequence: an interrupted one is reported and
//! never repeated, unless it only reads.
//!
//! ```text
//! poll --Job--> thread --stream--> server
//! poll <--Done-- (and the port's waker)
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::thread;

use net::{StreamCloser, Waker};
use wire::{RecordHeader, Status};

use crate::Error;
use crate::connection::Opening;
use crate::owned_request::OwnedRequest;
use crate::reconnecting_stream::ReconnectingStream;

/// A data request for the stream.
pub(crate) struct Job {
    /// The session that sent it, over whose stream it travels.
    pub(crate) token: u64,
    /// The client of that session, whose sequence it has. The reply must not go to another client.
    pub(crate) client_id: u64,
    pub(crate) request: OwnedRequest,
    pub(crate) sequence: u64,
    pub(crate) first_unacknowledged: u64,
    /// View of the request; no earlier transmission was under a later one.
    pub(crate) view: u64,
}

/// The outcome of a job.
pub(crate) struct Done {
    pub(crate) job: Job,
    pub(crate) answer: Result<(Status, Vec<u8>), Error>,
}

struct Shared {
    stream: Mutex<ReconnectingStream>,
    done: Mutex<Vec<Done>>,
    waker: Waker,
    /// The token of a session whose jobs come back unanswered, or 0.
    interrupted: AtomicU64,
    /// What ends the call of the job under way.
    under_way: Mutex<Option<StreamCloser>>,
}

/// The stream of one session.
pub(crate) struct StreamWorker {
    shared: Arc<Shared>,
    jobs: Option<mpsc::Sender<Job>>,
}

impl StreamWorker {
    pub(crate) fn new(stream: ReconnectingStream, waker: Waker) -> StreamWorker {
        let (stream, done, under_way) = (Mutex::new(stream), Mutex::default(), Mutex::default());
        let shared = Shared { stream, done, waker, interrupted: AtomicU64::new(0), under_way };
        StreamWorker { shared: Arc::new(shared), jobs: None }
    }

    /// Ends all jobs of a session without an answer: its server answers nothing, or is gone. A call that is about to connect
    /// ends when that does.
    pub(crate) fn interrupt(&self, token: u64) {
        self.shared.interrupted.store(token, Ordering::SeqCst);
        if let Some(closer) = self.shared.under_way().take() {
            closer.close();
        }
    }

    /// Goes on with another stream.
    pub(crate) fn replace(&self, stream: ReconnectingStream) {
        *self.shared.stream() = stream;
        self.shared.interrupted.store(0, Ordering::SeqCst);
    }

    /// Locks the stream; waits while the thread uses it.
    pub(crate) fn stream(&self) -> MutexGuard<'_, ReconnectingStream> {
        self.shared.stream()
    }

    /// Returns whether the thread does not use the stream now.
    pub(crate) fn is_free(&self) -> bool {
        !matches!(self.shared.stream.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Sends a data request to the thread.
    pub(crate) fn send(&mut self, job: Job) {
        let jobs = self.jobs.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel();
            let shared = Arc::clone(&self.shared);
            // The thread ends when the sender is dropped with the session.
            thread::spawn(move || shared.serve(&receiver));
            sender
        });
        // The receiver is gone only if the thread panicked; the job is then lost like its stream.
        if let Err(mpsc::SendError(job)) = jobs.send(job) {
            self.jobs = None;
            self.shared.finish(job, Err(Error::SessionLost));
        }
    }

    /// Returns the completed jobs.
    pub(crate) fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut self.shared.done.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends a session, unless the thread is busy with a request.
    pub(crate) fn end_session(&self, client_id: u64) {
        if let Ok(mut stream) = self.shared.stream.try_lock() {
            stream.end_session(client_id);
        }
    }
}

impl Shared {
    fn stream(&self) -> MutexGuard<'_, ReconnectingStream> {
        // A thread that panicked left at worst a connection in the middle of a record: its next reply cannot be
        // decoded, and the connection is replaced.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, jobs: &mpsc::Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            let answer = self.carry(&job);
            self.finish(job, answer);
        }
    }

    fn under_way(&self) -> MutexGuard<'_, Option<StreamCloser>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carry(&self, job: &Job) -> Result<(Status, Vec<u8>), Error> {
        let mut stream = self.stream();
        let is_its = matches!(&stream.opening, Opening::Attach { token } if *token == job.token);
        *self.under_way() = stream.closer();
        let goes_on = || self.interrupted.load(Ordering::SeqCst) != job.token;
        if !is_its || !goes_on() {
            return Err(Error::SessionLost);
        }
        let header = RecordHeader {
            code: job.request.code,
            flags: job.request.journey.flags(),
            sequence: job.sequence,
            first_unacknowledged: job.first_unacknowledged,
            view: job.view,
            ..RecordHeader::default()
        };
        let timeout = stream.config.call_timeout;
        let answer = stream.call(header, &job.request.body, &goes_on, timeout);
        *self.under_way() = None;
        if answer.is_ok() || goes_on() { answer } else { Err(Error::SessionLost) }
    }

    fn finish(&self, job: Job, answer: Result<(Status, Vec<u8>), Error>) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(Done { job, answer });
        self.waker.wake();
    }
}
