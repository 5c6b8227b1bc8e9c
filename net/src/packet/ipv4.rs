//! The headers of IPv4 (RFC 791) and UDP (RFC 768), and their checksums (RFC 1071).
//!
//! Options of IPv4 are skipped, fragments refused. The checksum is the one's complement of the one's complement sum of
//! 16-bit words; that of UDP is over its header, the payload and the addresses. The sum does not depend on byte order
//! if reading and writing use the same one, so words are taken in the machine's order, four bytes at a time, and
//! carries are folded once at the end. Odd bytes count as if a zero followed, so only the last piece of a sum may be
//! odd.

use std::net::Ipv4Addr;

use super::{PacketRefusal, address, number};

/// Bytes of a header without options.
pub(super) const IPV4_HEADER_BYTES: usize = 20;
/// Bytes of the header of UDP.
pub(super) const UDP_HEADER_BYTES: usize = 8;

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
    fn pseudo_sum(&self, udp_bytes: u16) -> Sum {
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
    let first = packet.get(..IPV4_HEADER_BYTES).ok_or(PacketRefusal::Malformed)?;
    let (header_bytes, packet_bytes) = (usize::from(first[0] & 0x0f) * 4, usize::from(number(first, 2)));
    if first[0] >> 4 != 4 || header_bytes < IPV4_HEADER_BYTES || packet_bytes < header_bytes {
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
        let checksum = Sum::default().with(&bytes[..IPV4_HEADER_BYTES]).checksum_bytes();
        bytes[10..12].copy_from_slice(&checksum);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) from: u16,
    pub(super) to: u16,
}

/// Reads the header of UDP; returns as much content as it states.
#[inline]
pub(super) fn read_udp<'p>(
    body: &'p [u8],
    ipv4: &Ipv4Header,
    offloaded: bool,
) -> Result<(Ports, &'p [u8]), PacketRefusal> {
    let header = body.get(..UDP_HEADER_BYTES).ok_or(PacketRefusal::Malformed)?;
    let udp_bytes = number(header, 4);
    let datagram = body.get(..usize::from(udp_bytes)).ok_or(PacketRefusal::Malformed)?;
    let payload = datagram.get(UDP_HEADER_BYTES..).ok_or(PacketRefusal::Malformed)?;
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

/// Writes the header of UDP before `payload`, which fits a packet, into its bytes.
#[inline]
pub(super) fn write_udp(bytes: &mut [u8], ports: Ports, ipv4: &Ipv4Header, payload: &[u8], offloaded: bool) {
    let udp_bytes = (UDP_HEADER_BYTES + payload.len()) as u16;
    bytes[..2].copy_from_slice(&ports.from.to_be_bytes());
    bytes[2..4].copy_from_slice(&ports.to.to_be_bytes());
    bytes[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    bytes[6..8].fill(0);
    let pseudo = ipv4.pseudo_sum(udp_bytes);
    let checksum = if offloaded {
        // The device adds the rest to this sum.
        pseudo.sum_bytes()
    } else {
        match pseudo.with(&bytes[..UDP_HEADER_BYTES]).with(payload).checksum_bytes() {
            // Zero would mean no checksum; all ones is the same number.
            [0, 0] => [0xff; 2],
            checksum => checksum,
        }
    };
    bytes[6..8].copy_from_slice(&checksum);
}

/// A sum in progress.
#[derive(Clone, Copy, Debug, Default)]
struct Sum(u64);

impl Sum {
    /// Adds bytes; all pieces but the last must be even in length. The sum of a packet stays far below 64 bits.
    #[inline]
    fn with(self, bytes: &[u8]) -> Self {
        let words = bytes.chunks_exact(4);
        let rest = words.remainder();
        let sum: u64 = words
            .map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]])))
            .fold(self.0, u64::wrapping_add);
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Self(sum.wrapping_add(u64::from(u32::from_ne_bytes(last))))
    }

    /// Adds a number.
    #[inline]
    fn with_number(self, number: u16) -> Self {
        Self(self.0 + u64::from(number.to_be()))
    }

    /// Returns the sum, as bytes of a packet.
    #[inline]
    fn sum_bytes(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (sum as u16).to_ne_bytes()
    }

    /// Returns the checksum, as bytes of a packet.
    #[inline]
    fn checksum_bytes(self) -> [u8; 2] {
        self.sum_bytes().map(|byte| !byte)
    }

    /// Returns whether bytes that contain their own checksum are unchanged.
    #[inline]
    fn is_right(self) -> bool {
        self.sum_bytes() == [0xff; 2]
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn the_example_of_the_rfc_sums_up() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().with(&bytes).sum_bytes(), [0xdd, 0xf2]);
        assert_eq!(Sum::default().with(&bytes[..4]).with(&bytes[4..]).sum_bytes(), [0xdd, 0xf2]);
    }

    #[test]
    fn a_sum_is_that_of_words_one_by_one() {
        let mut random = fastrand::Rng::with_seed(7);
        for length in 0..300 {
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let words =
                bytes.chunks(2).map(|pair| (u32::from(pair[0]) << 8) + u32::from(*pair.get(1).unwrap_or(&0)));
            let mut expected: u32 = words.sum();
            while expected >> 16 != 0 {
                expected = (expected & 0xffff) + (expected >> 16);
            }
            assert_eq!(
                Sum::default().with(&bytes).sum_bytes(),
                (expected as u16).to_be_bytes(),
                "{length} bytes"
            );
        }
    }
}
