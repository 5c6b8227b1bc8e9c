//! Limits of migrations.

/// Partitions that a target pulls side by side (Rocksteady, SOSP'17 §3.1: enough to keep cores of both sides busy).
pub const MIGRATION_PARTITIONS: usize = 8;
/// Hashes of a priority pull: those that wait while another one is on its way (Rocksteady §3.3).
pub const PRIORITY_PULL_HASHES: usize = 16;
/// Hashes that may wait for their objects at a target; who comes after them is told to try again.
pub const PRIORITY_HASHES_MAX: usize = 4096;
/// Microseconds until a message is sent again that nobody answers: many round trips within a rack, and a pull of 20 KB
/// gathered at low priority.
pub const MIGRATION_RETRY_US: u64 = 50_000;
/// Longest message of a migration in bytes: a priority pull of the largest objects.
pub const MIGRATION_MESSAGE_BYTES_MAX: usize = 20 << 20;
/// Bytes that a pull counts for before it is known how many come.
pub const PULL_BYTES: usize = 20_000;

const _: () = assert!(MIGRATION_PARTITIONS <= u8::MAX as usize);
const _: () = assert!(PRIORITY_PULL_HASHES < PRIORITY_HASHES_MAX);
const _: () = assert!(
    MIGRATION_MESSAGE_BYTES_MAX > PRIORITY_PULL_HASHES * (store::VALUE_BYTES_MAX + store::KEY_BYTES_MAX + 64)
);
