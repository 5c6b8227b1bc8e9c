//! The client's limits, each with its unit and its reason.

use std::time::Duration;

/// Time before the next server of a list is tried in parallel. A healthy server connects in a hundredth of it.
pub(crate) const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(50);
/// Maximum number of addresses in a list; each may take a thread.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// Maximum number of frames that one poll sends before it receives.
pub(crate) const OUTBOX_FRAMES: usize = 64;

/// Time before the next server is asked for a map too, in microseconds. Fifty times the time of a healthy server, and
/// little compared with the time of a call. Doubles with each server asked for the same map, so that slow servers do
/// not get requests from all clients at once. Each server has one map request at a time; so at
/// most [`wire::limits::SERVERS_MAX`] are open, and within a call of five seconds nine.
pub(crate) const NEXT_MAP_AFTER_US: u64 = 10_000;

/// Time after its submission for which a mutation may be sent again in a resumed session, in microseconds. The server may
/// have ended the former session, and forgotten with it what was executed, once it had not heard from the client for
/// [`wire::limits::SESSION_IDLE_MS`]; the difference allows for clocks that run at different rates.
pub(crate) const RESEND_AGE_US_MAX: u64 = 50_000_000;

/// Number of times that a transaction is run before its conflict is the caller's.
pub(crate) const TRANSACTION_ATTEMPTS_MAX: u32 = 32;
/// Longest pause behind the first conflict of a transaction, in microseconds; it doubles with each. A random part of it is waited, so
/// that two that conflict do not meet again.
pub(crate) const TRANSACTION_WAIT_US: u64 = 50;
/// The same behind any, in microseconds.
pub(crate) const TRANSACTION_WAIT_US_MAX: u64 = 10_000;

/// Largest module that is read: the server's limit for modules.
pub(crate) const MODULE_BYTES_MAX: u64 = 2 << 20;
#[cfg(feature = "modules")]
const _: () = assert!(MODULE_BYTES_MAX == builder::limits::MODULE_BYTES_MAX as u64);
/// Fewest bytes of a piece of it, except the last.
pub(crate) const MODULE_PIECE_BYTES_MIN: u64 = 64 << 10;
/// Processor time of a module's function after which others get their turn, in microseconds.
#[cfg(feature = "modules")]
pub(crate) const MODULE_SLICE_US: u64 = 1_000;
/// Instances of modules that a thread keeps for later invocations: some tens of KiB each, and 4 GiB of addresses.
#[cfg(feature = "modules")]
pub(crate) const MODULE_INSTANCES_KEPT: usize = 64;
/// Kept bytes of the text of a module's panic, as at the server.
#[cfg(feature = "modules")]
pub(crate) const PANIC_TEXT_BYTES_MAX: usize = 512;

const _: () = assert!(RESEND_AGE_US_MAX * 6 / 5 <= wire::limits::SESSION_IDLE_MS * 1_000);
