//! Limits of extensions: memory and stacks, one invocation, measuring, preemption.
//!
//! The defaults of a tenant's limits are here too; `splinter tenant limits` changes them within these bounds.

use guest::limits::WATCHDOG_LOOK_MS;
pub use guest::limits::{
    ARENA_BYTES, ENUMERATION_ENTRIES_MAX, GET_MANY_KEYS_MAX, LENT_BYTES, MEMORY_PART_BYTES_KEPT,
    SCAN_ENTRIES_MAX,
};

use super::STORED_REPLY_BYTES_MAX;

// ---- Extensions: one invocation --------------------------------------------------------------------------

/// Bytes of keys and values that one invocation may write before they are applied.
pub const TRANSACTION_BYTES: usize = 4 << 20;

/// Bytes of a module in one answer: the functions' descriptions in the same answer take at most as much again.
pub const MODULE_PIECE_BYTES: usize = 512 << 10;

/// Objects that one invocation may write: together with its reads, the maximum of one commit of the store.
pub const TRANSACTION_WRITES_MAX: usize = 1024;

/// Number of writes up to which a lookup among them compares linearly.
pub const TRANSACTION_WRITES_SCANNED: usize = 16;

/// Objects that an invocation of a writing function may read: all are validated at the commit.
pub const TRANSACTION_READS_MAX: usize = 3072;

/// Reads for which a slot keeps memory between invocations, some 20 KiB with their validation data.
pub const TRANSACTION_READS_KEPT: usize = 256;

/// Writes for which a slot keeps memory between invocations, some 15 KiB with their lookup table.
pub const TRANSACTION_WRITES_KEPT: usize = 64;

/// Objects that one invocation may read by any call.
pub const INVOCATION_READS_MAX: u32 = 1 << 20;

/// Keys that one call of a scan examines, including those without an object: expired keys may remain for a while, and
/// a host call cannot be interrupted.
pub const SCAN_KEYS_EXAMINED_MAX: usize = 1024;

/// Yields of one invocation. At some 100 ns per turn of an idle worker, about 10 ms.
pub const INVOCATION_YIELDS_MAX: u32 = 100_000;

/// Age at which an invocation that yielded or used up a slice is ended, in microseconds: until then it holds its pin,
/// and the store cannot free what was overwritten since. It ages from its first poll on, and not while another thread
/// has its worker's core.
pub const INVOCATION_WALL_US_MAX: u64 = 1_000_000;

/// Processor time of one invocation, in microseconds.
pub const INVOCATION_CPU_US_MAX: u64 = 100_000;

/// Maximum runs of an invocation until its commit meets no conflict.
pub const COMMIT_TRIES_MAX: u32 = 8;

/// Runs of an invocation after which the others of its tenant on its worker wait until it ends: those that overwrite what
/// it has read would otherwise have it start over again and again.
pub const COMMIT_TRIES_AMONG_OTHERS: u32 = COMMIT_TRIES_MAX / 2;

/// Bytes of a panic's text that the caller gets.
pub const LAST_WORDS_BYTES_MAX: usize = 512;

/// Bytes of the line on a function's arguments that a caller with wrong arguments gets: kept with each function.
pub const ARGUMENTS_LINE_BYTES_MAX: usize = 512;

/// Bytes of one log line: the most that the SDK sends.
pub const EXTENSION_LOG_LINE_BYTES_MAX: usize = 256;

/// Log lines of one invocation; more are not kept.
pub const EXTENSION_LOG_LINES_MAX: u32 = 32;

/// Bytes of log lines that are kept for a tenant.
pub const EXTENSION_LOG_BYTES: usize = 64 << 10;

// ---- Extensions: measuring ---------------------------------------------------------------------------------

/// One of this many invocations of a worker, on average, is timed: two readings of the cycle counter cost some 15 ns,
/// so measuring stays near 1 ns per invocation.
pub const INVOCATIONS_PER_TIMING: u32 = 16;

/// Steps per power of two in the histogram of times: a quantile is accurate within 6 %.
pub const TIME_STEPS_PER_DOUBLING: usize = 8;

/// Longest time that the histogram distinguishes, in cycles: some 20 s.
pub const TIME_CYCLES_MAX: u64 = 1 << 36;

const _: () = assert!(TIME_STEPS_PER_DOUBLING.is_power_of_two() && TIME_CYCLES_MAX.is_power_of_two());
const _: () = assert!(INVOCATIONS_PER_TIMING.is_power_of_two());

// ---- Extensions: tracing ----------------------------------------------------------------------------------

/// Polls of a traced invocation that are recorded separately.
pub const TRACE_POLLS_MAX: usize = 32;

/// Traces kept for a tenant's reader, some 6 KiB each.
pub const TRACES_KEPT: usize = 32;

/// Tenants of a server that trace at a time: their traces take at most 13 MiB.
pub const TRACED_TENANTS_MAX: usize = 64;

/// Silence of a reader of traces after which tracing ends, in microseconds.
pub const TRACE_LEASE_US: u64 = 3_000_000;

/// Pause of a worker's tracing after a trace that was kept, in microseconds: so tracing stays below a hundredth of a
/// core.
pub const TRACE_REST_US: u64 = 1_000;

// ---- Extensions: installing --------------------------------------------------------------------------------

/// Concurrent builds of installations: each is a compiler, and the workers need the machine.
pub const COMPILES_AT_ONCE_MAX: usize = 2;

/// Waiting installations of one tenant: each is a control thread. Further ones must retry later.
pub const COMPILES_WAITING_PER_TENANT_MAX: usize = 4;

// ---- Extensions: modules of one worker ------------------------------------------------------------------

/// Instances of modules that a worker keeps for later invocations. Each reserves 4 GiB of address space and keeps, of
/// each part of its memory, [`MEMORY_PART_BYTES_KEPT`] at most.
pub const INSTANCES_KEPT_PER_WORKER: usize = 1_024;

/// Instances of modules that a worker has at a time, including those in use; one tenant has at most half of those that the
/// others leave: 8 TiB of addresses, so that sixteen workers
/// have room in a process.
pub const INSTANCES_PER_WORKER_MAX: usize = 2_048;

// ---- Extensions: one worker ------------------------------------------------------------------------------

/// Live invocations of one worker. Beyond it new ones get `Retry`.
pub const INVOCATIONS_PER_WORKER_MAX: usize = 8192;

/// Bytes that all invocations of one worker hold while they yield, are pending, or wait with large arguments; one
/// tenant may hold half of what the others leave. Thousands that hold a few pages fit, and eighteen of the largest
/// possible of one tenant. Each worker has its own budget, because a common counter would be a cache line shared
/// between cores.
pub const HELD_BYTES_PER_WORKER: usize = 256 << 20;

/// Bytes of key and arguments up to which an invocation that waits for its first poll is not counted: the content of a
/// frame. Their number is bounded.
pub const UNCOUNTED_INPUT_BYTES: usize = wire::limits::FRAME_BYTES_MAX;

/// Maximum bytes that all invocations of one worker take in rooms, stacks and lists: held bytes, warm bytes, and the
/// rest, bounded by numbers and sizes. Documented for operators.
pub const INVOCATION_BYTES_PER_WORKER: usize = 512 << 20;

/// Slots that a worker keeps for later invocations; more are unmapped when they become free.
pub const SLOTS_KEPT_PER_WORKER: usize = 1024;

/// Bytes that stay mapped in all slots of a worker: 16 pages for each slot that it keeps, where most need four. Beyond
/// it the least recently used slots return theirs.
pub const WARM_BYTES_PER_WORKER: usize = SLOTS_KEPT_PER_WORKER * (64 << 10);

/// Slots that the end of one invocation examines for memory to return: each costs a system call, some 2 us.
pub const SLOTS_COOLED_AT_ONCE: usize = 16;

// ---- Extensions: pushback ----------------------------------------------------------------------------------

/// Cycles of a worker for a request of a client: receiving, looking up, replying. A core serves some two million gets a second over UDP
/// (docs/spec.md). In a build with assertions, as tests have it, functions and requests cost ten times as much or more.
pub const REQUEST_CYCLES: u64 = if cfg!(debug_assertions) { 12_000 } else { 1_200 };

/// Interval at which a worker decides how many invocations it keeps, in microseconds.
pub const PUSHBACK_WINDOW_US: u64 = 1_000;

/// A worker that was idle for this percentage of the interval keeps more.
pub const KEEP_MORE_IDLE_PERCENT: u64 = 15;

/// A worker that was idle for less than this percentage keeps fewer.
pub const KEEP_FEWER_IDLE_PERCENT: u64 = 8;

/// The fewest invocations that a worker keeps. ASFP pushes back from four on.
pub const KEPT_INVOCATIONS_MIN: usize = 4;

/// The most that it keeps: from here on it pushes back even if it is idle at times, as behind a burst.
pub const KEPT_INVOCATIONS_MAX: usize = 256;

/// Objects that the answer looks up which pushes an invocation back: some 3 us. The client reads the rest again.
pub const PUSHED_BACK_READS_MAX: usize = 32;

const _: () =
    assert!(KEPT_INVOCATIONS_MIN <= KEPT_INVOCATIONS_MAX && KEEP_FEWER_IDLE_PERCENT < KEEP_MORE_IDLE_PERCENT);

// ---- Extensions: preemption ------------------------------------------------------------------------------

/// Time slice of an invocation before it yields to others, in microseconds: long enough that a timer signal, which
/// costs up to 20 us on a virtual machine, does not dominate it, short enough that requests behind a loop wait some
/// 100 us.
pub const SLICE_US: u64 = 50;

/// Minimum number of slices by which the timer is kept ahead of a steady extension's polls. Arming it for 50 us costs
/// up to 9 us on a virtual machine, for 1 ms 3 us, and only once in this many slices: 0.3 % of a core. The first
/// overrun of a steady extension is detected that much later; from then on it is watched slice by slice.
pub const STEADY_SLICES: u64 = 20;

/// Maximum slices charged to a poll beyond the intended lateness of its timer; beyond that, other threads ran.
pub const SLICES_CHARGED_MAX: u64 = 3;

/// Slices that a tenant's other runnable invocations use before one that used up a slice runs again: it gets a quarter
/// of the tenant's time.
pub const PARKED_REST_SLICES: u64 = 3;

/// Slices that recently quiet tenants, which are preferred, use together until one of the others has its turn.
pub const FRESH_SLICES: u64 = 4;

/// Length of a turn of invocations, in slices; then the worker looks at its port. Together with the last poll, which
/// may use up a slice, requests that arrive meanwhile wait for twice that.
pub const TURN_SLICES: u64 = 1;

/// Maximum debt of a tenant, in slices, for use beyond its share: a tenant in debt waits while others are served, so
/// this bounds the wait, and the amount of a lucky burst that is taken back.
pub const TENANT_DEBT_SLICES_MAX: u64 = 64;

/// Tenants whose share of a worker is remembered; beyond it those without runnable invocations are forgotten. Each
/// takes some 200 bytes.
pub const TENANT_PLACES_KEPT: usize = 16_384;

/// Entries of a tenant's queue on a worker that keep their memory while the tenant is idle: half a kilobyte, so that
/// all queues together keep some megabytes whatever waited there before.
pub const TENANT_PLACE_ENTRIES_KEPT: usize = 64;

/// Invocations of one worker that wait after using up a slice. Each holds a stack, a room and its pin; beyond the
/// limit the newest is ended.
pub const PARKED_PER_WORKER_MAX: usize = 256;
/// Invocations of a tenant that wait on a worker after using up a slice, from which on one of those runs before new
/// ones start: otherwise functions slightly longer than a slice would reach the limit above, however many arrive at
/// once.
pub const PARKED_BEFORE_NEW: usize = PARKED_PER_WORKER_MAX / 4;

/// Interval at which waiting invocations are checked for their deadline, in microseconds.
pub const PARKED_LOOK_US: u64 = 1_000;

/// Consecutive polls of one extension between two readings of the cycle counter: a reading costs some 8 ns, about an
/// eighth of the smallest invocation.
pub const POLLS_PER_READING: u32 = 8;

const _: () = assert!(INVOCATION_CPU_US_MAX <= INVOCATION_WALL_US_MAX);
const _: () = assert!(SLICE_US * SLICES_CHARGED_MAX < INVOCATION_CPU_US_MAX);
const _: () = assert!(SLICE_US * STEADY_SLICES * 2 < INVOCATION_CPU_US_MAX);
const _: () = assert!(SLICE_US * SLICES_CHARGED_MAX < WATCHDOG_LOOK_MS * 1000);
const _: () = assert!(PARKED_PER_WORKER_MAX <= INVOCATIONS_PER_WORKER_MAX);

const _: () = assert!(TRANSACTION_READS_MAX + TRANSACTION_WRITES_MAX <= store::COMMIT_OPERATIONS_MAX);
const _: () =
    assert!(wire::limits::COMMIT_READS_MAX + wire::limits::COMMIT_WRITES_MAX <= store::COMMIT_OPERATIONS_MAX);
const _: () = assert!(TRANSACTION_BYTES >= store::VALUE_BYTES_MAX + store::KEY_BYTES_MAX);
const _: () = assert!(MEMORY_PART_BYTES_KEPT.is_multiple_of(4096) && ARENA_BYTES > MEMORY_PART_BYTES_KEPT);
const _: () = assert!(WARM_BYTES_PER_WORKER > 4 * MEMORY_PART_BYTES_KEPT);
const _: () = assert!(
    TRANSACTION_READS_KEPT <= TRANSACTION_READS_MAX
        && TRANSACTION_WRITES_SCANNED <= TRANSACTION_WRITES_KEPT
        && TRANSACTION_WRITES_KEPT <= TRANSACTION_WRITES_MAX
);
const _: () = assert!(EXTENSION_LOG_LINE_BYTES_MAX + 64 < EXTENSION_LOG_BYTES);
const _: () = assert!(LAST_WORDS_BYTES_MAX <= STORED_REPLY_BYTES_MAX);
const _: () = assert!(ARGUMENTS_LINE_BYTES_MAX <= STORED_REPLY_BYTES_MAX);
