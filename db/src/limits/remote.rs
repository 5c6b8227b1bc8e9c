//! Limits of reads that invocations make at other servers of the cluster.

use super::{ARENA_BYTES, INVOCATION_WALL_US_MAX};

/// How long such a read may take, in microseconds, with all attempts: longer than a tablet changes hands, and within the
/// age of an invocation, so that it hears of it and can do something else.
pub const REMOTE_READ_US_MAX: u64 = 500_000;
/// How much longer a worker waits for the answer, in microseconds: only if the thread that asks is held up.
pub const REMOTE_READ_SLACK_US: u64 = 250_000;
/// After what a server is asked again that could not answer yet, or another one whose the object is by then: at first, in
/// microseconds. Doubled with every attempt.
pub const REMOTE_PAUSE_US: u64 = 500;
/// The most of that.
pub const REMOTE_PAUSE_US_MAX: u64 = 20_000;
/// After what a server is connected to again that refused, in microseconds.
pub const REMOTE_REOPEN_US: u64 = 100_000;
/// How often the thread that asks looks around while reads are open, in milliseconds.
pub const REMOTE_LOOK_MS: u64 = 10;
/// How often it does while there are none: it is woken for the next one.
pub const REMOTE_IDLE_MS: u64 = 200;

/// Reads that wait for the thread that asks, of all workers: a few rounds of them.
pub const REMOTE_WANTS_MAX: usize = 4_096;
/// Reads that a tenant has under way at a time: a tenth of a millisecond of another server's work, and 16 of the widest
/// host calls.
pub const TENANT_REMOTE_READS_MAX: usize = 1_024;
/// Bytes of keys of those, and of values that came and that invocations have still to take: the largest value several times.
pub const TENANT_REMOTE_BYTES_MAX: usize = 16 << 20;
/// Objects that one invocation may read at other servers: the friends of somebody with many, and what tells of theirs.
pub const INVOCATION_REMOTE_READS_MAX: usize = 4_096;
/// What each counts for in what an invocation holds while it waits, besides its key, in bytes.
pub const REMOTE_READ_BYTES: usize = 160;

/// Reads in one record.
pub const REMOTE_BATCH_READS: usize = 64;
/// Reads that a server has been asked for and has not answered; more wait here, each for its own time.
pub const REMOTE_OUTSTANDING_MAX: usize = 512;
/// Tables whose maps the thread that asks remembers; beyond it all are forgotten, and come again with what is asked.
pub const REMOTE_MAPS_MAX: usize = 4_096;
/// Bytes of keys after which a record goes.
pub const REMOTE_BATCH_BYTES: usize = 256 << 10;
/// Bytes of values after which a server answers what else is in a record with "later".
pub const REMOTE_ANSWER_BYTES: usize = 256 << 10;
/// Longest record in bytes, either way.
pub const REMOTE_MESSAGE_BYTES_MAX: usize = 2 << 20;
/// Bytes that a server does not take after which it is asked no more.
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
