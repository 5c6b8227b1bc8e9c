//! An etcd of a test's own: started with ports that are free, in a fresh directory, killed with the test.

#[path = "stopping.rs"]
mod stopping;

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use db::config::EtcdAddress;
use db::etcd::Etcd;
use tempfile::TempDir;

/// How often ports are tried, and how often a fresh etcd is asked whether it is there.
const TRIES: usize = 100;

pub struct EtcdProcess {
    child: Child,
    directory: TempDir,
    member: Member,
}

/// A member of an etcd.
#[derive(Clone)]
pub struct Member {
    pub name: String,
    /// Of clients, and of other members.
    pub ports: [u16; 2],
    /// All members, as etcd wants them named.
    pub all: String,
}

impl EtcdProcess {
    pub fn start() -> Self {
        for _ in 0..TRIES {
            let ports = free_ports();
            let all = format!("one=http://127.0.0.1:{}", ports[1]);
            let mut process = Self::begin(Member { name: "one".to_owned(), ports, all });
            if process.comes_up() {
                return process;
            }
        }
        panic!("etcd does not start");
    }

    /// Starts a member and waits for nothing.
    pub fn begin(member: Member) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let child = spawn(&directory, &member);
        Self { child, directory, member }
    }

    /// How a server finds it.
    pub fn address(&self) -> EtcdAddress {
        address_of(vec![format!("127.0.0.1:{}", self.member.ports[0])])
    }

    pub fn client(&self) -> Etcd {
        Etcd::open(&self.address()).expect("etcd answers")
    }

    /// Kills it where it stands.
    pub fn kill(&mut self) {
        self.child.kill().expect("ours to kill");
        self.child.wait().expect("ours to wait for");
    }

    /// Starts it again over what is on its disk.
    pub fn restart(&mut self) {
        for _ in 0..TRIES {
            self.child = spawn(&self.directory, &self.member);
            if self.comes_up() {
                return;
            }
        }
        panic!("etcd does not start again");
    }

    /// Lets it stand still, connections and all: when this returns none of its threads runs any more.
    pub fn pause(&self) {
        stopping::pause(&self.child, true);
    }

    pub fn resume(&self) {
        stopping::pause(&self.child, false);
    }

    /// Whether it answers; false when it has ended, for example because a port was taken meanwhile.
    pub fn comes_up(&mut self) -> bool {
        loop {
            // A client that finds nobody listening comes again after a while; one that finds somebody is answered at once
            // when etcd is ready.
            if self.listens() && Etcd::open(&self.address()).is_ok() {
                return true;
            }
            if self.child.try_wait().expect("ours to wait for").is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn listens(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.member.ports[0])).is_ok()
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a server finds an etcd at one of these places.
pub fn address_of(members: Vec<String>) -> EtcdAddress {
    EtcdAddress { members, cluster: "test".to_owned() }
}

pub fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("its address").port())
}

fn spawn(directory: &TempDir, Member { name, ports: [clients, peers], all }: &Member) -> Child {
    let (clients, peers) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(directory.path().join("etcd"));
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--name", name, "--initial-cluster", all, "--log-level", "error"]);
    // One that is alone elects itself as soon as this is over; several need the time on a machine that others use.
    let [heartbeat, election] = if all.contains(',') { ["50", "500"] } else { ["10", "100"] };
    command.args(["--heartbeat-interval", heartbeat, "--election-timeout", election]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec only a system call is made. Whatever ends the thread of the test ends etcd too.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command.spawn().expect("etcd is installed: scripts/setup does that")
}
