//! Limits of a server's waits for its cluster, of its requests to etcd, and of invocations' reads at other servers.

use cluster::limits::{
    GONE_AFTER_MS, GONE_IN_SIGHT_MS, GRANTS_SWEPT_AT_ONCE, LOG_PARTS_CHANGED_AT_ONCE, PRESENCE_LOOK_MS_MAX,
    PROMISE_MS_MAX, REGISTRATION_TTL_MS, REMOTE_BATCH_BYTES, REMOTE_BATCH_READS, REMOTE_READ_US_MAX,
    TABLETS_CHANGED_AT_ONCE,
};

use super::{ARENA_BYTES, INVOCATION_WALL_US_MAX};

/// Interval at which a server checks whether it needs more versions, in milliseconds: no key uses a hundredth of those
/// reserved meanwhile.
pub const VERSIONS_LOOK_MS: u64 = 60_000;

/// Interval at which the coordinator examines the cluster, and other servers check that there is a coordinator, in
/// milliseconds.
pub const COORDINATION_LOOK_MS: u64 = 250;

/// Interval at which a server begins to renew its registration, in milliseconds: one that takes longer is followed by the next at
/// once.
pub const REGISTRATION_KEEP_MS: u64 = 750;

/// Time after the end of the lease for which workers serve hashes that others may come to own, in milliseconds: they
/// are made to leave in less. The rest of [`GONE_IN_SIGHT_MS`] covers a slow clock and a batch being served.
pub const FENCE_AFTER_MS: u64 = 500;

/// Time before its fence at which a server begins to ask the others for promises, in milliseconds: half a lease and
/// [`FENCE_AFTER_MS`].
pub const PROMISES_BEFORE_MS: u64 = 2_000;

/// Interval at which it asks, in milliseconds.
pub const PROMISES_LOOK_MS: u64 = 250;

/// Time to answer such a question, in milliseconds.
pub const PROMISE_ANSWER_MS: u64 = 500;

/// Bytes of such a question, and of its answer.
pub const PROMISE_RECORD_BYTES: usize = 4;

/// Time after the last request to recover a server's log during which that server is promised nothing, in milliseconds: who recovers
/// it asks again every half second.
pub const RECOVERY_WANTED_MS: u64 = 5_000;

/// Delay before a server retries to register, or to follow the metadata, in milliseconds.
pub const CLUSTER_RETRY_MS: u64 = 500;

/// Least time between two writes of a server's copy of the metadata, in milliseconds.
pub const METADATA_COPY_REST_MS: u64 = 200;

/// Delay before a server begins its copy anew, in milliseconds.
pub const METADATA_COPY_RETRY_MS: u64 = 5_000;

/// Time without a complete copy after which a server says so, in milliseconds.
pub const METADATA_COPY_WARN_MS: u64 = 60_000;

/// Time for which the source of a move keeps what has moved in its log because its copy of the metadata does not have the move's
/// end yet, in milliseconds: several attempts to begin the copy anew.
pub const METADATA_COPY_PATIENCE_MS: u64 = 30_000;

/// Time that one question of such a source to the metadata takes at most, in milliseconds: its thread does nothing else meanwhile.
pub const METADATA_COPY_ASK_MS: u64 = 500;

/// Interval at which a server looks at its shares of limits that hold over the cluster, in milliseconds.
pub const SHARES_LOOK_MS: u64 = 1_000;

/// The same while it holds no lease, as at its start, in milliseconds: it then has even shares only.
pub const SHARES_START_MS: u64 = 100;

/// Tenants whose use a server tells the others, those that use most; of others each server has an even share. Some 30 bytes each.
pub const SHARES_TENANTS_MAX: usize = 1_000;

/// The part of a limit by which use changes before the others are told: one of so many.
pub const SHARES_TOLD_DIVISOR: u64 = 64;

/// Time that a server waits for a change of the metadata before it checks whether it must stop, in milliseconds.
pub const FOLLOWING_LOOK_MS: u64 = 50;

/// Delay before a server retries to build an extension of the cluster that it could not build, in milliseconds.
pub const FOLLOWING_AGAIN_MS: u64 = 5_000;

/// Timeout of one request to etcd, in milliseconds: an etcd with a leader answers within a few.
pub const ETCD_ATTEMPT_MS: u64 = 1_000;

/// Time for which a call that etcd does not answer is retried, in milliseconds: longer than the members of an etcd
/// take to elect a leader.
pub const ETCD_CALL_MS: u64 = 3_000;

/// Time that the opening of a session waits for etcd if the server knows the tenant from before, in milliseconds: ten
/// times the latency of an etcd with a leader, and too short for a client to notice.
pub const ETCD_OPENING_MS: u64 = 50;

/// Time to find out the outcome of a commit whose answer was lost, in milliseconds.
pub const ETCD_RESOLVE_MS: u64 = 3_000;

/// Timeout for connecting to etcd, in milliseconds.
pub const ETCD_CONNECT_MS: u64 = 1_000;

/// Pause between two attempts, and between two checks whether etcd is back, in milliseconds.
pub const ETCD_LOOK_MS: u64 = 100;

/// Interval between two pings of a connection, in milliseconds: an etcd closes those that ping more often than every 5
/// s.
pub const ETCD_PING_MS: u64 = 6_000;

/// Time without an answer to a ping after which a connection is given up, in milliseconds.
pub const ETCD_PING_TIMEOUT_MS: u64 = 2_000;

/// Bytes of an answer of etcd: a page of records, or several pieces of packages.
pub const ETCD_ANSWER_BYTES_MAX: usize = 64 << 20;

/// Timeout for connecting to another server, in milliseconds: within a rack it takes one.
pub const PEER_CONNECT_MS: u64 = 1_000;

/// Timeout for another server's answer to an opening, in milliseconds.
pub const PEER_OPENING_MS: u64 = 5_000;

/// Records that one request reads.
pub const ETCD_PAGE_RECORDS: usize = 1_000;

/// Single keys that one request reads: an etcd accepts 128 parts in one.
pub const ETCD_READS_AT_ONCE: usize = 64;

/// Conditions or changes of one commit: the maximum that an etcd accepts, minus the mark and the removed marks.
pub const ETCD_PARTS_MAX: usize = 112;

/// Marks of earlier commits that one commit removes.
pub const ETCD_MARKS_SETTLED_AT_ONCE: usize = 8;

/// Life of a commit's mark that nobody removes, in milliseconds: much longer than its resolution takes.
pub const ETCD_MARKS_TTL_MS: u64 = 600_000;

/// Life of a large value that waits for its commit, in milliseconds.
pub const ETCD_STAGE_TTL_MS: u64 = 60_000;

const _: () = assert!(ETCD_PARTS_MAX + ETCD_MARKS_SETTLED_AT_ONCE < 128 && ETCD_READS_AT_ONCE < 128);
const _: () = assert!(ETCD_MARKS_TTL_MS / 2 > 10 * (ETCD_CALL_MS + ETCD_RESOLVE_MS));
const _: () = assert!(ETCD_STAGE_TTL_MS > 4 * ETCD_CALL_MS);
const _: () = assert!(GRANTS_SWEPT_AT_ONCE < ETCD_PARTS_MAX && TABLETS_CHANGED_AT_ONCE < ETCD_PARTS_MAX);
const _: () = assert!(LOG_PARTS_CHANGED_AT_ONCE < ETCD_PARTS_MAX);
const _: () = assert!(METADATA_COPY_PATIENCE_MS > 5 * METADATA_COPY_RETRY_MS);
// A lease counts from the beginning of a renewal. A period later the first attempt of the next one may be lost; a look later the
// second is answered before the lease ends, though it takes as long as an attempt may.
const _: () = assert!(REGISTRATION_KEEP_MS + 2 * ETCD_ATTEMPT_MS + ETCD_LOOK_MS < REGISTRATION_TTL_MS);
// Behind an outage of etcd it is seen at the next look, and all register again at their next try, in an attempt each, before any of
// them is considered gone.
const _: () =
    assert!(ETCD_LOOK_MS + CLUSTER_RETRY_MS + ETCD_ATTEMPT_MS + PRESENCE_LOOK_MS_MAX < GONE_AFTER_MS);
const _: () = assert!(2 * FENCE_AFTER_MS <= GONE_IN_SIGHT_MS);
// Several rounds of questions until a promise ends, and one may fail.
const _: () = assert!(FENCE_AFTER_MS + 2 * (PROMISES_LOOK_MS + PROMISE_ANSWER_MS) <= PROMISE_MS_MAX);
const _: () = assert!(RECOVERY_WANTED_MS > PROMISE_MS_MAX + CLUSTER_RETRY_MS);

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
/// Time that a stream between servers stands still for answers that wait for the disk, in milliseconds: many writes of one that
/// is well. Later ones go beside.
pub const REMOTE_DISK_MS: u64 = 5;
/// Interval at which is looked for others, in milliseconds.
pub const REMOTE_DISK_LOOK_MS: u64 = 2;
/// Time after which such questions are to come again, in milliseconds: little less than who asked waits.
pub const REMOTE_DISK_PATIENCE_MS: u64 = 400;
/// Most records of answers of one stream that wait for the disk, and their bytes: beyond that the oldest are to come again.
pub const REMOTE_WAITING_MAX: usize = 256;
/// See [`REMOTE_WAITING_MAX`].
pub const REMOTE_WAITING_BYTES_MAX: usize = 8 << 20;
/// Unread bytes at a server after which it gets no more questions.
pub const REMOTE_UNTAKEN_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(REMOTE_DISK_PATIENCE_MS * 1_000 < REMOTE_READ_US_MAX);
const _: () = assert!(REMOTE_READ_US_MAX + REMOTE_READ_SLACK_US < INVOCATION_WALL_US_MAX);
const _: () =
    assert!(REMOTE_BATCH_BYTES + store::KEY_BYTES_MAX + 64 * REMOTE_BATCH_READS < REMOTE_MESSAGE_BYTES_MAX);
const _: () = assert!(
    REMOTE_ANSWER_BYTES + store::VALUE_BYTES_MAX + 64 * REMOTE_BATCH_READS < REMOTE_MESSAGE_BYTES_MAX
);
const _: () =
    assert!(TENANT_REMOTE_BYTES_MAX > 8 * store::VALUE_BYTES_MAX && ARENA_BYTES <= TENANT_REMOTE_BYTES_MAX);
const _: () = assert!(super::GET_MANY_KEYS_MAX * 8 <= TENANT_REMOTE_READS_MAX);
