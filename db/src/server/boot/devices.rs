//! What a server works on besides memory and threads: listener, ports, metadata, compiler.
//!
//! Opened here as the configuration says; tests and benches bring their own, in memory. All of it is
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
        let bind = |index| {
            let address = config.frame_address(index);
            UdpPort::bind(address, UdpConfig::default())
                .map_err(|error| BootError::listening(&format!("UDP {address}"), &error))
        };
        Self::over(config, (0..config.cores).map(bind).collect::<Result<Vec<_>, _>>()?)
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
        Ok(Self { listener, ports, metadata, prepare })
    }
}
