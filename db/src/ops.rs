//! The waist: everything that reads or writes objects for a tenant goes through here.
//!
//! The dispatcher and an extension's host calls use the same operations, so what is checked (whose table it
//! is; later: quotas, views, durability) is checked in one place, and errors of the store become statuses
//! in one place. Operations run on the worker's thread under its epoch pin and never block.

pub mod enumerate;
pub mod read;
pub mod remote;
pub mod scan;
pub mod transaction;
pub mod write;

use crate::metrics::WorkerMetrics;
use crate::tablet::Tables;
use remote::RemoteReads;

/// What a worker lends to whatever runs on it, for one round of its loop.
#[derive(Clone, Copy)]
pub struct WorkerEnvironment<'w> {
    /// The worker's handle of the store: to hold and release pins.
    pub core: &'w store::Core,
    /// The pin of this round.
    pub pin: &'w store::Pinned<'w>,
    /// The tables that this worker knows.
    pub tables: &'w Tables,
    /// The worker's counters.
    pub metrics: &'w WorkerMetrics,
    /// Where to ask for what other servers have; nothing where this server is alone.
    pub remote: Option<&'w RemoteReads>,
    /// Monotonic time of this round, in microseconds.
    pub now_us: u64,
    /// Time of day of this round, in milliseconds since the Unix epoch.
    pub wall_ms: u64,
}
