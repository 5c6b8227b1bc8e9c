//! The ABI between the server and a WebAssembly module: the same types in their 32-bit layout, the layout of the
//! module's memory, and the functions that it may import.
//!
//! The host never casts a module's memory to its own types: it reads and writes little-endian words at these offsets,
//! and checks every address. That the offsets are those of the types is asserted when the SDK is compiled for such a
//! module. The builder includes this file by its path and checks modules against it.
//!
//! ```text
//! 0 ..           the module's stack, which grows down: an overflow wraps below 0 and traps
//! BLOCK_AT ..    the call block, written by the host before the first poll
//! DATA_AT ..     the module's data, up to the value of its exported global `__heap_base`
//!       ..       the host's: input, reply, arena, what it lends
//! MEMORY_BYTES
//! ```

/// The version of this border: the layout, the imports and their meaning. An author of a finished module names it.
pub const BORDER_VERSION: u32 = 1;
/// Bytes of a module's memory: it never grows, so it never moves.
pub const MEMORY_BYTES: usize = 16 << 20;
/// Bytes of a page, the unit in which a module states the size of its memory.
pub const PAGE_BYTES: usize = 64 << 10;
/// Bytes of the module's stack, which begins at address 0.
pub const STACK_BYTES: usize = BLOCK_AT;
/// Address of the call block.
pub const BLOCK_AT: usize = DATA_AT - BLOCK_BYTES;
/// Bytes of the call block.
pub const BLOCK_BYTES: usize = 128;
/// Address of the module's first byte of data.
pub const DATA_AT: usize = PAGE_BYTES;
/// Address of the [`super::Call`], the argument of an entry point.
pub const CALL_AT: usize = BLOCK_AT + block::CALL;

/// Name of the exported memory.
pub const MEMORY: &str = "memory";
/// Name of the exported global, an immutable i32, that tells where the module's data ends.
pub const HEAP_BASE: &str = "__heap_base";
/// The beginning of an entry point's name; the function's name follows. It takes [`CALL_AT`] and returns a
/// [`super::Code`].
pub const ENTRY_PREFIX: &str = "run_";
/// The module of all imports.
pub const IMPORT_MODULE: &str = "splinter";

/// The call block: the arena's bounds, which the module's allocator moves, and the call.
pub mod block {
    /// First free byte of the arena.
    pub const NEXT: usize = 0;
    /// End of the arena.
    pub const END: usize = 4;
    /// Panics begun.
    pub const PANICS: usize = 8;
    /// Where the latest failed allocation would have ended; 0 for none.
    pub const ASKED: usize = 12;
    /// The call.
    pub const CALL: usize = 16;
    /// Highest value of [`NEXT`] before it fell; 0 if it never did. The rest of the block is zero at first.
    pub const HIGHEST: usize = CALL + super::call::BYTES;
    /// The SDK's: memory of pages that ended, as slices.
    pub const PAGES: usize = HIGHEST + 4;
    /// Number of these slices.
    pub const PAGES_KEPT: usize = 6;
}

/// A [`super::RawSlice`].
pub mod slice {
    /// First byte.
    pub const ADDRESS: usize = 0;
    /// Length in bytes.
    pub const LENGTH: usize = 4;
    /// Size of the type.
    pub const BYTES: usize = 8;
}

/// A [`super::RawRecord`].
pub mod record {
    /// The value, a slice.
    pub const VALUE: usize = 0;
    /// The version, of 64 bits.
    pub const VERSION: usize = 8;
    /// Size of the type.
    pub const BYTES: usize = 16;
}

/// A [`super::RawEntry`].
pub mod entry {
    /// The key, a slice.
    pub const KEY: usize = 0;
    /// The object, a record.
    pub const RECORD: usize = 8;
    /// Size of the type.
    pub const BYTES: usize = 24;
}

/// A [`super::RawRange`].
pub mod range {
    /// First key of the range, a slice.
    pub const FROM: usize = 0;
    /// End of the range, a slice.
    pub const TO: usize = 8;
    /// Common prefix of the keys, a slice.
    pub const PREFIX: usize = 16;
    /// Key after which the scan continues, a slice.
    pub const AFTER: usize = 24;
    /// The flags.
    pub const FLAGS: usize = 32;
    /// Zero.
    pub const RESERVED: usize = 36;
    /// Size of the type.
    pub const BYTES: usize = 40;
}

/// A [`super::RawScanned`].
pub mod scanned {
    /// Number of objects found.
    pub const COUNT: usize = 0;
    /// The last key examined, a slice.
    pub const LAST: usize = 4;
    /// Whether there are no more objects.
    pub const ENDED: usize = 12;
    /// Memory of the page, a slice that the host keeps here.
    pub const PAGE: usize = 16;
    /// Size of the type.
    pub const BYTES: usize = 24;
}

/// A [`super::RawListed`].
pub mod listed {
    /// Number of objects found.
    pub const COUNT: usize = 0;
    /// Size of the cursor in bytes.
    pub const CURSOR_BYTES: usize = 4;
    /// Start of the next page.
    pub const CURSOR: usize = 8;
    /// Memory of the page, a slice that the host keeps here.
    pub const PAGE: usize = 72;
    /// Size of the type.
    pub const BYTES: usize = 80;
}

/// A [`super::Call`].
pub mod call {
    /// The host's calls: the module's own.
    pub const HOST: usize = 0;
    /// Passed to every host call: unused.
    pub const CONTEXT: usize = 4;
    /// The key, a slice.
    pub const KEY: usize = 8;
    /// The arguments, a slice.
    pub const ARGUMENTS: usize = 16;
    /// First byte of the reply buffer.
    pub const REPLY_ADDRESS: usize = 24;
    /// Bytes of the reply.
    pub const REPLY_LENGTH: usize = 28;
    /// Maximum number of bytes of the reply.
    pub const REPLY_CAPACITY: usize = 32;
    /// Highest number of bytes before some were dropped.
    pub const REPLY_HIGHEST: usize = 36;
    /// Number of bytes with the latest write that did not fit.
    pub const REPLY_ASKED: usize = 40;
    /// The future; 0 before the first poll.
    pub const FUTURE: usize = 44;
    /// The table that the caller named.
    pub const TABLE: usize = 48;
    /// Zero.
    pub const RESERVED: usize = 52;
    /// Size of the type.
    pub const BYTES: usize = 56;
}

/// A type of WebAssembly. Addresses and sizes are [`Value::I32`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
    /// A number of IEEE 754, 64 bits.
    F64,
}

/// A function of the host.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    /// Its name.
    pub name: &'static str,
    /// Its parameters.
    pub parameters: &'static [Value],
    /// Its result, if any.
    pub result: Option<Value>,
}

use Value::F64;
use Value::I32;
use Value::I64;

const fn import(name: &'static str, parameters: &'static [Value], result: Option<Value>) -> Import {
    Import { name, parameters, result }
}

/// The functions that a module may import: those of [`super::Host`] without the context, slices and conditions in their
/// parts, and the exit from a panic.
pub const IMPORTS: [Import; 12] = [
    // ticket, table, key, its bytes, record
    import("get", &[I32, I32, I32, I32, I32], Some(I64)),
    // ticket, table, keys, their number, records
    import("get_many", &[I32, I32, I32, I32, I32], Some(I64)),
    // ticket, table, range, entries, their number, scanned
    import("scan", &[I32, I32, I32, I32, I32, I32], Some(I64)),
    // ticket, table, cursor, its bytes, entries, their number, listed
    import("enumerate", &[I32, I32, I32, I32, I32, I32, I32], Some(I64)),
    // ticket, table, key, its bytes, value, its bytes, kind of the condition, its version, time to live
    import("put", &[I32, I32, I32, I32, I32, I32, I32, I64, I64], Some(I64)),
    // ticket, table, key, its bytes, kind of the condition, its version
    import("delete", &[I32, I32, I32, I32, I32, I64], Some(I64)),
    // ticket, table, key, its bytes, delta, value
    import("increment", &[I32, I32, I32, I32, I64, I32], Some(I64)),
    // ticket, table, key, its bytes, delta, value
    import("increment_float", &[I32, I32, I32, I32, F64, I32], Some(I64)),
    // ticket, name, its bytes, id
    import("table", &[I32, I32, I32, I32], Some(I64)),
    // level, text, its bytes
    import("log", &[I32, I32, I32], None),
    import("now_ms", &[], Some(I64)),
    // kind, text, its bytes; never returns
    import("abandon", &[I32, I32, I32], None),
];

const _: () = assert!(block::PAGES + block::PAGES_KEPT * slice::BYTES <= BLOCK_BYTES);
const _: () = assert!(CALL_AT.is_multiple_of(8) && (BLOCK_AT + block::PAGES).is_multiple_of(4));
const _: () = assert!(MEMORY_BYTES.is_multiple_of(PAGE_BYTES) && STACK_BYTES.is_multiple_of(16));

/// The types have these offsets where a module's code is compiled.
#[cfg(target_pointer_width = "32")]
const _: () = {
    use super::Call;
    use super::RawEntry;
    use super::RawListed;
    use super::RawRange;
    use super::RawRecord;
    use super::RawReply;
    use super::RawScanned;
    use super::RawSlice;
    use core::mem::offset_of;

    assert!(offset_of!(RawSlice, address) == slice::ADDRESS && offset_of!(RawSlice, bytes) == slice::LENGTH);
    assert!(size_of::<RawSlice>() == slice::BYTES);
    assert!(
        offset_of!(RawRecord, value) == record::VALUE && offset_of!(RawRecord, version) == record::VERSION
    );
    assert!(size_of::<RawRecord>() == record::BYTES);
    assert!(offset_of!(RawEntry, key) == entry::KEY && offset_of!(RawEntry, record) == entry::RECORD);
    assert!(size_of::<RawEntry>() == entry::BYTES);
    assert!(offset_of!(RawRange, from) == range::FROM && offset_of!(RawRange, to) == range::TO);
    assert!(offset_of!(RawRange, prefix) == range::PREFIX && offset_of!(RawRange, after) == range::AFTER);
    assert!(offset_of!(RawRange, flags) == range::FLAGS && offset_of!(RawRange, reserved) == range::RESERVED);
    assert!(size_of::<RawRange>() == range::BYTES);
    assert!(offset_of!(RawScanned, count) == scanned::COUNT && offset_of!(RawScanned, last) == scanned::LAST);
    assert!(offset_of!(RawScanned, ended) == scanned::ENDED && offset_of!(RawScanned, page) == scanned::PAGE);
    assert!(size_of::<RawScanned>() == scanned::BYTES);
    assert!(offset_of!(RawListed, count) == listed::COUNT && offset_of!(RawListed, cursor) == listed::CURSOR);
    assert!(
        offset_of!(RawListed, cursor_bytes) == listed::CURSOR_BYTES
            && offset_of!(RawListed, page) == listed::PAGE
    );
    assert!(size_of::<RawListed>() == listed::BYTES);
    assert!(offset_of!(Call, host) == call::HOST && offset_of!(Call, context) == call::CONTEXT);
    assert!(offset_of!(Call, key) == call::KEY && offset_of!(Call, arguments) == call::ARGUMENTS);
    assert!(offset_of!(Call, reply) + offset_of!(RawReply, address) == call::REPLY_ADDRESS);
    assert!(offset_of!(Call, reply) + offset_of!(RawReply, bytes) == call::REPLY_LENGTH);
    assert!(offset_of!(Call, reply) + offset_of!(RawReply, capacity) == call::REPLY_CAPACITY);
    assert!(offset_of!(Call, reply) + offset_of!(RawReply, highest) == call::REPLY_HIGHEST);
    assert!(offset_of!(Call, reply) + offset_of!(RawReply, asked) == call::REPLY_ASKED);
    assert!(offset_of!(Call, future) == call::FUTURE && offset_of!(Call, table) == call::TABLE);
    assert!(offset_of!(Call, reserved) == call::RESERVED && size_of::<Call>() == call::BYTES);
};
