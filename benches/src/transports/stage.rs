//! One way in one run: a fresh server, a fresh client, and what the client saw.
//!
//! A way over virtual interfaces has two network namespaces, client in one and server in the other, which go when the run
//! goes, however it ends. `scripts/dpdk_veth` makes them, which this program carries along; a keeper takes them away.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::TransportsSettings;
use super::client::{BUILD, ClientSettings, IS_COMPILED, SERVER, environment};
use super::seen::ClientSeen;
use super::way::{Medium, TransportWay};
use crate::options::{DataSettings, TransportOption};
use crate::process::{Folder, Keeper, LOOPBACK, command_within, free_address, output_of, this_program};
use crate::server::{Launch, OurServer};

/// How long a client may take beyond its measurements: to load, and to have an extension compiled.
const PATIENCE: Duration = Duration::from_secs(120);
/// Memory of the server for each object beyond key and value, twice over; a graph's objects have a list besides.
const OBJECT_OVERHEAD_BYTES: u64 = 400;
/// Makes the namespaces.
const SCRIPT: &str = include_str!("../../../scripts/dpdk_veth");
/// The server's address in its namespace.
const VETH_SERVER: &str = "10.9.0.1:7700";
/// Ends what runs in them and takes them away. `$1` begins the namespaces' names.
const CLEAR: &str = "for end in ask serve; do ip netns pids $1-$end 2>/dev/null | xargs -r kill -9; \
                      ip netns del $1-$end 2>/dev/null; done";

/// Why a medium cannot be measured by this program, whatever the machine.
pub fn obstacle(medium: Medium) -> Option<String> {
    let needs_dpdk = medium.client_needs_dpdk() && !IS_COMPILED;
    needs_dpdk.then(|| format!("this was built without DPDK: {BUILD}"))
}

/// Measures a way once.
pub fn play(way: TransportWay, settings: &TransportsSettings, run: usize) -> Result<ClientSeen, String> {
    let folder = Folder::make("transports")?;
    let veth = match way.medium.needs_namespaces() {
        true => Some(Veth::up(&folder, way.medium == Medium::VethUdp)?),
        false => None,
    };
    let within = |end| veth.as_ref().map_or(Vec::new(), |veth| veth.within(end));
    let listen = listen(way.medium)?;
    let object_bytes = (settings.key_bytes + settings.value_bytes) as u64 + OBJECT_OVERHEAD_BYTES;
    let memory_mib = ((2 * settings.keys * object_bytes) >> 20).max(256);
    let mut launch = Launch {
        within: within(VethEnd::Serve),
        cpu: Some(settings.pair.server_cpu),
        listen: &listen,
        keeps_log: true,
        ..Launch::new("server", settings.pair.server.as_deref(), memory_mib)
    };
    if let Some(device) = device_of(way.medium, VethEnd::Serve, &folder) {
        let environment = environment(&device, &prefix("serve"), settings.pair.server_cpu);
        let address = SERVER.to_string();
        launch.arguments = ["--dpdk", &environment, "--dpdk-address", &address].map(String::from).to_vec();
    }
    launch.environment = runtime(&folder);
    let mut server =
        OurServer::start(&folder, &launch).map_err(|why| match way.medium.server_needs_dpdk() {
            true if why.contains("built without") => format!("{why}: {BUILD}"),
            _ => why,
        })?;
    let program = settings.client.clone().map_or_else(this_program, Ok)?;
    let mut command = command_within(&within(VethEnd::Ask), &program);
    let device = device_of(way.medium, VethEnd::Ask, &folder);
    let dpdk = device.map(|device| (environment(&device, &prefix("ask"), settings.pair.cpu), SERVER));
    let told = serde_json::to_string(&client_settings(way, settings, &server, run, dpdk));
    command.arg("transports-client").arg(told.map_err(|error| error.to_string())?);
    command.envs(runtime(&folder));
    let patience = PATIENCE + Duration::from_secs_f64(4.0 * settings.pair.seconds);
    let seen = output_of("client", command, &folder, patience);
    // What happened to the server says more than that its client waited.
    if let Some(ended) = server.has_ended() {
        return Err(ended);
    }
    read(&seen?)
}

/// The client's line; what libraries wrote before it is not ours.
fn read(output: &str) -> Result<ClientSeen, String> {
    let line = output.lines().next_back().unwrap_or_default();
    serde_json::from_str(line).map_err(|error| format!("the client said {line:?}: {error}"))
}

/// Where the server listens. Over DPDK nobody else chooses its port.
fn listen(medium: Medium) -> Result<String, String> {
    match medium {
        _ if medium.needs_namespaces() => Ok(VETH_SERVER.to_owned()),
        _ if medium.server_needs_dpdk() => free_address(LOOPBACK).map(|address| address.to_string()),
        _ => Ok(SocketAddr::V4(SocketAddrV4::new([127, 0, 0, 1].into(), 0)).to_string()),
    }
}

/// The device of one end, as DPDK is told; none where frames go over the kernel or shared memory.
fn device_of(medium: Medium, end: VethEnd, folder: &Folder) -> Option<String> {
    let socket = folder.join("ring").display().to_string();
    Some(match (medium, end) {
        (Medium::Memif, VethEnd::Serve) => {
            format!("net_memif0,role=server,id=0,socket={socket},socket-abstract=no")
        }
        (Medium::Memif, VethEnd::Ask) => {
            format!("net_memif0,role=client,id=0,socket={socket},socket-abstract=no")
        }
        (Medium::VirtioUser, VethEnd::Serve) => format!("net_vhost0,iface={socket},queues=1"),
        (Medium::VirtioUser, VethEnd::Ask) => format!("net_virtio_user0,path={socket},queues=1"),
        (Medium::AfPacket, VethEnd::Serve) => "net_af_packet0,iface=spl-serve0".to_owned(),
        (Medium::AfXdp, VethEnd::Serve) => "net_af_xdp0,iface=spl-serve0".to_owned(),
        _ => return None,
    })
}

/// What the names of DPDK's files begin with.
fn prefix(end: &str) -> String {
    format!("splinter-bench-{}-{end}", std::process::id())
}

/// Where DPDK keeps its files: with those of the run.
fn runtime(folder: &Folder) -> Vec<(String, String)> {
    let path = folder.join("").display().to_string();
    ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].map(|name| (name.to_owned(), path.clone())).to_vec()
}

/// What the client has to know.
fn client_settings(
    way: TransportWay,
    settings: &TransportsSettings,
    server: &OurServer,
    run: usize,
    dpdk: Option<(String, Ipv4Addr)>,
) -> ClientSettings {
    let &TransportsSettings { workload, keys, key_bytes, value_bytes, records, sandbox, .. } = settings;
    ClientSettings {
        workload,
        sandbox,
        durability: settings.pair.durability,
        address: server.address(),
        admin_secret: server.admin_secret_file(),
        transport: if way.medium == Medium::Shm { TransportOption::Shm } else { TransportOption::Udp },
        dpdk,
        single: !way.is_packed,
        data: DataSettings { records, ..DataSettings::plain(keys, key_bytes, value_bytes) },
        seconds: settings.pair.seconds,
        outstanding: settings.outstanding.clone(),
        seed: settings.pair.seed + run as u64,
        cpu: settings.pair.cpu,
    }
}

/// Which end of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VethEnd {
    /// Where clients are.
    Ask,
    /// Where the server is.
    Serve,
}

/// The namespaces.
struct Veth {
    prefix: String,
    _keeper: Keeper,
}

impl Veth {
    /// Makes them: with the server's address at the kernel's end of the pair, or left to DPDK.
    fn up(folder: &Folder, for_kernel: bool) -> Result<Self, String> {
        let prefix = format!("splinter-bench-{}", std::process::id());
        let script = folder.join("dpdk_veth");
        fs::write(&script, SCRIPT).map_err(|error| format!("no script: {error}"))?;
        let keeper = Keeper::start(CLEAR, &[&prefix])?;
        // From here on they are taken away.
        let veth = Self { prefix, _keeper: keeper };
        veth.make(&script, for_kernel)?;
        Ok(veth)
    }

    fn make(&self, script: &Path, for_kernel: bool) -> Result<(), String> {
        let mut command = Command::new("bash");
        command.arg(script).arg("up").args(for_kernel.then_some("kernel"));
        let made = command.env("SPLINTER_VETH", &self.prefix).stdin(Stdio::null()).output();
        let made = made.map_err(|error| format!("no bash: {error}"))?;
        if made.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&made.stderr);
        let why = text.lines().next().unwrap_or("it does not say why");
        Err(format!("no network namespaces may be made here (root may): {why}"))
    }

    /// Words before a program that is to run at an end.
    fn within(&self, end: VethEnd) -> Vec<String> {
        let end = if end == VethEnd::Ask { "ask" } else { "serve" };
        ["ip", "netns", "exec", &format!("{}-{end}", self.prefix)].map(String::from).to_vec()
    }
}
