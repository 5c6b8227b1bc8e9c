//! Frames over kernel UDP: one non-blocking socket, batches in and out.
//!
//! Frames of one peer leave as one merged message (`UDP_SEGMENT`) and arrive merged (`UDP_GRO`) when the
//! configuration allows it and the kernel can; on the wire they stay separate datagrams of at most
//! [`Port::frame_bytes_max`] bytes. Chosen by these figures (median ns of one call over loopback, Linux
//! 6.18 in a VM; `n` datagrams of 100 B, 1,440 B cost 2-5 % more):
//!
//! ```text
//! send   n = 1: sendto 2,884  send on a connected socket 2,474  sendmsg 3,004  sendmmsg 3,105
//!        n = 8: sendto 8 times 22,593   sendmmsg 19,208   UDP_SEGMENT 3,355 (6,079 to a plain receiver)
//! receive n = 1: recvfrom 751   recvmsg with control 912   recvmmsg 1,132
//!        n = 8: recvfrom 8 times 5,088   recvmmsg 4,387   UDP_GRO 1,032        none: 290, 411, 411
//! ```
//! Hence: a lone frame leaves by `sendto`, several by `sendmmsg`, merged wherever lengths allow; receive is
//! one `recvmsg` (control data tells merged frames and kernel drops), `recvmmsg` while frames come in
//! bursts.
//!
//! Never delivered: empty datagrams, datagrams larger than a frame, and datagrams with the address of a shared-memory
//! channel (all counted as drops). A send that the kernel refuses is a lost datagram, counted in
//! [`UdpPort::send_drops`].

mod control;
mod receive;
mod send;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use self::receive::ReceiveMessages;
use self::send::SendMessages;
use crate::port::{FRAME_BYTES_MAX_V4, FRAME_BYTES_MAX_V6, Port, SharedPort};
use crate::wake::{Sleeper, Waker, Watcher};
use crate::{Batch, Outbox, sys};

/// The configuration of a socket.
#[derive(Clone, Copy, Debug)]
pub struct UdpConfig {
    /// Receive queue requested from the kernel, in bytes. The kernel may grant less (`net.core.rmem_max`).
    pub receive_buffer_bytes: usize,
    /// Send queue requested from the kernel, in bytes.
    pub send_buffer_bytes: usize,
    /// Whether the kernel may merge frames of one peer in both directions.
    pub segmentation: bool,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self { receive_buffer_bytes: 8 << 20, send_buffer_bytes: 8 << 20, segmentation: true }
    }
}

/// A UDP socket as a [`Port`].
pub struct UdpPort {
    socket: Arc<UdpSocket>,
    local: SocketAddr,
    sleeper: Sleeper,
    receive: ReceiveMessages,
    send: SendMessages,
}

impl UdpPort {
    /// Binds `address`; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(address: SocketAddr, config: UdpConfig) -> io::Result<Self> {
        Self::over(UdpSocket::bind(address)?, config)
    }

    /// Binds a free local port and fixes the peer: frames of others are not received, and sends skip the route
    /// look-up. For a client of one core.
    ///
    /// # Errors
    /// If there is no free port or no route to `peer`.
    pub fn connect(peer: SocketAddr, config: UdpConfig) -> io::Result<Self> {
        let any: SocketAddr = match peer {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let mut port = Self::bind(any, config)?;
        port.set_peer(peer)?;
        Ok(port)
    }

    /// Returns the number of frames that the kernel refused to send; they are lost. Only grows.
    #[must_use]
    pub fn send_drops(&self) -> u64 {
        self.send.drops()
    }

    /// Returns the bytes of the receive queue that the kernel granted (it reports twice the requested size).
    ///
    /// # Errors
    /// If the socket cannot be queried.
    pub fn receive_buffer_bytes(&self) -> io::Result<usize> {
        sys::option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).map(|bytes| bytes.max(0) as usize)
    }

    /// Returns a handle that adds descriptors to the owner's wake-up sources.
    pub(crate) fn watcher(&self) -> Watcher {
        self.sleeper.watcher()
    }

    fn over(socket: UdpSocket, config: UdpConfig) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        let fd = socket.as_fd();
        set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, config.receive_buffer_bytes)?;
        set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, config.send_buffer_bytes)?;
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        // An old kernel refuses these options: then frames leave or arrive one by one, which is only slower.
        let merges = config.segmentation && sys::option(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok();
        let merged = config.segmentation && sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        let frame_bytes_max = match local {
            SocketAddr::V4(_) => FRAME_BYTES_MAX_V4,
            SocketAddr::V6(_) => FRAME_BYTES_MAX_V6,
        };
        Ok(Self {
            sleeper: Sleeper::new(Some(fd))?,
            local,
            // IPv4 peers of a dual-stack socket send frames of this size.
            receive: ReceiveMessages::new(FRAME_BYTES_MAX_V4, merged),
            send: SendMessages::new(frame_bytes_max, merges),
            socket: Arc::new(socket),
        })
    }
}

impl Port for UdpPort {
    fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        self.receive.receive(self.socket.as_fd(), batch)
    }

    fn send(&mut self, out: &mut Outbox) -> io::Result<usize> {
        let sent = self.send.send(self.socket.as_fd(), out);
        out.clear();
        sent
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.sleeper.sleep(timeout)
    }

    fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        self.sleeper.descriptor().map(Some)
    }

    fn begin_wait(&mut self) -> bool {
        self.sleeper.begin()
    }

    fn end_wait(&mut self) {
        self.sleeper.end(true);
    }

    fn set_peer(&mut self, peer: SocketAddr) -> io::Result<()> {
        self.socket.connect(peer)?;
        self.local = self.socket.local_addr()?;
        self.receive.connected(peer);
        self.send.connected();
        Ok(())
    }

    fn forget_peer(&mut self) -> io::Result<()> {
        let fd = self.socket.as_fd();
        sys::disconnect(fd)?;
        // The kernel may release a port of its choice with the peer; it chooses another one at the next send.
        self.local = self.socket.local_addr()?;
        self.receive.disconnected();
        self.send.disconnected();
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    fn frame_bytes_max(&self) -> usize {
        self.send.frame_bytes_max()
    }

    fn local(&self) -> SocketAddr {
        self.local
    }

    fn drops(&self) -> u64 {
        self.receive.drops()
    }
}

/// The socket of a port, for other threads.
#[derive(Clone, Debug)]
pub struct UdpHandle {
    socket: Arc<UdpSocket>,
}

impl SharedPort for UdpPort {
    type Handle = UdpHandle;

    fn handle(&self) -> UdpHandle {
        UdpHandle { socket: Arc::clone(&self.socket) }
    }

    fn receive_at(
        &mut self,
        handle: &UdpHandle,
        batch: &mut Batch,
        messages_max: usize,
    ) -> io::Result<usize> {
        self.receive.receive_at(handle.socket.as_fd(), batch, messages_max)
    }

    fn send_at(&mut self, handle: &UdpHandle, out: &mut Outbox) -> io::Result<usize> {
        let sent = self.send.send(handle.socket.as_fd(), out);
        out.clear();
        sent
    }
}

/// Sets a queue size beyond the system's limit if permitted, otherwise up to it.
fn set_buffer(fd: BorrowedFd<'_>, force: i32, plain: i32, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    sys::set_option(fd, libc::SOL_SOCKET, force, bytes)
        .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, plain, bytes))
}
