//! Changes from the control plane to workers: one queue per worker, read between two batches.
//!
//! Control threads put a [`Change`] into every worker's queue and wait until all have taken it before they answer the
//! client, so that a new session, table or extension works on every core. An empty queue costs a worker one relaxed
//! load per round. Workers never wait for control threads, not even for one that lost its core while it sends: see
//! [`Inbox`]. The number of control threads bounds the queue, because each waits for its own change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use net::Waker;
use store::{AwaitedCuts, Inbox, Pinned, ReplayError, Replayed, RequestId, Table, Taken, WriteError};
use wire::TenantId;

use super::Cut;
use crate::extension::ActiveVersions;
use crate::limits::CHANGE_TIMEOUT_MS;
use crate::ops::remote::RemoteAnswer as Answered;
use crate::session::{Session, StreamAnswer};
use crate::sync::oneshot::{Sender, oneshot};
use crate::tablet::TableEntry;

/// A message to a worker.
#[derive(Clone)]
pub enum Change {
    /// The session is open.
    SessionOpened(Arc<Session>),
    /// The session of this token has ended.
    SessionClosed(u64),
    /// The table can be used from now on.
    TableCreated(Arc<TableEntry>),
    /// A new view begins, with the tables whose ownership changed.
    Cut(Arc<Cut>),
    /// The table is gone.
    TableDropped(u32),
    /// The versions of an extension that can be invoked from now on, replacing the previous ones.
    ExtensionSettled(Arc<ActiveVersions>),
    /// The extension cannot be invoked any more.
    ExtensionRemoved(u32),
    /// The tenant is gone, with everything that it had.
    TenantDropped(TenantId),
    /// Requests that wait for objects of an arriving part may continue.
    Wake(Arc<Wake>),
    /// Answers of other servers to invocations' reads.
    Answers(Arc<[Answered]>),
    /// Reads that another server requests for its invocations.
    Reads(Arc<PeerReads>),
    /// Objects of an archive to be stored.
    Restore(Arc<ArchivedObjects>),
    /// Replies of requests from before a table came to the disk.
    Record(Arc<EarlierReplies>),
    /// A data request of a stream.
    Request(Arc<StreamRequest>),
    /// The worker stops after this round.
    Stop,
}

/// A record of another server's questions, to be answered by a worker.
pub struct PeerReads {
    pub(crate) record: Vec<u8>,
    /// Gets `None` if the record is invalid.
    pub(crate) answer: Sender<Option<PeerAnswer>>,
}

/// The answer to a record of questions: one or two records.
#[derive(Debug)]
pub struct PeerAnswer {
    /// What shows nothing that the disk, or backups, are to have first.
    pub(crate) now: Option<Vec<u8>>,
    /// What does.
    pub(crate) of_cut: Option<PeerAnswerOfCut>,
}

/// Answers that show what the disk, or backups, are to have first.
#[derive(Debug)]
pub struct PeerAnswerOfCut {
    /// The cuts of the log that include it.
    pub(crate) cuts: AwaitedCuts,
    /// The record of answers.
    pub(crate) body: Vec<u8>,
    /// The one in place of it that refuses: the questions come later.
    pub(crate) later: Vec<u8>,
}

/// Objects of an archive on their way to a table, stored by one worker in one turn.
pub struct ArchivedObjects {
    pub(crate) tenant: TenantId,
    pub(crate) table: u32,
    /// Entries as a log has them.
    pub(crate) entries: Vec<u8>,
    pub(crate) answer: Sender<RestoredObjects>,
}

/// The reason why an object of an archive is not stored.
#[derive(Debug)]
pub enum NotRestored {
    /// Another server owns its key.
    NotOwned,
    /// The store's.
    Store(ReplayError),
}

/// What a worker has done of them.
#[derive(Debug, Default)]
pub struct RestoredObjects {
    /// Bytes of the entries that are stored, or need not be.
    pub(crate) done_bytes: usize,
    /// The entries among these.
    pub(crate) counts: Replayed,
    /// The reason why the rest is not stored.
    pub(crate) refused: Option<NotRestored>,
    /// The cuts of the log that include what is stored.
    pub(crate) cuts: AwaitedCuts,
}

/// Replies to requests that may have written to a table in memory, which has come to the disk since: they go there too, so
/// that no copy of these requests executes after a crash that their effects survive.
pub struct EarlierReplies {
    /// The table.
    pub part: Arc<Table>,
    /// Each reply in the form of a completion record.
    pub replies: Vec<(RequestId, Vec<u8>)>,
    pub(crate) answer: Sender<Result<(), WriteError>>,
}

impl EarlierReplies {
    /// Appends the replies to the log of a worker, and answers. Some may be there if it is refused.
    pub fn record(&self, pinned: &Pinned<'_>) {
        let mut all = self.replies.iter();
        let recorded = all.try_for_each(|(request, reply)| pinned.record_reply(&self.part, *request, reply));
        // The control thread may have given up waiting.
        self.answer.send(recorded);
    }
}

impl Change {
    /// Returns true if objects of a table may be elsewhere from now on.
    #[must_use]
    pub fn moves_tables(&self) -> bool {
        matches!(self, Self::Cut(_) | Self::TableDropped(_) | Self::TenantDropped(_))
    }

    /// Returns true if it ends sessions.
    #[must_use]
    pub fn ends_sessions(&self) -> bool {
        matches!(self, Self::SessionClosed(_) | Self::TenantDropped(_))
    }
}

/// Hashes of an arriving part that need not be waited for any more.
#[derive(Debug)]
pub struct Wake {
    /// The part's number in the store.
    pub part: u32,
    /// Hashes whose objects have arrived, or never will; `None`: all.
    pub hashes: Option<Box<[u64]>>,
}

/// A data request received over a stream.
pub struct StreamRequest {
    /// The session.
    pub session: Arc<Session>,
    /// The request's number in the session.
    pub sequence: u64,
    /// The oldest sequence that the client has not acknowledged.
    pub first_unacknowledged: u64,
    /// The view under which it was sent.
    pub view: u64,
    /// The opcode.
    pub opcode: u8,
    /// The request's flags.
    pub flags: u8,
    /// The whole record as received.
    pub record: Vec<u8>,
    /// Bytes of the record before the request's body.
    pub head_bytes: usize,
    /// Receives the answer.
    pub answer: Sender<StreamAnswer>,
}

impl StreamRequest {
    /// Returns the request's body.
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
    /// Number of envelopes not taken yet, raised before they are in the queue.
    waiting: AtomicUsize,
}

/// The worker's end of its queue.
pub struct Changes {
    queue: Arc<ChangeQueue>,
    /// Envelopes that were taken out of the queue and not applied yet.
    taken: Taken<Envelope>,
}

impl Changes {
    /// Returns true if no change waits. Cost: one relaxed load.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.waiting.load(Ordering::Relaxed) == 0
    }

    /// Takes the next change, passes it to `apply`, then acknowledges it. Returns false if there was none.
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

/// Closes the queue, so that senders which wait for the remaining changes get an error.
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

/// Creates a queue for a worker that `waker` wakes.
#[must_use]
pub fn change_queue(waker: Waker) -> (ChangeSender, Changes) {
    let queue = Arc::new(ChangeQueue { inbox: Inbox::new(), waiting: AtomicUsize::new(0) });
    (ChangeSender { queue: Arc::clone(&queue), waker }, Changes { queue, taken: Taken::default() })
}

impl ChangeSender {
    /// Wakes the worker.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Queues a change. Returns false if the worker has ended.
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

/// The error that a worker has ended or does not respond; others may have applied the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerMissing;

/// Sends a change to all workers and waits until each has taken it.
///
/// # Errors
/// If a worker has ended or does not acknowledge in time.
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
