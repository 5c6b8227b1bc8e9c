//! Limits of the metadata, and of what servers of a cluster wait for.

/// Events of a watch that wait for who watches, some hundred bytes each; more, and everything is read again.
pub const WATCH_EVENTS_MAX: usize = 1024;

/// Bytes of a package in one record: an etcd takes requests of up to 1.5 MiB.
pub const PACKAGE_CHUNK_BYTES: usize = 512 << 10;

/// A value above this, in bytes, is brought to a shared store before the commit, not with it: so that several fit.
pub const RECORD_STAGED_BYTES: usize = 64 << 10;

/// How often a change is tried again that others contradict. Each time one of the others has got through.
pub const CHANGE_ATTEMPTS_MAX: u32 = 64;

/// What a change waits before it is tried again, in microseconds: at most this, doubled with every attempt.
pub const CHANGE_BACKOFF_US: u64 = 250;

/// The most that it waits before it is tried again, in microseconds.
pub const CHANGE_BACKOFF_US_MAX: u64 = 32_000;

/// How long a change waits for the others of this server, in milliseconds.
pub const CHANGE_TURN_MS: u64 = 10_000;

/// Versions that a server reserves at a start, so that those of an earlier one are never given again: a key that is written
/// a million times a second uses them up in 19 hours, and more are reserved before.
pub const VERSIONS_RESERVED: u64 = 1 << 36;

/// Reservations of versions that are told apart: so many leave half of all versions, and fit the numbers of JSON. A server
/// that is started each hour makes them last for 15 years.
pub const VERSION_RESERVATIONS_MAX: u64 = 1 << 17;

/// How often a server looks whether it needs more versions, in milliseconds: no key gets a hundredth of those reserved
/// meanwhile.
pub const VERSIONS_LOOK_MS: u64 = 60_000;

const _: () = assert!(2 * VERSIONS_RESERVED * VERSION_RESERVATIONS_MAX == store::VERSION_MAX + 1);

/// Grants to a tenant that is gone which one commit takes away: an etcd takes 128 parts in one.
pub const GRANTS_SWEPT_AT_ONCE: usize = 64;

/// Tables whose tablets one commit changes: an etcd takes 128 parts in one.
pub const TABLETS_CHANGED_AT_ONCE: usize = 64;

/// Migrations that have a record: what one request reads of them stays a page, and each keeps a thread at two servers.
pub const MIGRATIONS_MAX: usize = 256;

/// Moves that a plan has at a time, some 60 bytes each: what is left after them is planned anew.
pub const PLAN_MOVES_MAX: usize = 256;

/// Moves of a plan that are on the way at a time: each takes a part of two servers and of the network.
pub const PLAN_MOVES_AT_ONCE: usize = 2;

/// Plans that are kept, with those that have ended.
pub const PLANS_KEPT: usize = 16;

/// How often the coordinator looks at the cluster, and others whether there is one, in milliseconds.
pub const COORDINATION_LOOK_MS: u64 = 250;

/// For how long a server is registered that does not say that it is there, in milliseconds: an etcd that elects a leader
/// takes some seconds of that.
pub const REGISTRATION_TTL_MS: u64 = 10_000;

/// How often a server says that it is there, in milliseconds.
pub const REGISTRATION_KEEP_MS: u64 = 2_500;

/// For how long the registration of a server is missing until others say that it is gone, in milliseconds: after etcd was
/// away for long every server registers anew within less.
pub const GONE_AFTER_MS: u64 = 7_500;

/// For how long workers serve behind the end of the lease what others may come to own, in milliseconds: in less they are made
/// to leave it. What is left of [`GONE_AFTER_MS`] is for a slow clock and for a batch that is being served.
pub const FENCE_AFTER_MS: u64 = 2_500;

/// After what a server tries again to register, or to follow the metadata, in milliseconds.
pub const CLUSTER_RETRY_MS: u64 = 500;

/// How long a server waits for a change of the metadata before it looks whether it is to stop, in milliseconds.
pub const FOLLOWING_LOOK_MS: u64 = 200;

/// After what a server tries again to build an extension of the cluster that it could not build then, in milliseconds.
pub const FOLLOWING_AGAIN_MS: u64 = 5_000;

/// What one request to etcd may take, in milliseconds: an etcd that has a leader answers within a few.
pub const ETCD_ATTEMPT_MS: u64 = 1_000;

/// How long a call is tried again that etcd does not answer, in milliseconds: longer than the members of an etcd take
/// to elect a leader.
pub const ETCD_CALL_MS: u64 = 3_000;

/// How long the opening of a session waits for etcd where the server knows the tenant from before, in milliseconds: ten times
/// what an etcd takes that has a leader, and nothing that a client notices.
pub const ETCD_OPENING_MS: u64 = 50;

/// How long to find out what became of a commit whose answer was lost, in milliseconds.
pub const ETCD_RESOLVE_MS: u64 = 3_000;

/// What etcd is given to accept a connection, in milliseconds.
pub const ETCD_CONNECT_MS: u64 = 1_000;

/// Between two attempts, and between two looks whether etcd is there again, in milliseconds.
pub const ETCD_LOOK_MS: u64 = 100;

/// Between two pings of a connection, in milliseconds: an etcd closes those that ping more often than every 5 s.
pub const ETCD_PING_MS: u64 = 6_000;

/// After this without an answer to a ping a connection is given up, in milliseconds.
pub const ETCD_PING_TIMEOUT_MS: u64 = 2_000;

/// Bytes of an answer of etcd: a page of records, or several pieces of packages.
pub const ETCD_ANSWER_BYTES_MAX: usize = 64 << 20;

/// How long a server waits for another one to take a connection, in milliseconds: within a rack it takes one.
pub const PEER_CONNECT_MS: u64 = 1_000;

/// How long a server waits for another one's answer to an opening, in milliseconds.
pub const PEER_OPENING_MS: u64 = 5_000;

/// Records that one request reads.
pub const ETCD_PAGE_RECORDS: usize = 1_000;

/// Single keys that one request reads: an etcd takes 128 parts in one.
pub const ETCD_READS_AT_ONCE: usize = 64;

/// Conditions or changes of one commit: what an etcd takes, less the mark and those that it takes away.
pub const ETCD_PARTS_MAX: usize = 112;

/// Marks of earlier commits that one commit takes away.
pub const ETCD_MARKS_SETTLED_AT_ONCE: usize = 8;

/// For how long a mark of a commit stays that nobody takes away, in milliseconds: much longer than its resolution takes.
pub const ETCD_MARKS_TTL_MS: u64 = 600_000;

/// For how long a large value waits for its commit, in milliseconds.
pub const ETCD_STAGE_TTL_MS: u64 = 60_000;

const _: () = assert!(ETCD_PARTS_MAX + ETCD_MARKS_SETTLED_AT_ONCE < 128 && ETCD_READS_AT_ONCE < 128);
const _: () = assert!(ETCD_MARKS_TTL_MS / 2 > 10 * (ETCD_CALL_MS + ETCD_RESOLVE_MS));
const _: () = assert!(ETCD_STAGE_TTL_MS > 4 * ETCD_CALL_MS);
const _: () = assert!(GRANTS_SWEPT_AT_ONCE < ETCD_PARTS_MAX && TABLETS_CHANGED_AT_ONCE < ETCD_PARTS_MAX);
const _: () = assert!(REGISTRATION_KEEP_MS + ETCD_CALL_MS < REGISTRATION_TTL_MS);
const _: () = assert!(REGISTRATION_KEEP_MS + ETCD_CALL_MS + CLUSTER_RETRY_MS < GONE_AFTER_MS);
const _: () = assert!(2 * FENCE_AFTER_MS < GONE_AFTER_MS);
const _: () = assert!(RECORD_STAGED_BYTES < PACKAGE_CHUNK_BYTES && PACKAGE_CHUNK_BYTES < 3 << 19);
