//! The interface between the content of a frame and its transport.
//!
//! Implemented by [`crate::UdpPort`] (kernel), [`crate::HostPort`] (kernel, and memory shared with local clients) and
//! [`crate::LoopbackPort`] (in process, with faults). One thread owns a port; other threads end its sleep through its
//! [`Waker`], and threads with a port of their own help out at it through its handle ([`SharedPort`]). Only
//! [`Port::wait`] sleeps; a caller that sleeps by itself announces that ([`Port::begin_wait`]).

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::shm::{AttachError, Entry, ListenerAddress, PendingAttach};
use crate::{Batch, Outbox, Waker};

/// Maximum bytes of an unfragmented frame over IPv4 and Ethernet: 1,500 less 20 (IP) and 8 (UDP).
pub const FRAME_BYTES_MAX_V4: usize = 1472;
/// The same over IPv6: 1,500 less 40 (IP) and 8 (UDP).
pub const FRAME_BYTES_MAX_V6: usize = 1452;

/// Sends and receives batches of datagrams.
pub trait Port: Send {
    /// Replaces the content of `batch` by the arrived frames and returns their number, 0 if there are none. Does not
    /// wait.
    ///
    /// # Errors
    /// Only if the port itself is broken; trouble with one datagram is counted in [`Port::drops`].
    fn receive(&mut self, batch: &mut Batch) -> io::Result<usize>;

    /// Sends every non-empty frame of `out`, empties it, and returns the number that left. A frame that the network
    /// refuses (full queue, no route) is lost like any datagram. Does not wait.
    ///
    /// # Errors
    /// Only if the port itself is broken.
    fn send(&mut self, out: &mut Outbox) -> io::Result<usize>;

    /// Sleeps until a frame is readable, the waker is used, or `timeout` has passed. May return early.
    ///
    /// # Errors
    /// Only if the port itself is broken.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Returns a descriptor that is readable when [`Port::wait`] would end, for a caller that waits for other things too. It is
    /// of use between [`Port::begin_wait`] and [`Port::end_wait`]. `None` for a port that can only be polled.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Announces a sleep outside of [`Port::wait`]; returns false if there is something to do at once.
    /// [`Port::end_wait`] ends it in either case, before the next use of the port.
    fn begin_wait(&mut self) -> bool {
        false
    }

    /// Ends what [`Port::begin_wait`] has begun.
    fn end_wait(&mut self) {}

    /// Requests a poll of all sources, by the next [`Port::receive`] but one at the latest, including the sources
    /// that the port polls less often.
    fn look_everywhere(&mut self) {}

    /// Restricts the port to `peer`. A port may use this: sends become cheaper, frames of others are not received.
    ///
    /// # Errors
    /// If there is no way to `peer`.
    fn set_peer(&mut self, peer: SocketAddr) -> io::Result<()> {
        let _ = peer;
        Ok(())
    }

    /// Ends the restriction to one peer. Frames in transit may be lost.
    ///
    /// # Errors
    /// Only if the port itself is broken.
    fn forget_peer(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Starts an attachment to a server on the same host and sends it `words`. Does not wait: [`Port::enter`]
    /// continues.
    ///
    /// # Errors
    /// See [`AttachError`].
    fn attach(&mut self, listener: &ListenerAddress, words: &[u8]) -> Result<PendingAttach, AttachError> {
        let _ = (listener, words);
        Err(AttachError::Unsupported)
    }

    /// Continues an attachment: takes the listener's reply, and returns the address that reaches the attached core
    /// over shared memory.
    ///
    /// Waits for the reply for `patience` at most. When a server ends such a channel, the next [`Port::receive`]
    /// reports it once with [`io::ErrorKind::ConnectionReset`]; the port itself continues.
    ///
    /// # Errors
    /// See [`AttachError`].
    fn enter(&mut self, pending: PendingAttach, patience: Duration) -> Result<Entry, AttachError> {
        let _ = (pending, patience);
        Err(AttachError::Unsupported)
    }

    /// Returns whether `peer`, an address from [`Port::enter`], can still be reached there.
    fn is_attached(&self, peer: SocketAddr) -> bool {
        let _ = peer;
        false
    }

    /// Returns a handle that ends a [`Port::wait`] from any thread.
    fn waker(&self) -> Waker;

    /// Returns the steering of frames to this port, as a word for statistics.
    fn steering(&self) -> &'static str {
        "kernel"
    }

    /// Returns the bytes of the largest frame that this port sends.
    fn frame_bytes_max(&self) -> usize;

    /// Returns the address for frames to this port.
    fn local(&self) -> SocketAddr;

    /// Returns the number of datagrams that arrived but were lost before [`Port::receive`] could deliver them: a full
    /// receive queue, an oversized or an empty datagram. Only grows.
    fn drops(&self) -> u64;
}

/// A port that owners of similar ports may help to serve. Each frame goes to one of the concurrent receivers.
pub trait SharedPort: Port {
    /// The handle for the owner of another port. Keeps the underlying resources usable.
    type Handle: Clone + Send + Sync + 'static;

    /// Returns the handle of this port.
    fn handle(&self) -> Self::Handle;

    /// Replaces the content of `batch` by frames that wait at the port of `handle`; returns their number without
    /// waiting.
    ///
    /// Takes up to `messages_max` messages, where one may be many frames that the kernel merged.
    ///
    /// # Errors
    /// As [`Port::receive`]: if that port is broken.
    fn receive_at(
        &mut self,
        handle: &Self::Handle,
        batch: &mut Batch,
        messages_max: usize,
    ) -> io::Result<usize>;

    /// As [`Port::send`], from the address of the port of `handle`.
    ///
    /// # Errors
    /// As [`Port::send`]: if that port is broken.
    fn send_at(&mut self, handle: &Self::Handle, out: &mut Outbox) -> io::Result<usize>;
}
