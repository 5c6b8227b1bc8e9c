//! ARP (RFC 826) for IPv4 over Ethernet: who asks for our address gets an answer, who answers ours is believed.
//!
//! There is no kernel that would do it for a port of its own. Whoever can send on the segment can claim any address in
//! it, as everywhere with ARP; answers to frames go where the frames came from, and tokens say who may ask.

use std::net::Ipv4Addr;

use super::ethernet::{self, ETHERNET_HEADER_BYTES, EtherType, Mac, PACKET_BYTES_MIN};
use super::{PacketRefusal, address, number};

/// Bytes of a packet with ARP in it.
pub const ARP_PACKET_BYTES: usize = PACKET_BYTES_MIN;

const BYTES: usize = 28;
/// Ethernet, IPv4, lengths of their addresses.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// Who has this address?
    Request,
    /// I have.
    Reply,
}

/// A question or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Which of them.
    pub operation: ArpOperation,
    /// The hardware of who says it.
    pub from_mac: Mac,
    /// The address of who says it.
    pub from: Ipv4Addr,
    /// The hardware of who is meant; of everybody in a question.
    pub to_mac: Mac,
    /// The address of who is meant.
    pub to: Ipv4Addr,
}

impl Arp {
    /// The question who has the address `to`.
    #[must_use]
    pub fn request(from_mac: Mac, from: Ipv4Addr, to: Ipv4Addr) -> Self {
        Self { operation: ArpOperation::Request, from_mac, from, to_mac: Mac::BROADCAST, to }
    }

    /// Our answer to a question about us.
    #[must_use]
    pub fn reply(&self, own_mac: Mac) -> Self {
        let operation = ArpOperation::Reply;
        Self { operation, from_mac: own_mac, from: self.to, to_mac: self.from_mac, to: self.from }
    }

    /// Writes the packet into `buffer` and returns its length; `None` when the buffer is too small.
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

/// Reads what is meant for the owner of the address `own`.
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
