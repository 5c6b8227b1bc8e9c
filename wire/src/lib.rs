//! The bytes of frames, streams and data requests, and the sans-I/O requester.
//!
//! All numbers are little-endian; `docs/formats.md` specifies each byte. Decoding refuses and never panics: bytes from
//! outside become borrowed values that are valid by construction, or a [`Status`] or [`FrameError`] with the reason.
//! Data requests travel in datagrams ([`FrameReader`], [`FrameWriter`]) or, if they are too large, as records of a TCP
//! stream ([`RecordHeader`]); opening and administration use only the stream. The crate `control` defines the bodies of
//! administration.
//!
//! Nothing here opens a socket, reads a clock or starts a thread: the caller of [`Requester`] supplies the time and
//! the frames. Called by `client` sessions and by the server's dispatch and control threads.

#![forbid(unsafe_code)]

mod body;
mod condition;
mod durability;
mod frame;
mod keys;
pub mod limits;
mod name;
pub mod opcode;
mod open;
pub mod reply;
mod request;
mod requester;
mod status;
mod stream;
mod tablets;

pub use body::{Body, BodyReader, BodyWriter};
pub use condition::Condition;
pub use durability::RequestDurability;
pub use frame::{FrameError, FrameReader, FrameWriter, Group, Groups, Message, Messages};
pub use keys::Keys;
pub use name::{TenantId, function_hash, name_is_valid, path_is_valid, qualified_name_is_valid};
pub use open::{
    Attach, LoggedReply, OpenRequest, Opened, ServerState, SessionLimits, ShmEndpoint, VersionRange,
};
pub use request::{Changes, CommitItem, CommitRange, CommitRead, CommitWrite, Items, KeyRange, Request};
pub use requester::{
    Accepted, Completion, CompletionError, Journey, Requester, RequesterConfig, SubmitError,
};
pub use status::Status;
pub use stream::RecordHeader;
pub use tablets::{Moving, ServerPlace, TAG_WIDTH, Tablet, TabletMap, position, tag_of, tagged_positions};
