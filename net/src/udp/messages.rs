//! Message vectors for `recvmmsg` and `sendmmsg`, with their control data.
//!
//! The vectors are built once and hold pointers into themselves and into the batch or outbox of the call;
//! only what a call changes is written again.

use std::io;
use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

use crate::batch::{BATCH_FRAMES, COALESCED_REGIONS, REGION_BYTES, SLOT_BYTES};
use crate::{Batch, Outbox, sys};

/// Room for the two control messages that we ask for (drop count, segment size), 24 bytes each.
const CONTROL_BYTES: usize = 64;
/// Frames merged into one send; the kernel's own limit (`UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 64;
/// Bytes of one merged send: the largest UDP payload over IPv4.
const SEGMENT_RUN_BYTES_MAX: usize = 65_507;
/// Frames handed to the kernel in one `sendmmsg`.
const SEND_FRAMES: usize = 64;

/// Control data, aligned as `cmsghdr` wants it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// The receiving side.
pub(super) struct ReceiveMessages {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    /// Batch memory that `vectors` point into now, as a number: compared, never followed.
    target: usize,
    slot_bytes: usize,
    frame_bytes_max: usize,
    /// Drops as the kernel counted them for this socket, 32 bits that wrap.
    kernel_drops: u32,
    drops: u64,
}

// SAFETY: the pointers inside `headers` and `vectors` lead to the boxes beside them, which move with the
// value without moving in memory, or to the batch of the current call; no other thread shares them.
unsafe impl Send for ReceiveMessages {}

impl ReceiveMessages {
    pub(super) fn new(frame_bytes_max: usize, merged: bool) -> Self {
        let (slots, slot_bytes) =
            if merged { (COALESCED_REGIONS, REGION_BYTES) } else { (BATCH_FRAMES, SLOT_BYTES) };
        let mut vectors: Box<[_]> =
            (0..slots).map(|_| libc::iovec { iov_base: null_mut(), iov_len: slot_bytes }).collect();
        let mut names: Box<[_]> = (0..slots).map(|_| sys::no_address()).collect();
        let mut controls = vec![Control([0; CONTROL_BYTES]); slots].into_boxed_slice();
        let headers = (0..slots)
            .map(|slot| {
                let mut header = empty_header();
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
            target: 0,
            slot_bytes,
            frame_bytes_max,
            kernel_drops: 0,
            drops: 0,
        }
    }

    pub(super) fn drops(&self) -> u64 {
        self.drops
    }

    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, batch: &mut Batch) -> io::Result<usize> {
        batch.clear();
        self.aim(batch.memory());
        // SAFETY: every header points at its own name, vector and control data, all alive in `self`, and
        // every vector at its own slot of the batch's memory, which is borrowed for the call.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as u32,
                libc::MSG_DONTWAIT,
                null_mut(),
            )
        };
        if received < 0 {
            return match io::Error::last_os_error() {
                error if is_passing(&error) => Ok(0),
                error => Err(error),
            };
        }
        for slot in 0..received as usize {
            self.deliver(slot, batch);
        }
        Ok(batch.len())
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

    /// Cuts what arrived in `slot` into frames.
    fn deliver(&mut self, slot: usize, batch: &mut Batch) {
        let header = &mut self.headers[slot];
        let bytes = header.msg_len as usize;
        let mut frame_bytes = bytes;
        if header.msg_hdr.msg_controllen > 0 {
            let control = read_control(&header.msg_hdr);
            if let Some(segment_bytes) = control.segment_bytes {
                frame_bytes = segment_bytes;
            }
            if let Some(kernel_drops) = control.kernel_drops {
                self.drops += u64::from(kernel_drops.wrapping_sub(self.kernel_drops));
                self.kernel_drops = kernel_drops;
            }
        }
        let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        rearm(&mut header.msg_hdr, &mut self.controls[slot]);
        let peer = sys::address_from_kernel(&self.names[slot]);
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

/// The sending side.
pub(super) struct SendMessages {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    frame_bytes_max: usize,
    connected: bool,
    merge: bool,
    drops: u64,
}

// SAFETY: as for `ReceiveMessages`: pointers lead to the boxes beside them or to the outbox of the call.
unsafe impl Send for SendMessages {}

/// Messages made ready for one `sendmmsg`.
#[derive(Default)]
struct Ready {
    messages: usize,
    frames: usize,
}

impl SendMessages {
    pub(super) fn new(frame_bytes_max: usize, merge: bool) -> Self {
        let mut vectors: Box<[_]> =
            (0..SEND_FRAMES).map(|_| libc::iovec { iov_base: null_mut(), iov_len: 0 }).collect();
        let mut names: Box<[_]> = (0..SEND_FRAMES).map(|_| sys::no_address()).collect();
        let controls = vec![Control([0; CONTROL_BYTES]); SEND_FRAMES].into_boxed_slice();
        let headers = (0..SEND_FRAMES)
            .map(|message| {
                let mut header = empty_header();
                header.msg_hdr.msg_name = (&raw mut names[message]).cast();
                header.msg_hdr.msg_iov = &raw mut vectors[message];
                header
            })
            .collect();
        Self { headers, vectors, names, controls, frame_bytes_max, connected: false, merge, drops: 0 }
    }

    /// The socket has a fixed peer: messages carry no address.
    pub(super) fn connected(&mut self) {
        self.connected = true;
        for header in &mut self.headers {
            header.msg_hdr.msg_name = null_mut();
            header.msg_hdr.msg_namelen = 0;
        }
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
        for head in 0..out.len() {
            if !out.is_head(head) {
                continue;
            }
            let mut cursor = Some(head);
            while let Some(first) = cursor {
                if ready.frames == SEND_FRAMES {
                    sent += self.flush(fd, out, &mut ready)?;
                }
                cursor = self.add_run(out, first, &mut ready);
            }
        }
        Ok(sent + self.flush(fd, out, &mut ready)?)
    }

    /// Adds one message that carries `first` and as many frames after it in its chain as may be merged
    /// with it: all as long as the first, but the last, which may be shorter. Returns the next frame.
    fn add_run(&mut self, out: &Outbox, first: usize, ready: &mut Ready) -> Option<usize> {
        let (frame, peer) = out.frame(first);
        if frame.is_empty() {
            return out.next(first);
        }
        let segment_bytes = frame.len();
        let run = ready.frames;
        let room = if self.merge { SEGMENTS_MAX.min(SEND_FRAMES - run) } else { 1 };
        let (mut frames, mut bytes, mut cursor) = (0, 0, Some(first));
        while let Some(index) = cursor {
            let (frame, _) = out.frame(index);
            let fits = frames < room && bytes + frame.len() <= SEGMENT_RUN_BYTES_MAX;
            if !fits || frame.is_empty() || frame.len() > segment_bytes {
                break;
            }
            // The kernel only reads through this pointer, for the time of the send.
            self.vectors[run + frames].iov_base = frame.as_ptr().cast_mut().cast();
            self.vectors[run + frames].iov_len = frame.len();
            frames += 1;
            bytes += frame.len();
            cursor = out.next(index);
            if frame.len() < segment_bytes {
                break;
            }
        }
        self.head_message(ready.messages, run, frames, segment_bytes, peer);
        ready.messages += 1;
        ready.frames += frames;
        cursor
    }

    /// Fills the header of `message`: where its run of vectors begins, to whom it goes, how it is cut.
    fn head_message(
        &mut self,
        message: usize,
        run: usize,
        frames: usize,
        segment_bytes: usize,
        peer: SocketAddr,
    ) {
        let header = &mut self.headers[message].msg_hdr;
        header.msg_iov = &raw mut self.vectors[run];
        header.msg_iovlen = frames;
        if !self.connected {
            header.msg_namelen = sys::address_to_kernel(peer, &mut self.names[message]);
        }
        if frames > 1 {
            header.msg_control = (&raw mut self.controls[message]).cast();
            write_segment_bytes(header, segment_bytes as u16);
        } else {
            header.msg_control = null_mut();
            header.msg_controllen = 0;
        }
    }

    /// Hands the ready messages to the kernel; returns the number of frames that left.
    fn flush(&mut self, fd: BorrowedFd<'_>, out: &Outbox, ready: &mut Ready) -> io::Result<usize> {
        let Ready { messages, .. } = std::mem::take(ready);
        let (mut next, mut sent) = (0, 0);
        while next < messages {
            let count = (messages - next) as u32;
            // SAFETY: every header up to `messages` points at its own name and control data and at a run
            // of vectors, all alive in `self`; the vectors point into `out`, borrowed by our caller.
            let result = unsafe {
                libc::sendmmsg(
                    fd.as_raw_fd(),
                    self.headers.as_mut_ptr().add(next),
                    count,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if result > 0 {
                let done = next + result as usize;
                sent +=
                    self.headers[next..done].iter().map(|header| header.msg_hdr.msg_iovlen).sum::<usize>();
                next = done;
                continue;
            }
            let error = io::Error::last_os_error();
            let frames = self.headers[next].msg_hdr.msg_iovlen;
            match refusal(&error, frames) {
                Refusal::Again => {}
                Refusal::CannotMerge => {
                    self.merge = false;
                    sent += self.send_singly(fd, out, next)?;
                    next += 1;
                }
                Refusal::Lost => {
                    self.drops += frames as u64;
                    next += 1;
                }
                Refusal::Full => {
                    let lost = self.headers[next..messages].iter();
                    self.drops += lost.map(|header| header.msg_hdr.msg_iovlen as u64).sum::<u64>();
                    return Ok(sent);
                }
                Refusal::Broken => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Sends the frames of one merged message one by one, on a kernel or device that cannot merge.
    fn send_singly(&mut self, fd: BorrowedFd<'_>, _out: &Outbox, message: usize) -> io::Result<usize> {
        let mut single = self.headers[message].msg_hdr;
        single.msg_control = null_mut();
        single.msg_controllen = 0;
        let mut sent = 0;
        for frame in 0..self.headers[message].msg_hdr.msg_iovlen {
            // SAFETY: the run of this message has `msg_iovlen` vectors, alive in `self`.
            single.msg_iov = unsafe { self.headers[message].msg_hdr.msg_iov.add(frame) };
            single.msg_iovlen = 1;
            // SAFETY: as in `flush`; `_out` keeps the bytes borrowed.
            let result = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const single, libc::MSG_DONTWAIT) };
            if result >= 0 {
                sent += 1;
            } else {
                self.drops += 1;
            }
        }
        Ok(sent)
    }
}

/// What a failed send means.
enum Refusal {
    /// Nothing: try again.
    Again,
    /// The kernel or the device does not merge.
    CannotMerge,
    /// This message is lost; others may pass.
    Lost,
    /// The send queue is full: what is left is lost.
    Full,
    /// The socket is of no more use.
    Broken,
}

fn refusal(error: &io::Error, frames: usize) -> Refusal {
    match error.raw_os_error() {
        Some(libc::EINTR) => Refusal::Again,
        Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP) if frames > 1 => Refusal::CannotMerge,
        Some(libc::EAGAIN | libc::ENOBUFS) => Refusal::Full,
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) => Refusal::Broken,
        _ => Refusal::Lost,
    }
}

/// True for what a receive may report without the socket being broken: nothing there, a signal, or the
/// news that an earlier send of a connected socket met no listener.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, WouldBlock};
    matches!(
        error.kind(),
        WouldBlock | Interrupted | ConnectionRefused | HostUnreachable | NetworkUnreachable
    )
}

/// What the kernel said beside a datagram.
struct ReceivedControl {
    segment_bytes: Option<usize>,
    kernel_drops: Option<u32>,
}

fn read_control(header: &libc::msghdr) -> ReceivedControl {
    let mut found = ReceivedControl { segment_bytes: None, kernel_drops: None };
    // SAFETY: the header describes control data of ours that the kernel has just filled; the CMSG
    // functions stay within `msg_controllen`, and both payloads asked for are 4 bytes.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            let payload = libc::CMSG_DATA(control);
            match ((*control).cmsg_level, (*control).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    found.segment_bytes = usize::try_from(payload.cast::<i32>().read_unaligned()).ok();
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    found.kernel_drops = Some(payload.cast::<u32>().read_unaligned());
                }
                _ => {}
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    found
}

/// Asks the kernel to cut the message into datagrams of `segment_bytes`.
fn write_segment_bytes(header: &mut libc::msghdr, segment_bytes: u16) {
    header.msg_controllen = CONTROL_BYTES;
    // SAFETY: `msg_control` points at CONTROL_BYTES of our own, enough for one control message of two
    // payload bytes.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header);
        (*control).cmsg_level = libc::SOL_UDP;
        (*control).cmsg_type = libc::UDP_SEGMENT;
        (*control).cmsg_len = libc::CMSG_LEN(2) as usize;
        libc::CMSG_DATA(control).cast::<u16>().write_unaligned(segment_bytes);
        header.msg_controllen = libc::CMSG_SPACE(2) as usize;
    }
}

/// Restores the fields of a receive header that the kernel overwrites.
#[inline]
fn rearm(header: &mut libc::msghdr, control: &mut Control) {
    header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_control = (&raw mut *control).cast();
    header.msg_controllen = CONTROL_BYTES;
    header.msg_flags = 0;
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: all zero is a valid mmsghdr: null pointers with zero lengths.
    unsafe { zeroed() }
}
