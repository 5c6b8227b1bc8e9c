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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::thread;

use net::Waker;
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
}

/// The stream of one session.
pub(crate) struct StreamWorker {
    shared: Arc<Shared>,
    jobs: Option<mpsc::Sender<Job>>,
}

impl StreamWorker {
    pub(crate) fn new(stream: ReconnectingStream, waker: Waker) -> StreamWorker {
        let stream = Mutex::new(stream);
        StreamWorker { shared: Arc::new(Shared { stream, done: Mutex::default(), waker }), jobs: None }
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

    fn carry(&self, job: &Job) -> Result<(Status, Vec<u8>), Error> {
        let mut stream = self.stream();
        if !matches!(&stream.opening, Opening::Attach { token } if *token == job.token) {
            return Err(Error::SessionLost);
        }
        let header = RecordHeader {
            code: job.request.code,
            flags: job.request.journey.durability.flags(),
            sequence: job.sequence,
            first_unacknowledged: job.first_unacknowledged,
            view: job.view,
            ..RecordHeader::default()
        };
        let timeout = stream.config.call_timeout;
        stream.call(header, &job.request.body, true, timeout)
    }

    fn finish(&self, job: Job, answer: Result<(Status, Vec<u8>), Error>) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(Done { job, answer });
        self.waker.wake();
    }
}
