//! The client of one way, in a process of its own: makes a tenant, loads the data, measures, prints one line of JSON.
//!
//! A process of its own, since DPDK begins once in one; all ways alike, so that they can be compared. First one request is
//! outstanding, then so many as it is told, all over the same device. One session has the port to itself, as a client would; where more requests
//! are to be outstanding than a session may have, several share it.
//!
//! Its end of a device of DPDK is there where this was compiled with the feature `dpdk`; else the refusal. DPDK's memory
//! files lie in a folder of the run.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Instant;

use client::{Client, ClientConfig, LimitChange, SessionStatistics, Statistic};
use net::{HostPort, Port};
use serde::{Deserialize, Serialize};

use super::narrow::{Lent, Narrow, frame_bytes_of_one};
use super::seen::{ClientSeen, ClosedLoop, Moved};
use crate::drive::Drive;
use crate::fleet::Fleet;
use crate::loading;
use crate::machine;
use crate::measure::Figures;
use crate::operator::install;
use crate::options::{Access, DataSettings, DurabilityOption, SandboxOption, TransportOption, admin};
use crate::workload::{Generator, Target, Workload};

/// Requests that a session may have outstanding at a server of ours.
const SESSION_OUTSTANDING: usize = 256;
/// Who asks.
const TENANT: &str = "bench";
/// The part of the seconds before each measurement that is not measured.
const WARMUP: f64 = 0.2;
/// What both programs are built with for ways over DPDK.
pub(super) const BUILD: &str = "cargo build --release -p splinter-server -p splinter-bench --features splinter-server/dpdk,splinter-bench/dpdk";
/// Whether this one was.
pub(super) const IS_COMPILED: bool = cfg!(feature = "dpdk");
/// The address of a server's device.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// What the client process is told, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientSettings {
    /// Workload to run.
    pub workload: Workload,
    /// Form in which invocations run.
    pub sandbox: SandboxOption,
    /// Durability of the table.
    pub durability: DurabilityOption,
    /// Stream address of the server.
    pub address: SocketAddr,
    /// The administrator's secret, or @FILE to read it from.
    pub admin_secret: String,
    /// Transport of requests, unless DPDK is used.
    pub transport: TransportOption,
    /// Arguments of DPDK's environment, and the address of the server's device.
    pub dpdk: Option<(String, Ipv4Addr)>,
    /// Each request goes in a separate frame.
    pub single: bool,
    /// The data.
    pub data: DataSettings,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Outstanding requests of the measurements after the first.
    pub outstanding: Vec<usize>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Core of this process.
    pub cpu: usize,
}

impl FromStr for ClientSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

/// Measures, and prints what was seen.
pub fn run(settings: &ClientSettings) -> Result<(), String> {
    machine::pin(settings.cpu)?;
    let (access, target) = set_up(settings)?;
    let port = load(settings, &access, target)?;
    let data = settings.data.dataset()?;
    let generator = || Generator::new(settings.workload, target, data.clone(), 0.0);
    let of_one = frame_bytes_of_one(&mut generator()?);
    let narrowed = |port: Box<dyn Port>| -> Box<dyn Port> {
        if settings.single { Box::new(Narrow::new(port, of_one)) } else { port }
    };
    let most = settings.outstanding.iter().max().copied().unwrap_or(1);
    let sessions = most.div_ceil(SESSION_OUTSTANDING);
    let alone = |fleet: &mut Fleet| measure(fleet, generator()?, None, settings.seconds);
    // One request is one session's, which has a port to itself where there can be a second.
    let apart = match &settings.dpdk {
        Some(_) => None,
        None => {
            let port = narrowed(settings.socket()?);
            Some(alone(&mut Fleet::over(port, &access, settings.config(), 1)?)?)
        }
    };
    let port = narrowed(port);
    let frame_bytes_max = port.frame_bytes_max();
    let mut fleet = Fleet::over(port, &access, settings.config(), sessions)?;
    let (alone, _) = match apart {
        Some(measured) => measured,
        None => alone(&mut fleet)?,
    };
    let mut loads = Vec::new();
    for &outstanding in &settings.outstanding {
        let each = outstanding.div_ceil(sessions);
        let (busy_us, began) = (settings.busy_us()?, Instant::now());
        let (figures, moved) = measure(&mut fleet, generator()?, Some(each), settings.seconds)?;
        let busy_us = settings.busy_us()?.saturating_sub(busy_us);
        loads.push(ClosedLoop {
            outstanding: each * sessions,
            requests_per_second: figures.requests_per_second,
            server_busy: busy_us as f64 / began.elapsed().as_micros().max(1) as f64,
            moved,
        });
    }
    let seen = ClientSeen {
        latency_us_p50: alone.latency_us_p50,
        latency_us_p99: alone.latency_us_p99,
        latency_us_p999: alone.latency_us_p999,
        loads,
        frame_bytes_max,
        steering: settings.steering()?,
    };
    println!("{}", serde_json::to_string(&seen).map_err(|error| error.to_string())?);
    Ok(())
}

/// Makes the tenant, its table, and the extension that the workload invokes.
fn set_up(settings: &ClientSettings) -> Result<(Access, Target), String> {
    let mut admin = admin(settings.address, &settings.admin_secret)?;
    let secret = admin.tenant_create(TENANT).map_err(|error| format!("no tenant is made: {error}"))?;
    let form = LimitChange { limit: SandboxOption::LIMIT, value: Some(settings.sandbox.value()) };
    let set = admin.tenant_limits_set(TENANT, &[form]);
    set.map_err(|error| format!("invocations cannot run in {}: {error}", settings.sandbox))?;
    // What is administered goes over the stream.
    let address = settings.address.to_string();
    let mut client = Client::connect_with(&address, TENANT, &secret, settings.config())
        .map_err(|error| format!("no session: {error}"))?;
    let table = "bench";
    let options = settings.durability.table_options();
    let number =
        client.table_create_with(table, options).map_err(|error| format!("no table is made: {error}"))?;
    let extension = match settings.workload.extension() {
        Some(name) => install(&mut client, name)?,
        None => 0,
    };
    let access =
        Access { transport: settings.transport, ..Access::new(settings.address, TENANT, secret, table) };
    let target = Target { table: number, extension, records: settings.data.records, seed: settings.seed };
    Ok((access, target))
}

/// Loads the data; returns the port that is to be measured. A device is the one that was loaded over; a socket is fresh,
/// so that no link is left from before.
fn load(settings: &ClientSettings, access: &Access, target: Target) -> Result<Box<dyn Port>, String> {
    let load = |fleet: &mut Fleet| loading::load(fleet, target.table, settings.workload, &settings.data);
    let Some((environment, _)) = &settings.dpdk else {
        load(&mut Fleet::open(access, 1, false)?)?;
        return settings.socket();
    };
    let (lent, owner) = Lent::new(open_device(environment)?);
    load(&mut Fleet::over(Box::new(lent), access, settings.config(), 1)?)?;
    owner.take_back().ok_or_else(|| "the device is still in use".into())
}

/// Measures `each` session's outstanding requests, or a single request alone.
fn measure(
    fleet: &mut Fleet,
    generator: Generator,
    each: Option<usize>,
    seconds: f64,
) -> Result<(Figures, Moved), String> {
    let mut drive = match each {
        None => Drive::alone(fleet, generator, Instant::now()),
        Some(count) => Drive::new(fleet, generator, count, Instant::now()),
    };
    drive.warm_up_and_measure(0.0, WARMUP * seconds)?;
    let before = drive.statistics();
    let measured = drive.warm_up_and_measure(0.0, seconds)?;
    let figures = drive.measure.figures(measured);
    let moved = moved(&before, &drive.statistics());
    drive.drain()?;
    if !figures.errors.is_empty() || figures.requests == 0 {
        return Err(format!("{} right answers, and {:?}", figures.requests, figures.errors));
    }
    Ok((figures, moved))
}

fn moved(before: &SessionStatistics, after: &SessionStatistics) -> Moved {
    let bytes = |statistics: &SessionStatistics| statistics.bytes_sent + statistics.bytes_received;
    Moved {
        requests: after.requests - before.requests,
        stream_requests: after.stream_requests - before.stream_requests,
        frames_sent: after.frames_sent - before.frames_sent,
        frames_received: after.frames_received - before.frames_received,
        frame_bytes: bytes(after) - bytes(before),
    }
}

impl ClientSettings {
    /// A fresh port of the kernel's, which links may join.
    fn socket(&self) -> Result<Box<dyn Port>, String> {
        let any = match self.address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let port = HostPort::bind(any, self.config().udp).map_err(|error| format!("no port: {error}"))?;
        Ok(Box::new(port))
    }

    fn config(&self) -> ClientConfig {
        // A device has another address than the stream.
        let device = self.dpdk.iter().map(|(_, server)| SocketAddr::from((*server, self.address.port())));
        ClientConfig { core_addresses: device.collect(), ..self.transport.config() }
    }

    fn statistics(&self) -> Result<Vec<Statistic>, String> {
        let statistics = admin(self.address, &self.admin_secret)?.statistics();
        statistics.map_err(|error| format!("no statistics: {error}"))
    }

    /// Time in which the server's workers served something.
    fn busy_us(&self) -> Result<u64, String> {
        let statistics = self.statistics()?;
        let busy = statistics.iter().find(|statistic| statistic.name == "busy_us");
        busy.map(|statistic| statistic.value).ok_or_else(|| "the server does not say how busy it is".into())
    }

    /// As the server counts it.
    fn steering(&self) -> Result<String, String> {
        let statistics = self.statistics()?;
        let word = statistics.iter().find_map(|statistic| statistic.name.strip_prefix("steering_"));
        Ok(word.unwrap_or("unknown").replace('_', " "))
    }
}

/// Arguments of DPDK's environment for a process on one core, without huge pages and privileges.
pub(super) fn environment(device: &str, prefix: &str, cpu: usize) -> String {
    format!(
        "--no-pci --no-huge --no-telemetry -m 256 -l {cpu} --log-level warning --file-prefix {prefix} --vdev {device}"
    )
}

/// The port of a client.
#[cfg(feature = "dpdk")]
fn open_device(environment: &str) -> Result<Box<dyn Port>, String> {
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
fn open_device(_: &str) -> Result<Box<dyn Port>, String> {
    Err(format!("this was built without DPDK: {BUILD}"))
}
