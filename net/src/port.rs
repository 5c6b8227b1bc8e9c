//! The seam between what a frame says and how it travels.
//!
//! Implemented by [`crate::UdpPort`] (kernel) and [`crate::LoopbackPort`] (in process, with faults). One
//! thread owns a port; other threads reach it through its [`Waker`] alone. Nothing but [`Port::wait`]
//! ever sleeps.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

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

    /// Tells the port that from now on it speaks with `peer` alone. A port that can makes use of it: sends
    /// get cheaper, frames of others are not received.
    ///
    /// # Errors
    /// When there is no way to `peer`.
    fn set_peer(&mut self, peer: SocketAddr) -> io::Result<()> {
        let _ = peer;
        Ok(())
    }

    /// A handle that ends a [`Port::wait`] from any thread.
    fn waker(&self) -> Waker;

    /// Largest frame that this port sends.
    fn frame_bytes_max(&self) -> usize;

    /// The address that frames for this port are sent to.
    fn local(&self) -> SocketAddr;

    /// Datagrams that arrived and were lost before [`Port::receive`] could deliver them: a full receive
    /// queue, an oversized or an empty datagram. Only grows.
    fn drops(&self) -> u64;
}
