//! Limits of what waits for objects that have still to arrive.

use super::MIGRATION_RETRY_US;

/// Requests that wait at one worker: some milliseconds of work when all go on at once.
pub const PARKED_REQUESTS_MAX: usize = 8_192;
/// Bytes that those take.
pub const PARKED_BYTES_MAX: usize = 16 << 20;
/// Requests of one tenant that wait at one worker: eight sessions' credits.
pub const TENANT_PARKED_REQUESTS_MAX: usize = 2_048;
/// Bytes that those take: room for the longest requests of a stream.
pub const TENANT_PARKED_BYTES_MAX: usize = 4 << 20;
/// What one counts for besides its bytes.
pub const PARKED_REQUEST_BYTES: usize = 256;
/// What each hash counts for that it waits for.
pub const PARKED_HASH_BYTES: usize = 64;
/// Requests that go on in one round of a worker: a batch of them.
pub const UNPARKED_PER_ROUND: usize = 256;
/// Microseconds after which one that still waits is told to come again: many priority pulls, and well within the time
/// after which clients give up.
pub const PARKED_US_MAX: u64 = 1_000_000;
/// What one is told to wait, in microseconds, for which there is no room, or that is about all of a table of which a part
/// has still to arrive.
pub const RETRY_ARRIVING_US: u32 = 20_000;

const _: () = assert!(PARKED_US_MAX > 10 * MIGRATION_RETRY_US);
const _: () = assert!(TENANT_PARKED_BYTES_MAX > wire::limits::STREAM_BODY_BYTES_MAX + PARKED_REQUEST_BYTES);
const _: () = assert!(TENANT_PARKED_BYTES_MAX > wire::limits::MULTI_GET_KEYS_MAX * PARKED_HASH_BYTES);
