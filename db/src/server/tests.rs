//! A whole server inside this process: real control threads over TCP, workers over a loopback network that
//! loses, doubles and reorders frames from a seed.

mod client;
mod damage;
mod exactly_once;
mod isolation;
mod restart;
mod streams;

use std::net::SocketAddr;
use std::path::Path;

use builder::BuildError;
use net::{Faults, Listener, LoopbackClock, LoopbackNetwork, LoopbackPort, Port};
use wire::{AdminRequest, Body, OpenRequest, TableId, TenantCreated};

use super::administrator;
use super::boot::Server;
use crate::config::Config;
use client::{Client, ControlStream};

/// A server over a loopback network, with its data in a directory of the test's.
struct Site {
    server: Server,
    network: LoopbackNetwork,
    /// Where each core takes frames.
    cores: Vec<SocketAddr>,
    administrator: String,
}

impl Site {
    fn start(directory: &Path, seed: u64, cores: usize) -> Self {
        let network = LoopbackNetwork::new(seed, Faults::default(), LoopbackClock::Real);
        let ports: Vec<LoopbackPort> = (0..cores).map(|_| network.port().expect("a port")).collect();
        let addresses = ports.iter().map(LoopbackPort::local).collect();
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a listener");
        let config = Config {
            cores,
            memory_bytes: 64 << 20,
            segment_bytes: 4 << 20,
            huge_pages: false,
            ..Config::new(directory.to_owned())
        };
        let no_toolchain = || Err(BuildError::ToolchainMissing { why: "this test needs none".to_owned() });
        let server =
            Server::start_over(&config, listener, ports, Box::new(no_toolchain)).expect("a server");
        let secret = std::fs::read_to_string(directory.join(administrator::FILE_NAME)).expect("the secret");
        Self { server, network, cores: addresses, administrator: secret.trim().to_owned() }
    }

    fn administrator(&self) -> ControlStream {
        let request = OpenRequest::Admin { secret: &self.administrator };
        ControlStream::open(self.server.tcp(), &request).expect("the right secret").0
    }

    fn create_tenant(&self, name: &str) -> String {
        let answer = self.administrator().ask(&AdminRequest::TenantCreate { name }).expect("a fresh name");
        TenantCreated::decode(&answer).expect("a secret").secret
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

impl Client {
    fn create_table(&mut self, name: &str) -> u32 {
        let answer = self.control.ask(&AdminRequest::TableCreate { name }).expect("a fresh name");
        TableId::decode(&answer).expect("an id").id
    }
}
