//! The ABI between the server and an artefact: C layout, C calls, nothing generic.
//!
//! An artefact is one shared object: the author's crate, this SDK, and trusted glue that the server generated. Both
//! sides are built from the same source of this file, and a hash over that source is checked before a library is
//! opened; the C layout makes the ABI independent of how either side was optimized. Authors never see these types:
//! [`crate::Db`], [`crate::Args`] and [`crate::Reply`] wrap them.
//!
//! Pointers from the extension to the host are valid only during the call; the host copies what it keeps. Pointers from
//! the host (records, arguments, the reply buffer) stay valid and unchanged until the invocation ends, except those to
//! the keys and values of a page of a scan or an enumeration, which end with the next page ([`RawScanned::page`],
//! [`RawListed::page`]).

#[path = "abi/wasm32.rs"] // for those who include this file by its path
pub mod wasm32;

use core::ffi::c_void;

/// Version of this ABI; raised whenever a type here changes.
pub const ABI_VERSION: u32 = 6;

/// A byte slice whose memory has another owner.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawSlice {
    /// First byte; dangling but not null when `bytes` is 0.
    pub address: *const u8,
    /// Length in bytes.
    pub bytes: usize,
}

/// Version of a record that the invocation itself wrote; the real one is assigned at the commit.
pub const VERSION_UNAPPLIED: u64 = u64::MAX;

/// An object as the host found it. `version` 0 means absent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawRecord {
    /// The value, lent until the invocation ends; in a [`RawEntry`], until the next page.
    pub value: RawSlice,
    /// Version of the object, 0 when absent, [`VERSION_UNAPPLIED`] when this invocation wrote it.
    pub version: u64,
}

/// A range of keys of an ordered table, with a direction.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawRange {
    /// First key of the range, included.
    pub from: RawSlice,
    /// With [`RANGE_HAS_TO`]: end of the range, excluded.
    pub to: RawSlice,
    /// Common prefix of the keys.
    pub prefix: RawSlice,
    /// With [`RANGE_HAS_AFTER`]: only keys after this one in scan order.
    pub after: RawSlice,
    /// [`RANGE_HAS_TO`], [`RANGE_HAS_AFTER`], [`RANGE_REVERSE`]; all other bits are zero.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// The range has an upper bound.
pub const RANGE_HAS_TO: u32 = 1;
/// The scan continues after a key.
pub const RANGE_HAS_AFTER: u32 = 2;
/// The scan goes from the largest key to the smallest.
pub const RANGE_REVERSE: u32 = 4;

/// An object that a scan or an enumeration found; always present.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawEntry {
    /// The key, lent until the next page.
    pub key: RawSlice,
    /// The object.
    pub record: RawRecord,
}

/// The result of a scan call. Every field is one word or two, so no layout has padding: on 32 bits `count` is at 0,
/// `last` at 4, `ended` at 12, `page` at 16.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawScanned {
    /// Number of objects found; may be less than the capacity before the end too.
    pub count: usize,
    /// The last key examined, if the scan has not ended; lent until a later call with this page has succeeded, so that
    /// the next call can name it as [`RawRange::after`].
    pub last: RawSlice,
    /// 1 if there are no more objects, else 0.
    pub ended: usize,
    /// Set by both sides: at the first call of a scan, empty or what the host stored for one that has ended and whose
    /// entries are of no use any more; then what the host stored here at its previous call. A host that copies what it
    /// lends remembers its memory for the scan here, and overwrites it with the next page, but only during a call. A
    /// host that lends its own memory leaves this empty.
    pub page: RawSlice,
}

const _: () = assert!(size_of::<RawScanned>() == 6 * size_of::<usize>());

/// Maximum size of the cursor of an enumeration, in bytes.
pub const CURSOR_BYTES_MAX: usize = 64;

/// The result of an enumeration call. No layout has padding: on 32 bits `count` is at 0, `cursor_bytes` at 4, `cursor`
/// at 8, `page` at 72.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawListed {
    /// Number of objects found; may be 0 before the end too.
    pub count: usize,
    /// Size of the cursor in bytes; 0 at the end.
    pub cursor_bytes: usize,
    /// Start of the next page.
    pub cursor: [u8; CURSOR_BYTES_MAX],
    /// As [`RawScanned::page`], for calls that fill the same array of entries.
    pub page: RawSlice,
}

const _: () = assert!(size_of::<RawListed>() == 4 * size_of::<usize>() + CURSOR_BYTES_MAX);

/// The condition of a write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawCondition {
    /// 0 always, 1 absent, 2 present, 3 exactly `version`.
    pub kind: u32,
    /// Used by kind 3.
    pub version: u64,
}

/// The time to live of an object without expiry.
pub const TTL_FOREVER: u64 = u64::MAX;
/// Longest time to live in milliseconds: 139 years.
pub const TTL_MS_MAX: u64 = 1 << 42;

/// The result of a host call or of a run of a function. 0 is success, [`PENDING`] means "poll again"; all other values
/// have the code of a [`crate::Error`] in the low half, and an application's own number in the high half.
pub type Code = u64;

/// The call succeeded.
pub const OK: Code = 0;
/// The call has not finished; the next poll repeats it with the same ticket. From a run of a function: poll again,
/// immediately if no host call is outstanding (the function yielded).
pub const PENDING: Code = u32::MAX as Code;

/// The host calls of a running extension. `context` is [`Call::context`].
///
/// `ticket` belongs to one pending future: 0 at its first poll; a host that returns [`PENDING`] stores there what it
/// needs to find the operation again. A future may be forgotten; the host owns the completions.
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
    /// Reads objects of an ordered table in key order: at most `capacity` into the array `entries`.
    pub scan: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        range: *const RawRange,
        entries: *mut RawEntry,
        capacity: usize,
        scanned: *mut RawScanned,
    ) -> Code,
    /// Reads objects of a table in arbitrary order, from a cursor, which is empty at the start: at most `capacity` into
    /// the array `entries`.
    pub enumerate: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        cursor: RawSlice,
        entries: *mut RawEntry,
        capacity: usize,
        listed: *mut RawListed,
    ) -> Code,
    /// Writes one object into the invocation's write set. `ttl_ms`: time to live, from 1 to [`TTL_MS_MAX`], or
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
    /// Adds to the number that an object holds, in the invocation's write set; stores the sum in `value`. An absent
    /// object counts as 0.
    pub increment: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        key: RawSlice,
        delta: i64,
        value: *mut i64,
    ) -> Code,
    /// Adds as `increment`, to an IEEE 754 number of 64 bits.
    pub increment_float: unsafe extern "C" fn(
        context: *mut c_void,
        ticket: *mut u64,
        table: u32,
        key: RawSlice,
        delta: f64,
        value: *mut f64,
    ) -> Code,
    /// Looks up the id of a table by its name.
    pub table:
        unsafe extern "C" fn(context: *mut c_void, ticket: *mut u64, name: RawSlice, id: *mut u32) -> Code,
    /// Writes one line to the tenant's log. `level`: 0 error, 1 warning, 2 information, 3 debug.
    pub log: unsafe extern "C" fn(context: *mut c_void, level: u32, text: RawSlice),
    /// Returns the milliseconds since the Unix epoch.
    pub now_ms: unsafe extern "C" fn(context: *mut c_void) -> u64,
}

/// The reply under construction; the host owns the memory.
#[repr(C)]
#[derive(Debug)]
pub struct RawReply {
    /// First byte of the buffer.
    pub address: *mut u8,
    /// Bytes written so far.
    pub bytes: usize,
    /// Maximum number of bytes of the reply.
    pub capacity: usize,
    /// Highest number of bytes before some were dropped by truncation; 0 if none were.
    pub highest: usize,
    /// Number of bytes with the latest write that did not fit; 0 if all did.
    pub asked: usize,
}

impl RawReply {
    /// Returns the largest number of bytes ever written or begun: the touched part of the buffer.
    #[must_use]
    pub const fn touched_bytes(&self) -> usize {
        if self.highest > self.bytes { self.highest } else { self.bytes }
    }
}

/// One invocation as the artefact sees it. The host fills it; it lives until the invocation ends.
#[repr(C)]
pub struct Call {
    /// The host's calls.
    pub host: *const Host,
    /// Passed to every host call.
    pub context: *mut c_void,
    /// The key that routed the invocation; may be empty.
    pub key: RawSlice,
    /// The caller's arguments.
    pub arguments: RawSlice,
    /// The reply buffer.
    pub reply: RawReply,
    /// The future, once the first run has placed it in the invocation's arena; null before.
    pub future: *mut u8,
    /// The table that the caller named.
    pub table: u32,
    /// Zero.
    pub reserved: u32,
}

/// The services that the host gives to the glue when it opens the library: the arena allocator of the invocation on
/// this thread, and the exit from a panic.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Services {
    /// Allocates from the arena; returns null if it is used up.
    pub allocate: unsafe extern "C" fn(bytes: usize, align: usize) -> *mut u8,
    /// Frees the latest allocation; all others are freed with the arena.
    pub free: unsafe extern "C" fn(address: *mut u8, bytes: usize, align: usize),
    /// Resizes the latest allocation in place, copies any other; returns null if the arena is used up.
    pub reallocate:
        unsafe extern "C" fn(address: *mut u8, bytes: usize, align: usize, new_bytes: usize) -> *mut u8,
    /// Called first in a panic. Returns the number of panics that the running invocation has begun before, so that a
    /// panic during the formatting of a panic's text ends at once.
    pub begin_panic: unsafe extern "C" fn() -> u32,
    /// Ends the invocation by leaving its stack permanently. `text` is the reason. `kind`: 0 panic, 1 out of memory.
    pub abandon: unsafe extern "C" fn(kind: u32, text: RawSlice) -> !,
}

/// One function of an artefact.
#[repr(C)]
pub struct Function {
    /// Name of the function, UTF-8.
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

/// The only symbol that an artefact exports, as `SPLINTER_ARTEFACT`.
#[repr(C)]
pub struct Artefact {
    /// [`ABI_VERSION`] of the artefact.
    pub abi_version: u32,
    /// Number of functions.
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
