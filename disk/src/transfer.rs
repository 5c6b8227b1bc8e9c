//! What moves between memory and a frame.

use std::marker::PhantomData;

use crate::BLOCK_BYTES;

/// The number of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// Blocks to be written. Its memory may change meanwhile: see [`Write::of_shared`].
#[derive(Clone, Copy, Debug)]
pub struct Write<'m> {
    pub(crate) frame: FrameId,
    pub(crate) offset: usize,
    pub(crate) memory: *const u8,
    pub(crate) bytes: usize,
    _memory: PhantomData<&'m [u8]>,
}

impl<'m> Write<'m> {
    /// Blocks for `offset` of a frame.
    ///
    /// # Panics
    /// Unless offset, address and length are multiples of [`BLOCK_BYTES`], and there is a block.
    #[must_use]
    pub fn of(frame: FrameId, offset: usize, memory: &'m [u8]) -> Self {
        // SAFETY: the memory is borrowed as long as the write exists.
        unsafe { Self::of_shared(frame, offset, memory.as_ptr(), memory.len()) }
    }

    /// Blocks of memory that other threads write at the same time: a log's open segment, whose last block holds bytes
    /// that nobody has been promised yet. What is stable afterwards of bytes that changed meanwhile is undefined.
    ///
    /// # Safety
    /// The memory stays readable as long as the write exists.
    ///
    /// # Panics
    /// As for [`Write::of`].
    #[must_use]
    pub unsafe fn of_shared(frame: FrameId, offset: usize, memory: *const u8, bytes: usize) -> Self {
        assert!(are_blocks(offset, memory, bytes), "{bytes} bytes at {memory:p} for {offset}: whole blocks");
        Self { frame, offset, memory, bytes, _memory: PhantomData }
    }
}

/// Blocks to be read.
#[derive(Debug)]
pub struct Read<'m> {
    pub(crate) frame: FrameId,
    pub(crate) offset: usize,
    pub(crate) memory: &'m mut [u8],
}

impl<'m> Read<'m> {
    /// Blocks from `offset` of a frame.
    ///
    /// # Panics
    /// As for [`Write::of`].
    #[must_use]
    pub fn of(frame: FrameId, offset: usize, memory: &'m mut [u8]) -> Self {
        assert!(are_blocks(offset, memory.as_ptr(), memory.len()), "whole blocks are read");
        Self { frame, offset, memory }
    }
}

fn are_blocks(offset: usize, memory: *const u8, bytes: usize) -> bool {
    bytes > 0 && [offset, memory as usize, bytes].iter().all(|number| number.is_multiple_of(BLOCK_BYTES))
}

/// Asserts that blocks lie in an existing frame.
pub(crate) fn assert_within(frame: FrameId, offset: usize, bytes: usize, frames: u32, frame_bytes: usize) {
    assert!(frame.0 < frames, "{frame:?} of {frames}");
    assert!(
        bytes <= frame_bytes && offset <= frame_bytes - bytes,
        "{bytes} bytes at {offset} of {frame_bytes}"
    );
}
