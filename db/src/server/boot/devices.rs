//! What a server works on besides memory and threads: listener, ports, metadata, compiler.
//!
//! Opened here over kernel UDP, as the configuration says; tests and benches bring their own, in memory. All of it is
//! open before anything is started over it, so a port that is taken or a directory that cannot be made ends the start
//! without a thread.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

use builder::Toolchain;
use net::{Listener, Port, UdpConfig, UdpPort};

use super::{BootError, metadata};
use crate::cluster::metadata::Metadata;
use crate::config::Config;
use crate::extension::registry::Prepare;

/// Mode of directories that are made: what is in them is loaded as code, or opens sessions.
const DIRECTORY_MODE: u32 = 0o700;

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
}

impl Devices<UdpPort> {
    /// Those of a server over kernel UDP. Makes the data directory where it is not there yet.
    ///
    /// # Errors
    /// Says which part failed and why.
    pub(super) fn over_udp(config: &Config) -> Result<Self, BootError> {
        let listener = Listener::bind(config.listen)
            .map_err(|error| BootError::listening(&format!("TCP {}", config.listen), &error))?;
        let ports = (0..config.cores)
            .map(|index| {
                let address = config.frame_address(index);
                UdpPort::bind(address, UdpConfig::default())
                    .map_err(|error| BootError::listening(&format!("UDP {address}"), &error))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let artefacts = config.data_directory.join("extensions");
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&artefacts)
            .map_err(|error| BootError::new(&format!("cannot make {}", artefacts.display()), error))?;
        let metadata = metadata::open(config)?;
        let prepare = Box::new(move || Toolchain::prepare(&artefacts));
        Ok(Self { listener, ports, metadata, prepare })
    }
}
