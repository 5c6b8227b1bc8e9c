//! The border between the server and an artefact: C layout, C calls, nothing generic.
//!
//! An artefact is one shared object: the author's crate, this SDK, and a trusted glue that the server
//! wrote. Both sides are built from the same source of this file, and a hash over that source is checked
//! before a library is opened; the C layout makes the border independent of how either side was
//! optimised. An author never sees these types: [`crate::Db`], [`crate::Args`] and [`crate::Reply`]
//! wrap them.
//!
//! Pointers that cross from the extension to the host are valid for the call alone; the host copies what
//! it keeps. Pointers that cross from the host (records, arguments, the reply buffer) stay valid and
//! unchanged until the invocation ends.

use core::ffi::c_void;

/// Version of this border; raised whenever a type here changes.
pub const ABI_VERSION: u32 = 5;

/// A run of bytes owned by somebody else.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawSlice {
    /// First byte; dangling but not null when `bytes` is 0.
    pub address: *const u8,
    /// Length in bytes.
    pub bytes: usize,
}

/// Version of a record that the invocation itself wrote: it gets one when the write set is applied.
pub const VERSION_UNAPPLIED: u64 = u64::MAX;

/// An object as the host found it. `version` 0 says that there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawRecord {
    /// The value, lent until the invocation ends.
    pub value: RawSlice,
    /// Version of the object, 0 when absent, [`VERSION_UNAPPLIED`] when this invocation wrote it.
    pub version: u64,
}

/// Keys of an ordered table, and which way.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawRange {
    /// Not those below.
    pub from: RawSlice,
    /// With [`RANGE_HAS_TO`]: not this one and those above.
    pub to: RawSlice,
    /// Only those that begin so.
    pub prefix: RawSlice,
    /// With [`RANGE_HAS_AFTER`]: only those that come behind this one on the way.
    pub after: RawSlice,
    /// [`RANGE_HAS_TO`], [`RANGE_HAS_AFTER`], [`RANGE_REVERSE`]; others are zero.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// There is an upper bound.
pub const RANGE_HAS_TO: u32 = 1;
/// There is a key to go on behind.
pub const RANGE_HAS_AFTER: u32 = 2;
/// From the largest key to the smallest.
pub const RANGE_REVERSE: u32 = 4;

/// An object that a scan met, which is there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawEntry {
    /// The key, lent until the invocation ends.
    pub key: RawSlice,
    /// The object.
    pub record: RawRecord,
}

/// How far a scan came.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawScanned {
    /// Objects that it met; may be fewer than there was room for before the end too.
    pub count: usize,
    /// The key that it looked at last, if it has not ended; lent until the invocation ends.
    pub last: RawSlice,
    /// 1 when there are no more, else 0.
    pub ended: u32,
    /// Zero.
    pub reserved: u32,
}

/// Most bytes of a cursor of an enumeration.
pub const CURSOR_BYTES_MAX: usize = 64;

/// What a page of an enumeration came to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawListed {
    /// Objects that it brought; may be none before the end too.
    pub count: usize,
    /// Bytes of the cursor; 0 at the end.
    pub cursor_bytes: usize,
    /// Where the next page begins.
    pub cursor: [u8; CURSOR_BYTES_MAX],
}

/// When a write applies.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawCondition {
    /// 0 always, 1 absent, 2 present, 3 exactly `version`.
    pub kind: u32,
    /// Used by kind 3.
    pub version: u64,
}

/// The time to live of an object that stays until it is deleted.
pub const TTL_FOREVER: u64 = u64::MAX;
/// Longest time to live in milliseconds: 139 years.
pub const TTL_MS_MAX: u64 = 1 << 42;

/// What a host call or a run of a function answers: 0 is success, [`PENDING`] is "poll again", the rest
/// are the codes of [`crate::Error`] in the low half, an application's own number in the high half.
pub type Code = u64;

/// The call succeeded.
pub const OK: Code = 0;
/// The call has not finished; the same call with the same ticket is made again at the next poll. From a
/// run of a function: poll again, at once when no host call is outstanding (the function yielded).
pub const PENDING: Code = u32::MAX as Code;

/// What the host offers to a running extension. `context` is [`Call::context`].
///
/// `ticket` belongs to one pending future: 0 at its first poll; a host that answers [`PENDING`] stores
/// there what it needs to find the operation again. A future may be forgotten; completions are host-owned.
#[repr(C)]
pub struct Host {
    /// Reads one object.
    pub get: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        key: RawSlice,
        record: *mut RawRecord,
    ) -> Code,
    /// Reads `count` objects; `keys` and `records` are arrays of that length.
    pub get_many: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        keys: *const RawSlice,
        count: usize,
        records: *mut RawRecord,
    ) -> Code,
    /// Reads objects of an ordered table in the order of their keys: at most `capacity` into the array `entries`.
    pub scan: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        range: *const RawRange,
        entries: *mut RawEntry,
        capacity: usize,
        scanned: *mut RawScanned,
    ) -> Code,
    /// Reads objects of a table in no order that has a meaning, from a cursor on, of which there are no bytes at the
    /// start: at most `capacity` into the array `entries`.
    pub enumerate: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        cursor: RawSlice,
        entries: *mut RawEntry,
        capacity: usize,
        listed: *mut RawListed,
    ) -> Code,
    /// Writes one object into the invocation's write set. `ttl_ms`: how long it is there, from 1 to [`TTL_MS_MAX`], or
    /// [`TTL_FOREVER`].
    pub put: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        key: RawSlice,
        value: RawSlice,
        condition: RawCondition,
        ttl_ms: u64,
    ) -> Code,
    /// Deletes one object in the invocation's write set.
    pub delete: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        key: RawSlice,
        condition: RawCondition,
    ) -> Code,
    /// Adds to the number that an object holds, in the invocation's write set; stores the sum in `value`.
    /// An absent object counts as 0.
    pub increment: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        key: RawSlice,
        delta: i64,
        value: *mut i64,
    ) -> Code,
    /// As `increment`, for an IEEE 754 number of 64 bits.
    pub increment_float: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        key: RawSlice,
        delta: f64,
        value: *mut f64,
    ) -> Code,
    /// Finds the id of a table by its name.
    pub table:
        unsafe extern "C" fn(context: *mut c_void, ticket: *mut u64, name: RawSlice, id: *mut u32) -> Code,
    /// Writes one line to the tenant's log. `level`: 0 error, 1 warning, 2 information, 3 debug.
    pub log: unsafe extern "C" fn(context: *mut c_void, level: u32, text: RawSlice),
    /// Milliseconds since the Unix epoch.
    pub now_ms: unsafe extern "C" fn(context: *mut c_void) -> u64,
}

/// The reply under construction; the memory is the host's.
#[repr(C)]
#[derive(Debug)]
pub struct RawReply {
    /// First byte of the buffer.
    pub address: *mut u8,
    /// Bytes written so far.
    pub bytes: usize,
    /// Bytes that may be written in all.
    pub capacity: usize,
    /// The most bytes that were written before some of them were dropped; 0 when none were.
    pub highest: usize,
    /// How many bytes it would have had with the latest ones that did not fit; 0 when all did.
    pub asked: usize,
}

impl RawReply {
    /// The most bytes that were ever written, or that were about to be: what of the buffer was touched.
    #[must_use]
    pub const fn touched_bytes(&self) -> usize {
        if self.highest > self.bytes { self.highest } else { self.bytes }
    }
}

/// One invocation as the artefact sees it. Filled by the host; lives until the invocation ends.
#[repr(C)]
pub struct Call {
    /// The host's calls.
    pub host: *const Host,
    /// Handed back to every host call.
    pub context: *mut c_void,
    /// The key that routed the invocation; may be empty.
    pub key: RawSlice,
    /// The caller's arguments.
    pub arguments: RawSlice,
    /// Where the reply goes.
    pub reply: RawReply,
    /// The future, once the first run has placed it in the invocation's arena; null before.
    pub future: *mut u8,
    /// The table that the caller named.
    pub table: u32,
    /// Zero.
    pub reserved: u32,
}

/// What the host gives to the glue when the library is opened: the allocator of the arena of whichever
/// invocation runs on this thread, and the way out of a panic.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Services {
    /// Allocates from the arena; null when it is used up.
    pub allocate: unsafe extern "C" fn(bytes: usize, align: usize) -> *mut u8,
    /// Returns the latest allocation; others are dropped with the arena.
    pub free: unsafe extern "C" fn(address: *mut u8, bytes: usize, align: usize),
    /// Grows or shrinks in place when it is the latest allocation, else copies; null when it is used up.
    pub reallocate:
        unsafe extern "C" fn(address: *mut u8, bytes: usize, align: usize, new_bytes: usize) -> *mut u8,
    /// Called first in a panic: answers how many panics the running invocation has begun before, so that a
    /// panic while the text of a panic is formatted ends at once.
    pub begin_panic: unsafe extern "C" fn() -> u32,
    /// Ends the invocation: leaves its stack for good. `text` says why. `kind`: 0 panic, 1 out of memory.
    pub abandon: unsafe extern "C" fn(kind: u32, text: RawSlice) -> !,
}

/// One function of an artefact.
#[repr(C)]
pub struct Function {
    /// Its name, UTF-8.
    pub name: RawSlice,
    /// 0 read, 1 write.
    pub mode: u32,
    /// Zero.
    pub reserved: u32,
    /// Starts the function (`call.future` null: creates the future in the arena) or resumes it, and polls
    /// once. Runs on an extension stack; may never return (see [`Services::abandon`]).
    pub run: unsafe extern "C" fn(call: *mut Call) -> Code,
}

// SAFETY: `name` points at the artefact's constant data, which nothing changes.
unsafe impl Sync for Function {}

/// The one symbol that an artefact exports, as `SPLINTER_ARTEFACT`.
#[repr(C)]
pub struct Artefact {
    /// [`ABI_VERSION`] of the artefact.
    pub abi_version: u32,
    /// How many functions.
    pub function_count: u32,
    /// SHA-256 over compiler, flags, SDK and glue, as the builder computed it.
    pub sdk_hash: [u8; 32],
    /// The functions.
    pub functions: *const Function,
    /// Called once, before any function.
    pub open: unsafe extern "C" fn(services: Services),
}

// SAFETY: `functions` points at the artefact's constant data, which nothing changes.
unsafe impl Sync for Artefact {}
