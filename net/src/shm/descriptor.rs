//! The kernel calls of a channel: memory of an unchangeable size, and descriptors passed over a Unix socket.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::layout::REGION_BYTES;

/// The seals of a channel's memory: against any change of its size, because access to a removed page would end the
/// process, and against further seals.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Descriptors passed together: the memory, and the server's doorbell.
pub(super) const PASSED: usize = 2;
const PASSED_BYTES: u32 = (PASSED * size_of::<libc::c_int>()) as u32;

/// Room for the control message of [`PASSED`] descriptors.
#[repr(C, align(8))]
struct DescriptorMessage([u8; 24]);

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Creates the memory of a channel, all zero.
pub(super) fn memory() -> io::Result<OwnedFd> {
    // SAFETY: the name is a string that lives across the call.
    let memory = checked(unsafe {
        libc::memfd_create(c"splinter-link".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    })?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    let memory = unsafe { OwnedFd::from_raw_fd(memory) };
    // SAFETY: no pointers.
    checked(unsafe { libc::ftruncate(memory.as_raw_fd(), REGION_BYTES as libc::off_t) })?;
    // SAFETY: no pointers.
    checked(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
    Ok(memory)
}

/// Returns whether a received descriptor is the memory of a channel: of its size, and sealed.
pub(super) fn is_memory(memory: BorrowedFd<'_>) -> bool {
    // SAFETY: all zero is a valid value of this structure of numbers.
    let mut status: libc::stat = unsafe { zeroed() };
    // SAFETY: `status` lives across the call.
    let known = unsafe { libc::fstat(memory.as_raw_fd(), &raw mut status) } == 0;
    // SAFETY: no pointers.
    let seals = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) };
    known && status.st_size == REGION_BYTES as libc::off_t && seals >= 0 && seals & SEALS == SEALS
}

/// Returns the effective user of this process.
#[must_use]
pub fn own_user() -> u32 {
    // SAFETY: no pointers; it cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns the user at the other end of a Unix socket, as of its connect or listen.
pub(super) fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: all zero is a valid value of this structure of numbers.
    let mut peer: libc::ucred = unsafe { zeroed() };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` and `bytes` live across the call; the kernel writes at most `bytes` bytes.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    })?;
    Ok(peer.uid)
}

/// Sends all bytes or fails, with [`PASSED`] descriptors or none. Never waits.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], passed: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = DescriptorMessage([0; 24]);
    // SAFETY: all zero is a valid header: null pointers with zero lengths.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    if let Ok(passed) = <&[BorrowedFd<'_>; PASSED]>::try_from(passed) {
        header.msg_control = (&raw mut control).cast();
        // SAFETY: `control` has room for one message with this many descriptors, and these functions stay within it.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(PASSED_BYTES) as usize;
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(PASSED_BYTES) as usize;
            let to = libc::CMSG_DATA(message).cast::<libc::c_int>();
            for (index, passed) in passed.iter().enumerate() {
                to.add(index).write_unaligned(passed.as_raw_fd());
            }
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header points at a vector, bytes and control data that live across the call; the kernel only reads.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) };
    match usize::try_from(sent) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(sent) if sent < bytes.len() => Err(io::ErrorKind::WriteZero.into()),
        Ok(_) => Ok(()),
    }
}

/// Receives bytes with their descriptors; 0 bytes if the other end is gone. Never waits.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    to: &mut [u8],
) -> io::Result<(usize, [Option<OwnedFd>; PASSED])> {
    let mut vector = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let mut control = DescriptorMessage([0; 24]);
    // SAFETY: all zero is a valid header: null pointers with zero lengths.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<DescriptorMessage>();
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the header points at a vector, bytes and control data that live across the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let Ok(received) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
    let mut passed = [const { None }; PASSED];
    // SAFETY: the kernel has filled the control data and its length; these functions stay within it. Each descriptor
    // in a message of rights is new and owned by this process; `control` has room for no more of them than `passed`.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        if !message.is_null()
            && ((*message).cmsg_level, (*message).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        {
            let bytes = (*message).cmsg_len - libc::CMSG_LEN(0) as usize;
            let from = libc::CMSG_DATA(message).cast::<libc::c_int>();
            for (index, place) in passed.iter_mut().enumerate().take(bytes / size_of::<libc::c_int>()) {
                *place = Some(OwnedFd::from_raw_fd(from.add(index).read_unaligned()));
            }
        }
    }
    Ok((received, passed))
}

/// Connects to the Unix socket at `path`. Does not wait if its queue is full.
pub(super) fn connect(path: &Path) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let socket = checked(unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    })?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: all zero is a valid address: an empty path.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // An empty path or one that begins with zero would have another meaning; one that fills the field has no end.
    if bytes.is_empty() || bytes.contains(&0) || bytes.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `address` lives across the call and its size is passed; the kernel copies it.
    checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// Waits until one of the descriptors has an event, or `timeout_ms` have passed.
pub(super) fn poll(watched: &mut [libc::pollfd], timeout_ms: i32) -> io::Result<()> {
    // SAFETY: the list lives across the call and its length is passed.
    match checked(unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, timeout_ms) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}
