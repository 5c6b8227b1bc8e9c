//! What a server works on besides memory and threads: listener, ports, metadata, compiler.
//!
//! Opened here as the configuration says; tests and benches bring their own, in memory. All of it is
//! open before anything is started over it, so a port that is taken or a directory that cannot be made ends the start
//! without a thread.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

use builder::Toolchain;
use net::{HostPort, Listener, Port, UdpConfig};

use super::{BootError, metadata};
use crate::cluster::metadata::Metadata;
use crate::config::{Config, SharedMemory};
use crate::extension::registry::Prepare;
use crate::server::shm_listener::ShmEntrance;

/// Mode of directories that are made: what is in them is loaded as code, or opens sessions.
const DIRECTORY_MODE: u32 = 0o700;

/// Name of the socket in the data directory at which clients of this host get in.
const DOOR: &str = "door";

/// See the file's head.
pub struct Devices<P: Port> {
    /// Accepts streams.
    pub listener: Listener,
    /// Move frames, one per core.
    pub ports: Vec<P>,
    /// What survives a restart.
    pub metadata: Metadata,
    /// Makes the toolchain that builds extensions.
    pub prepare: Prepare,
    /// Where clients of this host get in; nothing where the ports have no shared memory.
    pub doorway: Option<ShmEntrance>,
}

impl Devices<HostPort> {
    /// Those of a server over kernel UDP and, as far as the configuration asks for it, memory shared with clients of this
    /// host. Makes the data directory where it is not there yet.
    ///
    /// # Errors
    /// Says which part failed and why.
    pub(super) fn over_kernel(config: &Config) -> Result<Self, BootError> {
        let bind = |index| {
            let address = config.frame_address(index);
            HostPort::bind(address, UdpConfig::default())
                .map_err(|error| BootError::listening(&format!("UDP {address}"), &error))
        };
        let ports = (0..config.cores).map(bind).collect::<Result<Vec<_>, _>>()?;
        let devices = Self::over(config, ports)?;
        // Its place may be in the directory that has just been made.
        Ok(Self { doorway: doorway(config, &devices.ports)?, ..devices })
    }
}

impl<P: Port> Devices<P> {
    /// Those of a server over these ports. Makes the data directory where it is not there yet.
    ///
    /// # Errors
    /// Says which part failed and why.
    pub(super) fn over(config: &Config, ports: Vec<P>) -> Result<Self, BootError> {
        let listener = Listener::bind(config.listen)
            .map_err(|error| BootError::listening(&format!("TCP {}", config.listen), &error))?;
        let artefacts = config.data_directory.join("extensions");
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&artefacts)
            .map_err(|error| BootError::new(&format!("cannot make {}", artefacts.display()), error))?;
        let metadata = metadata::open(config)?;
        let prepare = Box::new(move || Toolchain::prepare(&artefacts));
        Ok(Self { listener, ports, metadata, prepare, doorway: None })
    }
}

/// Opens the door that the configuration asks for. Where nobody named a place for it, a server gets by without.
fn doorway(config: &Config, ports: &[HostPort]) -> Result<Option<ShmEntrance>, BootError> {
    let (path, is_named) = match &config.shm {
        SharedMemory::Off => return Ok(None),
        SharedMemory::InDataDirectory => (config.data_directory.join(DOOR), false),
        SharedMemory::At(path) => (path.clone(), true),
    };
    match ShmEntrance::open(&path, ports) {
        Ok(doorway) => Ok(Some(doorway)),
        Err(error) if is_named => {
            Err(BootError::new(&format!("cannot let clients of this host in at {}", path.display()), error))
        }
        Err(error) => {
            tracing::info!(path = %path.display(), %error, "clients of this host go by UDP as well");
            Ok(None)
        }
    }
}
