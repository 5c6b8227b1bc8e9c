//! The client's side of a door: it knocks, says what it has to say, and gets the memory of a link.
//!
//! Before it says anything it looks who listens: only the user that the server told over the stream may, so that nobody who
//! has put a socket of his own in that place hears what the client says.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::descriptor;
use super::door::ADMITTED;
use super::link::Link;
use super::links::Links;
use super::region::Region;

/// Bytes that a client may say when it knocks.
pub const KNOCK_BYTES_MAX: usize = 64;
/// Bytes of the longest reason for a refusal.
const REASON_BYTES_MAX: usize = 256;
/// How long a server may take to let somebody in.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

/// Serials of the links of this process.
static SERIALS: AtomicU64 = AtomicU64::new(1);

/// Where a server of this host lets clients in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorAddress {
    /// The path of its Unix socket.
    pub path: PathBuf,
    /// The user who listens there.
    pub user: u32,
}

/// Why there is no link.
#[derive(Debug)]
pub enum KnockError {
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

impl fmt::Display for KnockError {
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

impl std::error::Error for KnockError {}

impl From<io::Error> for KnockError {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error)
    }
}

/// Knocks at `door`, says `words`, and adds the link to `links`. Waits for a second at most.
pub(crate) fn knock(links: &mut Links, door: &DoorAddress, words: &[u8]) -> Result<SocketAddr, KnockError> {
    Ok(links.add(link(&door.path, door.user, words)?)?)
}

fn link(path: &Path, user: u32, words: &[u8]) -> Result<Link, KnockError> {
    let socket = UnixStream::from(descriptor::connect(path)?);
    let listening = descriptor::peer_user(socket.as_fd())?;
    if listening != user {
        return Err(KnockError::OtherUser { user: listening });
    }
    descriptor::send(socket.as_fd(), words, &[])?;
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut answer = [0; 1 + REASON_BYTES_MAX];
    let (bytes, passed) = descriptor::receive(socket.as_fd(), &mut answer, true)?;
    match (&answer[..bytes], passed) {
        ([ADMITTED], [Some(memory), Some(bell)]) if descriptor::is_memory(memory.as_fd()) => {
            let region = Region::map(memory.as_fd())?;
            if !region.is_signed() {
                return Err(KnockError::Unintelligible);
            }
            let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
            Ok(Link::of_client(region, OwnedFd::from(socket), bell, serial))
        }
        ([], _) => Err(KnockError::Unreachable(io::ErrorKind::UnexpectedEof.into())),
        ([ADMITTED, ..], _) => Err(KnockError::Unintelligible),
        ([_, reason @ ..], _) => Err(KnockError::Refused(String::from_utf8_lossy(reason).into_owned())),
    }
}
