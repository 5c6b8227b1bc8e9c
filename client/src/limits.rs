//! The client's limits, each with its unit and its reason.

use std::time::Duration;

/// How long a server of a list may take to open a connection until the next one is tried beside it: a hundred times what a
/// healthy one takes.
pub(crate) const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(50);
/// Addresses of a list, each of which may take a thread.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// How long a server may take to answer with the map of a table until the next one is asked too, in microseconds: fifty times
/// what a healthy one takes, and little beside the time of a call. Doubled with each server that is asked for the same map, so
/// that servers which are merely slow are not asked for it by everybody at once. Each server has one question for a map at a
/// time; so at most [`wire::limits::SERVERS_MAX`] are open, and within a call of five seconds nine.
pub(crate) const NEXT_MAP_AFTER_US: u64 = 10_000;
