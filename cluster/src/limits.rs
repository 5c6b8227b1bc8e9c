//! Limits of the metadata, of plans, of migrations and of reads at other servers, with unit and reason.
//!
//! The server's own limits (`db/src/limits.rs`) refer to these; relations between both are asserted there.

// ---- Metadata: rows and audit log --------------------------------------------------------------

/// Tenants of one server.
pub const TENANTS_MAX: usize = 65_536;

/// Tables of one tenant: each needs its own index.
pub const TABLES_PER_TENANT_MAX: usize = 256;

/// Extensions of one tenant: each is a loaded library.
pub const EXTENSIONS_PER_TENANT_MAX: usize = 64;

/// Versions of one extension that are kept: each is a package in the metadata and a loaded library. The oldest version
/// that is only reachable by its number is removed first.
pub const EXTENSION_VERSIONS_KEPT_MAX: usize = 5;

/// Grants that one tenant may give: each adds a table or an extension to every worker's catalog.
pub const GRANTS_PER_TENANT_MAX: usize = 1024;

/// Acts that the audit log holds, some 150 bytes each; the oldest go first.
pub const AUDIT_ENTRIES_MAX: u64 = 65_536;

/// Acts of one tenant that the audit log holds, so that no tenant displaces the acts of others.
pub const AUDIT_ENTRIES_PER_TENANT_MAX: u64 = 1024;

/// Client numbers that one write to the metadata reserves.
pub const CLIENT_IDS_RESERVED: u64 = 65_536;

// ---- Metadata: records and changes -------------------------------------------------------------

/// Events of a watch that may wait, some hundred bytes each; beyond, everything is read again.
pub const WATCH_EVENTS_MAX: usize = 1024;

/// Bytes of a package in one record: an etcd accepts requests of up to 1.5 MiB.
pub const PACKAGE_CHUNK_BYTES: usize = 512 << 10;

/// Size in bytes above which a value is written to a shared store before the commit, not with it, so that several fit.
pub const RECORD_STAGED_BYTES: usize = 64 << 10;

/// Records of a copy that are read or written with one request.
pub const RESTORED_AT_ONCE: usize = 64;

/// The same of pieces of packages, which one request reads within a second.
pub const RESTORED_LARGE_AT_ONCE: usize = 8;

/// About how many bytes of them one request writes.
pub const RESTORED_BYTES_AT_ONCE: usize = 512 << 10;

/// Numbers of each kind that are skipped behind a copy of the metadata: more than servers take in the time by which a copy can be
/// behind.
pub const RESTORED_NUMBERS_SKIPPED: u64 = 1_000;

/// Reservations of versions that are skipped behind it.
pub const RESTORED_VERSIONS_SKIPPED: u64 = 16;

/// Maximum attempts of a change that conflicts with others. Each time one of the others has succeeded.
pub const CHANGE_ATTEMPTS_MAX: u32 = 64;

/// Maximum back-off before the first retry of a change, in microseconds; doubled with every attempt.
pub const CHANGE_BACKOFF_US: u64 = 250;

/// Maximum back-off before any retry of a change, in microseconds.
pub const CHANGE_BACKOFF_US_MAX: u64 = 32_000;

/// Time that a change waits for other changes of this server, in milliseconds.
pub const CHANGE_TURN_MS: u64 = 10_000;

/// Versions that a server reserves at a start, so that those of an earlier start are never used again: a key written a
/// million times per second uses them up in 19 hours, and more are reserved before.
pub const VERSIONS_RESERVED: u64 = 1 << 36;

/// Number of possible reservations of versions: it leaves half of all versions, and fits the numbers of JSON. A server
/// that is started each hour uses them up in 15 years.
pub const VERSION_RESERVATIONS_MAX: u64 = 1 << 17;

/// Grants to a deleted tenant that one commit removes: an etcd accepts 128 parts in one.
pub const GRANTS_SWEPT_AT_ONCE: usize = 64;

/// Tables whose tablets one commit changes: an etcd accepts 128 parts in one.
pub const TABLETS_CHANGED_AT_ONCE: usize = 64;

/// Parts of a server's log that one commit records or removes: an etcd accepts 128 parts in one.
pub const LOG_PARTS_CHANGED_AT_ONCE: usize = 64;

/// Migrations that one commit ends: each changes several records, and a commit of etcd has at most 128 parts.
pub const MIGRATIONS_ENDED_AT_ONCE: usize = 16;

// ---- Membership and plans ----------------------------------------------------------------------

/// Migrations with a record: a request reads them in one page, and each needs a thread at two servers.
pub const MIGRATIONS_MAX: usize = 256;

/// Moves of a plan at a time, some 60 bytes each: further moves are planned afterwards.
pub const PLAN_MOVES_MAX: usize = 256;

/// Concurrent moves of a plan: each takes a part of two servers and of the network.
pub const PLAN_MOVES_AT_ONCE: usize = 2;

/// Plans that are kept, ended ones included.
pub const PLANS_KEPT: usize = 16;

/// Life of a registration without a renewal, in milliseconds: an etcd that elects a leader takes one or two seconds, and gives each
/// lease its whole life again.
pub const REGISTRATION_TTL_MS: u64 = 3_000;

/// Time without a registration after which others declare a server gone, in milliseconds: after a long absence of etcd
/// every server registers again in less.
pub const GONE_AFTER_MS: u64 = 5_000;

/// The same if etcd was in sight before, in milliseconds: then the server has let its lease end, or is cut off. By then its workers
/// serve nothing any more.
pub const GONE_IN_SIGHT_MS: u64 = 1_000;

/// Time for which etcd has answered before a registration is missing, if it was in sight, in milliseconds: longer than a lease.
pub const IN_SIGHT_MS: u64 = 5_000;

const _: () =
    assert!(IN_SIGHT_MS > REGISTRATION_TTL_MS + PRESENCE_LOOK_MS_MAX && GONE_IN_SIGHT_MS < GONE_AFTER_MS);

/// Longest promise not to find a server gone, in milliseconds. A backup that was restarted gives no log for as long.
pub const PROMISE_MS_MAX: u64 = 3_000;

/// Time of a look at the registrations, in milliseconds, after which it counts as one that etcd did not answer.
pub const PRESENCE_LOOK_MS_MAX: u64 = 1_000;

// ---- Migration ---------------------------------------------------------------------------------

/// Partitions that a target pulls in parallel (Rocksteady, SOSP'17 §3.1: enough to keep cores of both sides busy).
pub const MIGRATION_PARTITIONS: usize = 8;

/// Maximum hashes of a priority pull: those that wait while another one is under way. Rocksteady (§3.3) has 16; with
/// this many a round trip serves a burst of clients, and the answer ends at the bytes of a pull.
pub const PRIORITY_PULL_HASHES: usize = 256;

/// Hashes that may wait for their objects at a target; later requests get `Retry`.
pub const PRIORITY_HASHES_MAX: usize = 4096;

/// Microseconds until a message without an answer is sent again: many round trips within a rack, and a pull of 20 KB
/// gathered at low priority.
pub const MIGRATION_RETRY_US: u64 = 50_000;

/// Longest message of a migration in bytes: returned objects, or a pull that ends with the largest object.
pub const MIGRATION_MESSAGE_BYTES_MAX: usize = 20 << 20;

/// Bytes that a pull counts for before its size is known.
pub const PULL_BYTES: usize = 20_000;

/// Maximum spans of a piece that a source copies: with eight objects of 160 bytes each, more than a pull has bytes
/// for.
pub const COPIED_SPANS_MAX: usize = 256;

/// Maximum pieces that a source has sent and that are not stored yet: as many as pulls and replays of eight
/// partitions.
pub const COPIED_PIECES_MAX: usize = 2 * MIGRATION_PARTITIONS;

/// Bytes written since they were copied, below which a source lets the target take over: some milliseconds of copying.
pub const COPY_LEFT_BYTES: u64 = 256 << 10;

/// Rounds of copying after which the target takes over in any case: more rounds gain nothing if writers are as fast.
pub const COPY_ROUNDS_MAX: u32 = 16;

// ---- Remote reads ------------------------------------------------------------------------------

/// Maximum duration of such a read with all attempts, in microseconds: longer than a tablet takes to change owners,
/// and within the age of an invocation, so that the invocation learns of the failure and can react.
pub const REMOTE_READ_US_MAX: u64 = 500_000;

/// Time in which nobody begins to recover the log of a server that is starting with it, in milliseconds.
pub const RETURN_MS: u64 = 30_000;

/// The same for a server that was stopped, with all of its log on its disk, in milliseconds: a machine with a new kernel, or a
/// service with a new release, is back by then, and moves nothing.
pub const STOPPED_MS: u64 = 120_000;

/// Initial delay before a read is repeated, at a server that could not answer yet or at the object's new owner, in
/// microseconds. Doubled with every attempt.
pub const REMOTE_PAUSE_US: u64 = 500;

/// Maximum delay before a read is repeated, in microseconds.
pub const REMOTE_PAUSE_US_MAX: u64 = 20_000;

/// Delay before a connection to a server that refused one is retried, in microseconds.
pub const REMOTE_REOPEN_US: u64 = 100_000;

/// Reads in one record.
pub const REMOTE_BATCH_READS: usize = 64;

/// Reads sent to a server and not answered yet; more wait here, each for its own time.
pub const REMOTE_OUTSTANDING_MAX: usize = 512;

/// Bytes of keys after which a record is sent.
pub const REMOTE_BATCH_BYTES: usize = 256 << 10;

const _: () = assert!(2 * VERSIONS_RESERVED * VERSION_RESERVATIONS_MAX == store::VERSION_MAX + 1);
const _: () = assert!(RECORD_STAGED_BYTES < PACKAGE_CHUNK_BYTES && PACKAGE_CHUNK_BYTES < 3 << 19);
// The current version, the canary, and one to go back to.
const _: () = assert!(EXTENSION_VERSIONS_KEPT_MAX >= 3);
const _: () = assert!(MIGRATION_PARTITIONS <= u8::MAX as usize);
const _: () = assert!(PRIORITY_PULL_HASHES < PRIORITY_HASHES_MAX);
const _: () = assert!(
    MIGRATION_MESSAGE_BYTES_MAX
        > PULL_BYTES + PRIORITY_PULL_HASHES * 8 + 8 * (store::VALUE_BYTES_MAX + store::KEY_BYTES_MAX + 64)
);
const _: () = assert!(REMOTE_PAUSE_US_MAX * 10 < REMOTE_READ_US_MAX && REMOTE_REOPEN_US < REMOTE_READ_US_MAX);
