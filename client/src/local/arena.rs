//! Memory lent to an invocation: it neither moves nor changes until the invocation ends.
//!
//! Bytes are copied in once and not overwritten before the next invocation. Chunks are shared cells, so filling one
//! needs no exclusive borrow while earlier bytes of it are lent.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sandstorm::abi::RawSlice;

/// Size of an ordinary chunk, in bytes.
const CHUNK_BYTES: usize = 16 << 10;
/// Maximum size of a value in a shared chunk; a larger one gets a separate chunk.
const SHARED_BYTES_MAX: usize = CHUNK_BYTES / 4;

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
