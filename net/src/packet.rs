//! Ethernet, ARP, IPv4 and UDP as bytes, for ports without a kernel below them.
//!
//! ```text
//!   | Ethernet 14 | IPv4 20 | UDP 8 | payload: one frame of ours |        42 bytes of headers
//!   | Ethernet 14 | ARP 28  | padding to 60                      |
//! ```
//! Pure functions over slices: [`read`] takes a packet as the device delivered it and returns its content or the
//! reason of its refusal; [`Datagram::write`] and [`Arp::write`] fill a buffer of the device. Nothing here panics on
//! any bytes, keeps state, or uses a device. Fragments are refused (our frame always fits one packet), and so are
//! packets with a wrong length or a wrong checksum; IPv4 options are skipped, a UDP checksum of zero means that there
//! is none (RFC 768). Called by the ports of `dpdk`.

mod ethernet;
mod ipv4;
mod neighbours;

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddrV4};

pub use self::ethernet::{ARP_PACKET_BYTES, Arp, ArpOperation, ETHERNET_HEADER_BYTES, Mac, PACKET_BYTES_MIN};
pub use self::neighbours::Neighbours;

use self::ethernet::EtherType;
use self::ipv4::{IPV4_HEADER_BYTES, Ipv4Header, Ports, UDP_HEADER_BYTES};

/// Bytes before the payload of a packet that we send.
pub const HEADERS_BYTES: usize = ETHERNET_HEADER_BYTES + IP_HEADERS_BYTES;
/// Bytes of an MTU that IPv4 and UDP headers take.
pub const IP_HEADERS_BYTES: usize = IPV4_HEADER_BYTES + UDP_HEADER_BYTES;

/// An end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The hardware address.
    pub mac: Mac,
    /// The IP address and UDP port.
    pub socket: SocketAddrV4,
}

/// One of our frames as a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'p> {
    /// The sender.
    pub from: Endpoint,
    /// The receiver.
    pub to: Endpoint,
    /// The payload.
    pub payload: &'p [u8],
}

/// An accepted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'p> {
    /// A request or a reply about hardware addresses.
    Arp(Arp),
    /// A UDP datagram.
    Datagram(Datagram<'p>),
}

/// The reason why a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketRefusal {
    /// Another protocol or receiver: ordinary traffic of a network.
    Foreign,
    /// Its lengths contradict each other, or a field has an impossible value.
    Malformed,
    /// A part of a datagram.
    Fragment,
    /// It was changed in transit.
    Checksum,
}

/// Checksums that the device handles: on receipt it has verified them, on sending it fills them in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloaded {
    /// The checksum of the IPv4 header.
    pub ipv4: bool,
    /// The checksum of the UDP datagram.
    pub udp: bool,
}

/// Reads a packet that arrived at the owner of the address `own`.
///
/// # Errors
/// The reason why the packet is refused. Only checksums that are not `offloaded` are verified.
#[inline]
pub fn read(packet: &[u8], own: Ipv4Addr, offloaded: Offloaded) -> Result<Packet<'_>, PacketRefusal> {
    let (ethernet, body) = ethernet::read(packet)?;
    match ethernet.protocol {
        EtherType::Arp => ethernet::read_arp(body, own).map(Packet::Arp),
        EtherType::Ipv4 => {
            let (ipv4, body) = ipv4::read(body, own, offloaded.ipv4)?;
            let (ports, payload) = ipv4::read_udp(body, &ipv4, offloaded.udp)?;
            let from = Endpoint { mac: ethernet.from, socket: SocketAddrV4::new(ipv4.from, ports.from) };
            let to = Endpoint { mac: ethernet.to, socket: SocketAddrV4::new(ipv4.to, ports.to) };
            Ok(Packet::Datagram(Datagram { from, to, payload }))
        }
        EtherType::Other => Err(PacketRefusal::Foreign),
    }
}

impl Datagram<'_> {
    /// Returns the bytes of the packet that carries it.
    #[must_use]
    #[inline]
    pub fn packet_bytes(&self) -> usize {
        (HEADERS_BYTES + self.payload.len()).max(PACKET_BYTES_MIN)
    }

    /// Writes the packet into `buffer` and returns its length; copies the payload, because the device must own it.
    /// `None` if the buffer is too small or the payload larger than a UDP datagram.
    #[inline]
    pub fn write(&self, buffer: &mut [u8], offloaded: Offloaded) -> Option<usize> {
        let packet_bytes = self.packet_bytes();
        let packet = buffer.get_mut(..packet_bytes)?;
        let ip_bytes = u16::try_from(IP_HEADERS_BYTES + self.payload.len()).ok()?;
        let (headers, body) = packet.split_at_mut(HEADERS_BYTES);
        let (payload, padding) = body.split_at_mut(self.payload.len());
        payload.copy_from_slice(self.payload);
        padding.fill(0);
        let (ethernet, headers) = headers.split_at_mut(ETHERNET_HEADER_BYTES);
        let (ipv4, udp) = headers.split_at_mut(IPV4_HEADER_BYTES);
        ethernet::write(ethernet, self.from.mac, self.to.mac, EtherType::Ipv4);
        let header = Ipv4Header { from: *self.from.socket.ip(), to: *self.to.socket.ip() };
        ipv4::write(ipv4, &header, ip_bytes, offloaded.ipv4);
        let ports = Ports { from: self.from.socket.port(), to: self.to.socket.port() };
        ipv4::write_udp(udp, ports, &header, payload, offloaded.udp);
        Some(packet_bytes)
    }
}

/// Returns two bytes of a packet as a number; the slice must have them.
#[inline]
fn number(bytes: &[u8], first: usize) -> u16 {
    u16::from_be_bytes([bytes[first], bytes[first + 1]])
}

/// Returns four bytes of a packet as an address; the slice must have them.
#[inline]
fn address(bytes: &[u8], first: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[first], bytes[first + 1], bytes[first + 2], bytes[first + 3])
}
