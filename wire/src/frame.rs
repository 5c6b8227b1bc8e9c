//! Frames: one datagram, many messages.
//!
//! ```text
//! frame   magic u16 | version u8 | suite u8 | frame bytes u16 | group count u16 | view u64 | groups
//! group   token u64 | first unacknowledged u64 | group bytes u16 | message count u16 | flags u16
//!         | home core u16 | messages
//! message message bytes u16 | code u8 | flags u8 | sequence u32 | body
//! ```
//! All lengths include their own header. A frame holds groups, each of one session, so that a proxy with a thousand
//! tenants still packs well. [`FrameReader`] borrows and refuses, [`FrameWriter`] fills a buffer that the port lends;
//! neither allocates.

mod reader;
mod writer;

pub use reader::{FrameError, FrameReader, Group, Groups, Message, Messages};
pub use writer::FrameWriter;
