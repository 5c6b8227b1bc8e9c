//! Devices of a server besides memory and threads: listener, ports, metadata, compiler.
//!
//! They are opened as configured; tests and benches pass their own, in memory. All are open before any thread starts,
//! so a port in use or a directory that cannot be created fails the start without a running thread.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

use builder::Toolchain;
use cluster::metadata::Metadata;
use net::{HostPort, Listener, Port, UdpConfig};

use super::{BootError, metadata};
use crate::config::{Config, SharedMemory};
use crate::extension::registry::Prepare;
use crate::server::shm_listener::ShmEntrance;

/// Mode of new directories: their files are loaded as code, or open sessions.
const DIRECTORY_MODE: u32 = 0o700;

/// Name of the socket in the data directory at which local clients attach.
const SHM_SOCKET: &str = "shm.sock";

/// The devices over which a server starts.
pub struct Devices<P: Port> {
    /// Accepts streams.
    pub listener: Listener,
    /// Ports that move frames, one per core.
    pub ports: Vec<P>,
    /// Records that survive a restart.
    pub metadata: Metadata,
    /// Prepares the toolchain that builds extensions.
    pub prepare: Prepare,
    /// Shared-memory listener for local clients; `None` if the ports have no shared memory.
    pub shm_entrance: Option<ShmEntrance>,
}

impl Devices<HostPort> {
    /// Opens devices over kernel UDP and, if configured, shared memory for local clients. Creates the data directory
    /// if it does not exist.
    ///
    /// # Errors
    /// Names the part that failed, and the reason.
    pub(super) fn over_kernel(config: &Config) -> Result<Self, BootError> {
        let bind = |index| {
            let address = config.frame_address(index);
            HostPort::bind(address, UdpConfig::default())
                .map_err(|error| BootError::listening(&format!("UDP {address}"), &error))
        };
        let ports = (0..config.cores).map(bind).collect::<Result<Vec<_>, _>>()?;
        let devices = Self::over(config, ports)?;
        // Only now, because its path may be in the directory just created.
        Ok(Self { shm_entrance: shm_entrance(config, &devices.ports)?, ..devices })
    }
}

impl<P: Port> Devices<P> {
    /// Opens the other devices of a server over these ports. Creates the data directory if it does not exist.
    ///
    /// # Errors
    /// Names the part that failed, and the reason.
    pub(super) fn over(config: &Config, ports: Vec<P>) -> Result<Self, BootError> {
        let listener = Listener::bind(config.listen)
            .map_err(|error| BootError::listening(&format!("TCP {}", config.listen), &error))?;
        let artefacts = config.data_directory.join("extensions");
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&artefacts)
            .map_err(|error| BootError::new(&format!("cannot create {}", artefacts.display()), error))?;
        let metadata = metadata::open(config)?;
        let prepare = Box::new(move || Toolchain::prepare(&artefacts));
        Ok(Self { listener, ports, metadata, prepare, shm_entrance: None })
    }
}

/// Opens the configured shared-memory listener. If the configuration names no path, a server that cannot open one
/// starts without it.
fn shm_entrance(config: &Config, ports: &[HostPort]) -> Result<Option<ShmEntrance>, BootError> {
    let (path, is_named) = match &config.shm {
        SharedMemory::Off => return Ok(None),
        SharedMemory::InDataDirectory => (config.data_directory.join(SHM_SOCKET), false),
        SharedMemory::At(path) => (path.clone(), true),
    };
    match ShmEntrance::open(&path, ports) {
        Ok(shm_entrance) => Ok(Some(shm_entrance)),
        Err(error) if is_named => {
            Err(BootError::new(&format!("cannot open the shared-memory socket {}", path.display()), error))
        }
        Err(error) => {
            tracing::info!(
                path = %path.display(),
                %error,
                "cannot open the shared-memory socket; clients on this host use UDP"
            );
            Ok(None)
        }
    }
}
