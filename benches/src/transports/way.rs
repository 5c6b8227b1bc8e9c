//! The ways that frames can travel: over what, and how many requests each carries.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Serialize, Serializer};

use crate::options::name_of;

/// What frames travel over, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Medium {
    /// Kernel UDP over loopback.
    Udp,
    /// Memory shared by client and server.
    Shm,
    /// DPDK at both ends: a ring of shared memory.
    Memif,
    /// DPDK at both ends: vhost-user at the server, virtio-user at the client.
    VirtioUser,
    /// A pair of virtual interfaces, the kernel at both ends.
    VethUdp,
    /// The same, the kernel at the client, DPDK over packet sockets at the server.
    AfPacket,
    /// The same, the kernel at the client, DPDK over XDP sockets at the server.
    AfXdp,
}

impl Medium {
    /// Whether the server's frames go over DPDK.
    pub const fn server_needs_dpdk(self) -> bool {
        matches!(self, Self::Memif | Self::VirtioUser | Self::AfPacket | Self::AfXdp)
    }

    /// Whether the client's do.
    pub const fn client_needs_dpdk(self) -> bool {
        matches!(self, Self::Memif | Self::VirtioUser)
    }

    /// Whether client and server are in network namespaces of their own.
    pub const fn needs_namespaces(self) -> bool {
        matches!(self, Self::VethUdp | Self::AfPacket | Self::AfXdp)
    }

    /// Whether frames are datagrams, with headers of Ethernet, IP and UDP.
    pub const fn has_headers(self) -> bool {
        !matches!(self, Self::Shm)
    }

    /// What kernel UDP does over the same pair, if there is one to compare with.
    pub const fn kernel_alike(self) -> Option<Self> {
        match self {
            Self::AfPacket | Self::AfXdp => Some(Self::VethUdp),
            _ => None,
        }
    }
}

/// A way: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportWay {
    /// What frames travel over.
    pub medium: Medium,
    /// As many requests as fit share a frame; else each has one of its own.
    pub is_packed: bool,
}

/// What the name of a packed way ends with.
const PACKED: &str = "-packed";

impl TransportWay {
    /// All, in the order of the table.
    pub fn all() -> Vec<Self> {
        let both = |medium| [false, true].map(|is_packed| Self { medium, is_packed });
        Medium::value_variants().iter().copied().flat_map(both).collect()
    }
}

impl fmt::Display for TransportWay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = if self.is_packed { PACKED } else { "" };
        formatter.pad(&format!("{}{ending}", name_of(&self.medium)))
    }
}

impl FromStr for TransportWay {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let (medium, is_packed) = name.strip_suffix(PACKED).map_or((name, false), |medium| (medium, true));
        let found = <Medium as ValueEnum>::from_str(medium, false);
        found.map(|medium| Self { medium, is_packed }).map_err(|_| {
            let names: Vec<String> = Medium::value_variants().iter().map(name_of).collect();
            format!("ways are {}, each also with {PACKED}", names.join(", "))
        })
    }
}

impl Serialize for TransportWay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::{Medium, TransportWay};

    #[test]
    fn every_way_is_read_back_from_its_name() {
        let all = TransportWay::all();
        assert_eq!(all.len(), 2 * Medium::value_variants().len());
        for way in all {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        assert_eq!(
            "virtio-user-packed".parse(),
            Ok(TransportWay { medium: Medium::VirtioUser, is_packed: true })
        );
    }

    #[test]
    fn what_is_no_way_is_refused_with_those_that_are() {
        for name in ["", "tcp", "-packed", "udp-", "udp-packed-packed"] {
            let refused = name.parse::<TransportWay>().expect_err("it is none");
            assert!(refused.contains("udp, shm, memif") && refused.contains("-packed"), "{refused}");
        }
    }
}
