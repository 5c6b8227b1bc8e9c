//! A shared-memory channel: the memory of two rings, at either end, and the bells that wake a sleeping end.
//!
//! The server's doorbell is an eventfd that it watches for edges and never reads; the client's is the Unix socket. So
//! the server makes no call that a client can delay: neither on a descriptor whose flags a client could change, nor
//! one that reads data from a client.
//!
//! The owner of a port, neighbours that answer from there, and the thread of the [`super::ShmListener`] share a
//! channel. The listener releases it last, so that no worker unmaps memory. The thread that finds the channel
//! unusable marks its end once, with the reason.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::descriptor;
use super::layout::Direction;
use super::region::{Region, Ring};
use super::ring::{Consumer, Producer};
use crate::sys;

/// Wake-up bytes read from a socket at a time.
const DOORBELLS: usize = 64;

/// The reason why a channel has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum End {
    /// The other end has gone, or this one leaves.
    Left = 1,
    /// The other end violated the protocol.
    Lied = 2,
}

/// Counters of a port's channels; all but the first only grow.
#[derive(Debug, Default)]
pub struct ChannelCounts {
    /// Existing channels.
    pub links: AtomicU64,
    /// Channels that have joined.
    pub links_made: AtomicU64,
    /// Frames that arrived.
    pub frames_received: AtomicU64,
    /// Frames that were sent.
    pub frames_sent: AtomicU64,
    /// Frames lost to a full ring, or to one that others used for too long.
    pub frames_lost: AtomicU64,
    /// Channels that were ended for a violation of the protocol.
    pub lies: AtomicU64,
}

/// A shared-memory channel, at either end.
#[derive(Debug)]
pub(crate) struct Channel {
    region: Region,
    socket: OwnedFd,
    server_bell: OwnedFd,
    serial: u64,
    is_server: bool,
    /// 0, or the reason why the channel has ended.
    end: AtomicU8,
}

impl Channel {
    /// Creates the server's end.
    pub(super) fn of_server(region: Region, socket: OwnedFd, server_bell: OwnedFd, serial: u64) -> Self {
        Self { region, socket, server_bell, serial, is_server: true, end: AtomicU8::new(0) }
    }

    /// Creates the client's end.
    pub(super) fn of_client(region: Region, socket: OwnedFd, server_bell: OwnedFd, serial: u64) -> Self {
        Self { region, socket, server_bell, serial, is_server: false, end: AtomicU8::new(0) }
    }

    /// Returns its number, unique among the channels of this process.
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns whether this is the client's end.
    pub(super) fn is_client(&self) -> bool {
        !self.is_server
    }

    /// Returns the socket whose closing signals the end of the peer.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the descriptor that this end watches, for edges, while it sleeps.
    pub(super) fn own_bell(&self) -> BorrowedFd<'_> {
        if self.is_server { self.server_bell.as_fd() } else { self.socket.as_fd() }
    }

    /// Returns the ring of frames for this end.
    #[inline]
    pub(super) fn arriving(&self) -> Ring<'_> {
        self.region.ring(if self.is_server { Direction::Requests } else { Direction::Replies })
    }

    /// Returns the ring of frames for the other end.
    #[inline]
    pub(super) fn leaving(&self) -> Ring<'_> {
        self.region.ring(if self.is_server { Direction::Replies } else { Direction::Requests })
    }

    /// Returns whether it has ended.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.end.load(Ordering::Relaxed) != 0
    }

    /// Marks the channel as ended; the first reason stands. Returns true for the first call.
    pub(super) fn end(&self, why: End) -> bool {
        let is_first = self.end.compare_exchange(0, why as u8, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_first && self.is_server {
            self.region.close();
            self.ring_bell();
        }
        is_first
    }

    /// Wakes the other end. A full socket is ignored: its client has enough unread bells.
    #[cold]
    pub(super) fn ring_bell(&self) {
        if self.is_server {
            let _ = descriptor::send(self.socket.as_fd(), &[0], &[]);
        } else {
            sys::eventfd_raise(self.server_bell.as_fd());
        }
    }

    /// Reads a client's bells; detects that the server is gone.
    #[cold]
    pub(super) fn take_bells(&self) {
        if self.is_server {
            return;
        }
        match descriptor::receive(self.socket.as_fd(), &mut [0; DOORBELLS]) {
            Ok((0, _)) => drop(self.end(End::Left)),
            Err(error) if !is_passing(&error) => drop(self.end(End::Left)),
            _ => {}
        }
    }

    /// Returns whether the server has closed the channel, by a look at the memory.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        !self.is_server && self.region.is_closed()
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The receiving half of a channel in a port's list.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) link: Arc<Channel>,
    pub(super) consumer: Consumer,
}

/// The sending half of a channel in a port's list.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) link: Arc<Channel>,
    pub(super) producer: Producer,
}
