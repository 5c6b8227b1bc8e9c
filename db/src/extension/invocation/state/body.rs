//! The body of a reply, in the memory of its invocation.
//!
//! The extension's output is not copied. Heads go into the bytes before it, texts of the server over it: the extension
//! has stopped when a body is requested.

use std::ptr;
use std::slice;

use wire::limits::REPLY_BYTES_MAX;

use super::InvocationState;
use crate::extension::invocation::budget::Overdrawn;
use crate::extension::invocation::ending::{Body, Ending};
use crate::extension::invocation_memory::REPLY_HEAD_BYTES;
use crate::limits::LAST_WORDS_BYTES_MAX;

impl<O> InvocationState<O> {
    /// Returns the body of an ending; valid until the slot is used again.
    #[inline]
    pub(in crate::extension::invocation) fn body(&mut self, ending: &Ending) -> &[u8] {
        let reply = self.room.reply();
        let bytes = self.call.reply.bytes.min(REPLY_BYTES_MAX);
        match ending.body() {
            // SAFETY: this many bytes of the reply were written by the SDK.
            Body::Reply => unsafe { slice::from_raw_parts(reply, bytes) },
            Body::Failure(number) => self.with_head(number.to_le_bytes(), bytes.min(REPLY_BYTES_MAX - 4)),
            Body::LastWords => {
                self.note_written(LAST_WORDS_BYTES_MAX);
                // SAFETY: this many bytes were copied there when the stack was left.
                unsafe { slice::from_raw_parts(reply, self.access.last_words_bytes()) }
            }
            Body::Arguments => match &self.extension {
                Some(extension) => extension.arguments(self.function).as_bytes(),
                None => &[],
            },
            Body::Version(version) => self.with_head(version.to_le_bytes(), 0),
            Body::RetryAfter(after_us) => self.with_head(after_us.to_le_bytes(), 0),
            Body::Overdrawn(overdrawn) => self.describe(overdrawn),
            Body::Limit(limit) => limit.name().as_bytes(),
            Body::Empty => &[],
        }
    }

    /// Notes that the server wrote to the first bytes of the reply or before it, as if the extension had touched them.
    fn note_written(&mut self, bytes: usize) {
        self.call.reply.highest = self.call.reply.highest.max(bytes);
    }

    #[cold]
    fn describe(&mut self, overdrawn: Overdrawn) -> &[u8] {
        self.note_written(LAST_WORDS_BYTES_MAX);
        // SAFETY: the reply has this much room and more, and the extension runs no more.
        let place = unsafe { slice::from_raw_parts_mut(self.room.reply(), LAST_WORDS_BYTES_MAX) };
        let Some(extension) = &self.extension else { return &[] };
        let function = &extension.functions()[self.function].name;
        let mut bytes = self.access.last_words_bytes().min(LAST_WORDS_BYTES_MAX / 2);
        for &byte in if bytes > 0 { &b": "[..] } else { b"" } {
            place[bytes] = byte;
            bytes += 1;
        }
        bytes += overdrawn.describe(function, &extension.name, extension.version, &mut place[bytes..]);
        &place[..bytes]
    }

    /// Returns `head` followed by the first `bytes` bytes of the reply, in one piece and without copying the reply.
    fn with_head<const HEAD: usize>(&mut self, head: [u8; HEAD], bytes: usize) -> &[u8] {
        const { assert!(HEAD <= REPLY_HEAD_BYTES) };
        self.note_written(1);
        // SAFETY: the room keeps this many bytes before the reply.
        let start = unsafe { self.room.reply().sub(HEAD) };
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(head.as_ptr(), start, HEAD) };
        // SAFETY: the head was written now, the reply by the SDK.
        unsafe { slice::from_raw_parts(start, HEAD + bytes) }
    }
}
