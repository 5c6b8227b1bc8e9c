//! The settings for frames over DPDK: device and address.
//!
//! Plain values that exist with and without the feature `dpdk`; a server built without it rejects them at its start.

use std::net::Ipv4Addr;

/// The device and address of a server that uses DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkSettings {
    /// Arguments of DPDK's environment, which name the device.
    pub environment: Vec<String>,
    /// Address of the device. UDP ports are the same as over the kernel.
    pub address: Ipv4Addr,
    /// Size of the largest IP packet, in bytes.
    pub mtu_bytes: u16,
    /// Leaves packets for other ports to the kernel, on cards that support it.
    pub isolate: bool,
}

/// Splits the environment's arguments at spaces.
#[must_use]
pub fn parse_environment(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
