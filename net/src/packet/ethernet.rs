//! The Ethernet header, without VLAN tags: sender, receiver, protocol; and ARP (RFC 826) for IPv4 over Ethernet.
//!
//! The device has decided that a packet is for us (its filter, or a ring with one peer), so the destination is not
//! compared here; the IPv4 address determines the receiver. A sender must be a single station, since replies go
//! there.
//!
//! Requests for our address are answered, replies to ours are trusted; no kernel does this for a port of its own. As
//! always with ARP, any sender on the segment can claim any address. Replies to frames go to the origin of the frames,
//! and tokens authenticate the requests.

use std::fmt;
use std::net::Ipv4Addr;

use super::{PacketRefusal, address, number};

/// Bytes of the header.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Minimum bytes of a packet, without its check sequence; shorter ones are padded.
pub const PACKET_BYTES_MIN: usize = 60;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
/// Bytes of an ARP packet.
pub const ARP_PACKET_BYTES: usize = PACKET_BYTES_MIN;

const ARP_BYTES: usize = 28;
/// Ethernet, IPv4, and the lengths of their addresses.
const ARP_KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// A hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The address of all stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns whether it is the address of one station: neither zero nor a group address.
    #[must_use]
    #[inline]
    pub fn is_station(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }

    #[inline]
    pub(super) fn of(bytes: &[u8], first: usize) -> Self {
        let mut mac = [0; 6];
        mac.copy_from_slice(&bytes[first..first + 6]);
        Self(mac)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EtherType {
    Arp,
    Ipv4,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct EthernetHeader {
    pub(super) from: Mac,
    pub(super) to: Mac,
    pub(super) protocol: EtherType,
}

#[inline]
pub(super) fn read(packet: &[u8]) -> Result<(EthernetHeader, &[u8]), PacketRefusal> {
    let Some((header, body)) = packet.split_at_checked(ETHERNET_HEADER_BYTES) else {
        return Err(PacketRefusal::Malformed);
    };
    let protocol = match number(header, 12) {
        IPV4 => EtherType::Ipv4,
        ARP => EtherType::Arp,
        _ => EtherType::Other,
    };
    let (to, from) = (Mac::of(header, 0), Mac::of(header, 6));
    if protocol != EtherType::Other && !from.is_station() {
        return Err(PacketRefusal::Malformed);
    }
    Ok((EthernetHeader { from, to, protocol }, body))
}

/// Writes the header into its bytes.
#[inline]
pub(super) fn write(header: &mut [u8], from: Mac, to: Mac, protocol: EtherType) {
    let number = match protocol {
        EtherType::Arp => ARP,
        EtherType::Ipv4 | EtherType::Other => IPV4,
    };
    header[..6].copy_from_slice(&to.0);
    header[6..12].copy_from_slice(&from.0);
    header[12..14].copy_from_slice(&number.to_be_bytes());
}

/// The kind of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// Asks for the owner of an address.
    Request,
    /// Names the owner of an address.
    Reply,
}

/// An ARP request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// The kind of the packet.
    pub operation: ArpOperation,
    /// The sender's hardware address.
    pub from_mac: Mac,
    /// The sender's IP address.
    pub from: Ipv4Addr,
    /// The receiver's hardware address; in a request all stations.
    pub to_mac: Mac,
    /// The receiver's IP address.
    pub to: Ipv4Addr,
}

impl Arp {
    /// Creates the request for the owner of the address `to`.
    #[must_use]
    pub fn request(from_mac: Mac, from: Ipv4Addr, to: Ipv4Addr) -> Self {
        Self { operation: ArpOperation::Request, from_mac, from, to_mac: Mac::BROADCAST, to }
    }

    /// Creates our reply to a request for our address.
    #[must_use]
    pub fn reply(&self, own_mac: Mac) -> Self {
        let operation = ArpOperation::Reply;
        Self { operation, from_mac: own_mac, from: self.to, to_mac: self.from_mac, to: self.from }
    }

    /// Writes the packet into `buffer` and returns its length; `None` if the buffer is too small.
    pub fn write(&self, buffer: &mut [u8]) -> Option<usize> {
        let packet = buffer.get_mut(..ARP_PACKET_BYTES)?;
        packet.fill(0);
        let (header, body) = packet.split_at_mut(ETHERNET_HEADER_BYTES);
        write(header, self.from_mac, self.to_mac, EtherType::Arp);
        let (operation, to_mac) = match self.operation {
            ArpOperation::Request => (1, [0; 6]),
            ArpOperation::Reply => (2, self.to_mac.0),
        };
        body[..6].copy_from_slice(&ARP_KIND);
        body[7] = operation;
        body[8..14].copy_from_slice(&self.from_mac.0);
        body[14..18].copy_from_slice(&self.from.octets());
        body[18..24].copy_from_slice(&to_mac);
        body[24..28].copy_from_slice(&self.to.octets());
        Some(ARP_PACKET_BYTES)
    }
}

/// Reads a packet addressed to the owner of the address `own`.
pub(super) fn read_arp(body: &[u8], own: Ipv4Addr) -> Result<Arp, PacketRefusal> {
    let body = body.get(..ARP_BYTES).ok_or(PacketRefusal::Malformed)?;
    if body[..6] != ARP_KIND || address(body, 24) != own {
        return Err(PacketRefusal::Foreign);
    }
    let operation = match number(body, 6) {
        1 => ArpOperation::Request,
        2 => ArpOperation::Reply,
        _ => return Err(PacketRefusal::Malformed),
    };
    let (from_mac, from) = (Mac::of(body, 8), address(body, 14));
    if !from_mac.is_station() || from == own {
        return Err(PacketRefusal::Malformed);
    }
    Ok(Arp { operation, from_mac, from, to_mac: Mac::of(body, 18), to: own })
}
