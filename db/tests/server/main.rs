//! A whole server inside this process: real control threads over TCP, workers over a loopback network that
//! loses, doubles and reorders frames from a seed, a disk that may fill up.

mod audit;
mod client;
mod cluster;
mod cut_off;
mod damage;
mod disk;
#[path = "../support/etcd_process.rs"]
mod etcd_process;
mod exactly_once;
mod exposition;
mod extensions;
mod grants;
mod homes;
mod installing;
mod isolation;
mod limits;
mod logs;
mod migration;
#[path = "../support/patience.rs"]
mod patience;
mod places;
#[path = "../support/proxy.rs"]
mod proxy;
mod rates;
mod restart;
mod resume;
mod sandbox;
#[path = "../support/seed.rs"]
mod seed;
#[path = "../../../cluster/src/metadata/tests/small_disk.rs"]
mod small_disk;
mod stealing;
mod streams;
mod tables;
mod traces;
mod versions;
mod views;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;

use ::cluster::metadata::Metadata;
use builder::{BuildError, Toolchain};
use control::{AdminRequest, LimitChange, Statistic, TenantCreated};
use db::boot::administrator;
use db::boot::{Devices, Server};
use db::config::{Config, StreamLimits};
use db::extension::registry::Prepare;
use net::{Faults, Listener, LoopbackClock, LoopbackNetwork, LoopbackPort, Port};
use wire::OpenRequest;

use client::{Client, ControlStream};
use seed::seed;

/// A server over a loopback network, with its data in a directory of the test's.
struct Site {
    server: Server,
    network: LoopbackNetwork,
    /// Where each core takes frames.
    cores: Vec<SocketAddr>,
    administrator: String,
}

impl Site {
    /// A server that cannot compile: most tests need no extension.
    fn start(directory: &Path, seed: u64, cores: usize) -> Self {
        Self::start_with(directory, seed, cores, file(directory), no_toolchain())
    }

    /// A server that compiles.
    fn start_compiling(directory: &Path, seed: u64, metadata: Metadata) -> Self {
        Self::start_with(directory, seed, 1, metadata, Box::new(|| Ok(toolchain())))
    }

    /// A server with so few streams.
    fn start_crowded(directory: &Path, streams: StreamLimits) -> Self {
        let config = Config { streams, ..config(directory, 1) };
        Self::start_config(&config, 1, file(directory), no_toolchain())
    }

    fn start_with(directory: &Path, seed: u64, cores: usize, metadata: Metadata, prepare: Prepare) -> Self {
        Self::start_config(&config(directory, cores), seed, metadata, prepare)
    }

    fn start_config(config: &Config, seed: u64, metadata: Metadata, prepare: Prepare) -> Self {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a listener");
        Self::start_at(listener, config, seed, metadata, prepare)
    }

    fn start_at(
        listener: Listener,
        config: &Config,
        seed: u64,
        metadata: Metadata,
        prepare: Prepare,
    ) -> Self {
        let network = LoopbackNetwork::new(seed, Faults::default(), LoopbackClock::Real);
        let ports: Vec<LoopbackPort> = (0..config.cores).map(|_| network.port().expect("a port")).collect();
        let addresses = ports.iter().map(LoopbackPort::local).collect();
        let devices = Devices { listener, ports, metadata, prepare, shm_entrance: None };
        let server = Server::start_over(config, devices).expect("a server");
        let secret = std::fs::read_to_string(config.data_directory.join(administrator::FILE_NAME));
        let secret = secret.expect("the secret");
        Self { server, network, cores: addresses, administrator: secret.trim().to_owned() }
    }

    fn administrator(&self) -> ControlStream {
        let request = OpenRequest::Admin { secret: &self.administrator };
        ControlStream::open(self.server.tcp(), &request).expect("the right secret").0
    }

    fn create_tenant(&self, name: &str) -> String {
        let answer = self.administrator().ask(&AdminRequest::TenantCreate { name }).expect("a fresh name");
        control::decode::<TenantCreated>(&answer).expect("a secret").secret
    }

    /// Sets a limit of a tenant; without a value it is the default again.
    fn limit(&self, tenant: &str, limit: &str, value: Option<u64>) {
        let changes = vec![LimitChange { limit, value }];
        let request = AdminRequest::TenantLimitsSet { name: tenant, changes, force: false };
        self.administrator().ask(&request).expect("a tenant");
    }

    /// A counter of all workers.
    fn counter(&self, name: &str) -> u64 {
        let answer = self.administrator().ask(&AdminRequest::Statistics { tenant: None });
        let statistics = control::decode::<Vec<Statistic>>(&answer.expect("statistics")).expect("statistics");
        statistics.iter().find(|statistic| statistic.name == name).expect("a counter of this name").value
    }

    fn client(&self, tenant: &str, secret: &str) -> Client {
        Client::open(self, tenant, secret).expect("the right secret")
    }

    /// A client of a fresh tenant with one table.
    fn tenant_with_table(&self, tenant: &str) -> (Client, u32) {
        let secret = self.create_tenant(tenant);
        let mut client = self.client(tenant, &secret);
        let table = client.create_table("t");
        (client, table)
    }

    /// Two sessions of a fresh tenant with one table: one to work with, one whose sequences a test makes up.
    fn two_clients(&self, tenant: &str) -> (Client, Client, u32) {
        let secret = self.create_tenant(tenant);
        let mut client = self.client(tenant, &secret);
        let table = client.create_table("t");
        let other = self.client(tenant, &secret);
        (client, other, table)
    }
}

/// For a server that compiles nothing.
fn no_toolchain() -> Prepare {
    Box::new(|| Err(BuildError::ToolchainMissing { why: "this test needs none".to_owned() }))
}

/// Of a small server.
fn config(directory: &Path, cores: usize) -> Config {
    Config {
        cores,
        memory_bytes: 64 << 20,
        segment_bytes: 4 << 20,
        huge_pages: false,
        metrics: Some(([127, 0, 0, 1], 0).into()),
        ..Config::new(directory.to_owned())
    }
}

/// One toolchain for all tests: preparing it compiles the SDK. The check of sources runs in the server's own
/// program.
fn toolchain() -> Toolchain {
    static SHARED: OnceLock<Toolchain> = OnceLock::new();
    let prepare = || {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toolchain");
        let checker = Path::new(env!("CARGO_BIN_EXE_splinter-server"));
        Toolchain::prepare_with_checker(&cache, checker).expect("a toolchain")
    };
    SHARED.get_or_init(prepare).clone()
}

/// The metadata in a file of the directory.
fn file(directory: &Path) -> Metadata {
    Metadata::open(&directory.join("metadata.redb")).expect("metadata")
}

/// What a bad day on the network does to frames.
const BAD_NETWORK: Faults = Faults {
    drop_ppm: 100_000,
    duplicate_ppm: 150_000,
    reorder_ppm: 200_000,
    delay_us_min: 0,
    delay_us_max: 4_000,
};
