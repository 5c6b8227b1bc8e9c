//! A link: the memory of two rings, at either end, and what wakes who sleeps there.
//!
//! The server's bell is an eventfd that it watches for edges and never reads; the client's is the Unix socket. So the server
//! makes no call that a client can hold up: not of a descriptor whose flags a client could change, nor one that takes what a
//! client has sent.
//!
//! Shared between the owner of a port, neighbours that answer from there, and the thread of the [`super::Door`], which lets
//! go of it last, so that no worker unmaps memory. Whoever finds that it is of no more use says so once, and why.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::descriptor;
use super::layout::Direction;
use super::region::{Region, Ring};
use super::ring::{Consumer, Producer};
use crate::sys;

/// Bytes of rings that are taken off a socket at once.
const BELLS: usize = 64;

/// Why a link is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum End {
    /// The other end has gone, or this one wants to go.
    Left = 1,
    /// The other end wrote what no honest one does.
    Lied = 2,
}

/// What has passed the links of a port; all but the first only grow.
#[derive(Debug, Default)]
pub struct ChannelCounts {
    /// Links that there are.
    pub links: AtomicU64,
    /// Links that have joined.
    pub links_made: AtomicU64,
    /// Frames that arrived.
    pub frames_received: AtomicU64,
    /// Frames that were sent.
    pub frames_sent: AtomicU64,
    /// Frames that found a full ring, or one that others used for too long.
    pub frames_lost: AtomicU64,
    /// Links that were ended for a lie.
    pub lies: AtomicU64,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Channel {
    region: Region,
    socket: OwnedFd,
    server_bell: OwnedFd,
    serial: u64,
    is_server: bool,
    /// 0, or why it has ended.
    end: AtomicU8,
}

impl Channel {
    /// The server's end.
    pub(super) fn of_server(region: Region, socket: OwnedFd, server_bell: OwnedFd, serial: u64) -> Self {
        Self { region, socket, server_bell, serial, is_server: true, end: AtomicU8::new(0) }
    }

    /// The client's end.
    pub(super) fn of_client(region: Region, socket: OwnedFd, server_bell: OwnedFd, serial: u64) -> Self {
        Self { region, socket, server_bell, serial, is_server: false, end: AtomicU8::new(0) }
    }

    /// A number that no other link of this process has had.
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Whether this is the client's end.
    pub(super) fn is_client(&self) -> bool {
        !self.is_server
    }

    /// Whose closing says that the other end is gone.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What this end watches, for edges, while it sleeps.
    pub(super) fn own_bell(&self) -> BorrowedFd<'_> {
        if self.is_server { self.server_bell.as_fd() } else { self.socket.as_fd() }
    }

    /// Where frames for this end arrive.
    #[inline]
    pub(super) fn arriving(&self) -> Ring<'_> {
        self.region.ring(if self.is_server { Direction::Requests } else { Direction::Replies })
    }

    /// Where frames for the other end leave.
    #[inline]
    pub(super) fn leaving(&self) -> Ring<'_> {
        self.region.ring(if self.is_server { Direction::Replies } else { Direction::Requests })
    }

    /// Whether it is of no more use.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.end.load(Ordering::Relaxed) != 0
    }

    /// Says that it is of no more use; the first reason stands. True for who says so first.
    pub(super) fn end(&self, why: End) -> bool {
        let is_first = self.end.compare_exchange(0, why as u8, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_first && self.is_server {
            self.region.close();
            self.ring_bell();
        }
        is_first
    }

    /// Wakes the other end. A client that does not take its bells off has enough of them.
    #[cold]
    pub(super) fn ring_bell(&self) {
        if self.is_server {
            let _ = descriptor::send(self.socket.as_fd(), &[0], &[]);
        } else {
            sys::eventfd_raise(self.server_bell.as_fd());
        }
    }

    /// Takes a client's bells off; notices when the server is gone.
    #[cold]
    pub(super) fn take_bells(&self) {
        if self.is_server {
            return;
        }
        match descriptor::receive(self.socket.as_fd(), &mut [0; BELLS]) {
            Ok((0, _)) => drop(self.end(End::Left)),
            Err(error) if !is_passing(&error) => drop(self.end(End::Left)),
            _ => {}
        }
    }

    /// Whether the server has closed it: a look at the memory.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        !self.is_server && self.region.is_closed()
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The receiving half of a link in a port's list.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) link: Arc<Channel>,
    pub(super) consumer: Consumer,
}

/// The sending half of a link in a port's list.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) link: Arc<Channel>,
    pub(super) producer: Producer,
}
