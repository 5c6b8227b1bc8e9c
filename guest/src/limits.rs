//! Limits of stacks, of preemption and of the watchdog, with unit and reason.

/// Bytes of stack that an extension may use: deep enough for parsers and TAO queries, small enough that a
/// stack costs a worker 16 warm pages at most.
pub const EXTENSION_STACK_BYTES: usize = 64 << 10;

/// Bytes of stack that a host call may use: natively measured below 8 KiB in a test build, below 4 KiB in a release
/// build; by a module, whose copies need lists of what to copy, below 12 KiB in a test build. An extension that calls
/// the host with less than this left, plus a signal frame, overflows.
pub const HOST_CALL_STACK_BYTES: usize = 16 << 10;

/// Bytes of the guard below an extension's stack. A single page would suffice, since the compiler touches every page
/// of a frame in turn; more protects against a bug in that.
pub const STACK_GUARD_BYTES: usize = 64 << 10;

/// Unused stacks that a worker keeps mapped.
pub const STACKS_KEPT_PER_WORKER: usize = 64;

/// Bytes of the stack that handles faults, the signal frame excluded.
pub const ALTERNATE_STACK_BYTES: usize = 32 << 10;

/// Consecutive polls within their slice before an extension counts as steady for the first time. Each time that a
/// steady extension uses up a slice, the required number doubles.
pub const STEADY_POLLS: u32 = 1024;

/// Maximum required polls, some seconds of continuous work, so that an extension that is short on purpose to be long
/// once gains less than a thousandth of a core.
pub const STEADY_POLLS_MAX: u32 = 1 << 24;

/// Time without an overrun after which the required polls are halved, in microseconds: a thread that lost its core
/// looks like an overrun, and must not count for long.
pub const STEADY_HALVED_US: u64 = 4_000_000;

/// Overrun, in slices, that is no brief loss of the core: a steady extension exploited the loose watch.
pub const LONG_OVERRUN_SLICES: u64 = 4;

/// Overrun, in slices, below which a steady extension stays steady: a closely watched one may run as long.
pub const SHORT_OVERRUN_SLICES: u64 = 2;

/// Interval at which the watchdog examines the workers, in milliseconds. It signals a worker that it finds in the same
/// poll twice.
pub const WATCHDOG_LOOK_MS: u64 = 10;

/// Looks at a worker in the same poll after which the watchdog reports it.
pub const WATCHDOG_LOOKS_TO_REPORT: u32 = 10;

/// Bytes of a module's linear memory, which neither grows nor shrinks: its stack and data, the input, the arena, the
/// reply and what is lent. Backed by pages where it is touched.
pub const MODULE_MEMORY_BYTES: usize = 16 << 20;

/// Bytes behind the 4 GiB that a 32-bit address reaches: an access adds a constant to the address, and the compiler
/// checks only constants larger than this. Wasmtime's default.
pub const MODULE_GUARD_BYTES: usize = 32 << 20;

/// Bytes of the guard below a module's linear memory. No address of a module reaches it; it stops a write of the host
/// that runs downwards.
pub const MODULE_GUARD_BELOW_BYTES: usize = 64 << 10;

/// Elements of a module's table of functions: as many as a module of the largest size could name.
pub const MODULE_TABLE_ELEMENTS: usize = 1 << 16;

/// Bytes that one invocation may allocate.
pub const ARENA_BYTES: usize = 1 << 20;

/// Bytes that host calls may copy into the linear memory of one invocation. A native extension reads them in place,
/// without this limit.
pub const LENT_BYTES: usize = 4 << 20;

/// Bytes that a host call copies into linear memory before the invocation may be parked: some 10 us.
pub const LENT_BYTES_AT_ONCE: usize = 64 << 10;

/// Keys that one host call reads: twice the number that the SDK sends at once.
pub const GET_MANY_KEYS_MAX: usize = 64;

/// Objects that one host call of a scan returns.
pub const SCAN_ENTRIES_MAX: usize = 64;

/// Objects that one host call of an enumeration returns: the capacity of the SDK. They lie on the function's stack
/// while they are checked.
pub const ENUMERATION_ENTRIES_MAX: usize = 32;

/// Bytes before an invocation's reply, so that a message head can be added without moving it.
pub const REPLY_HEAD_BYTES: usize = 16;

/// Bytes of each part of a slot's memory that stay mapped: returning pages and touching them again costs more than
/// most invocations.
pub const MEMORY_PART_BYTES_KEPT: usize = 64 << 10;

const _: () =
    assert!(MODULE_MEMORY_BYTES.is_multiple_of(64 << 10) && MODULE_GUARD_BYTES.is_multiple_of(4096));
const _: () = assert!(STACK_GUARD_BYTES.is_multiple_of(4096) && ALTERNATE_STACK_BYTES.is_multiple_of(4096));
const _: () = assert!(STEADY_POLLS.is_power_of_two() && STEADY_POLLS < STEADY_POLLS_MAX);
