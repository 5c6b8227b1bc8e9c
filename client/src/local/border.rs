//! The memory that host and function share: the description of the invocation, and the bytes lent to it.
//!
//! A function's future may use the description at any time, so it changes only while there is no future. Lent bytes
//! neither move nor change until the invocation ends: they are copied into the arena once and not overwritten before
//! the next invocation. The arena's chunks are shared cells, so filling one needs no exclusive borrow while earlier
//! bytes of it are lent.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::rc::Rc;

use sandstorm::abi::{Call, RawRecord, RawReply, RawSlice};

/// An empty slice.
pub(super) const NOTHING: RawSlice = RawSlice { address: std::ptr::NonNull::dangling().as_ptr(), bytes: 0 };
/// Size of an ordinary chunk, in bytes.
const CHUNK_BYTES: usize = 16 << 10;
/// Maximum size of a value in a shared chunk. A larger one gets a separate chunk.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES / 4;

/// The invocation's description as the function sees it.
pub(super) struct Border {
    call: UnsafeCell<Call>,
    /// The reply buffer, to which the function writes through the call.
    reply: Rc<[Cell<u8>]>,
}

impl Border {
    /// The record of an absent object.
    pub(super) const NO_RECORD: RawRecord = RawRecord { value: NOTHING, version: 0 };

    pub(super) fn new(reply_bytes_max: usize) -> Border {
        // SAFETY: zeros are bytes.
        let reply: Rc<[Cell<u8>]> = unsafe { Rc::new_zeroed_slice(reply_bytes_max).assume_init() };
        let address = reply.as_ptr().cast_mut().cast();
        let call = Call {
            host: std::ptr::null(),
            context: std::ptr::null_mut(),
            key: NOTHING,
            arguments: NOTHING,
            reply: RawReply { address, bytes: 0, capacity: reply_bytes_max, highest: 0, asked: 0 },
            future: std::ptr::null_mut(),
            table: 0,
            reserved: 0,
        };
        Border { call: UnsafeCell::new(call), reply }
    }

    /// Sets the table of the invocation. No future of the task may exist.
    pub(super) fn set_table(&self, table: u32) {
        // SAFETY: only futures of the task also use the call, and there is none; one thread.
        unsafe { (*self.call.get()).table = table };
    }

    /// Returns the table of the invocation. No future of the task may exist.
    #[cfg(feature = "modules")]
    pub(super) fn table(&self) -> u32 {
        // SAFETY: as in `set_table`.
        unsafe { (*self.call.get()).table }
    }

    /// Describes an invocation that is about to start, with an empty reply. No future of the task may exist.
    pub(super) fn begin(&self, key: RawSlice, arguments: RawSlice) {
        // SAFETY: as in `set_table`.
        let call = unsafe { &mut *self.call.get() };
        call.key = key;
        call.arguments = arguments;
        call.reply.bytes = 0;
    }

    /// Returns the function's reply. No future of the task may exist while it is borrowed.
    pub(super) fn reply(&self) -> &[u8] {
        // SAFETY: the first `bytes` bytes of the buffer were written by the function, through `Reply`, which
        // never exceeds the buffer; nobody writes while no future exists.
        unsafe {
            let bytes = (*self.call.get()).reply.bytes;
            std::slice::from_raw_parts(self.reply.as_ptr().cast(), bytes)
        }
    }

    /// Sets the reply of a function that does not write to the buffer itself, as far as there is room.
    #[cfg(feature = "modules")]
    pub(super) fn set_reply(&self, reply: &[u8]) {
        let reply = &reply[..reply.len().min(self.reply.len())];
        fill(&self.reply, reply);
        // SAFETY: no future of the task uses the call at the moment, which is the caller's; one thread.
        unsafe { (*self.call.get()).reply.bytes = reply.len() };
    }

    /// Returns the address of the description, for the future of the task.
    pub(super) fn call(&self) -> *mut Call {
        self.call.get()
    }

    /// Returns the bytes of a slice in a task's arena.
    pub(super) fn bytes<'a>(slice: RawSlice) -> &'a [u8] {
        // SAFETY: only called with values of records, which lie in the arena of the running task.
        unsafe { slice.as_slice() }
    }
}

/// The memory of one invocation.
pub(super) struct Arena {
    /// Full chunks, and those of large values.
    chunks: RefCell<Vec<Rc<[Cell<u8>]>>>,
    /// The chunk that is being filled; kept between invocations.
    current: RefCell<Rc<[Cell<u8>]>>,
    used: Cell<usize>,
    /// Bytes copied in since the invocation began.
    bytes: Cell<usize>,
}

impl Arena {
    pub(super) fn new() -> Arena {
        Arena {
            chunks: RefCell::default(),
            current: RefCell::new(chunk(CHUNK_BYTES)),
            used: Cell::new(0),
            bytes: Cell::new(0),
        }
    }

    /// Copies bytes; the result stays readable and unchanged until [`Arena::clear`].
    pub(super) fn copy(&self, bytes: &[u8]) -> RawSlice {
        self.bytes.set(self.bytes.get() + bytes.len());
        if bytes.len() > SHARED_BYTES_MAX {
            let own = chunk(bytes.len());
            let copied = fill(&own, bytes);
            self.chunks.borrow_mut().push(own);
            return copied;
        }
        if self.used.get() + bytes.len() > CHUNK_BYTES {
            let full = self.current.replace(chunk(CHUNK_BYTES));
            self.chunks.borrow_mut().push(full);
            self.used.set(0);
        }
        let first = self.used.get();
        self.used.set(first + bytes.len());
        fill(&self.current.borrow()[first..first + bytes.len()], bytes)
    }

    /// Returns the number of bytes copied in since the invocation began.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Frees all memory; no lent bytes may be used afterwards.
    pub(super) fn clear(&self) {
        self.chunks.borrow_mut().clear();
        self.used.set(0);
        self.bytes.set(0);
    }
}

fn chunk(bytes: usize) -> Rc<[Cell<u8>]> {
    vec![Cell::new(0); bytes].into()
}

fn fill(place: &[Cell<u8>], bytes: &[u8]) -> RawSlice {
    for (cell, &byte) in place.iter().zip(bytes) {
        cell.set(byte);
    }
    RawSlice { address: place.as_ptr().cast(), bytes: bytes.len() }
}
