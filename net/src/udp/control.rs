//! Control messages: data from and to the kernel that accompany a datagram.

use std::mem::zeroed;

/// Room for the two control messages that we request (drop count, segment size), 24 bytes each.
pub(super) const CONTROL_BYTES: usize = 64;

/// Control data, aligned as `cmsghdr` requires.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct ControlData([u8; CONTROL_BYTES]);

impl ControlData {
    pub(super) const EMPTY: Self = Self([0; CONTROL_BYTES]);
}

/// The control data of a received datagram.
#[derive(Default)]
pub(super) struct ReceivedControl {
    /// Bytes of each merged datagram but the last, if several were merged.
    pub(super) segment_bytes: Option<usize>,
    /// Datagrams that the kernel has dropped on this socket so far, 32 bits that wrap.
    pub(super) kernel_drops: Option<u32>,
}

/// Reads the control data of a header that a receive has filled.
pub(super) fn read(header: &libc::msghdr) -> ReceivedControl {
    let mut found = ReceivedControl::default();
    // SAFETY: the header describes control data of this thread that the kernel has just filled; the CMSG
    // functions stay within `msg_controllen`, and both requested payloads are 4 bytes.
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

/// Lends `control` to the kernel for the next receive with `header`.
#[inline]
pub(super) fn lend(header: &mut libc::msghdr, control: &mut ControlData) {
    header.msg_control = (&raw mut *control).cast();
    header.msg_controllen = CONTROL_BYTES;
}

/// Requests that the kernel cuts the message into datagrams of `segment_bytes`.
pub(super) fn write_segment_bytes(header: &mut libc::msghdr, control: &mut ControlData, segment_bytes: u16) {
    lend(header, control);
    // SAFETY: `msg_control` points to the CONTROL_BYTES of `control`, enough for one control message of two
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

/// A message header without name, bytes or control data.
pub(super) fn empty_header() -> libc::mmsghdr {
    // SAFETY: all zero is a valid mmsghdr: null pointers with zero lengths.
    unsafe { zeroed() }
}
