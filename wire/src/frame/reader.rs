//! Reads a received frame without copying.
//!
//! [`FrameReader::new`] checks the frame header; the iterator checks each group and message when it reaches it. An
//! iterator yields at most one error and then ends: nothing behind a broken length can be trusted. Everything before
//! it is valid and has been returned. Nothing here panics on any bytes.

use core::fmt;

use crate::limits::{
    FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, MAGIC, MESSAGE_HEADER_BYTES, PROTOCOL_VERSION, SUITE_CLEAR,
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
    /// [`crate::limits::TAKES_PARTS`] of a request, [`crate::limits::IS_PART`] of a reply; others are ignored.
    pub flags: u8,
    /// Low half of the sequence.
    pub sequence_low: u32,
    /// The body, decoded by [`crate::Request::decode`] or [`crate::reply`].
    pub body: &'a [u8],
}

#[inline]
fn u64_at<const N: usize>(head: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(word)
}
