//! Limits of extensions: their memory and stacks, one invocation, what is measured, how they are preempted.
//!
//! What a tenant may use by default is here too; `splinter tenant limits` changes it within these bounds.

use super::STORED_REPLY_BYTES_MAX;

// ---- Extensions: memory and stacks -------------------------------------------------------------------

/// Bytes of stack that an extension may use: deep enough for parsers and TAO queries, small enough that a
/// stack costs a worker 16 warm pages at most.
pub const EXTENSION_STACK_BYTES: usize = 64 << 10;

/// Bytes of stack that a host call may use: measured are below 6 KiB in a build for tests, below 4 KiB in a
/// release. An extension that calls the host with less than this left, plus a signal frame, overflows.
pub const HOST_CALL_STACK_BYTES: usize = 16 << 10;

/// Bytes of the guard below an extension's stack. A single page would do, since the compiler touches every
/// page of a frame in turn; more catches what a bug in that would do.
pub const STACK_GUARD_BYTES: usize = 64 << 10;

/// Stacks that a worker keeps mapped while nobody runs on them.
pub const STACKS_KEPT_PER_WORKER: usize = 64;

/// Bytes of the stack on which faults are handled, the signal frame excluded.
pub const ALTERNATE_STACK_BYTES: usize = 32 << 10;

const _: () = assert!(STACK_GUARD_BYTES.is_multiple_of(4096) && ALTERNATE_STACK_BYTES.is_multiple_of(4096));

// ---- Extensions: one invocation --------------------------------------------------------------------------

/// Bytes that one invocation may allocate.
pub const ARENA_BYTES: usize = 1 << 20;

/// Bytes of keys and values that one invocation may write before they are applied.
pub const TRANSACTION_BYTES: usize = 4 << 20;

/// Objects that one invocation may write: with the reads of it, what one commit of the store takes.
pub const TRANSACTION_WRITES_MAX: usize = 1024;

/// Up to this many writes a lookup among them compares in a row.
pub const TRANSACTION_WRITES_SCANNED: usize = 16;

/// Objects that an invocation of a function that may write may read: all are validated at the commit.
pub const TRANSACTION_READS_MAX: usize = 3072;

/// Reads for which a slot keeps memory from one invocation to the next, some 20 KiB with what checks them.
pub const TRANSACTION_READS_KEPT: usize = 256;

/// Writes for which it does, some 15 KiB with the table in which many are found.
pub const TRANSACTION_WRITES_KEPT: usize = 64;

/// Objects that one invocation may read, in whatever way.
pub const INVOCATION_READS_MAX: u32 = 1 << 20;

/// Keys that one host call reads: what the SDK sends at once, twice over.
pub const GET_MANY_KEYS_MAX: usize = 64;

/// Objects that one host call of a scan brings.
pub const SCAN_ENTRIES_MAX: usize = 64;

/// Objects that one host call of an enumeration brings: what the SDK has room for. They lie on the function's stack
/// while they are checked.
pub const ENUMERATION_ENTRIES_MAX: usize = 32;

/// Keys that one call of a scan looks at, those under which nothing is found any more included: what has expired may
/// stand there for a while, and a host call cannot be interrupted.
pub const SCAN_KEYS_EXAMINED_MAX: usize = 1024;

/// Times that one invocation may yield. At some 100 ns a turn of an idle worker, about 10 ms.
pub const INVOCATION_YIELDS_MAX: u32 = 100_000;

/// Age at which an invocation is ended that yielded or used up a slice, in microseconds: until then it
/// holds its pin, and the store cannot free what was overwritten since. It ages from its first poll on, and not while
/// something else has its worker's core.
pub const INVOCATION_WALL_US_MAX: u64 = 1_000_000;

/// Time on the processor that one invocation may use, in microseconds.
pub const INVOCATION_CPU_US_MAX: u64 = 100_000;

/// How often an invocation is run until its commit meets no conflict.
pub const COMMIT_TRIES_MAX: u32 = 8;

/// Bytes of the text of a panic that the caller gets.
pub const LAST_WORDS_BYTES_MAX: usize = 512;

/// Bytes that a caller with wrong arguments gets of the line that says what the function takes: kept with each function.
pub const ARGUMENTS_LINE_BYTES_MAX: usize = 512;

/// Bytes of one log line; what the SDK sends at most.
pub const EXTENSION_LOG_LINE_BYTES_MAX: usize = 256;

/// Log lines of one invocation; more are not kept.
pub const EXTENSION_LOG_LINES_MAX: u32 = 32;

/// Bytes of log lines that are kept for a tenant.
pub const EXTENSION_LOG_BYTES: usize = 64 << 10;

// ---- Extensions: measuring ---------------------------------------------------------------------------------

/// Invocations of a worker of which one, on average, is timed: two readings of the cycle counter cost some
/// 15 ns, so that measuring stays near 1 ns an invocation.
pub const INVOCATIONS_PER_TIMING: u32 = 16;

/// Steps in which a power of two is divided by the histogram of times: a quantile is right within 6 %.
pub const TIME_STEPS_PER_DOUBLING: usize = 8;

/// Longest time that the histogram tells apart, in cycles: some 20 s.
pub const TIME_CYCLES_MAX: u64 = 1 << 36;

const _: () = assert!(TIME_STEPS_PER_DOUBLING.is_power_of_two() && TIME_CYCLES_MAX.is_power_of_two());
const _: () = assert!(INVOCATIONS_PER_TIMING.is_power_of_two());

// ---- Extensions: tracing ----------------------------------------------------------------------------------

/// Polls of a traced invocation that are told apart.
pub const TRACE_POLLS_MAX: usize = 32;

/// Traces that are kept for a tenant's reader, some 6 KiB each.
pub const TRACES_KEPT: usize = 32;

/// Tenants of a server that trace at a time: their traces take 13 MiB at the very most.
pub const TRACED_TENANTS_MAX: usize = 64;

/// How long a reader of traces may be silent before tracing ends, in microseconds.
pub const TRACE_LEASE_US: u64 = 3_000_000;

/// Rest of a worker after a trace that was kept, in microseconds: so tracing stays below a hundredth of a core.
pub const TRACE_REST_US: u64 = 1_000;

// ---- Extensions: installing --------------------------------------------------------------------------------

/// Installations that build at a time: each is a compiler, and the workers need the machine.
pub const COMPILES_AT_ONCE_MAX: usize = 2;

/// Installations of one tenant that wait: each is a control thread. More are told to try later.
pub const COMPILES_WAITING_PER_TENANT_MAX: usize = 4;

// ---- Extensions: one worker ------------------------------------------------------------------------------

/// Invocations of one worker that have not ended. Beyond it new ones are told to come again.
pub const INVOCATIONS_PER_WORKER_MAX: usize = 8192;

/// Bytes that invocations of one worker hold while they yield, are parked, or wait with large arguments, all together;
/// one tenant half of what the others leave. Thousands that hold a few pages fit, and eighteen of the largest there are
/// of one tenant. A share for each worker, since counting for all would be a line of the cache between cores.
pub const HELD_BYTES_PER_WORKER: usize = 256 << 20;

/// Bytes of key and arguments of an invocation that waits for its first poll without being counted: what a frame
/// brings. Their number is bounded.
pub const UNCOUNTED_INPUT_BYTES: usize = wire::limits::FRAME_BYTES_MAX;

/// Bytes that all invocations of one worker take at the very most, in rooms, stacks and lists: what is held, what
/// is kept warm, and what their number and the sizes of the rest come to. To be told to operators.
pub const INVOCATION_BYTES_PER_WORKER: usize = 512 << 20;

/// Slots that a worker keeps for the invocations to come; more are unmapped when they are free.
pub const SLOTS_KEPT_PER_WORKER: usize = 1024;

/// Bytes of each part of a slot's memory that stay with it: giving pages back and touching them anew costs more
/// than most invocations.
pub const ROOM_PART_BYTES_KEPT: usize = 64 << 10;

/// Bytes that stay in this way with all slots of a worker: 16 pages for each that it keeps, where most need four.
/// Beyond it those that have not been used for longest give theirs back.
pub const WARM_BYTES_PER_WORKER: usize = SLOTS_KEPT_PER_WORKER * (64 << 10);

/// Slots that one invocation's end looks at for memory to be given back: each costs a system call, some 2 us.
pub const SLOTS_COOLED_AT_ONCE: usize = 16;

// ---- Extensions: preemption ------------------------------------------------------------------------------

/// What an invocation may run in one piece before it makes room for others, in microseconds: long enough
/// that a signal of the timer, which costs up to 20 us on a virtual machine, does not eat it, short enough
/// that who waits behind a loop waits some 100 us.
pub const SLICE_US: u64 = 50;

/// Polls in a row that end within their slice before an extension counts as steady for the first time. Each
/// time that one which was steady uses up a slice, twice as many are asked of it from then on.
pub const STEADY_POLLS: u32 = 1024;

/// The most polls that are asked for, some seconds of nothing else: so that whoever is short on purpose to be
/// long once gains less than a thousandth of a core.
pub const STEADY_POLLS_MAX: u32 = 1 << 24;

/// After this time without an overrun half as many are asked for, in microseconds: a thread that lost its core
/// looks like an overrun, and is not to count for long.
pub const STEADY_HALVED_US: u64 = 4_000_000;

/// How many slices ahead of a steady extension's polls the timer is kept, at the least. Arming it for 50 us
/// costs up to 9 us on a virtual machine, for 1 ms 3 us, and only once in so many slices: 0.3 % of a core. The
/// first overrun of what was steady is seen that much later; from then on it is watched slice by slice.
pub const STEADY_SLICES: u64 = 20;

/// A poll is charged at most this many slices more than its timer was late on purpose: else others ran.
pub const SLICES_CHARGED_MAX: u64 = 3;

/// While a tenant has other invocations that can run, one that used up a slice runs on when those have used
/// this many slices since the last such one: a quarter of the tenant's time.
pub const PARKED_REST_SLICES: u64 = 3;

/// What tenants that go before the others, since they have been quiet, use together in slices until one of the others
/// has its turn.
pub const FRESH_SLICES: u64 = 4;

/// An overrun of so many slices is not a core that was lost for a moment: a steady extension made use of being watched
/// from afar.
pub const LONG_OVERRUN_SLICES: u64 = 4;

/// A steady extension that overruns by less, in slices, stays steady: one that is watched closely may run as long.
pub const SHORT_OVERRUN_SLICES: u64 = 2;

/// How long a turn of invocations goes on, in slices: then the worker looks at its port. With the last poll,
/// which may use up a slice, who comes meanwhile waits for twice that.
pub const TURN_SLICES: u64 = 1;

/// Slices that a tenant can owe, for what it used beyond its share: as a debt it waits while others are served,
/// so this bounds both how long and how much of a lucky burst is taken back.
pub const TENANT_DEBT_SLICES_MAX: u64 = 64;

/// Tenants whose share of a worker is remembered; beyond it those that have nothing to run are forgotten. Each
/// takes some 200 bytes.
pub const TENANT_PLACES_KEPT: usize = 16_384;

/// Entries of a tenant's queue on a worker that keep their memory while the tenant has nothing to do: half a kilobyte,
/// so that all places together keep some megabytes whatever waited there once.
pub const TENANT_PLACE_ENTRIES_KEPT: usize = 64;

/// Invocations of one worker that wait after using up a slice. Each holds a stack, a room and its pin; the
/// newest is ended when there are more.
pub const PARKED_PER_WORKER_MAX: usize = 256;
/// Invocations of a tenant that wait on a worker after using up a slice, from which on one of those runs before new ones
/// are started: functions a little longer than a slice would else meet the limit above, however many come at once.
pub const PARKED_BEFORE_NEW: usize = PARKED_PER_WORKER_MAX / 4;

/// How often those that wait are looked through for their deadline, in microseconds.
pub const PARKED_LOOK_US: u64 = 1_000;

/// Polls of one extension in a row between two readings of the cycle counter: a reading costs some 8 ns,
/// about an eighth of the smallest invocation.
pub const POLLS_PER_READING: u32 = 8;

/// How often the watchdog looks at the workers, in milliseconds. It signals one that it finds in the same
/// poll twice.
pub const WATCHDOG_LOOK_MS: u64 = 10;

/// Looks that find a worker in the same poll until the watchdog reports it.
pub const WATCHDOG_LOOKS_TO_REPORT: u32 = 10;

const _: () = assert!(INVOCATION_CPU_US_MAX <= INVOCATION_WALL_US_MAX);
const _: () = assert!(SLICE_US * SLICES_CHARGED_MAX < INVOCATION_CPU_US_MAX);
const _: () = assert!(SLICE_US * STEADY_SLICES * 2 < INVOCATION_CPU_US_MAX);
const _: () = assert!(STEADY_POLLS.is_power_of_two() && STEADY_POLLS < STEADY_POLLS_MAX);
const _: () = assert!(SLICE_US * SLICES_CHARGED_MAX < WATCHDOG_LOOK_MS * 1000);
const _: () = assert!(PARKED_PER_WORKER_MAX <= INVOCATIONS_PER_WORKER_MAX);

const _: () = assert!(TRANSACTION_READS_MAX + TRANSACTION_WRITES_MAX <= store::COMMIT_OPERATIONS_MAX);
const _: () = assert!(TRANSACTION_BYTES >= store::VALUE_BYTES_MAX + store::KEY_BYTES_MAX);
const _: () = assert!(ROOM_PART_BYTES_KEPT.is_multiple_of(4096) && ARENA_BYTES > ROOM_PART_BYTES_KEPT);
const _: () = assert!(WARM_BYTES_PER_WORKER > 4 * ROOM_PART_BYTES_KEPT);
const _: () = assert!(
    TRANSACTION_READS_KEPT <= TRANSACTION_READS_MAX
        && TRANSACTION_WRITES_SCANNED <= TRANSACTION_WRITES_KEPT
        && TRANSACTION_WRITES_KEPT <= TRANSACTION_WRITES_MAX
);
const _: () = assert!(EXTENSION_LOG_LINE_BYTES_MAX + 64 < EXTENSION_LOG_BYTES);
const _: () = assert!(LAST_WORDS_BYTES_MAX <= STORED_REPLY_BYTES_MAX);
const _: () = assert!(ARGUMENTS_LINE_BYTES_MAX <= STORED_REPLY_BYTES_MAX);
