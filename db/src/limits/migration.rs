//! Limits of migrations: concurrency, messages, pulls and pace; of requests that wait for objects in transit.

use cluster::limits::{MIGRATION_MESSAGE_BYTES_MAX, MIGRATION_RETRY_US, PULL_BYTES};

const _: () = assert!(MIGRATION_QUEUED_LOOK_MS <= PEER_ALIVE_MS && 2 * PEER_ALIVE_MS < PEER_AWAY_MS);

/// Concurrent migrations with a server as the source, and as many with it as the target: each takes a core of the
/// store in addition to the workers'. Others wait, the lowest number next: see `cluster/src/migration/admission.rs`.
pub const MIGRATIONS_AT_ONCE: usize = 2;
/// Ended migrations whose outcome a server remembers.
pub const MIGRATIONS_REMEMBERED: usize = 16;
/// Cores of the store for migrations.
pub const MIGRATION_CORES: usize = 2 * MIGRATIONS_AT_ONCE;

/// Bytes that a source has under way to a target that reads none, before it reads no more of that target's requests:
/// as much as the target may request at a time.
pub const PEER_UNTAKEN_BYTES_MAX: usize = 4 << 20;

/// Interval at which a session is told the progress of a cooperative migration, in microseconds: few objects arrive in
/// that time, and telling costs 140 bytes.
pub const PROGRESS_EVERY_US: u64 = 10_000;
/// Divisor of the moving bytes that bounds the cost of reads at the source, with their requests: all reads at a second
/// server may cost a tenth, and the target has the rest of it for saying what has not arrived.
pub const SECOND_READS_DIVISOR: u64 = 14;

/// Milliseconds between the announcement of a move to clients and the change of owner: meanwhile they open sessions
/// with the target, so that nobody has to later.
pub const MIGRATION_ANNOUNCED_MS: u64 = 150;
/// Microseconds after the change of owner in which only objects that requests wait for are pulled: everybody waits
/// then for the objects read most, and these wait for nothing else.
pub const WANTED_ALONE_US: u64 = 100_000;
/// Maximum sleep of a migration's thread while nothing happens, in milliseconds: retransmissions are due that often.
pub const MIGRATION_LOOK_MS: u64 = 10;
/// Maximum sleep of a migration's thread that waits for a slot, in milliseconds: there may be hundreds of those, and
/// messages wake them.
pub const MIGRATION_QUEUED_LOOK_MS: u64 = 200;
/// Messages that a migration's thread reads from a stream before it does something else.
pub const MIGRATION_MESSAGES_AT_ONCE: usize = 32;
/// Time that a migration's thread works before it reads its inbox again, in microseconds: requests that wait for a
/// priority pull wait for that too.
pub const MIGRATION_TURN_US: u64 = 200;

/// Bytes per second that a target pulls while the workers are loaded: a guaranteed minimum of progress.
pub const PULL_RATE_MIN: u64 = 160 << 20;
/// Maximum bytes per second that a target pulls: more than a core can store.
pub const PULL_RATE_MAX: u64 = 2 << 30;
/// Increase of the pull rate, in bytes per second, after each millisecond in which no worker was loaded.
pub const PULL_RATE_STEP: u64 = 16 << 20;
/// Interval at which the target looks at the workers, in microseconds.
pub const PULL_LOOK_US: u64 = 1_000;
/// Time for which a moving object may find no room at a target before the migration is given up, in milliseconds: the
/// cleaner makes room in far less if possible.
pub const REPLAY_PATIENCE_MS: u64 = 20_000;
/// Silence after which a migration checks whether the other server is present, in milliseconds.
pub const PEER_AWAY_MS: u64 = 1_000;
/// Maximum interval between two messages to the other server, in milliseconds.
pub const PEER_ALIVE_MS: u64 = 250;
/// Addition to the nice value of a migration's thread: it gets about a third of a worker's share of a CPU that both
/// want. Its pace limits its use of that; with less, the requests whose objects it pulls first would wait long.
pub const MIGRATION_NICER: i32 = 5;
/// Objects that a source discards before it does something else.
pub const DISCARD_STEPS_AT_ONCE: usize = 8;
/// Delay before a target retries to open a stream to the source, in milliseconds.
pub const PEER_RETRY_MS: u64 = 50;
/// Bytes of objects after which a piece of returned objects is sent.
pub const GIVEN_BACK_BYTES: usize = 256 << 10;
/// Removed keys in one such piece.
pub const GIVEN_BACK_REMOVALS: usize = 16 << 10;
/// Pulls from the part for such a piece before something else is done.
pub const GIVING_STEPS_AT_ONCE: usize = 8;

const _: () = assert!(
    GIVEN_BACK_BYTES + PULL_BYTES + store::VALUE_BYTES_MAX + 16 * GIVEN_BACK_REMOVALS
        < MIGRATION_MESSAGE_BYTES_MAX / 2
);

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
