//! Limits of invocations' reads at other servers of the cluster.

use cluster::limits::{REMOTE_BATCH_BYTES, REMOTE_BATCH_READS, REMOTE_READ_US_MAX};

use super::{ARENA_BYTES, INVOCATION_WALL_US_MAX};

/// Additional time that a worker waits for the answer, in microseconds: needed only if the thread `remote` is delayed.
pub const REMOTE_READ_SLACK_US: u64 = 250_000;
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

/// Tables whose maps the thread `remote` remembers; beyond it all are forgotten, and return with later reads.
pub const REMOTE_MAPS_MAX: usize = 4_096;
/// Bytes of values after which a server answers the rest of a record with "later".
pub const REMOTE_ANSWER_BYTES: usize = 256 << 10;
/// Longest record in bytes, in either direction.
pub const REMOTE_MESSAGE_BYTES_MAX: usize = 2 << 20;
/// Unread bytes at a server after which it gets no more questions.
pub const REMOTE_UNTAKEN_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(REMOTE_READ_US_MAX + REMOTE_READ_SLACK_US < INVOCATION_WALL_US_MAX);
const _: () =
    assert!(REMOTE_BATCH_BYTES + store::KEY_BYTES_MAX + 64 * REMOTE_BATCH_READS < REMOTE_MESSAGE_BYTES_MAX);
const _: () = assert!(
    REMOTE_ANSWER_BYTES + store::VALUE_BYTES_MAX + 64 * REMOTE_BATCH_READS < REMOTE_MESSAGE_BYTES_MAX
);
const _: () =
    assert!(TENANT_REMOTE_BYTES_MAX > 8 * store::VALUE_BYTES_MAX && ARENA_BYTES <= TENANT_REMOTE_BYTES_MAX);
const _: () = assert!(super::GET_MANY_KEYS_MAX * 8 <= TENANT_REMOTE_READS_MAX);
