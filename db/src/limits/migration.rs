//! Limits of migrations.

/// Partitions that a target pulls side by side (Rocksteady, SOSP'17 §3.1: enough to keep cores of both sides busy).
pub const MIGRATION_PARTITIONS: usize = 8;
/// Hashes of a priority pull at most: those that wait while another one is on its way. Rocksteady (§3.3) has 16; with so
/// many more a round trip serves a burst of clients, and the answer ends where it has the bytes of a pull.
pub const PRIORITY_PULL_HASHES: usize = 256;
/// Hashes that may wait for their objects at a target; who comes after them is told to try again.
pub const PRIORITY_HASHES_MAX: usize = 4096;
/// Microseconds until a message is sent again that nobody answers: many round trips within a rack, and a pull of 20 KB
/// gathered at low priority.
pub const MIGRATION_RETRY_US: u64 = 50_000;
/// Longest message of a migration in bytes: what is given back, or a pull that ends with the largest object.
pub const MIGRATION_MESSAGE_BYTES_MAX: usize = 20 << 20;
/// Bytes that a pull counts for before it is known how many come.
pub const PULL_BYTES: usize = 20_000;

/// Spans of a piece that a source copies at most: with eight objects of 160 bytes each, more than a pull has bytes for.
pub const COPIED_SPANS_MAX: usize = 256;
/// Pieces that a source has sent and that are not stored yet, at most: as many as pulls and replays of eight partitions.
pub const COPIED_PIECES_MAX: usize = 2 * MIGRATION_PARTITIONS;
/// Bytes written since they were copied below which a source lets the target take over: some milliseconds of copying.
pub const COPY_LEFT_BYTES: u64 = 256 << 10;
/// Rounds of copying after which it does so whatever is left: more of them gain nothing where writers are as fast.
pub const COPY_ROUNDS_MAX: u32 = 16;

const _: () = assert!(MIGRATION_PARTITIONS <= u8::MAX as usize);
const _: () = assert!(MIGRATION_QUEUED_LOOK_MS <= PEER_ALIVE_MS && 2 * PEER_ALIVE_MS < PEER_AWAY_MS);
const _: () = assert!(PRIORITY_PULL_HASHES < PRIORITY_HASHES_MAX);
const _: () = assert!(
    MIGRATION_MESSAGE_BYTES_MAX
        > PULL_BYTES + PRIORITY_PULL_HASHES * 8 + 8 * (store::VALUE_BYTES_MAX + store::KEY_BYTES_MAX + 64)
);

/// Migrations of which a server is the source at a time, and as many of which it is the target: each takes a core of the
/// store beside those of the workers. Others wait, the lowest number next: see `cluster/migration/admission.rs`.
pub const MIGRATIONS_AT_ONCE: usize = 2;
/// Migrations of which a server tells how they went, after their end.
pub const MIGRATIONS_REMEMBERED: usize = 16;
/// Cores of the store for them.
pub const MIGRATION_CORES: usize = 2 * MIGRATIONS_AT_ONCE;

/// Bytes that a source has on its way to a target that takes none before it reads no more of what that one asks for: what
/// it may ask for at a time.
pub const PEER_UNTAKEN_BYTES_MAX: usize = 4 << 20;

/// How often a session is told how far a cooperative migration is, in microseconds: in that time little of it arrives, and
/// telling costs 140 bytes.
pub const PROGRESS_EVERY_US: u64 = 10_000;
/// Which part of the bytes that move, as a divisor, reads at the source may cost beside them, with their requests: a tenth is
/// what all reads at a second server may cost, and the rest of it is the target's for saying what has not arrived.
pub const SECOND_READS_DIVISOR: u64 = 14;

/// Milliseconds between the moment when clients are told that hashes are about to move and the change of owner: in them they
/// open sessions with the target, so that nobody has to then.
pub const MIGRATION_ANNOUNCED_MS: u64 = 150;
/// Microseconds from the change of owner in which nothing is pulled but what somebody waits for: then everybody waits for
/// what is read most, and for nothing behind it.
pub const WANTED_ALONE_US: u64 = 100_000;
/// How long the thread of a migration sleeps at most while nothing happens, in milliseconds: what is said again is due so
/// often.
pub const MIGRATION_LOOK_MS: u64 = 10;
/// The same where the migration waits for a slot, in milliseconds: there may be hundreds of those, and mail wakes them.
pub const MIGRATION_QUEUED_LOOK_MS: u64 = 200;
/// Messages that it takes from a stream before it looks for something else.
pub const MIGRATION_MESSAGES_AT_ONCE: usize = 32;
/// How long it works before it looks for mail again, in microseconds: what waits for a priority pull waits for that too.
pub const MIGRATION_TURN_US: u64 = 200;

/// Bytes that a target pulls in a second while the workers are loaded: that much progress there always is.
pub const PULL_RATE_MIN: u64 = 160 << 20;
/// Bytes that a target pulls in a second at most: more than a core can store.
pub const PULL_RATE_MAX: u64 = 2 << 30;
/// How much more it pulls in a second after each millisecond in which no worker was loaded, in bytes.
pub const PULL_RATE_STEP: u64 = 16 << 20;
/// How often it looks at the workers, in microseconds.
pub const PULL_LOOK_US: u64 = 1_000;
/// How long an object that moves may find no room at a target before the migration is given up, in milliseconds: the
/// cleaner makes room in far less if there is any to be made.
pub const REPLAY_PATIENCE_MS: u64 = 20_000;
/// After which time without a word of it it is asked whether the other server is still there, in milliseconds.
pub const PEER_AWAY_MS: u64 = 1_000;
/// How often a server says something to the other one at least, in milliseconds.
pub const PEER_ALIVE_MS: u64 = 250;
/// By how much nicer a thread is that moves tablets than the server: about a third of a worker's share of a CPU that both want. What it may
/// take of that is up to its pace; with less, those wait for long whose objects it pulls first.
pub const MIGRATION_NICER: i32 = 5;
/// Objects that a source discards before it looks for something else.
pub const DISCARD_STEPS_AT_ONCE: usize = 8;
/// After what a target tries again to open a stream to the source, in milliseconds.
pub const PEER_RETRY_MS: u64 = 50;
/// Bytes of objects after which a piece of what goes back is sent.
pub const GIVEN_BACK_BYTES: usize = 256 << 10;
/// Keys that were removed, in one such piece.
pub const GIVEN_BACK_REMOVALS: usize = 16 << 10;
/// Pulls of what is gone through for it before something else is looked for.
pub const GIVING_STEPS_AT_ONCE: usize = 8;

const _: () = assert!(
    GIVEN_BACK_BYTES + PULL_BYTES + store::VALUE_BYTES_MAX + 16 * GIVEN_BACK_REMOVALS
        < MIGRATION_MESSAGE_BYTES_MAX / 2
);
