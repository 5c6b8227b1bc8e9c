//! The IPv4 header (RFC 791): lengths, addresses, its checksum. Options are skipped, fragments refused.

use std::net::Ipv4Addr;

use super::checksum::Sum;
use super::{PacketRefusal, address, number};

/// Bytes of a header without options.
pub(super) const HEADER_BYTES: usize = 20;

const PROTOCOL_UDP: u8 = 17;
/// Maximum hops of a sent packet, the common default.
const HOPS: u8 = 64;
const DO_NOT_FRAGMENT: u16 = 0x4000;
/// More fragments follow, or an offset.
const FRAGMENTED: u16 = 0x3fff;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ipv4Header {
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
}

impl Ipv4Header {
    /// Returns the sum that UDP adds to its checksum: addresses, protocol, length.
    #[inline]
    pub(super) fn pseudo_sum(&self, udp_bytes: u16) -> Sum {
        let sum = Sum::default().with(&self.from.octets()).with(&self.to.octets());
        sum.with_number(u16::from(PROTOCOL_UDP)).with_number(udp_bytes)
    }
}

/// Reads the header of a UDP packet for `own`; returns as much content as the header states.
#[inline]
pub(super) fn read(
    packet: &[u8],
    own: Ipv4Addr,
    offloaded: bool,
) -> Result<(Ipv4Header, &[u8]), PacketRefusal> {
    let first = packet.get(..HEADER_BYTES).ok_or(PacketRefusal::Malformed)?;
    let (header_bytes, packet_bytes) = (usize::from(first[0] & 0x0f) * 4, usize::from(number(first, 2)));
    if first[0] >> 4 != 4 || header_bytes < HEADER_BYTES || packet_bytes < header_bytes {
        return Err(PacketRefusal::Malformed);
    }
    // Any further bytes are padding of a short packet.
    let packet = packet.get(..packet_bytes).ok_or(PacketRefusal::Malformed)?;
    let header = Ipv4Header { from: address(first, 12), to: address(first, 16) };
    if first[9] != PROTOCOL_UDP || header.to != own {
        return Err(PacketRefusal::Foreign);
    }
    let (head, body) = packet.split_at(header_bytes);
    if !offloaded && !Sum::default().with(head).is_right() {
        return Err(PacketRefusal::Checksum);
    }
    if number(first, 6) & FRAGMENTED != 0 {
        return Err(PacketRefusal::Fragment);
    }
    let from = header.from;
    if from.is_unspecified() || from.is_broadcast() || from.is_multicast() || from == own {
        return Err(PacketRefusal::Malformed);
    }
    Ok((header, body))
}

/// Writes the header of a UDP packet of `packet_bytes` into its bytes.
#[inline]
pub(super) fn write(bytes: &mut [u8], header: &Ipv4Header, packet_bytes: u16, offloaded: bool) {
    bytes[0] = 0x45;
    bytes[1] = 0;
    bytes[2..4].copy_from_slice(&packet_bytes.to_be_bytes());
    // Never fragmented, so it needs no identification (RFC 6864).
    bytes[4..6].fill(0);
    bytes[6..8].copy_from_slice(&DO_NOT_FRAGMENT.to_be_bytes());
    bytes[8] = HOPS;
    bytes[9] = PROTOCOL_UDP;
    bytes[10..12].fill(0);
    bytes[12..16].copy_from_slice(&header.from.octets());
    bytes[16..20].copy_from_slice(&header.to.octets());
    if !offloaded {
        let checksum = Sum::default().with(&bytes[..HEADER_BYTES]).checksum_bytes();
        bytes[10..12].copy_from_slice(&checksum);
    }
}
