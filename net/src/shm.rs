//! Frames between two processes of one host, over memory that both have mapped.
//!
//! ```text
//!   client                              server, one core
//!   ┌──────────┐  requests  256 slots   ┌──────────┐     a channel: the two rings, and a Unix socket that wakes a
//!   │ producer │───────────────────────▶│ consumer │     sleeping client and reports the death of either end
//!   │ consumer │◀───────────────────────│ producer │
//!   └──────────┘  replies   256 slots   └──────────┘
//! ```
//! The server allocates the memory, seals it against changes of its size and passes it to the client at its
//! [`ShmListener`], a Unix socket. Neither end trusts the other: values read from the memory are checked or copied
//! before use, and an end that finds a violation ([`ring`]) ends the channel. [`crate::HostPort`] polls a core's
//! channels beside its UDP socket.
//!
//! An end sleeps in one `epoll` over its UDP socket, its waker and the sockets of its channels: a futex in the memory
//! could not be waited for together with a socket. Between two awake ends there is no system call.

mod attach;
mod channel;
mod channels;
mod descriptor;
mod layout;
mod listener;
mod region;
mod ring;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub use attach::{ATTACH_BYTES_MAX, AttachError, Entry, ListenerAddress, PendingAttach};
pub(crate) use attach::{attach, enter};
#[cfg(test)]
pub(crate) use channel::Channel;
pub use channel::ChannelCounts;
pub use channels::ChannelPoint;
pub(crate) use channels::Channels;
pub use descriptor::own_user;
pub(crate) use layout::SLOT_FRAME_BYTES;
pub use listener::{Admission, Attacher, ListenerLimits, ShmListener};

#[cfg(test)]
mod tests;

/// The first 64 bits of addresses of links: the discard-only prefix 100::/64 (RFC 6666), which no router forwards to.
const PREFIX: u64 = 0x0100_0000_0000_0000;
/// The file with Linux's identifier of this boot of this machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns 16 bytes that identify this boot of this machine, equal in all its processes and unique.
///
/// # Errors
/// If the system does not provide them.
pub fn machine() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string(BOOT_ID)?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(number.to_be_bytes())
}

/// Returns whether this is the address of a peer over shared memory. No datagram is delivered with such a source, so
/// a sender with it has been admitted.
#[must_use]
#[inline]
pub fn is_link(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if (ip.to_bits() >> 64) as u64 == PREFIX)
}

/// Returns the address of the channel `serial` in place `place` of its port.
fn link_address(serial: u64, place: usize) -> SocketAddr {
    let ip = Ipv6Addr::from_bits(u128::from(PREFIX) << 64 | u128::from(serial));
    SocketAddr::from((ip, place as u16))
}

/// Returns serial and place of a channel's address; `None` for an address of another kind.
#[inline]
fn link_of(address: &SocketAddr) -> Option<(u64, usize)> {
    let SocketAddr::V6(address) = address else { return None };
    let bits = address.ip().to_bits();
    ((bits >> 64) as u64 == PREFIX).then_some((bits as u64, usize::from(address.port())))
}
