//! The result of one receive: frames and their senders, in one reused allocation.
//!
//! ```text
//! plain:    | slot 0, 2 KiB | slot 1 | ... one datagram in each, up to BATCH_FRAMES
//! coalesced:| region 0, 64 KiB: frame frame frame | region 1 ... up to COALESCED_REGIONS
//! ```
//! A coalesced region is one receive that the kernel merged from frames of one peer. Memory that no datagram reaches
//! is never touched, so a batch costs only its content. A port fills it; a worker or a session reads it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Maximum datagrams of one receive if the kernel does not merge them.
pub const BATCH_FRAMES: usize = 32;
/// Bytes of the slot for one unmerged datagram.
pub const SLOT_BYTES: usize = 2048;
/// Merged receives per batch.
pub const COALESCED_REGIONS: usize = 16;
/// Bytes of the region for one merged receive: the largest UDP payload fits.
pub const REGION_BYTES: usize = 65_536;
/// Maximum frames of a batch; the kernel merges at most 64 datagrams into one receive.
pub const BATCH_FRAMES_MAX: usize = COALESCED_REGIONS * 64;

const BATCH_BYTES: usize = COALESCED_REGIONS * REGION_BYTES;
const _: () = assert!(BATCH_FRAMES * SLOT_BYTES <= BATCH_BYTES);
const _: () = assert!(BATCH_FRAMES <= BATCH_FRAMES_MAX);

const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The place of one frame in the batch, and its sender.
#[derive(Clone, Copy)]
struct Span {
    first: u32,
    bytes: u32,
    peer: SocketAddr,
}

/// Received frames.
pub struct Batch {
    memory: Box<[u8]>,
    spans: Box<[Span]>,
    frames: usize,
    copied: usize,
    cut: bool,
}

impl Batch {
    /// Creates an empty batch. Allocates once, permanently.
    #[must_use]
    pub fn new() -> Self {
        Self {
            memory: vec![0; BATCH_BYTES].into_boxed_slice(),
            spans: vec![Span { first: 0, bytes: 0, peer: NOWHERE }; BATCH_FRAMES_MAX].into_boxed_slice(),
            frames: 0,
            copied: 0,
            cut: false,
        }
    }

    /// Returns the number of frames.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.frames
    }

    /// Returns whether there is no frame.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Returns the bytes of frame `index` and its sender.
    ///
    /// # Panics
    /// If `index` is not below [`Batch::len`].
    #[must_use]
    #[inline]
    pub fn frame(&self, index: usize) -> (&[u8], SocketAddr) {
        let span = &self.spans[..self.frames][index];
        let first = span.first as usize;
        (&self.memory[first..first + span.bytes as usize], span.peer)
    }

    /// Returns all frames with their senders, in order of arrival.
    pub fn frames(&self) -> impl Iterator<Item = (&[u8], SocketAddr)> {
        (0..self.frames).map(|index| self.frame(index))
    }

    /// Removes all frames.
    #[inline]
    pub fn clear(&mut self) {
        self.frames = 0;
        self.copied = 0;
        self.cut = false;
    }

    /// Returns whether the receive stopped at its own limit, so that more frames may wait.
    #[must_use]
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Adds a copy of `frame`; false if there is no room. For ports that own their bytes.
    pub fn push(&mut self, frame: &[u8], peer: SocketAddr) -> bool {
        self.fill(frame.len(), peer, |to| to.copy_from_slice(frame))
    }

    /// Adds a frame of `bytes` bytes that `fill` writes; false if there is no room.
    #[inline]
    pub(crate) fn fill(&mut self, bytes: usize, peer: SocketAddr, fill: impl FnOnce(&mut [u8])) -> bool {
        let end = self.copied + bytes;
        if end > self.memory.len() || self.frames == self.spans.len() {
            return false;
        }
        fill(&mut self.memory[self.copied..end]);
        self.place(self.copied, bytes, peer);
        self.copied = end;
        true
    }

    /// Sets whether the receive stopped at its own limit.
    #[inline]
    pub(crate) fn set_cut(&mut self, cut: bool) {
        self.cut = cut;
    }

    /// Returns the memory that a port may let the kernel fill.
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Declares `bytes` at `first` as a frame of `peer`. Ignores frames beyond the capacity.
    #[inline]
    pub(crate) fn place(&mut self, first: usize, bytes: usize, peer: SocketAddr) {
        if let Some(span) = self.spans.get_mut(self.frames) {
            *span = Span { first: first as u32, bytes: bytes as u32, peer };
            self.frames += 1;
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}
