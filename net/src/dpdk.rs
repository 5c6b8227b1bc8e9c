//! Ports over DPDK 22.11: frames without the kernel, from a card, or from another process through a ring.
//!
//! ```text
//!   DpdkPort 0, 1 ...       one per worker: bursts, ARP, hand-over        port
//!   Device                  queues, hand-off queues, addresses of peers       device
//!   steering                rules of the card, queues of a ring, or none  steering
//!   sys, mbuf, ethdev       DPDK itself; all unsafe code                  sys, mbuf, ethdev
//! ```
//! [`open`] starts DPDK's environment with the usual arguments of DPDK, takes the first device that they create, and
//! makes one port for each UDP port from the address's on. The arguments select the driver: a card (`net_mlx5`), an
//! interface of the kernel (`net_af_packet`, `net_af_xdp`), a ring to another process (`net_memif`, `net_vhost`,
//! `net_virtio_user`). IPv4 only. A process can do this once.
//!
//! Guarantees: as with other ports, no arriving packet causes a panic; threads use each other's queues without
//! waiting. Not guaranteed: delivery, least of all of the first frames to a new peer. Peers behind a router can send
//! requests and get replies; a client must have its server on the same segment.

mod device;
mod ethdev;
mod mbuf;
mod port;
mod steering;
mod sys;

use std::fmt;
use std::net::SocketAddrV4;
use std::sync::Arc;

pub use self::device::Attachment;
pub use self::port::DpdkPort;
pub use self::steering::Steering;

use self::device::Device;
use crate::packet::IP_HEADERS_BYTES;
use crate::wake::Sleeper;

/// Bytes of an IP packet that every Ethernet takes.
pub const MTU_BYTES: u16 = 1500;
/// Maximum MTU: the common size of jumbo frames.
pub const MTU_BYTES_MAX: u16 = 9000;
/// Packets in the pool of each port: two full queues, the packets that threads keep ready, and a full hand-off queue. It
/// is one less than a power of two, the optimal size of a pool. About 19 MB with the usual MTU.
pub const PACKETS_PER_PORT: u32 = 8191;

/// The end of a conversation at which the ports are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A server's workers: each has its own queue, if there are enough.
    Serving,
    /// Clients: they send in the queue of the requested worker, and receive in all.
    Asking,
}

/// The configuration of the ports.
#[derive(Clone, Debug)]
pub struct DpdkConfig {
    /// Arguments of DPDK's environment, such as `--no-huge` or `--vdev net_vhost0,iface=PATH`.
    pub environment: Vec<String>,
    /// The address, and the UDP port of the first port.
    pub address: SocketAddrV4,
    /// Number of ports.
    pub ports: usize,
    /// Pairs of queues; by default as many as ports, and never more than the device has. Both ends of a ring have the
    /// same number.
    pub queues: Option<usize>,
    /// Maximum IP packet, in bytes.
    pub mtu_bytes: u16,
    /// The end of the conversation.
    pub role: Role,
    /// Whether packets without one of these ports' rules are left to the kernel, on cards that support this.
    pub isolate: bool,
    /// Packets in the pool of each port.
    pub packets_per_port: u32,
}

/// The reason why there is no port over DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DpdkError {
    /// The environment was started before in this process; DPDK starts it only once.
    BegunBefore,
    /// The environment did not start: wrong arguments, no memory, another process with the same prefix.
    Environment(String),
    /// The arguments created no device.
    NoDevice,
    /// The device refused a part of its set-up.
    Device {
        /// The part that was refused.
        part: &'static str,
        /// DPDK's message about it.
        text: String,
    },
    /// The memory of the environment is too small for the packets of the ports.
    NoMemory(String),
    /// The configuration is impossible.
    Configuration(String),
}

impl DpdkConfig {
    /// Creates a configuration with ports from `address` on and the usual MTU.
    #[must_use]
    pub fn new(environment: Vec<String>, address: SocketAddrV4, ports: usize, role: Role) -> Self {
        Self {
            environment,
            address,
            ports,
            queues: None,
            mtu_bytes: MTU_BYTES,
            role,
            isolate: false,
            packets_per_port: PACKETS_PER_PORT,
        }
    }

    fn check(&self) -> Result<(), DpdkError> {
        let refuse = |text: String| Err(DpdkError::Configuration(text));
        let last = usize::from(self.address.port()) + self.ports.saturating_sub(1);
        if self.ports == 0
            || self.queues == Some(0)
            || self.address.port() == 0
            || last > usize::from(u16::MAX)
        {
            return refuse(format!("{} ports from {} on do not exist", self.ports, self.address));
        }
        let ip = self.address.ip();
        if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
            return refuse(format!("{ip} is not a unicast address"));
        }
        let least = 576.max(IP_HEADERS_BYTES as u16);
        if !(least..=MTU_BYTES_MAX).contains(&self.mtu_bytes) {
            return refuse(format!("an MTU of {}: there are {least} to {MTU_BYTES_MAX}", self.mtu_bytes));
        }
        Ok(())
    }
}

/// Starts DPDK and creates the ports.
///
/// # Errors
/// The failed part, with DPDK's message about it.
pub fn open(config: &DpdkConfig) -> Result<Vec<DpdkPort>, DpdkError> {
    let out_of_descriptors = |error: std::io::Error| DpdkError::Configuration(error.to_string());
    let sleepers = (0..config.ports)
        .map(|_| Sleeper::alone())
        .collect::<Result<Vec<_>, _>>()
        .map_err(out_of_descriptors)?;
    let device = Arc::new(Device::open(config, sleepers.iter().map(Sleeper::waker).collect())?);
    let port = |(index, sleeper)| DpdkPort::new(Arc::clone(&device), index, sleeper);
    Ok(sleepers.into_iter().enumerate().map(port).collect())
}

impl fmt::Display for DpdkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BegunBefore => write!(formatter, "DPDK can start only once in a process"),
            Self::Environment(text) => write!(formatter, "DPDK does not start (see its output): {text}"),
            Self::NoDevice => {
                write!(formatter, "DPDK found no device: name one, as with --vdev or --allow")
            }
            Self::Device { part, text } => write!(formatter, "the device refused its {part}: {text}"),
            Self::NoMemory(text) => {
                write!(formatter, "no memory for packets, give DPDK more with -m: {text}")
            }
            Self::Configuration(text) => formatter.write_str(text),
        }
    }
}

impl std::error::Error for DpdkError {}
