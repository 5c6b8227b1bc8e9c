//! Ports of a server over DPDK, if it was built with the feature `dpdk`; otherwise a refusal.
//!
//! Clients find the server as usual, by its TCP stream, which stays with the kernel; frames go to the address of the
//! device. On a card that the kernel shares (mlx5) both addresses are the same.

#[cfg(feature = "dpdk")]
use std::net::SocketAddrV4;

#[cfg(feature = "dpdk")]
use net::dpdk::{self, DpdkConfig, Role};

#[cfg(feature = "dpdk")]
use super::Devices;
use super::{BootError, Server};
use crate::config::{Config, DpdkSettings};

/// Starts a server whose workers each own a port of the device.
#[cfg(feature = "dpdk")]
pub(super) fn start(config: &Config, settings: &DpdkSettings) -> Result<Server, BootError> {
    let address = SocketAddrV4::new(settings.address, config.listen.port());
    let wanted = DpdkConfig {
        mtu_bytes: settings.mtu_bytes,
        isolate: settings.isolate,
        ..DpdkConfig::new(settings.environment.clone(), address, config.cores, Role::Serving)
    };
    let ports = dpdk::open(&wanted).map_err(|error| BootError::new("DPDK", error))?;
    if let Some(attachment) = ports.first().map(dpdk::DpdkPort::attachment) {
        let dpdk::Attachment { driver, mac, queues, steering, .. } = attachment;
        let (checks, fills) = (attachment.checks, attachment.fills);
        tracing::info!(%address, driver, %mac, queues, %steering, ?checks, ?fills, "frames go over DPDK");
        if let Some(why) = &attachment.no_rules {
            tracing::warn!(%why, "the device accepts no flow rules: software passes frames to their workers");
        }
    }
    Server::start_over(config, Devices::over(config, ports)?)
}

/// Returns the error that the server was built without DPDK.
#[cfg(not(feature = "dpdk"))]
pub(super) fn start(_: &Config, _: &DpdkSettings) -> Result<Server, BootError> {
    Err(BootError::new("DPDK", "this server was built without it: build with --features dpdk"))
}
