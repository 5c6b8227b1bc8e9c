//! The client's side of a door: it knocks, says what it has to say, and gets the memory of a link.
//!
//! Before it says anything it looks who listens: only the user that the server told over the stream may, so that nobody who
//! has put a socket of his own in that place hears what the client says. A door that says nothing holds nobody up: who has
//! knocked looks for the answer whenever he likes.

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

/// The first byte of an answer that lets in.
pub(super) const ADMITTED: u8 = 0;
/// Bytes that a client may say when it knocks.
pub const KNOCK_BYTES_MAX: usize = 64;
/// Bytes of the longest reason for a refusal.
const REASON_BYTES_MAX: usize = 256;

/// Serials of the links of this process.
static SERIALS: AtomicU64 = AtomicU64::new(1);

/// Where a server of this host lets clients in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerAddress {
    /// The path of its Unix socket.
    pub path: PathBuf,
    /// The user who listens there.
    pub user: u32,
}

/// A knock that has not been answered. The server lets go of who drops it.
#[derive(Debug)]
pub struct PendingAttach {
    socket: OwnedFd,
}

/// What a knock has come to.
#[derive(Debug)]
pub enum Entry {
    /// There is a link, and this is its address.
    Attached(SocketAddr),
    /// Nothing yet.
    Waiting(PendingAttach),
}

/// Why there is no link.
#[derive(Debug)]
pub enum AttachError {
    /// This kind of port has no links.
    Unsupported,
    /// Nobody answers at the door, or only somebody else.
    Unreachable(io::Error),
    /// Another user than the server's listens there.
    OtherUser {
        /// Who does.
        user: u32,
    },
    /// The server says why it does not want to.
    Refused(String),
    /// What came is no memory of a link.
    Unintelligible,
}

impl fmt::Display for AttachError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => to.write_str("this kind of port has no shared memory"),
            Self::Unreachable(error) => write!(to, "no way to the server's socket: {error}"),
            Self::OtherUser { user } => {
                write!(to, "user {user} listens at the server's socket, who is another one")
            }
            Self::Refused(reason) => write!(to, "the server refuses: {reason}"),
            Self::Unintelligible => to.write_str("the server's answer makes no sense"),
        }
    }
}

impl std::error::Error for AttachError {}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error)
    }
}

/// Knocks at `door` and says `words`.
pub(crate) fn knock(door: &ListenerAddress, words: &[u8]) -> Result<PendingAttach, AttachError> {
    let socket = descriptor::connect(&door.path)?;
    let listening = descriptor::peer_user(socket.as_fd())?;
    if listening != door.user {
        return Err(AttachError::OtherUser { user: listening });
    }
    descriptor::send(socket.as_fd(), words, &[])?;
    Ok(PendingAttach { socket })
}

/// Adds the link to `links` if the server has answered, or does within `patience`.
pub(crate) fn enter(
    links: &mut Channels,
    knocking: PendingAttach,
    patience: Duration,
) -> Result<Entry, AttachError> {
    let PendingAttach { socket } = knocking;
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

/// The link that an answer gives.
fn link(socket: OwnedFd, answer: &[u8], passed: [Option<OwnedFd>; PASSED]) -> Result<Channel, AttachError> {
    match (answer, passed) {
        ([ADMITTED], [Some(memory), Some(bell)]) if descriptor::is_memory(memory.as_fd()) => {
            let region = Region::map(memory.as_fd())?;
            if !region.is_signed() {
                return Err(AttachError::Unintelligible);
            }
            let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
            Ok(Channel::of_client(region, socket, bell, serial))
        }
        ([], _) => Err(AttachError::Unreachable(io::ErrorKind::UnexpectedEof.into())),
        ([ADMITTED, ..], _) => Err(AttachError::Unintelligible),
        ([_, reason @ ..], _) => Err(AttachError::Refused(String::from_utf8_lossy(reason).into_owned())),
    }
}
