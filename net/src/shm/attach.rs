//! The client's side of an attachment: it connects to the listener, sends its words, and gets the memory of a
//! channel.
//!
//! Before it sends anything it checks the user that listens: only the user that the server named over the stream is
//! accepted, so that another user's socket in that place does not receive the client's words. A silent
//! listener delays no client, because clients can poll for the reply at any time.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::channel::Channel;
use super::channels::Channels;
use super::descriptor::{self, PASSED};
use super::region::Region;

/// The first byte of a reply that admits the client.
pub(super) const ADMITTED: u8 = 0;
/// Maximum bytes that a client sends when it attaches.
pub const ATTACH_BYTES_MAX: usize = 64;
/// Bytes of the longest reason for a refusal.
const REASON_BYTES_MAX: usize = 256;

/// The next serial of a channel of this process.
static SERIALS: AtomicU64 = AtomicU64::new(1);

/// The address of a listener on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerAddress {
    /// The path of its Unix socket.
    pub path: PathBuf,
    /// The user id of the listening process.
    pub user: u32,
}

/// An attachment without a reply yet. Dropping it makes the server forget it.
#[derive(Debug)]
pub struct PendingAttach {
    socket: OwnedFd,
}

/// The state of an attachment.
#[derive(Debug)]
pub enum Entry {
    /// The channel exists and has this address.
    Attached(SocketAddr),
    /// No reply yet.
    Waiting(PendingAttach),
}

/// The reason why there is no channel.
#[derive(Debug)]
pub enum AttachError {
    /// This kind of port has no channels.
    Unsupported,
    /// The listener cannot be reached, or ended the connection without a reply.
    Unreachable(io::Error),
    /// Another user than the server's listens there.
    OtherUser {
        /// The user id of the listening process.
        user: u32,
    },
    /// The server refused, with this reason.
    Refused(String),
    /// The reply is not the memory of a channel.
    Unintelligible,
}

impl fmt::Display for AttachError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => to.write_str("this kind of port has no shared memory"),
            Self::Unreachable(error) => write!(to, "cannot reach the server's socket: {error}"),
            Self::OtherUser { user } => {
                write!(to, "user {user} listens at the server's socket, not the server's user")
            }
            Self::Refused(reason) => write!(to, "the server refuses: {reason}"),
            Self::Unintelligible => to.write_str("the server's reply is invalid"),
        }
    }
}

impl std::error::Error for AttachError {}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error)
    }
}

/// Connects to `listener` and sends `words`.
pub(crate) fn attach(listener: &ListenerAddress, words: &[u8]) -> Result<PendingAttach, AttachError> {
    let socket = descriptor::connect(&listener.path)?;
    let listening = descriptor::peer_user(socket.as_fd())?;
    if listening != listener.user {
        return Err(AttachError::OtherUser { user: listening });
    }
    descriptor::send(socket.as_fd(), words, &[])?;
    Ok(PendingAttach { socket })
}

/// Adds the channel to `links` if the server has replied, or does so within `patience`.
pub(crate) fn enter(
    links: &mut Channels,
    pending: PendingAttach,
    patience: Duration,
) -> Result<Entry, AttachError> {
    let PendingAttach { socket } = pending;
    if !patience.is_zero() {
        let timeout_ms = patience.as_millis().clamp(1, i32::MAX as u128) as i32;
        let mut watched = [libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        descriptor::poll(&mut watched, timeout_ms)?;
    }
    let mut answer = [0; 1 + REASON_BYTES_MAX];
    match descriptor::receive(socket.as_fd(), &mut answer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Ok(Entry::Waiting(PendingAttach { socket }))
        }
        Err(error) => Err(error.into()),
        Ok((bytes, passed)) => Ok(Entry::Attached(links.add(link(socket, &answer[..bytes], passed)?)?)),
    }
}

/// Returns the channel that a reply contains.
fn link(socket: OwnedFd, answer: &[u8], passed: [Option<OwnedFd>; PASSED]) -> Result<Channel, AttachError> {
    match (answer, passed) {
        ([ADMITTED], [Some(memory), Some(doorbell)]) if descriptor::is_memory(memory.as_fd()) => {
            let region = Region::map(memory.as_fd())?;
            if !region.is_signed() {
                return Err(AttachError::Unintelligible);
            }
            let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
            Ok(Channel::of_client(region, socket, doorbell, serial))
        }
        ([], _) => Err(AttachError::Unreachable(io::ErrorKind::UnexpectedEof.into())),
        ([ADMITTED, ..], _) => Err(AttachError::Unintelligible),
        ([_, reason @ ..], _) => Err(AttachError::Refused(String::from_utf8_lossy(reason).into_owned())),
    }
}
