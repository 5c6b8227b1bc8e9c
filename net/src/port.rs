//! The seam between what a frame says and how it travels.
//!
//! Implemented by [`crate::UdpPort`] (kernel), [`crate::HostPort`] (kernel, and memory shared with neighbours) and
//! [`crate::LoopbackPort`] (in process, with faults). One thread owns a port; other threads end its sleep through its [`Waker`], and threads with a port of their
//! own help out at it through its handle ([`SharedPort`]). Nothing but [`Port::wait`] ever sleeps.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::shm::{AttachError, Entry, ListenerAddress, PendingAttach};
use crate::{Batch, Outbox, Waker};

/// Bytes of a frame that cross an Ethernet in one piece over IPv4: 1,500 less 20 (IP) and 8 (UDP).
pub const FRAME_BYTES_MAX_V4: usize = 1472;
/// The same over IPv6: 1,500 less 40 (IP) and 8 (UDP).
pub const FRAME_BYTES_MAX_V6: usize = 1452;

/// Sends and receives batches of datagrams.
pub trait Port: Send {
    /// Replaces the content of `batch` by what has arrived and returns the number of frames; 0 when
    /// nothing has. Returns at once.
    ///
    /// # Errors
    /// Only when the port itself is broken; trouble with one datagram is counted in [`Port::drops`].
    fn receive(&mut self, batch: &mut Batch) -> io::Result<usize>;

    /// Sends every non-empty frame of `out`, empties it, and returns the number that left. A frame that
    /// the network refuses (full queue, no route) is lost like any datagram. Returns at once.
    ///
    /// # Errors
    /// Only when the port itself is broken.
    fn send(&mut self, out: &mut Outbox) -> io::Result<usize>;

    /// Sleeps until a frame is readable, the waker is used, or `timeout` has passed. May return early.
    ///
    /// # Errors
    /// Only when the port itself is broken.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Tells the port that it has been a while: the next [`Port::receive`] but one at the latest looks wherever frames may be,
    /// also where it looks less often than elsewhere.
    fn look_everywhere(&mut self) {}

    /// Tells the port that from now on it speaks with `peer` alone. A port that can makes use of it: sends
    /// get cheaper, frames of others are not received.
    ///
    /// # Errors
    /// When there is no way to `peer`.
    fn set_peer(&mut self, peer: SocketAddr) -> io::Result<()> {
        let _ = peer;
        Ok(())
    }

    /// Tells the port that from now on it speaks with several peers again. Frames that are under way may be lost.
    ///
    /// # Errors
    /// Only when the port itself is broken.
    fn forget_peer(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Knocks at the door of a server on the same host and says `words` there. Returns at once: [`Port::enter`] goes on.
    ///
    /// # Errors
    /// See [`AttachError`].
    fn knock(&mut self, door: &ListenerAddress, words: &[u8]) -> Result<PendingAttach, AttachError> {
        let _ = (door, words);
        Err(AttachError::Unsupported)
    }

    /// Takes what a door has answered, and gives the address under which the core that lets in is reached over shared memory.
    /// Waits for the answer for `patience` at most. When a server ends such a link, the next [`Port::receive`] says so once
    /// with [`io::ErrorKind::ConnectionReset`]; the port itself goes on.
    ///
    /// # Errors
    /// See [`AttachError`].
    fn enter(&mut self, knocking: PendingAttach, patience: Duration) -> Result<Entry, AttachError> {
        let _ = (knocking, patience);
        Err(AttachError::Unsupported)
    }

    /// Whether `peer`, an address that [`Port::enter`] gave, is still reached there.
    fn is_attached(&self, peer: SocketAddr) -> bool {
        let _ = peer;
        false
    }

    /// A handle that ends a [`Port::wait`] from any thread.
    fn waker(&self) -> Waker;

    /// How a frame finds this port among others of its kind, as a word for statistics.
    fn steering(&self) -> &'static str {
        "kernel"
    }

    /// Largest frame that this port sends.
    fn frame_bytes_max(&self) -> usize;

    /// The address that frames for this port are sent to.
    fn local(&self) -> SocketAddr;

    /// Datagrams that arrived and were lost before [`Port::receive`] could deliver them: a full receive
    /// queue, an oversized or an empty datagram. Only grows.
    fn drops(&self) -> u64;
}

/// A port at which the owners of other ports of its kind may help out. Every frame goes to one of those who
/// receive at the same time.
pub trait SharedPort: Port {
    /// What the owner of another port needs for that. Keeps what it names usable.
    type Handle: Clone + Send + Sync + 'static;

    /// The handle of this port.
    fn handle(&self) -> Self::Handle;

    /// Replaces the content of `batch` by frames that wait at the port of `handle`: what up to
    /// `messages_max` messages carry, where one may be many frames that the kernel merged. Returns the number
    /// of frames, at once.
    ///
    /// # Errors
    /// As [`Port::receive`]: when that port is broken.
    fn receive_at(
        &mut self,
        handle: &Self::Handle,
        batch: &mut Batch,
        messages_max: usize,
    ) -> io::Result<usize>;

    /// As [`Port::send`], from the address of the port of `handle`.
    ///
    /// # Errors
    /// As [`Port::send`]: when that port is broken.
    fn send_at(&mut self, handle: &Self::Handle, out: &mut Outbox) -> io::Result<usize>;
}
