//! What a server is told that moves its frames over DPDK: which device, under which address.
//!
//! Plain values, there with and without the feature `dpdk`; a server that was built without refuses them at its start.

use std::net::Ipv4Addr;

/// See the file's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkSettings {
    /// Arguments of DPDK's environment; they name the device.
    pub environment: Vec<String>,
    /// The address of the device. UDP ports are those that the server would have over the kernel.
    pub address: Ipv4Addr,
    /// Largest IP packet.
    pub mtu_bytes: u16,
    /// Leaves to the kernel what is not for the server's ports, on cards that can.
    pub isolate: bool,
}

/// Arguments as people write them in one string, with spaces between.
#[must_use]
pub fn parse_environment(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
