//! Invocations' reads at other servers of the cluster: their way to the remote thread, and their outcomes.
//!
//! ```text
//!   host call ── Want ──► [ bounded lock-free queue ] ──► remote thread ──► another server
//!   host call ◄── RemoteOutcome ── invocation, by its number ◄── RemoteAnswer ── the worker's queue of changes
//! ```
//! A read returns the owner's object at some time between request and reply. The commit does not validate it: see
//! "Reads at other servers" in docs/notes.md. The caller never waits: a full queue refuses the read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::Waker;
use wire::TenantId;

use crate::limits::REMOTE_WANTS_MAX;
use crate::sched::Offers;
use crate::tenant::account::{RemotePlace, RemoteValue};

/// The origin of a read, which the reply names.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Asker {
    /// The worker of the invocation.
    pub worker: u16,
    /// The number of the invocation among those with remote reads.
    pub invocation: u64,
    /// The number of the read.
    pub read: u64,
}

/// An invocation's request for an object of another server.
#[derive(Debug)]
pub struct Want {
    /// The origin of the request.
    pub asker: Asker,
    /// The tenant whose tables it may read.
    pub tenant: TenantId,
    /// The tenant's table, by its number in the cluster.
    pub table: u32,
    /// [`store::hash`] of the key.
    pub hash: u64,
    /// The key.
    pub key: Box<[u8]>,
    /// The table's encoded tablet map, as the worker knows it.
    pub map: Arc<[u8]>,
    /// The tenant's share of reads in flight.
    pub place: RemotePlace,
    /// Whether the answer waits until the disk has what it shows, also of a table that does not promise that.
    pub for_disk: bool,
}

/// The outcome of a read.
#[derive(Clone, Debug)]
pub enum RemoteOutcome {
    /// The object's version and value.
    Found(u64, Arc<RemoteValue>),
    /// The object does not exist.
    Absent,
    /// This server owns it by now.
    Here,
    /// No server that owns it replied in time.
    Away,
    /// The tenant has its maximum of bytes in flight.
    NoRoom,
}

/// The reply to a [`Want`].
#[derive(Clone, Debug)]
pub struct RemoteAnswer {
    /// The origin of the read.
    pub asker: Asker,
    /// The outcome of the read.
    pub outcome: RemoteOutcome,
}

/// The bounded queue of reads at other servers.
pub struct RemoteReads {
    wants: Offers<Want>,
    waker: Waker,
    numbers: AtomicU64,
}

impl RemoteReads {
    /// Creates an empty queue; `waker` wakes the remote thread.
    #[must_use]
    pub fn new(waker: Waker) -> Self {
        Self { wants: Offers::new(REMOTE_WANTS_MAX), waker, numbers: AtomicU64::new(1) }
    }

    /// Returns a new unique number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Queues a read. Returns false if too many wait.
    #[must_use]
    pub fn ask(&self, want: Want) -> bool {
        let is_queued = self.wants.put(want).is_ok();
        if is_queued {
            self.waker.wake();
        }
        is_queued
    }

    /// Takes the oldest request, for the remote thread.
    #[must_use]
    pub fn take(&self) -> Option<Want> {
        self.wants.take()
    }
}

impl std::fmt::Debug for RemoteReads {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RemoteReads").finish_non_exhaustive()
    }
}
