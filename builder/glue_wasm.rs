//! Glue of a WebAssembly module: connects the host's calls with the tenant's safe functions.
//! Compiled with the SDK and the tenant's crate into one module. Written by Splinter's builder.
//!
//! The memory's layout and the imports are those of `sandstorm::abi::wasm32`. A module has one invocation at a time, so
//! the call block stands at a fixed address: what the native glue asks of its services, this one finds there.
#![no_std]

extern crate alloc;

use core::ffi::c_void;
use core::future::Future;
use core::mem::offset_of;

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reply;
use sandstorm::abi::Call;
use sandstorm::abi::Code;
use sandstorm::abi::Host;
use sandstorm::abi::RawCondition;
use sandstorm::abi::RawEntry;
use sandstorm::abi::RawListed;
use sandstorm::abi::RawRange;
use sandstorm::abi::RawRecord;
use sandstorm::abi::RawScanned;
use sandstorm::abi::RawSlice;
use sandstorm::abi::Services;
use sandstorm::abi::wasm32;

/// The imports, as `wasm32::IMPORTS` lists them.
mod host {
    use super::Code;
    use super::RawEntry;
    use super::RawListed;
    use super::RawRange;
    use super::RawRecord;
    use super::RawScanned;
    use super::RawSlice;

    #[link(wasm_import_module = "splinter")]
    unsafe extern "C" {
        pub fn get(
            ticket: *mut u64,
            table: u32,
            key: *const u8,
            key_bytes: usize,
            record: *mut RawRecord,
        ) -> Code;
        pub fn get_many(
            ticket: *mut u64,
            table: u32,
            keys: *const RawSlice,
            count: usize,
            records: *mut RawRecord,
        ) -> Code;
        pub fn scan(
            ticket: *mut u64,
            table: u32,
            range: *const RawRange,
            entries: *mut RawEntry,
            capacity: usize,
            scanned: *mut RawScanned,
        ) -> Code;
        pub fn enumerate(
            ticket: *mut u64,
            table: u32,
            cursor: *const u8,
            cursor_bytes: usize,
            entries: *mut RawEntry,
            capacity: usize,
            listed: *mut RawListed,
        ) -> Code;
        pub fn put(
            ticket: *mut u64,
            table: u32,
            key: *const u8,
            key_bytes: usize,
            value: *const u8,
            value_bytes: usize,
            condition_kind: u32,
            condition_version: u64,
            ttl_ms: u64,
        ) -> Code;
        pub fn delete(
            ticket: *mut u64,
            table: u32,
            key: *const u8,
            key_bytes: usize,
            condition_kind: u32,
            condition_version: u64,
        ) -> Code;
        pub fn increment(
            ticket: *mut u64,
            table: u32,
            key: *const u8,
            key_bytes: usize,
            delta: i64,
            value: *mut i64,
        ) -> Code;
        pub fn increment_float(
            ticket: *mut u64,
            table: u32,
            key: *const u8,
            key_bytes: usize,
            delta: f64,
            value: *mut f64,
        ) -> Code;
        pub fn table(ticket: *mut u64, name: *const u8, name_bytes: usize, id: *mut u32) -> Code;
        pub fn log(level: u32, text: *const u8, text_bytes: usize);
        pub fn now_ms() -> u64;
        pub fn abandon(kind: u32, text: *const u8, text_bytes: usize) -> !;
    }
}

/// The host's calls as the SDK knows them: the imports, behind its own types.
static HOST: Host =
    Host { get, get_many, scan, enumerate, put, delete, increment, increment_float, table, log, now_ms };

unsafe extern "C" fn get(
    _: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    record: *mut RawRecord,
) -> Code {
    // SAFETY: the host checks every address; so for the imports below.
    unsafe { host::get(ticket, table, key.address, key.bytes, record) }
}

unsafe extern "C" fn get_many(
    _: *mut c_void,
    ticket: *mut u64,
    table: u32,
    keys: *const RawSlice,
    count: usize,
    records: *mut RawRecord,
) -> Code {
    // SAFETY: see `get`.
    unsafe { host::get_many(ticket, table, keys, count, records) }
}

unsafe extern "C" fn scan(
    _: *mut c_void,
    ticket: *mut u64,
    table: u32,
    range: *const RawRange,
    entries: *mut RawEntry,
    capacity: usize,
    scanned: *mut RawScanned,
) -> Code {
    // SAFETY: see `get`.
    unsafe { host::scan(ticket, table, range, entries, capacity, scanned) }
}

unsafe extern "C" fn enumerate(
    _: *mut c_void,
    ticket: *mut u64,
    table: u32,
    cursor: RawSlice,
    entries: *mut RawEntry,
    capacity: usize,
    listed: *mut RawListed,
) -> Code {
    // SAFETY: see `get`.
    unsafe { host::enumerate(ticket, table, cursor.address, cursor.bytes, entries, capacity, listed) }
}

unsafe extern "C" fn put(
    _: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    value: RawSlice,
    condition: RawCondition,
    ttl_ms: u64,
) -> Code {
    let RawCondition { kind, version } = condition;
    // SAFETY: see `get`.
    unsafe {
        host::put(ticket, table, key.address, key.bytes, value.address, value.bytes, kind, version, ttl_ms)
    }
}

unsafe extern "C" fn delete(
    _: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    condition: RawCondition,
) -> Code {
    // SAFETY: see `get`.
    unsafe { host::delete(ticket, table, key.address, key.bytes, condition.kind, condition.version) }
}

unsafe extern "C" fn increment(
    _: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    delta: i64,
    value: *mut i64,
) -> Code {
    // SAFETY: see `get`.
    unsafe { host::increment(ticket, table, key.address, key.bytes, delta, value) }
}

unsafe extern "C" fn increment_float(
    _: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    delta: f64,
    value: *mut f64,
) -> Code {
    // SAFETY: see `get`.
    unsafe { host::increment_float(ticket, table, key.address, key.bytes, delta, value) }
}

unsafe extern "C" fn table(_: *mut c_void, ticket: *mut u64, name: RawSlice, id: *mut u32) -> Code {
    // SAFETY: see `get`.
    unsafe { host::table(ticket, name.address, name.bytes, id) }
}

unsafe extern "C" fn log(_: *mut c_void, level: u32, text: RawSlice) {
    // SAFETY: see `get`.
    unsafe { host::log(level, text.address, text.bytes) }
}

unsafe extern "C" fn now_ms(_: *mut c_void) -> u64 {
    // SAFETY: nothing is passed.
    unsafe { host::now_ms() }
}

/// The call block.
#[repr(C)]
struct Block {
    next: usize,
    end: usize,
    panics: u32,
    asked: usize,
    call: Call,
    highest: usize,
}

const BLOCK: *mut Block = wasm32::BLOCK_AT as *mut Block;

const _: () = {
    assert!(offset_of!(Block, next) == wasm32::block::NEXT && offset_of!(Block, end) == wasm32::block::END);
    assert!(
        offset_of!(Block, panics) == wasm32::block::PANICS
            && offset_of!(Block, asked) == wasm32::block::ASKED
    );
    assert!(
        offset_of!(Block, call) == wasm32::block::CALL
            && offset_of!(Block, highest) == wasm32::block::HIGHEST
    );
};

/// What the entry point of the SDK and the rest of the glue call: the functions below.
static SERVICES: Services = Services { allocate, free, reallocate, begin_panic, abandon };

#[inline]
fn services() -> &'static Services {
    &SERVICES
}

unsafe extern "C" fn allocate(bytes: usize, align: usize) -> *mut u8 {
    // SAFETY: the linker keeps the block's addresses free for it, and a module has one thread.
    let block = unsafe { &mut *BLOCK };
    let Some(from) = block.next.checked_add(align - 1).map(|next| next & !(align - 1)) else {
        return core::ptr::null_mut();
    };
    match from.checked_add(bytes) {
        Some(next) if next <= block.end => {
            block.next = next;
            from as *mut u8
        }
        _ => refuse(block, from, bytes),
    }
}

/// Records where an allocation that found no room would have ended.
#[cold]
fn refuse(block: &mut Block, from: usize, bytes: usize) -> *mut u8 {
    block.asked = from.saturating_add(bytes);
    core::ptr::null_mut()
}

/// Frees the latest allocation; any other stays until the invocation ends.
unsafe extern "C" fn free(address: *mut u8, bytes: usize, _: usize) {
    // SAFETY: see `allocate`.
    let block = unsafe { &mut *BLOCK };
    if address as usize + bytes == block.next {
        block.highest = block.highest.max(block.next);
        block.next = address as usize;
    }
}

/// Resizes the latest allocation in place, copies any other.
unsafe extern "C" fn reallocate(address: *mut u8, bytes: usize, align: usize, new_bytes: usize) -> *mut u8 {
    // SAFETY: see `allocate`.
    let block = unsafe { &mut *BLOCK };
    let from = address as usize;
    if from + bytes == block.next {
        return match from.checked_add(new_bytes) {
            Some(next) if next <= block.end => {
                block.highest = block.highest.max(block.next);
                block.next = next;
                address
            }
            _ => refuse(block, from, new_bytes),
        };
    }
    if new_bytes <= bytes {
        return address;
    }
    // SAFETY: the arguments are a layout's.
    let moved = unsafe { allocate(new_bytes, align) };
    if !moved.is_null() {
        // SAFETY: the old allocation holds `bytes`, the new one more, and they do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(address, moved, bytes) };
    }
    moved
}

unsafe extern "C" fn begin_panic() -> u32 {
    // SAFETY: see `allocate`.
    let block = unsafe { &mut *BLOCK };
    block.panics += 1;
    block.panics - 1
}

/// Leaves the invocation for good.
unsafe extern "C" fn abandon(kind: u32, text: RawSlice) -> ! {
    // SAFETY: see `get`.
    unsafe { host::abandon(kind, text.address, text.bytes) }
}

/// Bytes that the loops below move at a time.
const WORD_BYTES: usize = size_of::<u64>();

/// Copies memory, overlapping or not, in a loop that can be interrupted: the builder calls it wherever the compiler put
/// a single instruction for that.
#[unsafe(no_mangle)]
unsafe extern "C" fn splinter_copy(to: *mut u8, from: *const u8, bytes: usize) {
    let words = bytes & !(WORD_BYTES - 1);
    // SAFETY: whoever executes the instruction answers for the addresses; outside of the memory they trap, as it does.
    unsafe {
        if (to as usize).wrapping_sub(from as usize) >= bytes {
            // The beginning of the target is not within the source.
            let mut at = 0;
            while at < words {
                let word = from.wrapping_add(at).cast::<u64>().read_unaligned();
                to.wrapping_add(at).cast::<u64>().write_unaligned(word);
                at += WORD_BYTES;
            }
            while at < bytes {
                to.wrapping_add(at).write(from.wrapping_add(at).read());
                at += 1;
            }
        } else {
            let mut left = bytes;
            while left > words {
                left -= 1;
                to.wrapping_add(left).write(from.wrapping_add(left).read());
            }
            while left > 0 {
                left -= WORD_BYTES;
                let word = from.wrapping_add(left).cast::<u64>().read_unaligned();
                to.wrapping_add(left).cast::<u64>().write_unaligned(word);
            }
        }
    }
}

/// Fills memory, as `splinter_copy` copies it.
#[unsafe(no_mangle)]
unsafe extern "C" fn splinter_fill(to: *mut u8, byte: u32, bytes: usize) {
    let word = u64::from(byte as u8) * 0x0101_0101_0101_0101;
    let words = bytes & !(WORD_BYTES - 1);
    let mut at = 0;
    // SAFETY: see `splinter_copy`.
    unsafe {
        while at < words {
            to.wrapping_add(at).cast::<u64>().write_unaligned(word);
            at += WORD_BYTES;
        }
        while at < bytes {
            to.wrapping_add(at).write(byte as u8);
            at += 1;
        }
    }
}

/// Defines the entry point of one function, which the host calls to poll once. `start` is generic over the
/// invocation's lifetime, so that the tenant's function must be too.
macro_rules! entry {
    ($name:ident, $run:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $run(call: *mut Call) -> Code {
            fn start<'a>(
                db: &'a Db<'a>,
                args: Args<'a>,
                reply: &'a mut Reply<'a>,
            ) -> impl Future<Output = Result<(), Error>> + 'a {
                tenant::splinter_entry::$name(db, args, reply)
            }
            // SAFETY: the host passes the call of the block, which is valid until the invocation ends, does not run it
            // again once it was ready, and always uses the same entry point, hence one type of future.
            unsafe {
                (*call).host = &HOST;
                sandstorm::entry::run(services(), call, |db, args, reply| start(db, args, reply))
            }
        }
    };
}
