//! The layout of a channel's memory.
//!
//! ```text
//!        0  magic u32, version u32, closed u32                     written by the server
//!       64  requests: asleep u32    of the server                  written by both
//!      128  requests: taken u32                                    written by the server
//!      192  replies:  asleep u32    of the client                  written by both
//!      256  replies:  taken u32                                    written by the client
//!     4096  slots of the requests, then slots of the replies
//!     slot  sequence u32 and bytes u32 in one word, then the frame
//! ```
//! Sequence and length share the cache line in which the frame begins, so that a short frame costs its receiver one
//! line. A number that one end polls and the other writes has a line of its own.

/// `SPLM`.
pub(super) const MAGIC: u32 = 0x4d4c_5053;
/// Version of this layout.
pub(super) const VERSION: u32 = 1;

/// Slots of a ring, a power of two: enough for the replies to all outstanding requests of a session, each in a frame
/// of its own.
pub(super) const SLOTS: u32 = 256;
/// Bytes of a slot: a word and the largest frame, in whole cache lines.
pub(super) const SLOT_BYTES: usize = 1_536;
/// Bytes of the word before a frame.
pub(super) const WORD_BYTES: usize = 8;
/// Maximum bytes of a frame in a slot.
pub(crate) const SLOT_FRAME_BYTES: usize = SLOT_BYTES - WORD_BYTES;

pub(super) const MAGIC_AT: usize = 0;
pub(super) const VERSION_AT: usize = 4;
pub(super) const CLOSED_AT: usize = 8;

/// The direction of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
}

const HEADER_BYTES: usize = 4_096;
const RING_BYTES: usize = SLOTS as usize * SLOT_BYTES;

/// Bytes of the whole memory.
pub(super) const REGION_BYTES: usize = HEADER_BYTES + 2 * RING_BYTES;

const _: () = assert!(SLOTS.is_power_of_two());
const _: () = assert!(SLOT_BYTES.is_multiple_of(64));
const _: () = assert!(REGION_BYTES.is_multiple_of(4_096));

impl Direction {
    pub(super) const fn asleep_at(self) -> usize {
        match self {
            Self::Requests => 64,
            Self::Replies => 192,
        }
    }

    pub(super) const fn taken_at(self) -> usize {
        self.asleep_at() + 64
    }

    pub(super) const fn slot_at(self, position: u32) -> usize {
        let first = match self {
            Self::Requests => HEADER_BYTES,
            Self::Replies => HEADER_BYTES + RING_BYTES,
        };
        first + (position % SLOTS) as usize * SLOT_BYTES
    }
}
