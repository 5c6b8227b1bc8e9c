//! Limits of pending requests, which wait for objects in transit.

use cluster::limits::MIGRATION_RETRY_US;

/// Pending requests of one worker: some milliseconds of work if all continue at once.
pub const PENDING_REQUESTS_MAX: usize = 8_192;
/// Bytes of the pending requests of one worker.
pub const PENDING_BYTES_MAX: usize = 16 << 20;
/// Pending requests of one tenant at one worker: eight sessions' credits.
pub const TENANT_PENDING_REQUESTS_MAX: usize = 2_048;
/// Bytes of the pending requests of one tenant at one worker: room for the longest requests of a stream.
pub const TENANT_PENDING_BYTES_MAX: usize = 4 << 20;
/// Bytes that a pending request counts for in addition to its own.
pub const PENDING_REQUEST_BYTES: usize = 256;
/// Bytes that each hash counts for that a pending request waits for.
pub const PENDING_HASH_BYTES: usize = 64;
/// Pending requests that continue in one round of a worker: a batch of them.
pub const RESUMED_PER_ROUND: usize = 256;
/// Microseconds after which a pending request gets `Retry`: many priority pulls, and well within the clients' timeout.
pub const PENDING_US_MAX: u64 = 1_000_000;
/// `Retry` delay in microseconds of a request for which there is no room, or that concerns a whole table of which a
/// part is still arriving.
pub const RETRY_ARRIVING_US: u32 = 20_000;

const _: () = assert!(PENDING_US_MAX > 10 * MIGRATION_RETRY_US);
const _: () = assert!(TENANT_PENDING_BYTES_MAX > wire::limits::STREAM_BODY_BYTES_MAX + PENDING_REQUEST_BYTES);
const _: () = assert!(TENANT_PENDING_BYTES_MAX > wire::limits::MULTI_GET_KEYS_MAX * PENDING_HASH_BYTES);
