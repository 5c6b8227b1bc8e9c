//! A real cluster: an etcd process and some servers that share it, on free ports.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::raw::PATIENCE;
use crate::server::{Server, Settings};

/// How often ports are tried.
const TRIES: usize = 100;

/// An etcd, killed when it is dropped.
#[derive(Debug)]
pub struct Etcd {
    child: Child,
    _directory: TempDir,
    ports: [u16; 2],
}

impl Etcd {
    /// Starts one that answers.
    pub fn start() -> Self {
        for _ in 0..TRIES {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let ports = free_ports();
            let mut etcd = Self { child: spawn(&directory, ports), _directory: directory, ports };
            if etcd.comes_up() {
                return etcd;
            }
        }
        panic!("etcd does not start");
    }

    /// Where servers find it.
    pub fn metadata(&self) -> String {
        format!("etcd://127.0.0.1:{}/test", self.ports[0])
    }

    /// Whether it answers; false when it has ended, for example because a port was taken meanwhile.
    fn comes_up(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.is_healthy().unwrap_or(false) {
                return true;
            }
            let ended = self.child.try_wait().expect("etcd is our child");
            if ended.is_some() || Instant::now() > deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_healthy(&self) -> std::io::Result<bool> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.ports[0]))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer.contains("\"true\""))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
        let listed = || self.servers[0].admin().server_list().expect("the servers are listed");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let entries = listed();
            let number = |server: &Server| {
                let address = server.address().to_string();
                entries.iter().find(|entry| entry.tcp == address).map(|entry| entry.id)
            };
            let numbers: Option<Vec<u32>> = self.servers.iter().map(number).collect();
            if let Some(numbers) = numbers {
                return numbers;
            }
            assert!(Instant::now() < deadline, "the servers register");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("its address").port())
}

fn spawn(directory: &TempDir, [clients, peers]: [u16; 2]) -> Child {
    let (clients, peers) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
    let all = format!("one={peers}");
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(directory.path().join("etcd"));
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--name", "one", "--initial-cluster", &all, "--log-level", "error"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("etcd is installed: scripts/setup")
}
