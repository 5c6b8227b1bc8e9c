//! The UDP header (RFC 768): ports, length, a checksum over it, the payload and the addresses.

use super::ipv4::Ipv4Header;
use super::{PacketRefusal, number};

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) from: u16,
    pub(super) to: u16,
}

/// Reads the header; returns as much content as it states.
#[inline]
pub(super) fn read<'p>(
    body: &'p [u8],
    ipv4: &Ipv4Header,
    offloaded: bool,
) -> Result<(Ports, &'p [u8]), PacketRefusal> {
    let header = body.get(..HEADER_BYTES).ok_or(PacketRefusal::Malformed)?;
    let udp_bytes = number(header, 4);
    let datagram = body.get(..usize::from(udp_bytes)).ok_or(PacketRefusal::Malformed)?;
    let payload = datagram.get(HEADER_BYTES..).ok_or(PacketRefusal::Malformed)?;
    let ports = Ports { from: number(header, 0), to: number(header, 2) };
    if ports.from == 0 || ports.to == 0 {
        return Err(PacketRefusal::Malformed);
    }
    let is_checked = !offloaded && number(header, 6) != 0;
    if is_checked && !ipv4.pseudo_sum(udp_bytes).with(datagram).is_right() {
        return Err(PacketRefusal::Checksum);
    }
    Ok((ports, payload))
}

/// Writes the header of `payload`, which fits a packet, into its bytes.
#[inline]
pub(super) fn write(bytes: &mut [u8], ports: Ports, ipv4: &Ipv4Header, payload: &[u8], offloaded: bool) {
    let udp_bytes = (HEADER_BYTES + payload.len()) as u16;
    bytes[..2].copy_from_slice(&ports.from.to_be_bytes());
    bytes[2..4].copy_from_slice(&ports.to.to_be_bytes());
    bytes[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    bytes[6..8].fill(0);
    let pseudo = ipv4.pseudo_sum(udp_bytes);
    let checksum = if offloaded {
        // The device adds the rest to this sum.
        pseudo.sum_bytes()
    } else {
        match pseudo.with(&bytes[..HEADER_BYTES]).with(payload).checksum_bytes() {
            // Zero would mean no checksum; all ones is the same number.
            [0, 0] => [0xff; 2],
            checksum => checksum,
        }
    };
    bytes[6..8].copy_from_slice(&checksum);
}
