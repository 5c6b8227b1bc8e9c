//! A real cluster: an etcd process and some servers that share it, on free ports.

use crate::etcd::Etcd;
use crate::patience::comes;
use crate::server::{Server, Settings};

/// Servers of one cluster.
#[derive(Debug)]
pub struct Cluster {
    /// End before their etcd does.
    pub servers: Vec<Server>,
    /// What they share.
    pub etcd: Etcd,
}

impl Cluster {
    /// Starts so many servers with these settings.
    pub fn start(servers: usize, settings: &Settings) -> Self {
        let etcd = Etcd::start();
        let settings = Settings { metadata: etcd.metadata(), ..settings.clone() };
        Self { servers: (0..servers).map(|_| Server::start_with(settings.clone())).collect(), etcd }
    }

    /// The number of each server in the cluster.
    pub fn numbers(&self) -> Vec<u32> {
        comes("every server is registered", || {
            let entries = self.servers[0].admin().server_list().ok()?;
            let number = |server: &Server| {
                let address = server.address().to_string();
                entries.iter().find(|entry| entry.tcp == address).map(|entry| entry.id)
            };
            self.servers.iter().map(number).collect()
        })
    }
}
