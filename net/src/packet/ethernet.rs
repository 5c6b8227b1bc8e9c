//! The Ethernet header, without VLAN tags: sender, receiver, protocol.
//!
//! The device has decided that a packet is for us (its filter, or a ring with one peer), so the destination is not
//! compared here; the IPv4 address determines the receiver. A sender must be a single station, since replies go
//! there.

use std::fmt;

use super::{PacketRefusal, number};

/// Bytes of the header.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Minimum bytes of a packet, without its check sequence; shorter ones are padded.
pub const PACKET_BYTES_MIN: usize = 60;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;

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
