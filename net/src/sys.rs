//! The kernel calls that the standard library does not offer, each behind a safe signature.
//!
//! With files of `udp/`, `shm/` and `dpdk/` the only one of this crate that contains `unsafe`. Every function takes
//! borrowed descriptors, so a caller cannot pass a closed one.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sets an integer socket option.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` lives across the call and its size is passed; the kernel copies it.
    checked(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Reads an integer socket option.
pub(crate) fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut bytes = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` and `bytes` live across the call; the kernel writes at most `bytes` bytes.
    checked(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut bytes)
    })?;
    Ok(value)
}

/// Sets the maximum number of connections that wait to be accepted; the kernel has its own limit.
pub(crate) fn set_backlog(listener: BorrowedFd<'_>, connections: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    checked(unsafe { libc::listen(listener.as_raw_fd(), connections) }).map(drop)
}

/// Removes the fixed peer of a datagram socket.
pub(crate) fn disconnect(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all zero is a valid address, of no family.
    let mut nobody: libc::sockaddr = unsafe { zeroed() };
    nobody.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
    let bytes = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: `nobody` lives across the call and its size is passed; the kernel copies it.
    checked(unsafe { libc::connect(socket.as_raw_fd(), &raw const nobody, bytes) }).map(drop)
}

/// Creates an eventfd that never blocks.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = checked(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes an eventfd readable. Its only failure is harmless: a full counter is readable too.
pub(crate) fn eventfd_raise(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: `one` is 8 bytes that live across the call.
    let _ = unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
}

/// Makes an eventfd unreadable.
pub(crate) fn eventfd_drain(fd: BorrowedFd<'_>) {
    let mut count = 0u64;
    // SAFETY: `count` is 8 bytes that live across the call.
    let _ = unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
}

/// Creates an epoll descriptor.
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Watches `fd` for being readable, with the additional `flags`.
pub(crate) fn epoll_add(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, flags: i32) -> io::Result<()> {
    let mut event = libc::epoll_event { events: (libc::EPOLLIN | flags) as u32, u64: 0 };
    // SAFETY: `event` lives across the call; the kernel copies it.
    checked(unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event)
    })
    .map(drop)
}

/// Stops watching `fd`. Required before closing a shared descriptor: the kernel would continue to watch it.
pub(crate) fn epoll_remove(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) {
    // SAFETY: null is allowed here since Linux 2.6.9. A descriptor that is not watched is refused, which is harmless.
    let _ = unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), std::ptr::null_mut())
    };
}

/// Sleeps until a watched descriptor is readable or `timeout` has passed; a signal ends it early.
pub(crate) fn epoll_sleep(epoll: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
    // SAFETY: `events` and `timeout` live across the call and the capacity passed is that of `events`.
    let result = unsafe {
        libc::epoll_pwait2(
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            events.len() as i32,
            &raw const timeout,
            std::ptr::null(),
        )
    };
    match checked(result) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Waits until one of two descriptors is readable; returns which are.
pub(crate) fn poll_two(first: BorrowedFd<'_>, second: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
    let watch = |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut watched = [watch(first), watch(second)];
    // SAFETY: `watched` lives across the call and its length is passed.
    let result = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, -1) };
    match checked(result) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok((watched[0].revents != 0, watched[1].revents != 0)),
    }
}

/// Sleeps until `event` is readable, one of the sockets is readable or writable as requested, or `timeout` has
/// passed; a signal ends it early.
pub(crate) fn poll_over<'s>(
    event: BorrowedFd<'_>,
    sockets: impl Iterator<Item = (BorrowedFd<'s>, (bool, bool))>,
    timeout: Duration,
) -> io::Result<()> {
    let watch = |fd: BorrowedFd<'_>, events| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let events = |(readable, writable)| {
        let wanted = |is_wanted, event| if is_wanted { event } else { 0 };
        wanted(readable, libc::POLLIN) | wanted(writable, libc::POLLOUT)
    };
    let mut watched = vec![watch(event, libc::POLLIN)];
    watched.extend(sockets.map(|(socket, wanted)| watch(socket, events(wanted))));
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    };
    // SAFETY: both live across the call, the length is that of the list, and null changes no signals.
    let result = unsafe {
        libc::ppoll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, &raw const timeout, std::ptr::null())
    };
    match checked(result) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Writes `address` in the kernel's form and returns its length.
#[inline]
pub(crate) fn address_to_kernel(address: SocketAddr, to: &mut libc::sockaddr_storage) -> libc::socklen_t {
    match address {
        SocketAddr::V4(v4) => {
            let kernel = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is larger than and aligned for every socket address.
            unsafe { (&raw mut *to).cast::<libc::sockaddr_in>().write(kernel) };
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(v6) => {
            let kernel = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: sockaddr_storage is larger than and aligned for every socket address.
            unsafe { (&raw mut *to).cast::<libc::sockaddr_in6>().write(kernel) };
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

/// Reads an address that the kernel wrote; `None` if it belongs to neither internet family.
#[inline]
pub(crate) fn address_from_kernel(from: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(from.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the storage holds a sockaddr_in; any bytes are valid for it.
            let v4 = unsafe { &*(&raw const *from).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the storage holds a sockaddr_in6; any bytes are valid for it.
            let v6 = unsafe { &*(&raw const *from).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id)))
        }
        _ => None,
    }
}

/// Returns an address of no family.
pub(crate) fn no_address() -> libc::sockaddr_storage {
    // SAFETY: all zero is a valid sockaddr_storage.
    unsafe { zeroed() }
}
