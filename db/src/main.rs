//! `splinter-server`: reads the command line, starts the server, and waits for a signal.
//!
//! Prints one line, `ready tcp=ADDRESS udp=PORT[,PORT...] [metrics=ADDRESS]`, on standard output when it serves;
//! everything else goes to standard error. Ends with 0 after SIGTERM or SIGINT, with 1 when it cannot start or a
//! worker fails, with 2 when the command line is wrong.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{ArgAction, Parser, ValueEnum};
use cluster::records::{CopiedRecords, Revision};
use db::administration::copying;
use db::boot::Server;
use db::boot::administrator;
use db::config::{
    Config, ConfigError, DiskSpace, DpdkSettings, MetadataPlace, SharedMemory, StreamLimits, Way,
    parse_bytes, parse_cpus, parse_disk, parse_environment, parse_metadata_place,
};
use db::limits::REPLICAS_MAX;
use db::process::{self, EndSignals};
use net::IdleStrategy;
use sd_notify::NotifyState;
use tracing_subscriber::filter::LevelFilter;

/// The Splinter server: a multi-tenant, extensible, low-latency key-value store.
#[derive(Debug, Parser)]
#[command(name = "splinter-server", version)]
struct Arguments {
    /// Address for streams (TCP); core i receives frames on the UDP port of this number plus i
    #[arg(long, env = "SPLINTER_LISTEN", default_value = "127.0.0.1:7700", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,

    /// Address for clients and other servers if they cannot use the listening address; port 0 means its port
    #[arg(long, env = "SPLINTER_ADVERTISE", value_name = "ADDRESS:PORT")]
    advertise: Option<SocketAddr>,

    /// Serve metrics for Prometheus over HTTP at this address, under /metrics, to anyone who can reach it
    #[arg(long, env = "SPLINTER_METRICS", value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// Worker threads
    #[arg(long, default_value_t = 1, value_name = "N")]
    cores: usize,

    /// CPUs to pin the workers to, one each, such as 0,2 or 4-7
    #[arg(long, value_parser = cpus, value_name = "LIST")]
    pin: Option<CpuList>,

    /// Memory of the store: objects and indexes together
    #[arg(long, default_value = "1GiB", value_parser = parse_bytes, value_name = "BYTES")]
    memory: usize,

    /// Size of a log segment, a power of two
    #[arg(long, default_value = "8MiB", value_parser = parse_bytes, value_name = "BYTES")]
    segment: usize,

    /// Directory for the log of durable tables, metadata, the administrator's secret and compiled extensions
    #[arg(long, env = "SPLINTER_DATA", default_value = "splinter-data", value_name = "DIRECTORY")]
    data: PathBuf,

    /// Most bytes of the log of durable tables, which lies in the data directory; by default four times --memory, at
    /// least 1 GiB. With off all tables are in memory, and empty after a restart
    #[arg(long, env = "SPLINTER_DISK", value_parser = parse_disk, value_name = "BYTES|off")]
    disk: Option<DiskSpace>,

    /// Keep replicas of other servers' logs, up to so many bytes, in the data directory; by default twice as many as the
    /// log may take. With off it stores no replicas
    #[arg(long, env = "SPLINTER_BACKUP_DISK", value_parser = parse_disk, value_name = "BYTES|off")]
    backup_disk: Option<DiskSpace>,

    /// How many servers of a cluster besides this one are to have its log, each on another machine
    #[arg(long, env = "SPLINTER_REPLICAS", default_value_t = db::limits::REPLICAS_DEFAULT, value_parser = replicas, value_name = "N")]
    replicas: usize,

    /// Name of this server's machine: replicas of one segment of a log are always on different machines. By default the
    /// machine's host name
    #[arg(long, env = "SPLINTER_HOST_LABEL", value_name = "NAME")]
    host_label: Option<String>,

    /// Longest pause between two writes of the log, in milliseconds. A crash loses the writes to `written` tables of about
    /// this time and of one or two writes to the disk; with replicas, only if all servers that have them crash at the same time
    #[arg(long, default_value_t = db::limits::FLUSH_INTERVAL_MS, value_parser = clap::value_parser!(u64).range(1..=10_000), value_name = "MS")]
    flush_interval: u64,

    /// How blocks move to the disk: io-uring, or system calls; by default io-uring where the kernel allows it
    #[arg(long, value_enum, value_name = "WAY")]
    disk_io: Option<DiskIo>,

    /// Transports for clients: udp, which is always on, and shm, shared memory for clients on this host
    #[arg(
        long,
        env = "SPLINTER_SERVER_TRANSPORT",
        value_enum,
        value_delimiter = ',',
        default_value = "udp,shm",
        value_name = "LIST"
    )]
    transport: Vec<Transport>,

    /// Socket for clients on this host; by default shm.sock in the data directory, for the server's user only
    #[arg(long, env = "SPLINTER_SHM_SOCKET", value_name = "PATH")]
    shm_socket: Option<PathBuf>,

    /// Place of the metadata: a file in the data directory, or the etcd of a cluster, as
    /// etcd://HOST:PORT[,HOST:PORT]/CLUSTER
    #[arg(long, env = "SPLINTER_METADATA", default_value = "file", value_parser = parse_metadata_place, value_name = "PLACE")]
    metadata: MetadataPlace,

    /// Write the metadata of a cluster whose etcd was lost to the new one of --metadata, and end: the newest of these copies,
    /// which are the files metadata.copy of its servers' data directories. No server of the cluster may run
    #[arg(long, num_args = 1.., value_name = "FILE")]
    restore_metadata: Vec<PathBuf>,

    /// Use DPDK for frames instead of the kernel, with these environment (EAL) arguments, such as
    /// "--no-pci --no-huge --vdev net_vhost0,iface=PATH". Streams still use the kernel
    #[arg(
        long,
        env = "SPLINTER_DPDK",
        requires = "dpdk_address",
        value_name = "ARGUMENTS",
        allow_hyphen_values = true
    )]
    dpdk: Option<String>,

    /// Address of the DPDK device; core i receives frames there on the UDP port of --listen plus i
    #[arg(long, env = "SPLINTER_DPDK_ADDRESS", value_name = "ADDRESS")]
    dpdk_address: Option<Ipv4Addr>,

    /// Largest packet of the DPDK device, in bytes
    #[arg(long, default_value_t = 1500, value_name = "BYTES")]
    dpdk_mtu: u16,

    /// Leave other ports' traffic to the kernel, on cards that can (mlx5)
    #[arg(long)]
    dpdk_isolate: bool,

    /// Request 2 MiB pages
    #[arg(long, default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    huge_pages: bool,

    /// Back seven eighths of the memory after the replay of the log, while requests are served; otherwise at first use
    #[arg(long, default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    populate: bool,

    /// Time for which an idle worker spins, in microseconds
    #[arg(long, default_value_t = IdleStrategy::default().spin_us, value_name = "US")]
    idle_spin: u64,

    /// Idle time up to which it then yields its CPU, in microseconds; after that it sleeps
    #[arg(long, default_value_t = IdleStrategy::default().yield_until_us, value_name = "US")]
    idle_yield: u64,

    /// Preempt invocations, share the workers by weight and account for use; off only to measure the cost of that
    #[arg(long, default_value = "on", value_parser = ["on", "off"], value_name = "ON|OFF", hide = true)]
    isolation: String,

    /// Push back invocations that their clients can run after this many yields, whatever the load, and make each host call yield once:
    /// only for tests
    #[arg(long, value_name = "YIELDS", hide = true)]
    push_back_after: Option<u32>,

    /// Log level: error, warn, info, debug, trace, off
    #[arg(long, env = "SPLINTER_LOG", default_value = "info", value_parser = log_level, value_name = "LEVEL")]
    log: LevelFilter,

    /// Format of the log: text, or one JSON object per line
    #[arg(long, env = "SPLINTER_LOG_FORMAT", value_enum, default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,

    /// Write the ready line to this file as well
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

/// A format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// A transport for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    Udp,
    Shm,
}

/// A way in which blocks move to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DiskIo {
    IoUring,
    SystemCalls,
}

/// Interval at which the main thread checks that the workers run.
const LOOK: Duration = Duration::from_millis(500);

/// Interval at which it checks, before the server serves, whether backups have what the log had.
const SETTLED_LOOK: Duration = Duration::from_millis(1);

/// A list of CPUs, as one value for the parser.
#[derive(Clone, Debug)]
struct CpuList(Vec<usize>);

fn cpus(text: &str) -> Result<CpuList, ConfigError> {
    parse_cpus(text).map(CpuList)
}

fn replicas(text: &str) -> Result<usize, ConfigError> {
    let refuse = || ConfigError(format!("must be a number of servers, 0 to {REPLICAS_MAX}"));
    text.parse().ok().filter(|count| *count <= REPLICAS_MAX).ok_or_else(refuse)
}

fn log_level(text: &str) -> Result<LevelFilter, ConfigError> {
    let refuse = || ConfigError("must be one of error, warn, info, debug, trace, off".to_owned());
    text.parse().map_err(|_| refuse())
}

fn main() -> ExitCode {
    // The builder starts this program again, in its sandbox, to check a tenant's source.
    builder::child_main();
    let arguments = Arguments::parse();
    // A line that cannot be written must not end the thread that writes it.
    let log = tracing_subscriber::fmt()
        .with_max_level(arguments.log)
        .with_writer(io::stderr)
        .log_internal_errors(false);
    match arguments.log_format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    let ended =
        if arguments.restore_metadata.is_empty() { run(arguments) } else { restore_metadata(&arguments) };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("splinter-server: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Restores the metadata of a cluster, and says from which copy.
fn restore_metadata(arguments: &Arguments) -> Result<(), String> {
    let MetadataPlace::Etcd(address) = &arguments.metadata else {
        return Err("--restore-metadata: --metadata must name the new etcd".to_owned());
    };
    let (records, path) = copying::restore(address, &arguments.restore_metadata, |path, copied| {
        let CopiedRecords { revision: Revision(revision), made_ms, records } = copied;
        let age = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_millis(*made_ms));
        let (path, records, age_s) = (path.display(), records.len(), age.unwrap_or_default().as_secs());
        println!("{path}: {records} records as of change {revision}, last changed {age_s} s ago");
    })?;
    println!("restored {records} records from {} to {address}: start the servers with it", path.display());
    Ok(())
}

fn run(arguments: Arguments) -> Result<(), String> {
    let signals = EndSignals::block().map_err(|error| format!("cannot block signals: {error}"))?;
    let ready_file = arguments.ready_file.clone();
    let config = config(arguments);
    if let Some(machine) =
        process::machine_memory_bytes().filter(|machine| config.memory_bytes as u64 > *machine)
    {
        let asked = config.memory_bytes;
        return Err(format!("--memory {asked}: this machine has only {machine} bytes; choose less"));
    }
    if let Some(path) = &ready_file {
        // A process that waits for the file must not find the file of an earlier server. A missing file is fine.
        let _ = fs::remove_file(path);
    }
    if !config.isolation {
        tracing::error!(
            "ISOLATION IS OFF: a looping extension stops this server; use only to measure isolation's cost"
        );
    }
    warn_of_shared_processors(&config);
    raise_descriptors(&config);
    let secret = config.data_directory.join(administrator::FILE_NAME);
    let server = Server::start(&config).map_err(|error| error.to_string())?;
    tracing::info!(file = %secret.display(), "the administrator's secret is in this file");
    let mut is_announced = false;
    loop {
        let look = if is_announced { LOOK } else { SETTLED_LOOK };
        let signal = signals.wait(look).map_err(|error| format!("cannot wait for signals: {error}"))?;
        if !is_announced && server.control().has_settled() {
            is_announced = true;
            announce(&server, ready_file.as_deref())
                .map_err(|error| format!("cannot write the ready line: {error}"))?;
            tell_systemd(NotifyState::Ready);
        }
        if let Some(signal) = signal {
            tracing::info!(signal, "stopping");
            tell_systemd(NotifyState::Stopping);
            let log = server.control().log.clone();
            server.stop();
            return match log {
                Some(log) if log.waker.has_failed() => {
                    Err("the disk has failed: what was not on it is lost".to_owned())
                }
                Some(log) if !log.waker.is_complete() => Err(
                    "the last writes of durable tables did not get to the disk, for want of space or time: \
                         those of `written` tables are lost though they were answered"
                        .to_owned(),
                ),
                _ => Ok(()),
            };
        }
        if let Some(failure) = server.failure() {
            return Err(failure.to_owned());
        }
    }
}

fn config(arguments: Arguments) -> Config {
    let dpdk = arguments.dpdk.zip(arguments.dpdk_address).map(|(environment, address)| DpdkSettings {
        environment: parse_environment(&environment),
        address,
        mtu_bytes: arguments.dpdk_mtu,
        isolate: arguments.dpdk_isolate,
    });
    Config {
        listen: arguments.listen,
        advertise: arguments.advertise,
        metrics: arguments.metrics,
        cores: arguments.cores,
        pin: arguments.pin.map_or_else(Vec::new, |list| list.0),
        memory_bytes: arguments.memory,
        segment_bytes: arguments.segment,
        huge_pages: arguments.huge_pages,
        populate: arguments.populate,
        data_directory: arguments.data,
        disk: arguments.disk.unwrap_or(DiskSpace::Default),
        backup: arguments.backup_disk.unwrap_or(DiskSpace::Default),
        replicas: arguments.replicas,
        host_label: arguments.host_label,
        flush_interval_ms: arguments.flush_interval,
        disk_way: arguments.disk_io.map(|way| match way {
            DiskIo::IoUring => Way::IoUring,
            DiskIo::SystemCalls => Way::SystemCalls,
        }),
        shm: shm(&arguments.transport, arguments.shm_socket),
        metadata: arguments.metadata,
        dpdk,
        idle: IdleStrategy { spin_us: arguments.idle_spin, yield_until_us: arguments.idle_yield },
        streams: StreamLimits::default(),
        isolation: arguments.isolation == "on",
        push_back_after: arguments.push_back_after,
    }
}

fn shm(transports: &[Transport], socket: Option<PathBuf>) -> SharedMemory {
    match socket {
        _ if !transports.contains(&Transport::Shm) => SharedMemory::Off,
        Some(path) => SharedMemory::At(path),
        None => SharedMemory::InDataDirectory,
    }
}

/// Warns if there are more workers than processors: each worker spins for requests, and while it occupies a processor,
/// the clients of a worker that waits for the processor wait too.
fn warn_of_shared_processors(config: &Config) {
    let processors = thread::available_parallelism().map_or(usize::MAX, NonZero::get);
    if config.cores > processors {
        let workers = config.cores;
        tracing::warn!(
            workers,
            processors,
            "workers share processors and delay each other: start with fewer --cores"
        );
    }
}

/// Raises the limit of open files for all streams and shared-memory channels. If the limit stays too low, the server
/// runs with fewer streams and logs that.
fn raise_descriptors(config: &Config) {
    let wanted = config.streams.descriptors(config.cores) + config.shm.descriptors(config.cores);
    let before = process::descriptors();
    match (before, process::raise_descriptors(wanted)) {
        (Ok(before), Ok(now)) if now > before => {
            tracing::info!(before, now, "raised the limit of open files");
        }
        (_, Ok(_)) => {}
        (_, Err(error)) => tracing::warn!(%error, "cannot raise the limit of open files"),
    }
}

/// Reports a state to systemd, if it started the server as a service of `Type=notify`.
fn tell_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(false, &[state]) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

fn announce(server: &Server, ready_file: Option<&Path>) -> io::Result<()> {
    let ports: Vec<String> = server.frame_ports().iter().map(u16::to_string).collect();
    let metrics = server.metrics().map_or_else(String::new, |address| format!(" metrics={address}"));
    let line = format!("ready tcp={} udp={}{metrics}\n", server.tcp(), ports.join(","));
    if let Some(path) = ready_file {
        // Renamed into place, so that a process that waits for the file never reads half a line.
        let fresh = path.with_extension("new");
        fs::write(&fresh, &line)?;
        fs::rename(&fresh, path)?;
    }
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}
