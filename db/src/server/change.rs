//! What the control plane tells a worker, and how: one queue per worker, looked at between two batches.
//!
//! Control threads put a [`Change`] into every worker's queue and wait until all have taken it before they
//! answer the client, so that a fresh session, table or extension works on every core. An empty queue
//! costs a worker one relaxed load per round. Workers never wait for control threads, also not for one that lost its core
//! while it sends: see [`Inbox`]. What fills the queue is bounded by the number of control threads, each of which waits for
//! its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use net::Waker;
use store::{Inbox, Taken};

use super::view::Cut;
use crate::extension::active_versions::ActiveVersions;
use crate::limits::CHANGE_TIMEOUT_MS;
use crate::ops::remote::RemoteAnswer as Answered;
use crate::session::{Session, StreamAnswer};
use crate::sync::oneshot::{Sender, oneshot};
use crate::tablet::TableEntry;
use crate::tenant::TenantId;

/// A message to a worker.
#[derive(Clone)]
pub enum Change {
    /// Requests of this session are served from now on.
    SessionOpened(Arc<Session>),
    /// The session of this token is over.
    SessionClosed(u64),
    /// The table can be used from now on.
    TableCreated(Arc<TableEntry>),
    /// Another view begins, with what is owned under it.
    Cut(Arc<Cut>),
    /// The table is gone.
    TableDropped(u32),
    /// These versions of an extension can be invoked from now on, in place of what was known of it.
    ExtensionSettled(Arc<ActiveVersions>),
    /// The extension cannot be invoked any more.
    ExtensionRemoved(u32),
    /// The tenant is gone with all it had.
    TenantDropped(TenantId),
    /// What waits for objects of an arriving part may go on.
    Wake(Arc<Wake>),
    /// What invocations asked other servers is answered.
    Answers(Arc<[Answered]>),
    /// What another server asks for its invocations.
    Reads(Arc<PeerReads>),
    /// A data request that came over a stream.
    Request(Arc<StreamRequest>),
    /// The worker ends after this round.
    Stop,
}

/// A record of questions on its way through a worker.
pub struct PeerReads {
    pub(super) record: Vec<u8>,
    /// Takes the body of the answer; one without bytes for what is no record of questions.
    pub(super) answer: Sender<Vec<u8>>,
}

impl Change {
    /// Whether what was to be found of a table may be elsewhere from now on.
    #[must_use]
    pub fn moves_tables(&self) -> bool {
        matches!(self, Self::Cut(_) | Self::TableDropped(_) | Self::TenantDropped(_))
    }

    /// Whether sessions are over with it.
    #[must_use]
    pub fn ends_sessions(&self) -> bool {
        matches!(self, Self::SessionClosed(_) | Self::TenantDropped(_))
    }
}

/// What of an arriving part need not be waited for any more.
#[derive(Debug)]
pub struct Wake {
    /// The part's number in the store.
    pub part: u32,
    /// The hashes whose objects are here, or will never be; `None`: all.
    pub hashes: Option<Box<[u64]>>,
}

/// A data request that came over a stream.
pub struct StreamRequest {
    /// Whose it is.
    pub session: Arc<Session>,
    /// Its number in the session.
    pub sequence: u64,
    /// What the client has acknowledged.
    pub first_unacknowledged: u64,
    /// The view under which it was sent.
    pub view: u64,
    /// Which request.
    pub opcode: u8,
    /// The whole record, as it came.
    pub record: Vec<u8>,
    /// Bytes of the record before the request's body.
    pub head_bytes: usize,
    /// Takes the one answer.
    pub answer: Sender<StreamAnswer>,
}

impl StreamRequest {
    /// The request's body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.record[self.head_bytes..]
    }
}

struct Envelope {
    change: Change,
    taken: Option<Sender<()>>,
}

struct ChangeQueue {
    inbox: Inbox<Envelope>,
    /// Envelopes that were not taken, counted before they are there.
    waiting: AtomicUsize,
}

/// The worker's end of its queue.
pub struct Changes {
    queue: Arc<ChangeQueue>,
    /// What was taken out of the queue and is still to be applied.
    taken: Taken<Envelope>,
}

impl Changes {
    /// Whether something waits: one relaxed load.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.waiting.load(Ordering::Relaxed) == 0
    }

    /// Takes the next change and hands it to `apply`; then tells the sender. False when there was none.
    pub fn take(&mut self, apply: impl FnOnce(Change)) -> bool {
        let Some(envelope) = self.taken.next().or_else(|| {
            self.taken = self.queue.inbox.take_all();
            self.taken.next()
        }) else {
            return false;
        };
        self.queue.waiting.fetch_sub(1, Ordering::Relaxed);
        apply(envelope.change);
        if let Some(taken) = envelope.taken {
            // The sender may have given up waiting.
            taken.send(());
        }
        true
    }
}

/// Whoever waits for what is left hears that nobody takes it.
impl Drop for Changes {
    fn drop(&mut self) {
        drop(self.queue.inbox.close());
    }
}

/// A control thread's end of one worker's queue.
#[derive(Clone)]
pub struct ChangeSender {
    queue: Arc<ChangeQueue>,
    waker: Waker,
}

/// A queue for a worker that `waker` wakes.
#[must_use]
pub fn change_queue(waker: Waker) -> (ChangeSender, Changes) {
    let queue = Arc::new(ChangeQueue { inbox: Inbox::new(), waiting: AtomicUsize::new(0) });
    (ChangeSender { queue: Arc::clone(&queue), waker }, Changes { queue, taken: Taken::default() })
}

impl ChangeSender {
    /// Puts a change into the queue. False when the worker has ended.
    pub fn send(&self, change: Change) -> bool {
        self.put(Envelope { change, taken: None })
    }

    fn put(&self, envelope: Envelope) -> bool {
        self.queue.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = self.queue.inbox.push(envelope).is_ok();
        if sent {
            self.waker.wake();
        } else {
            self.queue.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        sent
    }
}

/// A worker has ended or does not come back; the change may be known to some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerMissing;

/// Tells all workers and waits until each has taken the change.
///
/// # Errors
/// When a worker has ended or does not answer in time.
pub fn broadcast(workers: &[ChangeSender], change: &Change) -> Result<(), WorkerMissing> {
    let mut acknowledgements = Vec::with_capacity(workers.len());
    for worker in workers {
        let (taken, acknowledgement) = oneshot();
        if !worker.put(Envelope { change: change.clone(), taken: Some(taken) }) {
            return Err(WorkerMissing);
        }
        acknowledgements.push(acknowledgement);
    }
    for acknowledgement in acknowledgements {
        let timeout = Duration::from_millis(CHANGE_TIMEOUT_MS);
        acknowledgement.receive_within(timeout).map_err(|_| WorkerMissing)?;
    }
    Ok(())
}
