//! The operations on objects: every read or write for a tenant goes through here.
//!
//! The dispatcher and an extension's host calls use the same operations, so each check (today the owner of the table;
//! later quotas, views, durability) stands in one place, and so does the mapping from errors of the store to statuses.
//! Operations run on the worker's thread under its epoch pin and never block.

pub mod commit;
pub mod read;
pub mod remote;
pub mod transaction;
pub mod write;

use crate::metrics::WorkerMetrics;
use crate::tablet::Tables;
use remote::RemoteReads;

/// The environment that a worker lends to its code for one round of its loop.
#[derive(Clone, Copy)]
pub struct WorkerEnvironment<'w> {
    /// The worker's handle of the store, which holds and releases pins.
    pub core: &'w store::Core,
    /// The pin of this round.
    pub pin: &'w store::Pinned<'w>,
    /// The tables known to this worker.
    pub tables: &'w Tables,
    /// The worker's counters.
    pub metrics: &'w WorkerMetrics,
    /// The queue of reads at other servers; `None` if this server is alone.
    pub remote: Option<&'w RemoteReads>,
    /// Monotonic time of this round, in microseconds.
    pub now_us: u64,
    /// Time of day of this round, in milliseconds since the Unix epoch.
    pub wall_ms: u64,
}
