//! The client's end of a device of DPDK, where this was compiled with the feature `dpdk`; else the refusal.
//!
//! DPDK's environment begins once in a process, and its memory files lie in a folder of the run.

use std::net::Ipv4Addr;

use net::Port;

/// What both programs are built with for ways over DPDK.
pub const BUILD: &str = "cargo build --release -p splinter-server -p splinter-bench --features splinter-server/dpdk,splinter-bench/dpdk";
/// Whether this one was.
pub const IS_COMPILED: bool = cfg!(feature = "dpdk");
/// The address of a server's device.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// Arguments of DPDK's environment for a process on one core, without huge pages and privileges.
pub fn environment(device: &str, prefix: &str, cpu: usize) -> String {
    format!(
        "--no-pci --no-huge --no-telemetry -m 256 -l {cpu} --log-level warning --file-prefix {prefix} --vdev {device}"
    )
}

/// The port of a client.
///
/// # Errors
/// What DPDK says.
#[cfg(feature = "dpdk")]
pub fn open(environment: &str) -> Result<Box<dyn Port>, String> {
    use std::net::SocketAddrV4;

    use net::dpdk::{DpdkConfig, Role, open};

    let own = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), 40_000);
    let environment = environment.split_whitespace().map(str::to_owned).collect();
    let ports = open(&DpdkConfig::new(environment, own, 1, Role::Asking));
    let port = ports.map_err(|error| format!("no device: {error}"))?.pop().ok_or("no port")?;
    Ok(Box::new(port))
}

/// Says that there is none.
#[cfg(not(feature = "dpdk"))]
pub fn open(_: &str) -> Result<Box<dyn Port>, String> {
    Err(format!("this was built without DPDK: {BUILD}"))
}
