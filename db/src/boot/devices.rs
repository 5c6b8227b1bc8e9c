//! What a server starts with besides memory and threads: listener, ports, metadata, compiler, room for streams.
//!
//! Devices are opened as configured; tests and benches pass their own, in memory. All are open before any thread
//! starts, so a port in use or a directory that cannot be created fails the start without a running thread.
//!
//! Over DPDK, clients find the server as usual, by its TCP stream, which stays with the kernel; frames go to the address
//! of the device. On a card that the kernel shares (mlx5) both addresses are the same.

use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
#[cfg(feature = "dpdk")]
use std::net::SocketAddrV4;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use builder::Toolchain;
use cluster::metadata::{Metadata, ServerRun};
use cluster::peer::ClusterSecret;
use disk::settle_file;
#[cfg(feature = "dpdk")]
use net::dpdk::{self, DpdkConfig, Role};
use net::{HostPort, Listener, Port, UdpConfig};

use super::{BootError, Server, identity};
use crate::clock::Clock;
use crate::config::{Config, DpdkSettings, MetadataPlace, SharedMemory, StreamLimits};
use crate::control_plane::migrations::Migrations;
use crate::control_plane::resumption::Resumption;
use crate::etcd::Etcd;
use crate::extension::registry::Prepare;
use crate::front::shm_listener::ShmEntrance;
use crate::limits::{BIND_PATIENCE_MS, BIND_PAUSE_MS};
use crate::process;
use crate::tablet::PartsMade;
use crate::worker::siblings::SiblingWorkers;

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
        let mut ports: Vec<HostPort> = Vec::new();
        for index in 0..config.cores {
            let next = next_address(config, &ports, index);
            let port = next.and_then(|address| HostPort::bind(address, UdpConfig::default()).ok());
            let address = config.frame_address(index);
            ports.push(
                port.map_or_else(|| when_free(|| HostPort::bind(address, UdpConfig::default())), Ok)
                    .map_err(|error| BootError::listening(&format!("UDP {address}"), &error))?,
            );
        }
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
        let listener = next_address(config, &ports, 0).and_then(|address| Listener::bind(address).ok());
        let listener = listener
            .map_or_else(|| when_free(|| Listener::bind(config.listen)), Ok)
            .map_err(|error| BootError::listening(&format!("TCP {}", config.listen), &error))?;
        let artefacts = config.data_directory.join("extensions");
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&artefacts)
            .map_err(|error| BootError::new(&format!("cannot create {}", artefacts.display()), error))?;
        let metadata = open_metadata(config)?;
        let prepare = Box::new(move || Toolchain::prepare(&artefacts));
        Ok(Self { listener, ports, metadata, prepare, shm_entrance: None })
    }
}

/// Binds an address, once a server that was just killed has let go of it.
pub(super) fn when_free<T>(bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + Duration::from_millis(BIND_PATIENCE_MS);
    loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(Duration::from_millis(BIND_PAUSE_MS));
            }
            bound => return bound,
        }
    }
}

/// Returns the address so many ports behind the first one, if the system chose that. Streams and frames then have the
/// numbers that they would have at a given address, so that clients find a server that is started again there.
fn next_address<P: Port>(config: &Config, ports: &[P], index: usize) -> Option<SocketAddr> {
    let first = ports.first().filter(|_| config.listen.port() == 0)?.local().port();
    Some(SocketAddr::new(config.listen.ip(), first.checked_add(index as u16)?))
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

/// Starts a server whose workers each own a port of the device.
#[cfg(feature = "dpdk")]
pub(super) fn start_over_dpdk(config: &Config, settings: &DpdkSettings) -> Result<Server, BootError> {
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
pub(super) fn start_over_dpdk(_: &Config, _: &DpdkSettings) -> Result<Server, BootError> {
    Err(BootError::new("DPDK", "this server was built without it: build with --features dpdk"))
}

/// Opens the configured metadata.
fn open_metadata(config: &Config) -> Result<Metadata, BootError> {
    let opened = match &config.metadata {
        MetadataPlace::File => {
            let path = config.data_directory.join("metadata.redb");
            settle_file(&path).map_err(|error| BootError::new("cannot open the metadata", error))?;
            Metadata::open(&path)
        }
        MetadataPlace::Etcd(address) => {
            let etcd =
                Etcd::open(address).map_err(|error| BootError::new("cannot open the metadata", error))?;
            identity::check_cluster(&config.data_directory, &etcd, address)?;
            Metadata::over(Box::new(etcd))
        }
    };
    opened.map_err(|error| BootError::new("cannot open the metadata", error))
}

/// Creates the state of migrations, of which none has begun, for a server in a cluster.
pub(super) fn migrations(
    own: Option<ServerRun>,
    metadata: &Metadata,
    siblings: &Arc<SiblingWorkers>,
    workers: usize,
) -> Result<Option<Migrations>, BootError> {
    let Some(own) = own else { return Ok(None) };
    let secret = metadata
        .cluster_secret()
        .map_err(|error| BootError::new("cannot read the cluster's secret", error))?;
    Ok(Some(Migrations::new(own.server, ClusterSecret(secret), Arc::clone(siblings), workers)))
}

/// Reserves numbers for the first clients, and versions for the parts of tables that this server makes.
pub(super) fn reserve(metadata: &Metadata) -> Result<(Range<u64>, PartsMade), BootError> {
    let failed = |error| BootError::new("cannot write the metadata", error);
    let client_ids = metadata.reserve_client_ids().map_err(failed)?;
    Ok((client_ids, PartsMade::above(metadata.reserve_versions().map_err(failed)?)))
}

/// Creates the state of resumed sessions. To be called when the log has been read: the time in which clients may come back begins.
pub(super) fn resumption(
    metadata: &Metadata,
    run: Option<ServerRun>,
    first_client: u64,
    clock: Clock,
) -> Result<Resumption, BootError> {
    let secret = metadata
        .cluster_secret()
        .map_err(|error| BootError::new("cannot read the server's secret", error))?;
    let server = run.map_or(0, |run| run.server);
    Ok(Resumption::new(ClusterSecret(secret), server, first_client, clock.now_us()))
}

/// Returns the limits of client streams: the configured ones, or fewer if the process may open too few files or threads.
/// A server that could not accept any stream does not start.
pub(super) fn stream_limits(config: &Config) -> Result<StreamLimits, BootError> {
    let descriptors =
        process::descriptors().map_err(|error| BootError::new("the limit of open files", error))?;
    let (asked, threads) = (config.streams, process::threads_left());
    let limits = asked.within(descriptors, threads, config.cores);
    if !limits.leave_room() {
        let few_files = !asked.within(descriptors, usize::MAX, config.cores).leave_room();
        let (what, has, wanted, how) = if few_files {
            ("the limit of open files", descriptors, asked.descriptors(config.cores), "raise `ulimit -n`")
        } else {
            ("the limit of threads", threads, asked.threads(config.cores), "raise `ulimit -u` or `pids.max`")
        };
        let text = format!("{has} is too low for any stream; {wanted} are needed: {how}");
        return Err(BootError::new(what, text));
    }
    if limits != asked {
        let StreamLimits { places, of_tenant, reserve } = limits;
        tracing::warn!(
            descriptors,
            threads,
            streams = places,
            of_tenant,
            reserve,
            "fewer streams than {}: the limit of open files or threads is too low",
            asked.places
        );
    }
    Ok(limits)
}
