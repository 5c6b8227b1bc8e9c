//! Limits of invocations' reads at other servers of the cluster.

use super::{ARENA_BYTES, INVOCATION_WALL_US_MAX};

/// Maximum duration of such a read with all attempts, in microseconds: longer than a tablet takes to change owners,
/// and within the age of an invocation, so that the invocation learns of the failure and can react.
pub const REMOTE_READ_US_MAX: u64 = 500_000;
/// Additional time that a worker waits for the answer, in microseconds: needed only if the thread `remote` is delayed.
pub const REMOTE_READ_SLACK_US: u64 = 250_000;
/// Initial delay before a read is repeated, at a server that could not answer yet or at the object's new owner, in
/// microseconds. Doubled with every attempt.
pub const REMOTE_PAUSE_US: u64 = 500;
/// Maximum delay before a read is repeated, in microseconds.
pub const REMOTE_PAUSE_US_MAX: u64 = 20_000;
/// Delay before a connection to a server that refused one is retried, in microseconds.
pub const REMOTE_REOPEN_US: u64 = 100_000;
/// Interval at which the thread `remote` looks around while reads are open, in milliseconds.
pub const REMOTE_LOOK_MS: u64 = 10;
/// Interval at which it looks around without open reads, in milliseconds: it is woken for the next one.
pub const REMOTE_IDLE_MS: u64 = 200;

/// Reads of all workers that wait for the thread `remote`: a few rounds of them.
pub const REMOTE_WANTS_MAX: usize = 4_096;
/// Concurrent reads of a tenant: a tenth of a millisecond of another server's work, and 16 of the widest host calls.
pub const TENANT_REMOTE_READS_MAX: usize = 1_024;
/// Bytes of the keys of those reads, and of received values that invocations have not taken yet: several times the
/// largest value.
pub const TENANT_REMOTE_BYTES_MAX: usize = 16 << 20;
/// Objects that one invocation may read at other servers: the friends of somebody with many, and the objects on
/// theirs.
pub const INVOCATION_REMOTE_READS_MAX: usize = 4_096;
/// Bytes that each read counts for in the bytes that a waiting invocation holds, besides its key.
pub const REMOTE_READ_BYTES: usize = 160;

/// Reads in one record.
pub const REMOTE_BATCH_READS: usize = 64;
/// Reads sent to a server and not answered yet; more wait here, each for its own time.
pub const REMOTE_OUTSTANDING_MAX: usize = 512;
/// Tables whose maps the thread `remote` remembers; beyond it all are forgotten, and return with later reads.
pub const REMOTE_MAPS_MAX: usize = 4_096;
/// Bytes of keys after which a record is sent.
pub const REMOTE_BATCH_BYTES: usize = 256 << 10;
/// Bytes of values after which a server answers the rest of a record with "later".
pub const REMOTE_ANSWER_BYTES: usize = 256 << 10;
/// Longest record in bytes, in either direction.
pub const REMOTE_MESSAGE_BYTES_MAX: usize = 2 << 20;
/// Unread bytes at a server after which it gets no more questions.
pub const REMOTE_UNTAKEN_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(REMOTE_READ_US_MAX + REMOTE_READ_SLACK_US < INVOCATION_WALL_US_MAX);
const _: () = assert!(REMOTE_PAUSE_US_MAX * 10 < REMOTE_READ_US_MAX && REMOTE_REOPEN_US < REMOTE_READ_US_MAX);
const _: () =
    assert!(REMOTE_BATCH_BYTES + store::KEY_BYTES_MAX + 64 * REMOTE_BATCH_READS < REMOTE_MESSAGE_BYTES_MAX);
const _: () = assert!(
    REMOTE_ANSWER_BYTES + store::VALUE_BYTES_MAX + 64 * REMOTE_BATCH_READS < REMOTE_MESSAGE_BYTES_MAX
);
const _: () =
    assert!(TENANT_REMOTE_BYTES_MAX > 8 * store::VALUE_BYTES_MAX && ARENA_BYTES <= TENANT_REMOTE_BYTES_MAX);
const _: () = assert!(super::GET_MANY_KEYS_MAX * 8 <= TENANT_REMOTE_READS_MAX);
