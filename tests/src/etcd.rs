//! An etcd of a test's own, in a fresh directory on free ports: killed with the test that has it.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::raw::PATIENCE;
use crate::stopping;

/// See the file's head.
#[derive(Debug)]
pub struct Etcd {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl Etcd {
    /// Starts one, and waits until it answers.
    pub fn start() -> Self {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let directory = tempfile::tempdir().expect("a directory");
            let listeners = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).expect("a port"));
            let [port, peers] = listeners.map(|it| it.local_addr().expect("its address").port());
            let (clients, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
            let mut command = Command::new("etcd");
            command.arg("--data-dir").arg(directory.path().join("etcd"));
            command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
            command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
            command.args(["--initial-cluster", &format!("default={peers}"), "--log-level", "error"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().expect("etcd is installed: scripts/setup does that");
            let mut etcd = Self { child, port, _directory: directory };
            while etcd.child.try_wait().expect("our child").is_none() {
                if etcd.is_healthy().unwrap_or(false) {
                    return etcd;
                }
                assert!(Instant::now() < deadline, "etcd does not start");
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Whether it has a leader and takes what it is asked: its port is open long before.
    fn is_healthy(&self) -> io::Result<bool> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer.contains(r#""health":"true""#))
    }

    /// Where the metadata of a cluster in it is, as servers take it.
    pub fn metadata(&self) -> String {
        format!("etcd://127.0.0.1:{}/test", self.port)
    }

    /// The port that its clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets it stand still, connections and all, or go on.
    pub fn pause(&self, pauses: bool) {
        stopping::pause(&self.child, pauses);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
