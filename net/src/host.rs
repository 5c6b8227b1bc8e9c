//! A port that combines kernel UDP with shared-memory channels to local clients.
//!
//! ```text
//!   a turn:  channels, if any ─────────┐
//!            UDP: each 16th such turn  ├─▶ one batch, of one of the two
//!                 or after 4 KiB,      │
//!                 up to 128 or 32 KiB  │
//!                 without a frame;     │
//!                 on owner's request   ┘
//!   sleep:   one epoll over the socket, the waker and the bells of all channels
//! ```
//! Polling a channel costs nanoseconds, polling an empty socket 0.3 us. So beside channels the socket is polled only
//! in some turns: half as often after each poll without a frame, at once after a sleep, and in every other turn while
//! it has frames. Only the owner can tell the duration of a turn: about every 20 us it requests a poll of everything
//! ([`Port::look_everywhere`]), so a frame at the socket waits no longer than that and two turns. A port without
//! channels is a [`UdpPort`] at the additional cost of a load and a branch.
//!
//! The sender of a frame from a channel has an address that no datagram can have ([`shm::is_link`]); a reply to such
//! an address leaves over the channel. A server's port gets its channels from a [`crate::ShmListener`], a client's by
//! [`Port::enter`].

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::port::{FRAME_BYTES_MAX_V4, FRAME_BYTES_MAX_V6, Port, SharedPort};
use crate::shm::{self, AttachError, ChannelPoint, Channels, Entry, ListenerAddress, PendingAttach};
use crate::udp::UdpHandle;
use crate::{Batch, Outbox, UdpConfig, UdpPort, Waker};

/// Maximum frames of channels that one turn takes.
const LINK_FRAMES: usize = 128;
/// Turns without a poll of the socket after the first poll without a frame.
const UDP_EACH_TURNS: u32 = 16;
/// The same after many polls without a frame.
const UDP_EACH_TURNS_MAX: u32 = 128;
/// Bytes of frames that count as one more turn: some requests take as long as an empty turn.
const TURN_BYTES: usize = 256;
/// Turns without a frame from a channel, some hundred us, after which a port polls its socket and checks whether the
/// other ends still exist.
const LOOK_AFTER_TURNS: u32 = 4_096;

const _: () =
    assert!(FRAME_BYTES_MAX_V4 <= shm::SLOT_FRAME_BYTES && FRAME_BYTES_MAX_V6 <= FRAME_BYTES_MAX_V4);

/// A UDP port with shared-memory channels.
pub struct HostPort {
    udp: UdpPort,
    links: Channels,
    /// The only peer, reached over a channel.
    only: Option<SocketAddr>,
    /// Turns until the next poll of the socket, by their weight.
    turns_left: u32,
    /// The next value of `turns_left` after a poll without a frame.
    udp_each: u32,
    /// Turns since the last frame from a channel, or the last check of the other ends.
    idle_turns: u32,
    /// The socket must be polled next, because the port has slept or no frame has come for a while.
    looks_at_udp: bool,
    /// The last turn was the socket's, and returned frames.
    links_are_next: bool,
    /// Alternates whether help at a neighbour's port begins with its socket.
    helps_at_udp: bool,
}

impl HostPort {
    /// Binds a UDP socket, without channels.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(address: SocketAddr, config: UdpConfig) -> io::Result<Self> {
        let udp = UdpPort::bind(address, config)?;
        let links = Channels::new(udp.watcher(), udp.waker());
        Ok(Self {
            udp,
            links,
            only: None,
            turns_left: UDP_EACH_TURNS,
            udp_each: UDP_EACH_TURNS,
            idle_turns: 0,
            looks_at_udp: false,
            links_are_next: false,
            helps_at_udp: false,
        })
    }

    /// Returns the attachment point that a [`crate::ShmListener`] needs to add clients.
    #[must_use]
    pub fn link_point(&self) -> ChannelPoint {
        self.links.point()
    }

    /// Adds an existing channel.
    #[cfg(test)]
    pub(crate) fn add_link(&mut self, link: shm::Channel) -> io::Result<SocketAddr> {
        self.links.add(link)
    }

    #[inline(never)]
    fn receive_from_both(&mut self, batch: &mut Batch) -> io::Result<usize> {
        let is_due = self.only.is_none() && self.turns_left == 0;
        let links_are_next = std::mem::take(&mut self.links_are_next);
        // A frame at the socket may have woken the port, and would wake it again; or it may be a reply from before the
        // channel existed.
        if !links_are_next && (std::mem::take(&mut self.looks_at_udp) || is_due) {
            let received = self.udp.receive(batch)?;
            if received > 0 {
                (self.turns_left, self.udp_each) = (0, UDP_EACH_TURNS);
                self.links_are_next = true;
                return Ok(received);
            }
            self.turns_left = self.udp_each;
            self.udp_each = (2 * self.udp_each).min(UDP_EACH_TURNS_MAX);
        }
        batch.clear();
        let received = self.links.receive(batch, FRAME_BYTES_MAX_V4, LINK_FRAMES);
        self.turns_left = self.turns_left.saturating_sub(1 + (received.bytes / TURN_BYTES) as u32);
        self.idle_turns = if received.frames > 0 { 0 } else { self.idle_turns + 1 };
        if self.idle_turns >= LOOK_AFTER_TURNS {
            self.idle_turns = 0;
            self.looks_at_udp = true;
            self.links.look_after();
        }
        if self.links.take_lost() {
            if self.only.is_some_and(|only| !self.links.has(&only)) {
                self.only = None;
            }
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(received.frames)
    }
}

impl Port for HostPort {
    #[inline]
    fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        if self.links.are_used() { self.receive_from_both(batch) } else { self.udp.receive(batch) }
    }

    fn send(&mut self, out: &mut Outbox) -> io::Result<usize> {
        if !self.links.are_used() {
            return self.udp.send(out);
        }
        let (sent, others) = self.links.send(out);
        if others {
            return Ok(sent + self.udp.send(out)?);
        }
        out.clear();
        Ok(sent)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if !self.links.are_used() {
            return self.udp.wait(timeout);
        }
        let slept = if self.links.fall_asleep() { self.udp.wait(timeout) } else { Ok(()) };
        self.links.wake_up();
        self.looks_at_udp = true;
        slept
    }

    fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        self.udp.descriptor()
    }

    fn begin_wait(&mut self) -> bool {
        (!self.links.are_used() || self.links.fall_asleep()) && self.udp.begin_wait()
    }

    fn end_wait(&mut self) {
        self.udp.end_wait();
        if self.links.are_used() {
            self.links.wake_up();
            self.looks_at_udp = true;
        }
    }

    #[inline]
    fn look_everywhere(&mut self) {
        self.turns_left = 0;
    }

    fn set_peer(&mut self, peer: SocketAddr) -> io::Result<()> {
        if shm::is_link(peer.ip()) {
            self.only = Some(peer);
            return Ok(());
        }
        self.only = None;
        self.udp.set_peer(peer)
    }

    fn forget_peer(&mut self) -> io::Result<()> {
        self.only = None;
        self.udp.forget_peer()
    }

    fn attach(&mut self, listener: &ListenerAddress, words: &[u8]) -> Result<PendingAttach, AttachError> {
        shm::attach(listener, words)
    }

    fn enter(&mut self, pending: PendingAttach, patience: Duration) -> Result<Entry, AttachError> {
        shm::enter(&mut self.links, pending, patience)
    }

    fn is_attached(&self, peer: SocketAddr) -> bool {
        self.links.has(&peer)
    }

    fn waker(&self) -> Waker {
        self.udp.waker()
    }

    fn frame_bytes_max(&self) -> usize {
        self.udp.frame_bytes_max()
    }

    fn local(&self) -> SocketAddr {
        self.udp.local()
    }

    fn drops(&self) -> u64 {
        self.udp.drops() + self.links.lost()
    }
}

/// A handle of another worker's port.
#[derive(Clone, Debug)]
pub struct HostHandle {
    udp: UdpHandle,
    links: Channels,
}

impl SharedPort for HostPort {
    type Handle = HostHandle;

    fn handle(&self) -> HostHandle {
        HostHandle { udp: self.udp.handle(), links: self.links.clone() }
    }

    fn receive_at(
        &mut self,
        handle: &HostHandle,
        batch: &mut Batch,
        messages_max: usize,
    ) -> io::Result<usize> {
        if handle.links.are_used() {
            // In turn, so that a client that constantly fills a ring does not block datagrams while the owner is away.
            self.helps_at_udp = !self.helps_at_udp;
            if self.helps_at_udp {
                let received = self.udp.receive_at(&handle.udp, batch, messages_max)?;
                if received > 0 {
                    return Ok(received);
                }
            }
            batch.clear();
            let received = handle.links.receive_beside(batch, FRAME_BYTES_MAX_V4, messages_max);
            if received.frames > 0 || self.helps_at_udp {
                return Ok(received.frames);
            }
        }
        self.udp.receive_at(&handle.udp, batch, messages_max)
    }

    fn send_at(&mut self, handle: &HostHandle, out: &mut Outbox) -> io::Result<usize> {
        if !handle.links.are_used() {
            return self.udp.send_at(&handle.udp, out);
        }
        let (sent, others) = handle.links.send(out);
        if others {
            return Ok(sent + self.udp.send_at(&handle.udp, out)?);
        }
        out.clear();
        Ok(sent)
    }
}
