//! The sending side: `sendto` for a lone frame, `sendmmsg` for several, frames of one peer merged.
//!
//! Message headers are built once; a call writes names, vectors and control data. A merged message is one
//! header over a run of vectors, one per frame, so nothing is copied to make it contiguous.
//!
//! The kernel refuses merged messages for some peers: a path narrower than a frame, a device without checksums, a
//! peer at port 0. Frames of such a peer leave one by one for a while; those of others stay merged. The newest such peers
//! are kept, so one more costs at most a refused call for each of its messages.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

use super::control::{self, ControlData};
use crate::{Outbox, sys};

/// Frames merged into one message; the kernel's own limit (`UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 64;
/// Bytes of one merged message: the largest UDP payload over IPv4.
const SEGMENT_RUN_BYTES_MAX: usize = 65_507;
/// Frames passed to the kernel in one call.
const SEND_FRAMES: usize = 64;
/// Maximum peers kept: more than a host has interfaces and tunnels with a narrow path.
const PEERS_MAX: usize = 16;
/// Messages to such a peer until merging is tried again, because its path may have changed.
const MESSAGES_UNTIL_TRIED: u32 = 4_096;

/// Message headers for one socket.
pub(super) struct SendMessages {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[libc::sockaddr_storage]>,
    controls: Box<[ControlData]>,
    /// The peer of each message that is merged.
    peers: Box<[Option<SocketAddr>]>,
    frame_bytes_max: usize,
    /// The socket has a fixed peer: messages carry no address.
    connected: bool,
    /// The kernel can merge.
    merge: bool,
    /// Peers for which the kernel refused to merge.
    unmerged: Unmerged,
    drops: u64,
}

// SAFETY: the pointers inside `headers` and `vectors` are to the boxes beside them, whose contents stay in place
// when the value moves, or to the outbox of the current call; no other thread shares them.
unsafe impl Send for SendMessages {}

/// Messages that are ready for the kernel.
#[derive(Default)]
struct Ready {
    messages: usize,
    frames: usize,
}

impl SendMessages {
    pub(super) fn new(frame_bytes_max: usize, merge: bool) -> Self {
        Self {
            headers: (0..SEND_FRAMES).map(|_| control::empty_header()).collect(),
            vectors: vec![libc::iovec { iov_base: null_mut(), iov_len: 0 }; SEND_FRAMES].into_boxed_slice(),
            names: (0..SEND_FRAMES).map(|_| sys::no_address()).collect(),
            controls: vec![ControlData::EMPTY; SEND_FRAMES].into_boxed_slice(),
            peers: vec![None; SEND_FRAMES].into_boxed_slice(),
            frame_bytes_max,
            connected: false,
            merge,
            unmerged: Unmerged::default(),
            drops: 0,
        }
    }

    /// Notes that the socket has a fixed peer.
    pub(super) fn connected(&mut self) {
        self.connected = true;
        for header in &mut self.headers {
            header.msg_hdr.msg_name = null_mut();
            header.msg_hdr.msg_namelen = 0;
        }
    }

    /// Notes that the socket no longer has a fixed peer.
    pub(super) fn disconnected(&mut self) {
        self.connected = false;
    }

    pub(super) fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    pub(super) fn drops(&self) -> u64 {
        self.drops
    }

    /// Sends all frames: chain by chain, each chain cut into runs that can leave as one message.
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>, out: &Outbox) -> io::Result<usize> {
        let mut ready = Ready::default();
        let mut sent = 0;
        for head in (0..out.len()).filter(|&index| out.is_head(index)) {
            let mut cursor = Some(head);
            while let Some(first) = cursor {
                if ready.frames == SEND_FRAMES {
                    sent += self.flush(fd, &mut ready)?;
                }
                cursor = self.add_run(out, first, &mut ready);
            }
        }
        Ok(sent + self.flush(fd, &mut ready)?)
    }

    /// Adds one message with `first` and as many following frames of its chain as can be merged with it: all as long
    /// as the first, except the last, which may be shorter. Returns the next frame.
    fn add_run(&mut self, out: &Outbox, first: usize, ready: &mut Ready) -> Option<usize> {
        let (frame, peer) = out.frame(first);
        if frame.is_empty() {
            return out.next(first);
        }
        let segment_bytes = frame.len();
        let run = ready.frames;
        let merges = self.merge && !self.unmerged.holds(peer);
        let room = if merges { SEGMENTS_MAX.min(SEND_FRAMES - run) } else { 1 };
        let (mut frames, mut bytes, mut cursor) = (0, 0, Some(first));
        while let Some(index) = cursor {
            let (frame, _) = out.frame(index);
            let fits = frames < room && bytes + frame.len() <= SEGMENT_RUN_BYTES_MAX;
            if !fits || frame.is_empty() || frame.len() > segment_bytes {
                break;
            }
            let vector = &mut self.vectors[run + frames];
            // The kernel only reads through this pointer, for the time of the send.
            vector.iov_base = frame.as_ptr().cast_mut().cast();
            vector.iov_len = frame.len();
            frames += 1;
            bytes += frame.len();
            cursor = out.next(index);
            if frame.len() < segment_bytes {
                break;
            }
        }
        self.head_message(ready.messages, run..run + frames, segment_bytes, peer);
        ready.messages += 1;
        ready.frames += frames;
        cursor
    }

    /// Fills the header of `message`: its run of vectors, its peer, and its segment size.
    fn head_message(
        &mut self,
        message: usize,
        run: std::ops::Range<usize>,
        segment_bytes: usize,
        peer: SocketAddr,
    ) {
        let header = &mut self.headers[message].msg_hdr;
        if !self.connected {
            let name = &mut self.names[message];
            header.msg_namelen = sys::address_to_kernel(peer, name);
            header.msg_name = (&raw mut *name).cast();
        }
        let vectors = &mut self.vectors[run];
        header.msg_iov = vectors.as_mut_ptr();
        header.msg_iovlen = vectors.len();
        if vectors.len() > 1 {
            control::write_segment_bytes(header, &mut self.controls[message], segment_bytes as u16);
            self.peers[message] = Some(peer);
        } else {
            header.msg_control = null_mut();
            header.msg_controllen = 0;
        }
    }

    /// Passes the ready messages to the kernel; returns the number of frames that left.
    fn flush(&mut self, fd: BorrowedFd<'_>, ready: &mut Ready) -> io::Result<usize> {
        let Ready { messages, .. } = std::mem::take(ready);
        let (mut next, mut sent) = (0, 0);
        while next < messages {
            let error = match self.hand_over(fd, next, messages) {
                Ok(done) => {
                    sent += self.frames_of(next, next + done);
                    next += done;
                    continue;
                }
                Err(error) => error,
            };
            let frames = self.frames_of(next, next + 1);
            match refusal(&error, frames) {
                SendRefusal::Again => {}
                SendRefusal::CannotMerge => {
                    self.peers[next].iter().for_each(|&peer| self.unmerged.add(peer));
                    sent += self.send_singly(fd, next);
                    next += 1;
                }
                SendRefusal::Lost => {
                    self.drops += frames as u64;
                    next += 1;
                }
                SendRefusal::Full => {
                    self.drops += self.frames_of(next, messages) as u64;
                    return Ok(sent);
                }
                SendRefusal::Broken => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Passes messages `next..end` to the kernel in one call; returns how many it took, at least one.
    fn hand_over(&mut self, fd: BorrowedFd<'_>, next: usize, end: usize) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let message = &mut self.headers[next..end];
        let lone = &message[0].msg_hdr;
        let result = if message.len() > 1 {
            // SAFETY: every header of the slice points at its own name and control data and at a run of
            // vectors, all alive in `self`; the vectors point into the outbox that `send` borrows.
            let taken =
                unsafe { libc::sendmmsg(fd.as_raw_fd(), message.as_mut_ptr(), message.len() as u32, flags) };
            taken as isize
        } else if lone.msg_control.is_null() {
            // SAFETY: a message without control data has one vector; it and the name are as above.
            unsafe {
                let vector = *lone.msg_iov;
                let (name, name_bytes) = (lone.msg_name.cast(), lone.msg_namelen);
                libc::sendto(fd.as_raw_fd(), vector.iov_base, vector.iov_len, flags, name, name_bytes).min(1)
            }
        } else {
            // SAFETY: as for the whole slice.
            unsafe { libc::sendmsg(fd.as_raw_fd(), lone, flags).min(1) }
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
    }

    /// Sends the frames of one merged message one by one, to a peer for which the kernel does not merge.
    fn send_singly(&mut self, fd: BorrowedFd<'_>, message: usize) -> usize {
        let mut single = self.headers[message].msg_hdr;
        let run = single.msg_iovlen;
        single.msg_control = null_mut();
        single.msg_controllen = 0;
        single.msg_iovlen = 1;
        let mut sent = 0;
        for _ in 0..run {
            // SAFETY: as in `hand_over`; the run has `run` vectors and `msg_iov` is within it.
            if unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const single, libc::MSG_DONTWAIT) } >= 0 {
                sent += 1;
            }
            single.msg_iov = single.msg_iov.wrapping_add(1);
        }
        self.drops += (run - sent) as u64;
        sent
    }

    fn frames_of(&self, next: usize, end: usize) -> usize {
        self.headers[next..end].iter().map(|header| header.msg_hdr.msg_iovlen).sum()
    }
}

/// The meaning of a failed send.
enum SendRefusal {
    /// None: try again.
    Again,
    /// The kernel does not merge for this peer.
    CannotMerge,
    /// This message is lost; others may pass.
    Lost,
    /// The send queue is full: the remaining messages are lost.
    Full,
    /// The socket is unusable.
    Broken,
}

fn refusal(error: &io::Error, frames: usize) -> SendRefusal {
    match error.raw_os_error() {
        Some(libc::EINTR) => SendRefusal::Again,
        Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP | libc::EMSGSIZE) if frames > 1 => {
            SendRefusal::CannotMerge
        }
        Some(libc::EAGAIN | libc::ENOBUFS) => SendRefusal::Full,
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) => SendRefusal::Broken,
        _ => SendRefusal::Lost,
    }
}

/// Peers whose frames are not merged.
#[derive(Default)]
struct Unmerged {
    /// Peers, each with the number of messages until merging is tried again.
    peers: Vec<(SocketAddr, u32)>,
    /// Where the next peer goes once all places are taken.
    oldest: usize,
}

impl Unmerged {
    /// Returns whether frames of `peer` leave one by one; counts a message to it.
    #[inline]
    fn holds(&mut self, peer: SocketAddr) -> bool {
        !self.peers.is_empty() && self.count(peer)
    }

    /// Makes frames of `peer` leave one by one from now on.
    #[cold]
    fn add(&mut self, peer: SocketAddr) {
        let entry = (peer, MESSAGES_UNTIL_TRIED);
        if let Some(known) = self.peers.iter_mut().find(|known| known.0 == peer) {
            *known = entry;
        } else if self.peers.len() < PEERS_MAX {
            self.peers.push(entry);
        } else {
            self.peers[self.oldest] = entry;
            self.oldest = (self.oldest + 1) % PEERS_MAX;
        }
    }

    #[cold]
    fn count(&mut self, peer: SocketAddr) -> bool {
        let Some(at) = self.peers.iter().position(|known| known.0 == peer) else { return false };
        let left = &mut self.peers[at].1;
        *left -= 1;
        if *left == 0 {
            self.peers.swap_remove(at);
            self.oldest = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{MESSAGES_UNTIL_TRIED, PEERS_MAX, Unmerged};

    fn peer(number: u16) -> SocketAddr {
        ([127, 0, 0, 1], number).into()
    }

    #[test]
    fn a_peer_is_tried_again_after_a_number_of_messages() {
        let mut unmerged = Unmerged::default();
        unmerged.add(peer(1));
        assert!((0..MESSAGES_UNTIL_TRIED).all(|_| unmerged.holds(peer(1)) && !unmerged.holds(peer(2))));
        assert!(!unmerged.holds(peer(1)));
    }

    #[test]
    fn the_newest_peers_are_kept() {
        let mut unmerged = Unmerged::default();
        (0..100).for_each(|number| unmerged.add(peer(number)));
        (0..100).for_each(|_| unmerged.add(peer(99)));
        let kept: Vec<u16> = (0..100).filter(|&number| unmerged.holds(peer(number))).collect();
        assert_eq!(kept, Vec::from_iter(100 - PEERS_MAX as u16..100));
    }
}
