//! The description of an invocation, shared by host and function: key, arguments, and the reply buffer.
//!
//! A function's future may use it at any time, so it changes only while there is no future.

use std::cell::{Cell, UnsafeCell};
use std::rc::Rc;

use sandstorm::abi::{Call, RawRecord, RawReply, RawSlice};

/// An empty slice.
pub(super) const NOTHING: RawSlice = RawSlice { address: std::ptr::NonNull::dangling().as_ptr(), bytes: 0 };

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
        let reply: Rc<[Cell<u8>]> = vec![Cell::new(0); reply_bytes_max].into();
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

    /// Returns the address of the description, for the future of the task.
    pub(super) fn call(&self) -> *mut Call {
        self.call.get()
    }

    /// Returns the bytes of a slice that a task of this module described.
    pub(super) fn bytes<'a>(slice: RawSlice) -> &'a [u8] {
        // SAFETY: only called with values of records, which lie in the arena of the running task.
        unsafe { slice.as_slice() }
    }
}
