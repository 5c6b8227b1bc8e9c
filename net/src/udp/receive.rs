//! The receiving side: `recvmsg` while frames come one at a time, `recvmmsg` while they come in bursts.
//!
//! Message headers are built once and hold pointers into the boxes beside them and into the batch of the call; only
//! the fields that a call changes are written again.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

use super::control::{self, ControlData};
use crate::batch::{BATCH_FRAMES, COALESCED_REGIONS, REGION_BYTES, SLOT_BYTES};
use crate::shm::is_link;
use crate::{Batch, sys};

/// Message headers for one socket.
pub(super) struct ReceiveMessages {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[libc::sockaddr_storage]>,
    controls: Box<[ControlData]>,
    /// The only sender, when the socket is connected.
    peer: Option<SocketAddr>,
    /// Batch memory that `vectors` point into now, as a number: compared, never followed.
    target: usize,
    slot_bytes: usize,
    frame_bytes_max: usize,
    /// The last call received something.
    found: bool,
    /// Frames come faster than calls: take many at once.
    burst: bool,
    /// Drops as the kernel counted them for this socket, 32 bits that wrap.
    kernel_drops: u32,
    drops: u64,
}

// SAFETY: the pointers inside `headers` and `vectors` are to the boxes beside them, whose contents stay in place
// when the value moves, or to the batch of the current call; no other thread shares them.
unsafe impl Send for ReceiveMessages {}

impl ReceiveMessages {
    pub(super) fn new(frame_bytes_max: usize, merged: bool) -> Self {
        let (slots, slot_bytes) =
            if merged { (COALESCED_REGIONS, REGION_BYTES) } else { (BATCH_FRAMES, SLOT_BYTES) };
        let mut vectors: Box<[_]> =
            (0..slots).map(|_| libc::iovec { iov_base: null_mut(), iov_len: slot_bytes }).collect();
        let mut names: Box<[_]> = (0..slots).map(|_| sys::no_address()).collect();
        let mut controls = vec![ControlData::EMPTY; slots].into_boxed_slice();
        let headers = (0..slots)
            .map(|slot| {
                let mut header = control::empty_header();
                header.msg_hdr.msg_name = (&raw mut names[slot]).cast();
                header.msg_hdr.msg_iov = &raw mut vectors[slot];
                header.msg_hdr.msg_iovlen = 1;
                rearm(&mut header.msg_hdr, &mut controls[slot]);
                header
            })
            .collect();
        Self {
            headers,
            vectors,
            names,
            controls,
            peer: None,
            target: 0,
            slot_bytes,
            frame_bytes_max,
            found: false,
            burst: false,
            kernel_drops: 0,
            drops: 0,
        }
    }

    /// Notes that the socket has a fixed peer: the kernel need not name the sender.
    pub(super) fn connected(&mut self, peer: SocketAddr) {
        self.peer = Some(peer);
        for header in &mut self.headers {
            header.msg_hdr.msg_name = null_mut();
            header.msg_hdr.msg_namelen = 0;
        }
    }

    /// Notes that the socket no longer has a fixed peer.
    pub(super) fn disconnected(&mut self) {
        self.peer = None;
        for ((header, name), control) in self.headers.iter_mut().zip(&mut self.names).zip(&mut self.controls)
        {
            header.msg_hdr.msg_name = (&raw mut *name).cast();
            rearm(&mut header.msg_hdr, control);
        }
    }

    pub(super) fn drops(&self) -> u64 {
        self.drops
    }

    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, batch: &mut Batch) -> io::Result<usize> {
        batch.clear();
        self.aim(batch.memory());
        let slots = self.headers.len();
        let received = if self.burst { self.receive_many(fd, slots) } else { self.receive_one(fd) };
        let received = passing_is_none(received)?;
        // Two successful calls in a row begin a burst; a call that receives at most one message ends it. So the lone
        // request of a latency-bound client never pays for the longer call.
        self.burst = if self.burst { received > 1 } else { self.found && received > 0 };
        self.found = received > 0;
        for slot in 0..received {
            self.deliver(slot, batch, true);
        }
        batch.set_cut(received == slots);
        Ok(batch.len())
    }

    /// Receives from the socket of another port, which counts the kernel's drops there.
    pub(super) fn receive_at(
        &mut self,
        fd: BorrowedFd<'_>,
        batch: &mut Batch,
        messages_max: usize,
    ) -> io::Result<usize> {
        batch.clear();
        self.aim(batch.memory());
        let slots = self.headers.len().min(messages_max);
        let received = passing_is_none(self.receive_many(fd, slots))?;
        for slot in 0..received {
            self.deliver(slot, batch, false);
        }
        batch.set_cut(received == slots);
        Ok(batch.len())
    }

    fn receive_one(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let header = &mut self.headers[0];
        // SAFETY: the header points to its own name, vector and control data, all alive in `self`, and the vector
        // to the first slot of the batch's memory, which the caller borrows for the call.
        let bytes = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header.msg_hdr, libc::MSG_DONTWAIT) };
        if bytes < 0 {
            return Err(io::Error::last_os_error());
        }
        header.msg_len = bytes as u32;
        Ok(1)
    }

    fn receive_many(&mut self, fd: BorrowedFd<'_>, slots: usize) -> io::Result<usize> {
        let headers = &mut self.headers[..slots];
        let count = headers.len() as u32;
        // SAFETY: as in `receive_one`, for every header and its own slot.
        let received = unsafe {
            libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT, null_mut())
        };
        if received < 0 { Err(io::Error::last_os_error()) } else { Ok(received as usize) }
    }

    /// Points the vectors at the slots of `memory`.
    fn aim(&mut self, memory: &mut [u8]) {
        if self.target == memory.as_ptr() as usize {
            return;
        }
        for (vector, slot) in self.vectors.iter_mut().zip(memory.chunks_exact_mut(self.slot_bytes)) {
            vector.iov_base = slot.as_mut_ptr().cast();
        }
        self.target = memory.as_ptr() as usize;
    }

    /// Cuts what arrived in `slot` into frames; counts the kernel's drops if the socket is our own.
    fn deliver(&mut self, slot: usize, batch: &mut Batch, own: bool) {
        let header = &mut self.headers[slot];
        let bytes = header.msg_len as usize;
        let mut frame_bytes = bytes;
        if header.msg_hdr.msg_controllen > 0 {
            let beside = control::read(&header.msg_hdr);
            if let Some(segment_bytes) = beside.segment_bytes {
                frame_bytes = segment_bytes;
            }
            if let Some(kernel_drops) = beside.kernel_drops.filter(|_| own) {
                self.drops += u64::from(kernel_drops.wrapping_sub(self.kernel_drops));
                self.kernel_drops = kernel_drops;
            }
        }
        let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        rearm(&mut header.msg_hdr, &mut self.controls[slot]);
        let named = || sys::address_from_kernel(&self.names[slot]).filter(|peer| !is_link(peer.ip()));
        let peer = self.peer.or_else(named);
        let (Some(peer), false, 1..) = (peer, truncated || frame_bytes > self.frame_bytes_max, frame_bytes)
        else {
            self.drops += 1;
            return;
        };
        let start = slot * self.slot_bytes;
        for first in (start..start + bytes).step_by(frame_bytes) {
            batch.place(first, frame_bytes.min(start + bytes - first), peer);
        }
    }
}

/// Restores the fields of a receive header that the kernel overwrites.
#[inline]
fn rearm(header: &mut libc::msghdr, control: &mut ControlData) {
    if !header.msg_name.is_null() {
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    }
    header.msg_flags = 0;
    control::lend(header, control);
}

/// Returns the number of received messages; passing errors count as none.
fn passing_is_none(received: io::Result<usize>) -> io::Result<usize> {
    match received {
        Err(error) if is_passing(&error) => Ok(0),
        received => received,
    }
}

/// Returns whether a receive may fail with this error although the socket works: nothing to receive, a signal, or
/// the report that an earlier send of a connected socket met no listener.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, WouldBlock};
    matches!(
        error.kind(),
        WouldBlock | Interrupted | ConnectionRefused | HostUnreachable | NetworkUnreachable
    )
}
