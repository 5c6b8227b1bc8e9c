//! The configuration of a server: read once, checked once, plain values afterwards.
//!
//! `main` builds a [`Config`] from the command line, tests build one directly. [`Config::check`] rejects impossible
//! combinations and states the reason. Code below boot never reads arguments or the environment.

mod metadata_place;

pub use disk::Way;

pub use metadata_place::{EtcdAddress, MetadataPlace, parse_metadata_place};

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use net::IdleStrategy;

use crate::limits::{
    BACKUP_LOGS_DEFAULT, CORES_MAX, DESCRIPTORS_BESIDE_STREAMS, DESCRIPTORS_OF_CHANNELS,
    DESCRIPTORS_PER_CORE, DESCRIPTORS_PER_STREAM, DISK_BYTES_MIN, DISK_MEMORIES_DEFAULT, FLUSH_INTERVAL_MS,
    MEMORY_BYTES_MIN, MIGRATION_CORES, REPLICAS_DEFAULT, STREAMS_LEAVING_MAX, STREAMS_MAX, STREAMS_RESERVE,
    TENANT_STREAMS_MAX, THREADS_BESIDE_STREAMS,
};

/// The settings that a server starts with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the stream listener. Core `i` receives frames on the UDP port with the same number plus `i`; with
    /// port 0 the kernel chooses all ports.
    pub listen: SocketAddr,
    /// Address at which others reach the listener, if it differs; port 0 means the listener's port.
    pub advertise: Option<SocketAddr>,
    /// Address of the HTTP server for metrics, if any.
    pub metrics: Option<SocketAddr>,
    /// Number of worker threads.
    pub cores: usize,
    /// CPUs to pin the workers to, one each; empty for no pinning.
    pub pin: Vec<usize>,
    /// Memory of the store, in bytes.
    pub memory_bytes: usize,
    /// Size of a segment, in bytes.
    pub segment_bytes: usize,
    /// Requests 2 MiB pages from the kernel.
    pub huge_pages: bool,
    /// Backs the memory at the start, while the workers already serve, instead of at first use.
    pub populate: bool,
    /// Directory of the administrator's secret, compiled extensions, and file-based metadata.
    pub data_directory: PathBuf,
    /// Space for the log of durable tables in the data directory.
    pub disk: DiskSpace,
    /// Space for replicas of other servers' logs in the data directory, in a cluster.
    pub backup: DiskSpace,
    /// How many other servers are to have the log.
    pub replicas: usize,
    /// The machine's name, if it is not the one that the kernel knows: no two replicas of anything are on one.
    pub host_label: Option<String>,
    /// Time after which writes of tables in `written` are on the disk, in milliseconds.
    pub flush_interval_ms: u64,
    /// How blocks move to the disk; `None` for io_uring where the kernel allows it.
    pub disk_way: Option<Way>,
    /// The shared-memory listener for clients on this host.
    pub shm: SharedMemory,
    /// Place of the metadata.
    pub metadata: MetadataPlace,
    /// The device that moves frames instead of the kernel, if any.
    pub dpdk: Option<DpdkSettings>,
    /// An idle worker's strategy.
    pub idle: IdleStrategy,
    /// Limits on clients' streams.
    pub streams: StreamLimits,
    /// Preempts invocations, schedules them by share and accounts for them. Only measurements of the cost of isolation
    /// turn this off.
    pub isolation: bool,
    /// Pushes back invocations that their clients can run after this many yields, whatever the load, and makes each host call yield
    /// once. Only tests set it.
    pub push_back_after: Option<u32>,
}

/// Space for the log of durable tables, or for replicas of others' logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSpace {
    /// None: all tables are in memory, or this server is nobody's backup.
    Off,
    /// [`DISK_MEMORIES_DEFAULT`] times the store's memory, or [`BACKUP_LOGS_DEFAULT`] times the log's space.
    Default,
    /// At most this many bytes.
    Bytes(u64),
}

/// The shared-memory listener for clients on the server's host: a Unix socket. Every process that can reach it may try
/// to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedMemory {
    /// No listener.
    Off,
    /// A socket in the data directory, which only the server's user can reach; none if that fails.
    InDataDirectory,
    /// A socket at this path.
    At(PathBuf),
}

/// Limits on concurrent streams, in total and per tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// All streams together.
    pub places: usize,
    /// The streams of one tenant.
    pub of_tenant: usize,
    /// Streams that tenants together leave to operators.
    pub reserve: usize,
}

impl SharedMemory {
    /// Returns the number of descriptors that shared memory needs with this many cores.
    #[must_use]
    pub fn descriptors(&self, cores: usize) -> usize {
        if *self == Self::Off { 0 } else { cores * DESCRIPTORS_OF_CHANNELS }
    }
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { places: STREAMS_MAX, of_tenant: TENANT_STREAMS_MAX, reserve: STREAMS_RESERVE }
    }
}

impl StreamLimits {
    /// Returns the number of descriptors that a server with this many cores needs, for streams and everything else.
    #[must_use]
    pub const fn descriptors(&self, cores: usize) -> usize {
        DESCRIPTORS_BESIDE_STREAMS
            + cores * DESCRIPTORS_PER_CORE
            + (self.places + STREAMS_LEAVING_MAX) * DESCRIPTORS_PER_STREAM
    }

    /// Returns the number of threads that a server with this many cores needs, for streams and everything else.
    #[must_use]
    pub const fn threads(&self, cores: usize) -> usize {
        THREADS_BESIDE_STREAMS + cores + self.places + STREAMS_LEAVING_MAX
    }

    /// Reduces the limits to what a server with these descriptors, threads and cores can support; a tenant keeps its
    /// proportion.
    #[must_use]
    pub fn within(self, descriptors: usize, threads: usize, cores: usize) -> Self {
        let none = Self { places: 0, ..self };
        let by_descriptors = descriptors.saturating_sub(none.descriptors(cores)) / DESCRIPTORS_PER_STREAM;
        let places = by_descriptors.min(threads.saturating_sub(none.threads(cores)));
        if places >= self.places {
            return self;
        }
        let of_tenant = (self.of_tenant * places / self.places).max(1);
        Self { places, of_tenant, reserve: self.reserve.min(places / 4) }
    }

    /// Returns whether one tenant and the operators have room at the same time.
    #[must_use]
    pub const fn leave_room(&self) -> bool {
        self.of_tenant > 0 && self.reserve > 0 && self.of_tenant + self.reserve <= self.places
    }
}

/// The reason why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Returns a server on loopback with one core, 1 GiB, and ports that the kernel chooses.
    #[must_use]
    pub fn new(data_directory: PathBuf) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            metrics: None,
            cores: 1,
            pin: Vec::new(),
            memory_bytes: 1 << 30,
            segment_bytes: store::SEGMENT_BYTES_DEFAULT,
            huge_pages: true,
            populate: false,
            data_directory,
            disk: DiskSpace::Default,
            backup: DiskSpace::Default,
            replicas: REPLICAS_DEFAULT,
            host_label: None,
            flush_interval_ms: FLUSH_INTERVAL_MS,
            disk_way: None,
            shm: SharedMemory::InDataDirectory,
            metadata: MetadataPlace::File,
            dpdk: None,
            idle: IdleStrategy::default(),
            streams: StreamLimits::default(),
            isolation: true,
            push_back_after: None,
        }
    }

    /// Checks that a server can start with this configuration.
    ///
    /// # Errors
    /// A description of the problem, for people.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |text: String| Err(ConfigError(text));
        if !(1..=CORES_MAX).contains(&self.cores) {
            return refuse(format!("{} cores: the number must be 1 to {CORES_MAX}", self.cores));
        }
        if !self.pin.is_empty() && self.pin.len() != self.cores {
            return refuse(format!(
                "{} CPUs for {} workers: name one per worker",
                self.pin.len(),
                self.cores
            ));
        }
        let store = self.store(self.metadata != MetadataPlace::File);
        let least = store.memory_bytes_min().max(MEMORY_BYTES_MIN);
        if self.memory_bytes < least {
            return refuse(format!(
                "{} of memory: at least {} are needed with segments of {} and {} log heads",
                text_of_bytes(self.memory_bytes),
                text_of_bytes(least),
                text_of_bytes(self.segment_bytes),
                store.cores
            ));
        }
        store.check().map_err(|error| ConfigError(error.to_string()))?;
        if !self.streams.leave_room() {
            return refuse(format!("{:?}: must leave room for a tenant and an operator", self.streams));
        }
        if self.dpdk.is_some() && self.listen.port() == 0 {
            return refuse("port 0 does not work over DPDK: name a port in --listen".to_owned());
        }
        let last_port = usize::from(self.listen.port()) + self.cores - 1;
        if self.listen.port() != 0 && last_port > usize::from(u16::MAX) {
            return refuse(format!("the last core needs port {}: choose a lower port", last_port));
        }
        Ok(())
    }

    /// Returns the configuration of the store; a server that moves tablets has additional store cores.
    #[must_use]
    pub fn store(&self, moves_tablets: bool) -> store::Config {
        store::Config {
            memory_bytes: self.memory_bytes,
            segment_bytes: self.segment_bytes,
            cores: self.cores + if moves_tablets { MIGRATION_CORES } else { 0 },
            huge_pages: self.huge_pages,
            durable: self.disk_bytes().is_some(),
            // One reads ahead what somebody waits for.
            recovery_cores: if self.disk_bytes().is_some() { self.cores + 1 } else { 0 },
        }
    }

    /// Returns the most bytes of the log of durable tables, if there is one.
    #[must_use]
    pub fn disk_bytes(&self) -> Option<u64> {
        match self.disk {
            DiskSpace::Off => None,
            DiskSpace::Default => {
                Some((self.memory_bytes as u64).saturating_mul(DISK_MEMORIES_DEFAULT).max(DISK_BYTES_MIN))
            }
            DiskSpace::Bytes(bytes) => Some(bytes),
        }
    }

    /// Returns the most bytes of replicas of other servers' logs, if this server keeps any: in a cluster, with a log of its own.
    #[must_use]
    pub fn backup_bytes(&self) -> Option<u64> {
        let log_bytes = self.disk_bytes().filter(|_| self.metadata != MetadataPlace::File)?;
        match self.backup {
            DiskSpace::Off => None,
            DiskSpace::Default => Some(log_bytes.saturating_mul(BACKUP_LOGS_DEFAULT)),
            DiskSpace::Bytes(bytes) => Some(bytes),
        }
    }

    /// Returns the name of the server's machine.
    #[must_use]
    pub fn host(&self) -> String {
        let of_kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        self.host_label.clone().unwrap_or_else(|| of_kernel().trim().to_owned())
    }

    /// Returns the UDP address of core `index`.
    #[must_use]
    pub fn frame_address(&self, index: usize) -> SocketAddr {
        let mut address = self.listen;
        if address.port() != 0 {
            address.set_port(address.port() + index as u16);
        }
        address
    }
}

/// Parses a number of bytes: `4096`, `64KiB`, `512M`, `1GiB`, `2g`.
///
/// # Errors
/// A description of the problem.
pub fn parse_bytes(text: &str) -> Result<usize, ConfigError> {
    let refuse = || ConfigError(format!("`{text}` is not a number of bytes such as 4096, 64KiB or 1GiB"));
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let number: usize = text[..digits].parse().map_err(|_| refuse())?;
    let shift = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(refuse()),
    };
    number.checked_mul(1 << shift).ok_or_else(refuse)
}

/// Formats a number of bytes so that [`parse_bytes`] reads it.
fn text_of_bytes(bytes: usize) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = units.into_iter().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    whole.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// Parses the space of the log: `off`, or a number of bytes as [`parse_bytes`] reads it.
///
/// # Errors
/// A description of the problem.
pub fn parse_disk(text: &str) -> Result<DiskSpace, ConfigError> {
    if text == "off" { Ok(DiskSpace::Off) } else { Ok(DiskSpace::Bytes(parse_bytes(text)? as u64)) }
}

/// Parses a list of CPUs: `0`, `0,2`, `4-7`.
///
/// # Errors
/// A description of the problem.
pub fn parse_cpus(text: &str) -> Result<Vec<usize>, ConfigError> {
    let refuse = || ConfigError(format!("`{text}` is not a list of CPUs such as 0,2 or 4-7"));
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| refuse())?;
        let last: usize = last.trim().parse().map_err(|_| refuse())?;
        if last < first || last - first >= CORES_MAX {
            return Err(refuse());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// The device and address of a server that uses DPDK. A server built without the feature `dpdk` rejects them at its
/// start.
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

/// Splits the arguments of DPDK's environment at spaces.
#[must_use]
pub fn parse_environment(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{
        Config, MetadataPlace, StreamLimits, parse_bytes, parse_cpus, parse_metadata_place, text_of_bytes,
    };

    #[test]
    fn bytes_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64KiB"), Ok(65_536));
        assert_eq!(parse_bytes("1 GiB"), Ok(1 << 30));
        assert_eq!(parse_bytes("2g"), Ok(2 << 30));
        for text in ["", "GiB", "-1", "1.5G", "99999999999999999999", "99999999999T", "1 parsec"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_are_written_as_they_are_read() {
        for (bytes, text) in
            [(0, "0"), (1 << 30, "1GiB"), (40 << 20, "40MiB"), (1536, "1536"), (3 << 10, "3KiB")]
        {
            assert_eq!((text_of_bytes(bytes).as_str(), parse_bytes(text)), (text, Ok(bytes)));
        }
    }

    #[test]
    fn the_least_memory_that_is_named_is_the_least_that_a_store_takes() {
        let etcd = parse_metadata_place("etcd://127.0.0.1:1/c").unwrap();
        for (cores, segment_bytes, metadata) in
            [(1, 8 << 20, MetadataPlace::File), (7, 1 << 20, MetadataPlace::File), (2, 8 << 20, etcd)]
        {
            let config =
                Config { cores, segment_bytes, metadata, memory_bytes: 1, ..Config::new("data".into()) };
            let said = config.check().unwrap_err().to_string();
            let least = said.split_once("at least ").unwrap().1.split(' ').next().unwrap();
            let memory_bytes = parse_bytes(least).unwrap();
            assert_eq!(Config { memory_bytes, ..config.clone() }.check(), Ok(()));
            assert!(Config { memory_bytes: memory_bytes - 1, ..config }.check().is_err());
        }
    }

    #[test]
    fn cpus_are_read_as_people_write_them() {
        assert_eq!(parse_cpus("0"), Ok(vec![0]));
        assert_eq!(parse_cpus("0,2"), Ok(vec![0, 2]));
        assert_eq!(parse_cpus("4-6,9"), Ok(vec![4, 5, 6, 9]));
        for text in ["", "a", "3-1", "0-99999999", "1,,2"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let good = Config::new(PathBuf::from("data"));
        assert_eq!(good.check(), Ok(()));
        assert!(Config { cores: 0, ..good.clone() }.check().is_err());
        assert!(Config { cores: 2, pin: vec![1], ..good.clone() }.check().is_err());
        assert!(Config { memory_bytes: 4096, ..good.clone() }.check().is_err());
        assert!(Config { segment_bytes: 3 << 20, ..good.clone() }.check().is_err());
        let crowded = StreamLimits { places: 4, of_tenant: 4, reserve: 1 };
        assert!(Config { streams: crowded, ..good.clone() }.check().is_err());
        assert!(Config { listen: ([127, 0, 0, 1], 65_535).into(), cores: 2, ..good }.check().is_err());
    }

    #[test]
    fn streams_get_by_with_the_descriptors_and_threads_there_are() {
        let asked = StreamLimits::default();
        assert_eq!(asked.within(asked.descriptors(4), asked.threads(4), 4), asked);
        assert_eq!(asked.within(usize::MAX, usize::MAX, 4), asked);
        for descriptors in 0..asked.descriptors(1) {
            let fewer = asked.within(descriptors, usize::MAX, 1);
            assert!(fewer.places < asked.places && fewer.of_tenant <= fewer.places / 4 + 1);
            assert!(fewer.places == 0 || fewer.descriptors(1) <= descriptors);
            assert!(fewer.places < 4 || fewer.leave_room(), "{fewer:?}");
        }
        for threads in 0..asked.threads(1) {
            let fewer = asked.within(usize::MAX, threads, 1);
            assert!(fewer.places < asked.places && (fewer.places == 0 || fewer.threads(1) <= threads));
            assert!(fewer.places < 4 || fewer.leave_room(), "{fewer:?}");
        }
        let usual = asked.within(1024, usize::MAX, 1);
        assert!(usual.places > 350 && usual.reserve == asked.reserve, "{usual:?}");
    }
}
