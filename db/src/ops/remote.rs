//! What invocations ask of other servers of the cluster: on its way to the thread that asks, and what came of it.
//!
//! ```text
//!   host call ── Want ──► [ queue of a bounded number, without locks ] ──► the thread that asks ──► another server
//!   host call ◄── Outcome ── the invocation, by its number ◄── Answer ── queue of changes of the worker
//! ```
//! A read of an object is what its owner had at some time between the question and the answer. A commit does not look at it
//! again: see "Reads at other servers" in docs/notes.md. Whoever asks waits for nobody: where there is no room it is told so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::Waker;

use crate::limits::REMOTE_WANTS_MAX;
use crate::sched::offers::Offers;
use crate::tenant::TenantId;
use crate::tenant::remote::{RemotePlace, RemoteValue};

/// Who asks: what an answer names.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Asker {
    /// The worker of the invocation.
    pub worker: u16,
    /// The number of the invocation among those that ask.
    pub invocation: u64,
    /// The number of the read.
    pub read: u64,
}

/// An object that an invocation wants to read at another server.
#[derive(Debug)]
pub struct Want {
    /// Who asks.
    pub asker: Asker,
    /// Whose tables it may read.
    pub tenant: TenantId,
    /// The tenant's table, by its number in the cluster.
    pub table: u32,
    /// [`store::hash`] of the key.
    pub hash: u64,
    /// The key.
    pub key: Box<[u8]>,
    /// Which server has what of the table, encoded, as the worker knows it.
    pub map: Arc<[u8]>,
    /// What the tenant's share is counted by.
    pub place: RemotePlace,
}

/// What became of a read.
#[derive(Clone, Debug)]
pub enum RemoteOutcome {
    /// The object, and its version.
    Found(u64, Arc<RemoteValue>),
    /// There is none.
    Absent,
    /// It is this server's by now.
    Here,
    /// No server that has it answered in time.
    Away,
    /// The tenant has as many bytes under way as it may.
    NoRoom,
}

/// The answer to a [`Want`].
#[derive(Clone, Debug)]
pub struct RemoteAnswer {
    /// To whom.
    pub asker: Asker,
    /// What.
    pub outcome: RemoteOutcome,
}

/// The queue; see the file's head.
pub struct RemoteReads {
    wants: Offers<Want>,
    waker: Waker,
    numbers: AtomicU64,
}

impl RemoteReads {
    /// An empty one; the waker wakes who asks.
    #[must_use]
    pub fn new(waker: Waker) -> Self {
        Self { wants: Offers::new(REMOTE_WANTS_MAX), waker, numbers: AtomicU64::new(1) }
    }

    /// A number that nobody had.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks. False where too many wait.
    #[must_use]
    pub fn ask(&self, want: Want) -> bool {
        let is_queued = self.wants.put(want).is_ok();
        if is_queued {
            self.waker.wake();
        }
        is_queued
    }

    /// What was asked first, for who asks other servers.
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
