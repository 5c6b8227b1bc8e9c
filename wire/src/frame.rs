//! Frames: one datagram, many messages.
//!
//! ```text
//! frame   magic u16 | version u8 | suite u8 | frame bytes u16 | group count u16 | view u64 | groups
//! group   token u64 | first unacknowledged u64 | group bytes u16 | message count u16 | flags u16
//!         | home core u16 | messages
//! message message bytes u16 | code u8 | flags u8 | sequence u32 | body
//! ```
//! All lengths include their own header. A frame holds groups, each of one session, so that a proxy with a thousand
//! tenants still packs well. Neither reader nor writer allocates.
//!
//! [`FrameReader::new`] checks the frame header; the iterator checks each group and message when it reaches it. An
//! iterator yields at most one error and then ends: nothing behind a broken length can be trusted. Everything before
//! it is valid and has been returned. Nothing here panics on any bytes.
//!
//! [`FrameWriter`] packs messages in place. It is plain state beside the buffer that the port lends, which the caller
//! passes to every call, so that many frames can be under construction at once. A message costs a bounds check and one
//! store of eight bytes; counts and lengths of a group are written when the next group starts or the frame is finished.

use core::fmt;

use crate::limits::{
    FRAME_BYTES_LIMIT, FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, MAGIC, MESSAGE_HEADER_BYTES, PROTOCOL_VERSION,
    SUITE_CLEAR,
};

/// The reason why a frame, or the rest of it, cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The datagram is shorter or longer than its headers or lengths say.
    Length,
    /// It does not start like a frame.
    Magic,
    /// It has another version of the protocol.
    Version(u8),
    /// It has an unknown suite.
    Suite(u8),
    /// A field that must be zero is not.
    Reserved,
}

impl fmt::Display for FrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Length => formatter.write_str("a length field in the frame is wrong"),
            FrameError::Magic => formatter.write_str("not a frame of this protocol"),
            FrameError::Version(version) => write!(formatter, "protocol version {version} is not supported"),
            FrameError::Suite(suite) => write!(formatter, "suite {suite} is not supported"),
            FrameError::Reserved => formatter.write_str("a reserved field is not zero"),
        }
    }
}

impl std::error::Error for FrameError {}

/// A frame with a checked header.
#[derive(Clone, Copy, Debug)]
pub struct FrameReader<'a> {
    view: u64,
    groups: Groups<'a>,
}

impl<'a> FrameReader<'a> {
    /// Checks the header of a datagram. A few nanoseconds.
    ///
    /// # Errors
    /// The fault of the header; the frame then contains nothing that can be answered.
    #[inline]
    pub fn new(datagram: &'a [u8]) -> Result<FrameReader<'a>, FrameError> {
        let (head, rest) = datagram.split_first_chunk::<FRAME_HEADER_BYTES>().ok_or(FrameError::Length)?;
        if u16::from_le_bytes([head[0], head[1]]) != MAGIC {
            return Err(FrameError::Magic);
        }
        if head[2] != PROTOCOL_VERSION {
            return Err(FrameError::Version(head[2]));
        }
        if head[3] != SUITE_CLEAR {
            return Err(FrameError::Suite(head[3]));
        }
        if u16::from_le_bytes([head[4], head[5]]) as usize != datagram.len() {
            return Err(FrameError::Length);
        }
        let left = u16::from_le_bytes([head[6], head[7]]);
        let view = u64_at(head, 8);
        Ok(FrameReader { view, groups: Groups { rest, left, failed: false } })
    }

    /// Returns the sender's view of the cluster.
    #[inline]
    pub const fn view(&self) -> u64 {
        self.view
    }

    /// Returns the groups, in order.
    #[inline]
    pub const fn groups(&self) -> Groups<'a> {
        self.groups
    }
}

/// An iterator over the groups of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Groups<'a> {
    rest: &'a [u8],
    left: u16,
    failed: bool,
}

impl<'a> Iterator for Groups<'a> {
    type Item = Result<Group<'a>, FrameError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || (self.left == 0 && self.rest.is_empty()) {
            return None;
        }
        let group = self.split();
        self.failed = group.is_err();
        Some(group)
    }
}

impl<'a> Groups<'a> {
    #[inline]
    fn split(&mut self) -> Result<Group<'a>, FrameError> {
        // Bytes without a group are as wrong as a group without bytes.
        self.left = self.left.checked_sub(1).ok_or(FrameError::Length)?;
        let (head, _) = self.rest.split_first_chunk::<GROUP_HEADER_BYTES>().ok_or(FrameError::Length)?;
        let group_bytes = u16::from_le_bytes([head[16], head[17]]) as usize;
        let (group, rest) = self.rest.split_at_checked(group_bytes).ok_or(FrameError::Length)?;
        let messages = group.get(GROUP_HEADER_BYTES..).ok_or(FrameError::Length)?;
        if head[20] | head[21] != 0 {
            return Err(FrameError::Reserved);
        }
        self.rest = rest;
        Ok(Group {
            token: u64_at(head, 0),
            first_unacknowledged: u64_at(head, 8),
            home_core: u16::from_le_bytes([head[22], head[23]]),
            messages: Messages {
                rest: messages,
                left: u16::from_le_bytes([head[18], head[19]]),
                failed: false,
            },
        })
    }
}

/// The messages of one session in a frame.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The session's token.
    pub token: u64,
    /// From a client: every sequence below is acknowledged. From a server: 0.
    pub first_unacknowledged: u64,
    /// From a server: the tenant's home core. From a client: 0.
    pub home_core: u16,
    messages: Messages<'a>,
}

impl<'a> Group<'a> {
    /// Returns the messages, in order.
    #[inline]
    pub const fn messages(&self) -> Messages<'a> {
        self.messages
    }

    /// Returns the number of messages that the group announces.
    #[inline]
    pub const fn message_count(&self) -> u16 {
        self.messages.left
    }

    /// Returns the whole sequence of a request, from its low half: the first one at or above
    /// [`Group::first_unacknowledged`].
    #[inline]
    pub const fn sequence(&self, sequence_low: u32) -> u64 {
        let ahead = sequence_low.wrapping_sub(self.first_unacknowledged as u32);
        self.first_unacknowledged.wrapping_add(ahead as u64)
    }
}

/// An iterator over the messages of a group.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
    left: u16,
    failed: bool,
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, FrameError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || (self.left == 0 && self.rest.is_empty()) {
            return None;
        }
        let message = self.split();
        self.failed = message.is_none();
        Some(message.ok_or(FrameError::Length))
    }
}

impl<'a> Messages<'a> {
    #[inline]
    fn split(&mut self) -> Option<Message<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (head, _) = self.rest.split_first_chunk::<MESSAGE_HEADER_BYTES>()?;
        let message_bytes = u16::from_le_bytes([head[0], head[1]]) as usize;
        let (message, rest) = self.rest.split_at_checked(message_bytes)?;
        let body = message.get(MESSAGE_HEADER_BYTES..)?;
        self.rest = rest;
        Some(Message {
            code: head[2],
            flags: head[3],
            sequence_low: u32::from_le_bytes([head[4], head[5], head[6], head[7]]),
            body,
        })
    }
}

/// One request or one reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Opcode of a request, status of a reply.
    pub code: u8,
    /// Of a request: [`crate::limits::TAKES_PARTS`] and those of [`crate::RequestDurability`]. Of a reply:
    /// [`crate::limits::IS_PART`]. Others are ignored.
    pub flags: u8,
    /// Low half of the sequence.
    pub sequence_low: u32,
    /// The body, decoded by [`crate::Request::decode`] or [`crate::reply`].
    pub body: &'a [u8],
}

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

#[inline]
fn u64_at<const N: usize>(head: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(word)
}
