//! Frames under construction, each with its peer, in one reused allocation.
//!
//! The caller opens a frame, writes into its buffer, sets its length, and hands the whole outbox to a port, which
//! sends and empties it. Frames for one peer are chained when they are opened, so that a port that can send several
//! in one call finds them without a search: opening twice in a row for one peer chains automatically,
//! [`Outbox::open_next`] does it for alternating peers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Default number of frames of an outbox.
pub const OUTBOX_FRAMES: usize = 64;

const NONE: u32 = u32::MAX;
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

#[derive(Clone, Copy)]
struct Slot {
    peer: SocketAddr,
    bytes: u32,
    /// The next frame for the same peer.
    next: u32,
    /// True when another frame's `next` points here.
    chained: bool,
}

/// Frames to send.
pub struct Outbox {
    memory: Box<[u8]>,
    slots: Box<[Slot]>,
    frame_bytes_max: usize,
    frames: usize,
}

impl Outbox {
    /// Creates room for [`OUTBOX_FRAMES`] frames of `frame_bytes_max` bytes each.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        Self::with_frames(OUTBOX_FRAMES, frame_bytes_max)
    }

    /// Creates room for `frames` frames of `frame_bytes_max` bytes each.
    #[must_use]
    pub fn with_frames(frames: usize, frame_bytes_max: usize) -> Self {
        let slot = Slot { peer: NOWHERE, bytes: 0, next: NONE, chained: false };
        Self {
            memory: vec![0; frames * frame_bytes_max].into_boxed_slice(),
            slots: vec![slot; frames].into_boxed_slice(),
            frame_bytes_max,
            frames: 0,
        }
    }

    /// Returns the number of open frames.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.frames
    }

    /// Returns whether no frame is open.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Returns whether no further frame can be opened before a send.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.frames == self.slots.len()
    }

    /// Returns the bytes of the largest frame.
    #[must_use]
    #[inline]
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// Opens an empty frame for `peer`; returns its index, or `None` if the outbox is full.
    #[inline]
    pub fn open(&mut self, peer: SocketAddr) -> Option<usize> {
        match self.frames.checked_sub(1) {
            Some(last) if self.slots[last].peer == peer => self.open_next(last),
            _ => self.append(peer),
        }
    }

    /// Opens another frame for the peer of frame `index`, which must be the last one opened for it.
    #[inline]
    pub fn open_next(&mut self, index: usize) -> Option<usize> {
        let opened = self.append(self.slots[..self.frames][index].peer)?;
        if self.slots[index].next == NONE {
            self.slots[index].next = opened as u32;
            self.slots[opened].chained = true;
        }
        Some(opened)
    }

    /// Returns the whole buffer of frame `index`, [`Outbox::frame_bytes_max`] bytes. It still has the content of an
    /// earlier frame.
    #[inline]
    pub fn buffer(&mut self, index: usize) -> &mut [u8] {
        debug_assert!(index < self.frames, "frame {index} is not open");
        let first = index * self.frame_bytes_max;
        &mut self.memory[first..first + self.frame_bytes_max]
    }

    /// Sets the length of frame `index`; a frame of length 0 is not sent.
    ///
    /// # Panics
    /// If `bytes` exceeds the frame.
    #[inline]
    pub fn set_bytes(&mut self, index: usize, bytes: usize) {
        assert!(
            bytes <= self.frame_bytes_max,
            "a frame of {bytes} bytes in a buffer of {}",
            self.frame_bytes_max
        );
        self.slots[..self.frames][index].bytes = bytes as u32;
    }

    /// Adds a copy of `frame` for `peer`; false if the outbox is full or the frame too large.
    pub fn push(&mut self, frame: &[u8], peer: SocketAddr) -> bool {
        if frame.len() > self.frame_bytes_max {
            return false;
        }
        let Some(index) = self.open(peer) else { return false };
        self.buffer(index)[..frame.len()].copy_from_slice(frame);
        self.set_bytes(index, frame.len());
        true
    }

    /// Returns the present bytes of frame `index`, and its peer.
    #[must_use]
    #[inline]
    pub fn frame(&self, index: usize) -> (&[u8], SocketAddr) {
        let slot = &self.slots[..self.frames][index];
        let first = index * self.frame_bytes_max;
        (&self.memory[first..first + slot.bytes as usize], slot.peer)
    }

    /// Removes all frames.
    #[inline]
    pub fn clear(&mut self) {
        self.frames = 0;
    }

    /// Returns whether frame `index` is the first of its peer's chain.
    #[inline]
    pub(crate) fn is_head(&self, index: usize) -> bool {
        !self.slots[index].chained
    }

    /// Returns the frame for the same peer that follows frame `index`.
    #[inline]
    pub(crate) fn next(&self, index: usize) -> Option<usize> {
        let next = self.slots[index].next;
        (next != NONE).then_some(next as usize)
    }

    #[inline]
    fn append(&mut self, peer: SocketAddr) -> Option<usize> {
        let index = self.frames;
        *self.slots.get_mut(index)? = Slot { peer, bytes: 0, next: NONE, chained: false };
        self.frames += 1;
        Some(index)
    }
}
