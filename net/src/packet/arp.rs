//! ARP (RFC 826) for IPv4 over Ethernet: requests for our address are answered, replies to ours are trusted.
//!
//! No kernel does this for a port of its own. As always with ARP, any sender on the segment can claim any address.
//! Replies to frames go to the origin of the frames, and tokens authenticate the requests.

use std::net::Ipv4Addr;

use super::ethernet::{self, ETHERNET_HEADER_BYTES, EtherType, Mac, PACKET_BYTES_MIN};
use super::{PacketRefusal, address, number};

/// Bytes of an ARP packet.
pub const ARP_PACKET_BYTES: usize = PACKET_BYTES_MIN;

const BYTES: usize = 28;
/// Ethernet, IPv4, and the lengths of their addresses.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];

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
        ethernet::write(header, self.from_mac, self.to_mac, EtherType::Arp);
        let (operation, to_mac) = match self.operation {
            ArpOperation::Request => (1, [0; 6]),
            ArpOperation::Reply => (2, self.to_mac.0),
        };
        body[..6].copy_from_slice(&KIND);
        body[7] = operation;
        body[8..14].copy_from_slice(&self.from_mac.0);
        body[14..18].copy_from_slice(&self.from.octets());
        body[18..24].copy_from_slice(&to_mac);
        body[24..28].copy_from_slice(&self.to.octets());
        Some(ARP_PACKET_BYTES)
    }
}

/// Reads a packet addressed to the owner of the address `own`.
pub(super) fn read(body: &[u8], own: Ipv4Addr) -> Result<Arp, PacketRefusal> {
    let body = body.get(..BYTES).ok_or(PacketRefusal::Malformed)?;
    if body[..6] != KIND || address(body, 24) != own {
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
