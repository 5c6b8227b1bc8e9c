//! Packs messages into one outgoing frame, in place.
//!
//! [`FrameWriter`] is plain state beside the buffer, which the caller passes to every call, so that many frames can
//! be under construction at once. A message costs a bounds check and one store of eight bytes; counts and lengths of
//! a group are written when the next group starts or the frame is finished.

use crate::limits::{
    FRAME_BYTES_LIMIT, FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, MAGIC, MESSAGE_HEADER_BYTES, PROTOCOL_VERSION,
    SUITE_CLEAR,
};

/// A frame under construction. Every call must get the buffer that [`FrameWriter::start`] got.
#[derive(Clone, Debug, Default)]
pub struct FrameWriter {
    /// Where the next message goes; 0 before the start.
    at: usize,
    /// Where the open group starts; 0 when none is open.
    group_at: usize,
    /// Messages of the open group.
    messages: u16,
    /// Groups closed so far.
    groups: u16,
}

impl FrameWriter {
    /// Creates a writer without a frame.
    pub const fn new() -> FrameWriter {
        FrameWriter { at: 0, group_at: 0, messages: 0, groups: 0 }
    }

    /// Starts a frame at the start of `buffer`, which bounds its size.
    ///
    /// # Panics
    /// If `buffer` has no room for the header.
    #[inline]
    pub fn start(&mut self, buffer: &mut [u8], view: u64) {
        let head = &mut buffer[..FRAME_HEADER_BYTES];
        head[..2].copy_from_slice(&MAGIC.to_le_bytes());
        head[2] = PROTOCOL_VERSION;
        head[3] = SUITE_CLEAR;
        head[8..].copy_from_slice(&view.to_le_bytes());
        *self = FrameWriter { at: FRAME_HEADER_BYTES, ..FrameWriter::new() };
    }

    /// Starts a group; replaces an open one without messages.
    ///
    /// Returns `false`, with nothing changed, if not even an empty message would fit behind it. Only the server sets
    /// `home_core`, a client writes 0.
    ///
    /// # Panics
    /// Unless the frame was started.
    #[inline]
    pub fn group(
        &mut self,
        buffer: &mut [u8],
        token: u64,
        first_unacknowledged: u64,
        home_core: u16,
    ) -> bool {
        assert!(self.at != 0, "a group outside of a frame");
        let at = if self.group_at != 0 && self.messages == 0 { self.group_at } else { self.at };
        let end = at + GROUP_HEADER_BYTES;
        if end + MESSAGE_HEADER_BYTES > buffer.len().min(FRAME_BYTES_LIMIT) {
            return false;
        }
        self.close_group(buffer);
        let head = &mut buffer[at..end];
        head[..8].copy_from_slice(&token.to_le_bytes());
        head[8..16].copy_from_slice(&first_unacknowledged.to_le_bytes());
        head[20..22].copy_from_slice(&[0; 2]);
        head[22..].copy_from_slice(&home_core.to_le_bytes());
        self.group_at = at;
        self.at = end;
        true
    }

    /// Adds a message to the open group; returns its body, which the caller must fill completely. The body holds old
    /// bytes. `None`, with nothing changed, if it does not fit.
    ///
    /// # Panics
    /// Unless a group is open.
    #[inline]
    pub fn message<'b>(
        &mut self,
        buffer: &'b mut [u8],
        code: u8,
        flags: u8,
        sequence_low: u32,
        body_bytes: usize,
    ) -> Option<&'b mut [u8]> {
        assert!(self.group_at != 0, "a message outside of a group");
        let end = self.at.checked_add(MESSAGE_HEADER_BYTES)?.checked_add(body_bytes)?;
        if end > FRAME_BYTES_LIMIT {
            return None;
        }
        let message = buffer.get_mut(self.at..end)?;
        let (head, body) = message.split_first_chunk_mut::<MESSAGE_HEADER_BYTES>()?;
        let [length_low, length_high] = ((MESSAGE_HEADER_BYTES + body_bytes) as u16).to_le_bytes();
        let [a, b, c, d] = sequence_low.to_le_bytes();
        *head = [length_low, length_high, code, flags, a, b, c, d];
        self.at = end;
        self.messages += 1;
        Some(body)
    }

    /// Returns the maximum body bytes of one more message; `None` if not even an empty one fits.
    #[inline]
    pub fn body_bytes_left(&self, buffer: &[u8]) -> Option<usize> {
        buffer.len().min(FRAME_BYTES_LIMIT).checked_sub(self.at + MESSAGE_HEADER_BYTES)
    }

    /// Returns whether no message has been written since the start.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.groups == 0 && self.messages == 0
    }

    /// Completes the frame and returns its length in bytes, 0 if it is empty. The writer must be started again before
    /// further use.
    #[inline]
    pub fn finish(&mut self, buffer: &mut [u8]) -> usize {
        if self.is_empty() {
            *self = FrameWriter::new();
            return 0;
        }
        self.close_group(buffer);
        buffer[4..6].copy_from_slice(&(self.at as u16).to_le_bytes());
        buffer[6..8].copy_from_slice(&self.groups.to_le_bytes());
        let frame_bytes = self.at;
        *self = FrameWriter::new();
        frame_bytes
    }

    /// Writes length and count of the open group; one without messages is taken back.
    #[inline]
    fn close_group(&mut self, buffer: &mut [u8]) {
        if self.messages != 0 {
            let group_bytes = (self.at - self.group_at) as u16;
            let place = &mut buffer[self.group_at + 16..self.group_at + 20];
            place[..2].copy_from_slice(&group_bytes.to_le_bytes());
            place[2..].copy_from_slice(&self.messages.to_le_bytes());
            self.groups += 1;
        } else if self.group_at != 0 {
            self.at = self.group_at;
        }
        self.group_at = 0;
        self.messages = 0;
    }
}
