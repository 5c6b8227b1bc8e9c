//! The C functions through which an extension calls the server.
//!
//! Each function unpacks its arguments and calls the [`Access`] of the running invocation, which is the one on this
//! thread regardless of the context that the caller passes. A call runs on the extension's stack and is refused if too
//! little of the stack is left. It neither panics on any argument nor keeps any argument. If it needs an object that is
//! still in transit from another server, it does nothing and returns "pending"; the call is repeated after the object
//! arrives.
//!
//! [`SERVICES`] are the functions that an artefact's glue calls beside these: its allocator and the exit from a panic.
//! They take no lock and touch only that invocation's arena and reply, so leaving or parking the stack in the middle is
//! harmless. Access to state that the worker also touches goes through a host call.

use std::ffi::c_void;
use std::ptr;
use std::slice;

use guest::border::{CallKind, KIND_OUT_OF_MEMORY};
use guest::cycles;
use guest::running::{self, host_call};
use guest::stack::Cause;
use sandstorm::abi::{
    Code, Host, OK, PENDING, RANGE_HAS_AFTER, RANGE_HAS_TO, RANGE_REVERSE, RawCondition, RawEntry, RawListed,
    RawRange, RawRecord, RawScanned, RawSlice, Services,
};
use sandstorm::{Condition, Error};
use store::KeyRange;

use super::access::Access;

/// The host table of ordinary invocations.
pub static HOST: Host = table_of_calls::<ORDINARY>();

/// The host table of traced invocations.
pub static TRACED_HOST: Host = table_of_calls::<TRACED>();

/// The host table of invocations whose calls [stall](Access::stalls), for tests.
pub static STALLING_HOST: Host = table_of_calls::<STALLING>();

const ORDINARY: u8 = 0;
const TRACED: u8 = 1;
const STALLING: u8 = 2;

const fn table_of_calls<const MODE: u8>() -> Host {
    Host {
        get: get::<MODE>,
        get_many: get_many::<MODE>,
        scan: scan::<MODE>,
        enumerate: enumerate::<MODE>,
        put: put::<MODE>,
        delete: delete::<MODE>,
        increment: increment::<MODE>,
        increment_float: increment_float::<MODE>,
        table: table::<MODE>,
        log: log::<MODE>,
        now_ms: now_ms::<MODE>,
    }
}

/// Runs `work` on the access of the running invocation, and records its duration if it is traced.
///
/// # Safety
/// As for [`host_call`].
#[inline]
unsafe fn with_access<const MODE: u8, R>(kind: CallKind, work: impl FnOnce(&mut Access) -> R) -> R {
    let timed = |access: &mut Access| {
        if MODE != TRACED {
            return work(access);
        }
        let began = cycles::now();
        let result = work(access);
        access.note_call(kind, cycles::now().wrapping_sub(began));
        result
    };
    // SAFETY: the caller's promise; `work` touches the access alone, which is this invocation's and used
    // by nobody else while a host call runs.
    unsafe { host_call(|context| timed(&mut *context.cast::<Access>())) }
}

/// Like [`with_access`] for calls that return a code.
///
/// # Safety
/// As for [`host_call`].
#[inline]
unsafe fn with_code<const MODE: u8>(kind: CallKind, work: impl FnOnce(&mut Access) -> Code) -> Code {
    let stalled = |access: &mut Access| {
        if MODE == STALLING && access.stalls() {
            return PENDING;
        }
        work(access)
    };
    // SAFETY: as the caller promises.
    unsafe { with_access::<MODE, _>(kind, stalled) }
}

unsafe extern "C" fn get<const MODE: u8>(
    _context: *mut c_void,
    _ticket: *mut u64,
    table: u32,
    key: RawSlice,
    record: *mut RawRecord,
) -> Code {
    // SAFETY: the SDK lends the key, and room for a record, for the call; nothing here owns anything.
    unsafe {
        with_code::<MODE>(CallKind::Get, |access| {
            let answer = access.get(table, key.as_slice(), &mut *record.cast());
            access.code_of(answer)
        })
    }
}

unsafe extern "C" fn get_many<const MODE: u8>(
    _context: *mut c_void,
    _ticket: *mut u64,
    table: u32,
    keys: *const RawSlice,
    count: usize,
    records: *mut RawRecord,
) -> Code {
    // SAFETY: the SDK lends `count` keys and room for `count` records for the call.
    unsafe {
        with_code::<MODE>(CallKind::GetMany, |access| {
            let keys = slice::from_raw_parts(keys, count);
            let answer = access.get_many(table, keys, records);
            access.code_of(answer)
        })
    }
}

unsafe extern "C" fn scan<const MODE: u8>(
    _context: *mut c_void,
    _ticket: *mut u64,
    table: u32,
    range: *const RawRange,
    entries: *mut RawEntry,
    capacity: usize,
    scanned: *mut RawScanned,
) -> Code {
    // SAFETY: the SDK lends the range with its bounds, room for `capacity` entries and the place of the answer for
    // the call.
    unsafe {
        with_code::<MODE>(CallKind::Scan, |access| {
            match access.scan(table, range_of(&*range), (entries, capacity)) {
                Ok(far) => {
                    scanned.write(far);
                    OK
                }
                Err(error) => error.code(),
            }
        })
    }
}

unsafe extern "C" fn enumerate<const MODE: u8>(
    _context: *mut c_void,
    _ticket: *mut u64,
    table: u32,
    cursor: RawSlice,
    entries: *mut RawEntry,
    capacity: usize,
    listed: *mut RawListed,
) -> Code {
    // SAFETY: the SDK lends the cursor, room for `capacity` entries and the place of the answer for the call.
    unsafe {
        with_code::<MODE>(CallKind::Enumerate, |access| {
            match access.enumerate(table, cursor.as_slice(), (entries, capacity)) {
                Ok(page) => {
                    listed.write(page);
                    OK
                }
                Err(error) => error.code(),
            }
        })
    }
}

unsafe extern "C" fn put<const MODE: u8>(
    _context: *mut c_void,
    _ticket: *mut u64,
    table: u32,
    key: RawSlice,
    value: RawSlice,
    condition: RawCondition,
    ttl_ms: u64,
) -> Code {
    // SAFETY: the SDK lends key and value for the call.
    unsafe {
        with_code::<MODE>(CallKind::Put, |access| {
            let Some(condition) = Condition::from_raw(condition) else { return Error::BadArguments.code() };
            let value = Some((value.as_slice(), ttl_ms));
            let answer = access.write(table, key.as_slice(), value, condition_of(condition));
            access.code_of(answer)
        })
    }
}

unsafe extern "C" fn delete<const MODE: u8>(
    _context: *mut c_void,
    _ticket: *mut u64,
    table: u32,
    key: RawSlice,
    condition: RawCondition,
) -> Code {
    // SAFETY: the SDK lends the key for the call.
    unsafe {
        with_code::<MODE>(CallKind::Delete, |access| {
            let Some(condition) = Condition::from_raw(condition) else { return Error::BadArguments.code() };
            let answer = access.write(table, key.as_slice(), None, condition_of(condition));
            access.code_of(answer)
        })
    }
}

unsafe extern "C" fn increment<const MODE: u8>(
    _context: *mut c_void,
    _ticket: *mut u64,
    table: u32,
    key: RawSlice,
    delta: i64,
    value: *mut i64,
) -> Code {
    // SAFETY: the SDK lends the key and the place of the sum for the call.
    unsafe {
        with_code::<MODE>(CallKind::Increment, |access| {
            match access.increment(table, key.as_slice(), delta) {
                Ok(sum) => {
                    value.write(sum);
                    OK
                }
                Err(error) => access.code_of_error(error),
            }
        })
    }
}

unsafe extern "C" fn increment_float<const MODE: u8>(
    _context: *mut c_void,
    _ticket: *mut u64,
    table: u32,
    key: RawSlice,
    delta: f64,
    value: *mut f64,
) -> Code {
    // SAFETY: the SDK lends the key and the place of the sum for the call.
    unsafe {
        with_code::<MODE>(CallKind::Increment, |access| {
            match access.increment_float(table, key.as_slice(), delta) {
                Ok(sum) => {
                    value.write(sum);
                    OK
                }
                Err(error) => access.code_of_error(error),
            }
        })
    }
}

unsafe extern "C" fn table<const MODE: u8>(
    _context: *mut c_void,
    _ticket: *mut u64,
    name: RawSlice,
    id: *mut u32,
) -> Code {
    // SAFETY: the SDK lends the name and the place of the number for the call.
    unsafe {
        with_code::<MODE>(CallKind::Table, |access| match access.table_named(name.as_slice()) {
            Ok(number) => {
                id.write(number);
                OK
            }
            Err(error) => error.code(),
        })
    }
}

unsafe extern "C" fn log<const MODE: u8>(_context: *mut c_void, level: u32, text: RawSlice) {
    // SAFETY: the SDK lends the text for the call.
    unsafe { with_access::<MODE, _>(CallKind::Log, |access| access.log(level, text.as_slice())) }
}

unsafe extern "C" fn now_ms<const MODE: u8>(_context: *mut c_void) -> u64 {
    // SAFETY: nothing here owns anything.
    unsafe { with_access::<MODE, _>(CallKind::Now, |access| access.now_ms()) }
}

/// # Safety
/// The bounds are readable as long as the range is used.
pub(super) unsafe fn range_of<'r>(raw: &RawRange) -> KeyRange<'r> {
    let has = |flag: u32| raw.flags & flag != 0;
    // SAFETY: as the caller says.
    let [from, to, prefix, after] =
        [raw.from, raw.to, raw.prefix, raw.after].map(|slice| unsafe { slice.as_slice() });
    KeyRange {
        from,
        to: has(RANGE_HAS_TO).then_some(to),
        prefix,
        after: has(RANGE_HAS_AFTER).then_some(after),
        reverse: has(RANGE_REVERSE),
    }
}

pub(super) fn condition_of(condition: Condition) -> store::Condition {
    match condition {
        Condition::Always => store::Condition::Always,
        Condition::Absent => store::Condition::Absent,
        Condition::Present => store::Condition::Present,
        Condition::Version(version) => store::Condition::Version(version),
    }
}

/// The table that an artefact gets when it is opened.
pub const SERVICES: Services = Services { allocate, free, reallocate, begin_panic, abandon };

unsafe extern "C" fn allocate(bytes: usize, align: usize) -> *mut u8 {
    // SAFETY: the arena of the running invocation, which nothing else uses while this runs.
    unsafe { running::arena().as_mut() }.map_or(ptr::null_mut(), |arena| arena.allocate(bytes, align))
}

unsafe extern "C" fn free(address: *mut u8, bytes: usize, _align: usize) {
    // SAFETY: as in `allocate`.
    if let Some(arena) = unsafe { running::arena().as_mut() } {
        arena.free(address, bytes);
    }
}

unsafe extern "C" fn reallocate(address: *mut u8, bytes: usize, align: usize, new_bytes: usize) -> *mut u8 {
    // SAFETY: as in `allocate`.
    let Some(arena) = (unsafe { running::arena().as_mut() }) else { return ptr::null_mut() };
    // SAFETY: the language's allocator calls this with an allocation of this arena that is in use.
    unsafe { arena.reallocate(address, bytes, align, new_bytes) }
}

unsafe extern "C" fn begin_panic() -> u32 {
    // SAFETY: called by the glue on the extension's stack; the context of a running invocation is its
    // `Access`, which nobody else uses meanwhile.
    unsafe { host_call(|context| context.cast::<Access>().as_mut().map_or(u32::MAX, Access::begin_panic)) }
}

unsafe extern "C" fn abandon(kind: u32, text: RawSlice) -> ! {
    let keep = |context: *mut c_void| {
        // SAFETY: as in `begin_panic`.
        if let Some(access) = unsafe { context.cast::<Access>().as_mut() } {
            access.keep_last_words(text);
        }
    };
    // SAFETY: as in `begin_panic`.
    unsafe { host_call(keep) };
    let cause = if kind == KIND_OUT_OF_MEMORY { Cause::OutOfMemory } else { Cause::Panic };
    // SAFETY: on the extension's stack; this function and the glue that called it own nothing.
    unsafe { running::leave(cause) }
}
