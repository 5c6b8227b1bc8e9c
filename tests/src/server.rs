//! A real `splinter-server` process on free ports, with a data directory of its own.
//!
//! The binaries are built once per test process, with the profile of the tests. A server that a test
//! forgets, or whose test panics, is killed; every wait ends after [`PATIENCE`]. What the server logs is
//! kept beside its data and shown when it does not come up.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use client::{
    Admin, Client, ClientConfig, Durability, LimitChange, ServerState, Status, TableOptions, server_state,
};
use tempfile::TempDir;

use crate::compiled_sdk;
use crate::elsewhere::{self, Elsewhere};
use crate::patience::{answered, comes};
use crate::raw::PATIENCE;
use crate::stopping;

/// What a server says when another one has its ports, or the queue of its device over AF_XDP.
const IN_USE: [&str; 2] = ["Address already in use", "Failed to create xsk socket"];

/// What a server logs, in its data directory: a file that it does not use itself.
const LOG: &str = "server.log";

/// Lines of its log that a test which fails shows.
const LOG_LINES: usize = 60;

/// A server and its data directory.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    directory: TempDir,
    /// How the next start is made.
    pub settings: Settings,
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Worker threads.
    pub cores: usize,
    /// Memory of the store, as the command line takes it.
    pub memory: String,
    /// Size of a segment, as the command line takes it.
    pub segment: String,
    /// Where its metadata is, as the command line takes it.
    pub metadata: String,
    /// What clients may come by, as the command line takes it; UDP alone unless a test or the environment says otherwise.
    pub transport: String,
    /// A command that the server is started through, such as `prlimit --fsize=...`; empty for none.
    pub wrapper: Vec<String>,
    /// Further arguments of the server.
    pub arguments: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let [memory, segment, metadata] = ["256MiB", "8MiB", "file"].map(String::from);
        let transport = elsewhere::offered();
        let (wrapper, arguments) = (Vec::new(), Vec::new());
        Self { cores: 1, memory, segment, metadata, transport, wrapper, arguments }
    }
}

/// A tenant and the way to it.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Name.
    pub name: String,
    /// Secret.
    pub secret: String,
}

impl Server {
    /// Starts a server of one core.
    pub fn start() -> Self {
        Self::start_with(Settings::default())
    }

    /// Starts a server.
    pub fn start_with(settings: Settings) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self::start_in(directory, settings).expect("the server starts")
    }

    /// Starts a server over a data directory; says why if it does not come up. A port that somebody else has taken since
    /// it was found to be free is nobody's fault: then others are tried.
    pub fn start_in(directory: TempDir, settings: Settings) -> io::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match spawn(directory.path(), &settings, free_address(settings.cores)?) {
                Err(error) if is_in_use(&error) && Instant::now() < deadline => {
                    // What is said of the next attempt is of that one alone.
                    let _ = fs::remove_file(directory.path().join(LOG));
                }
                Err(error) => return Err(error),
                Ok((child, address)) => return Ok(Self { child, address, directory, settings }),
            }
        }
    }

    /// Where its streams are accepted.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its data directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The address of its metrics port.
    ///
    /// # Panics
    /// If it has none.
    pub fn metrics(&self) -> SocketAddr {
        let ready = fs::read_to_string(self.directory().join("ready")).expect("a ready line");
        let address = ready.split_whitespace().find_map(|word| word.strip_prefix("metrics="));
        address.and_then(|address| address.parse().ok()).expect("the port is in the ready line")
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default()
    }

    /// The administrator's secret.
    pub fn admin_secret(&self) -> String {
        let text = fs::read_to_string(self.directory.path().join("admin.secret"));
        text.expect("the secret was made at the first start").trim().to_string()
    }

    /// A connection of the administrator.
    pub fn admin(&self) -> Admin {
        Admin::connect(&self.address.to_string(), &self.admin_secret(), patient())
            .expect("the admin is let in")
    }

    /// Creates a tenant.
    pub fn tenant(&self, name: &str) -> Tenant {
        let mut is_again = false;
        let secret = answered("the tenant is created", || {
            let mut admin = self.admin();
            match admin.tenant_create(name) {
                // What etcd did not answer in time may have been made.
                Err(error) if is_again && error.status() == Some(Status::AlreadyExists) => {
                    admin.tenant_rotate(name)
                }
                made => {
                    is_again = true;
                    made
                }
            }
        });
        if let Some(form) = elsewhere::sandbox() {
            self.set_sandbox(name, form);
        }
        Tenant { name: name.into(), secret }
    }

    /// Sets the form in which a tenant's invocations run: 0 for machine code, 1 for modules.
    pub fn set_sandbox(&self, tenant: &str, form: u64) {
        let change = LimitChange { limit: elsewhere::SANDBOX, value: Some(form) };
        answered("the operator chooses", || self.admin().tenant_limits_set(tenant, &[change]));
    }

    /// A client of a tenant.
    pub fn client(&self, tenant: &Tenant) -> Client {
        let address = self.address.to_string();
        answered("the tenant is let in", || {
            Client::connect_with(&address, &tenant.name, &tenant.secret, patient())
        })
    }

    /// The `splinter` command as a tenant gives it, without the settings of who runs the tests.
    pub fn command(&self, tenant: &Tenant) -> Command {
        let mut command = Command::new(binary("splinter"));
        command.env_clear().env("HOME", self.directory()).env("SPLINTER_ADDRESS", self.address.to_string());
        command.env("SPLINTER_TENANT", &tenant.name).env("SPLINTER_SECRET", &tenant.secret);
        command
    }

    /// A fresh tenant `name` with a table `data`: its client and the table's id.
    pub fn tenant_with_table(&self, name: &str) -> (Client, u32) {
        let mut client = self.client(&self.tenant(name));
        let table = client.table_create("data").expect("the table is created");
        (client, table)
    }

    /// As [`tenant_with_table`](Self::tenant_with_table), but nothing of the table goes to the disk.
    pub fn tenant_with_table_in_memory(&self, name: &str) -> (Client, u32) {
        let mut client = self.client(&self.tenant(name));
        let table = create_in_memory(&mut client, "data");
        (client, table)
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks the server to end, and waits for it.
    pub fn stop(&mut self) -> ExitStatus {
        let done = Command::new("kill").arg(self.child.id().to_string()).status();
        assert!(done.is_ok_and(|status| status.success()), "the server is there to be stopped");
        self.wait()
    }

    /// Lets the server stand still, connections and all, or go on.
    pub fn pause(&self, pauses: bool) {
        stopping::pause(&self.child, pauses);
    }

    /// Ends the server as a power cut would.
    pub fn kill(&mut self) {
        self.child.kill().expect("the server is there to be killed");
        self.wait();
    }

    /// Starts the server again over the same data directory, at the same address. One that was started through a
    /// wrapper may have its ports for a moment longer than that lives.
    pub fn restart(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.try_restart() {
                Err(error) if is_in_use(&error) && Instant::now() < deadline => {}
                started => return started.expect("the server starts again"),
            }
        }
    }

    /// Starts the server again; says why if it does not come up.
    pub fn try_restart(&mut self) -> io::Result<()> {
        (self.child, self.address) = spawn(self.directory.path(), &self.settings, self.address)?;
        Ok(())
    }

    /// Waits until it has replayed all of its log; it serves before that.
    pub fn await_replay(&self) {
        comes("the log is replayed", || self.state().ok().filter(has_replayed).map(drop));
    }

    /// Whether the server serves and has not replayed all of its log.
    pub fn is_replaying(&self) -> bool {
        !has_replayed(&self.state().expect("it serves"))
    }

    fn state(&self) -> Result<ServerState, client::Error> {
        server_state(&self.address.to_string(), &ClientConfig::default())
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the server is our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end\n{}", self.log());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (log, ended) = (self.log(), self.child.try_wait());
            let lines: Vec<_> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            println!("the server (ended: {ended:?}) logged last:\n{last}");
        }
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address whose port is free for TCP, and for the UDP ports of as many cores from there on. Chosen here
/// and not by the server, so that a server keeps its ports when it is started again.
fn free_address(cores: usize) -> io::Result<SocketAddr> {
    for _ in 0..100 {
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let address = tcp.local_addr()?;
        let ports = (0..cores as u16).map(|core| address.port().checked_add(core));
        let mut sockets = ports.map(|port| port.map(|port| UdpSocket::bind((address.ip(), port))));
        if sockets.all(|socket| matches!(socket, Some(Ok(_)))) {
            return Ok(Elsewhere::given().map_or(address, |elsewhere| elsewhere.at(address)));
        }
    }
    Err(io::Error::other("no free ports"))
}

fn spawn(directory: &Path, settings: &Settings, listen: SocketAddr) -> io::Result<(Child, SocketAddr)> {
    let ready = directory.join("ready");
    let _ = fs::remove_file(&ready);
    let log = File::options().create(true).append(true).open(directory.join(LOG))?;
    let server = binary("splinter-server");
    compiled_sdk::give(directory, &server)?;
    let elsewhere = Elsewhere::given();
    let wrapper =
        elsewhere.map_or_else(|| settings.wrapper.clone(), |there| there.wrapper(&settings.wrapper));
    let mut command = match wrapper.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(&server);
            command
        }
        None => Command::new(&server),
    };
    command
        .args(["--listen", &listen.to_string(), "--memory", &settings.memory, "--segment", &settings.segment])
        .args(["--cores", &settings.cores.to_string(), "--log", "info", "--metadata", &settings.metadata])
        .args(["--transport", &settings.transport, "--data"])
        .arg(directory)
        .arg("--ready-file")
        .arg(&ready)
        .args(&settings.arguments)
        .args(elsewhere.map_or_else(Vec::new, |there| there.arguments(listen)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let mut child = command.spawn()?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(address) = ready_address(&ready) {
            return Ok((child, address));
        }
        let ended = child.try_wait()?;
        if ended.is_some() || Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            let log = fs::read_to_string(directory.join(LOG)).unwrap_or_default();
            return Err(io::Error::other(format!("the server did not come up ({ended:?})\n{log}")));
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Whether a server did not come up for what another one had, which it gives back at its end or, the kernel with it, soon after.
fn is_in_use(error: &io::Error) -> bool {
    let text = error.to_string();
    IN_USE.iter().any(|said| text.contains(said))
}

/// The address in the ready line `ready tcp=ADDRESS udp=...`.
fn ready_address(path: &Path) -> Option<SocketAddr> {
    let line = fs::read_to_string(path).ok()?;
    line.split_whitespace().find_map(|word| word.strip_prefix("tcp="))?.parse().ok()
}

/// Settings of a client that gives up after [`PATIENCE`] at the earliest, so that a loaded machine passes.
pub fn patient() -> ClientConfig {
    ClientConfig {
        transport: elsewhere::wanted(),
        call_timeout: PATIENCE,
        connect_timeout: PATIENCE,
        admin_timeout: PATIENCE,
        install_timeout: 10 * PATIENCE,
        ..ClientConfig::default()
    }
}

/// The path of one of our programs, which are built at the first call.
pub fn binary(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build).join(name)
}

fn build() -> PathBuf {
    // Tests lie in <target>/<profile>/deps, programs one above.
    let test = std::env::current_exe().expect("a test is a file");
    let folder = test.ancestors().nth(2).expect("a test lies in <target>/<profile>/deps").to_path_buf();
    let target = folder.parent().expect("a profile lies in a target directory");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root");
    let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    cargo.current_dir(root).args([
        "build",
        "--quiet",
        "--bins",
        "-p",
        "splinter-server",
        "-p",
        "splinter",
        "-p",
        "splinter-bench",
    ]);
    cargo.arg("--target-dir").arg(target);
    if cfg!(feature = "dpdk") {
        cargo.args(["--features", "splinter-server/dpdk"]);
    }
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.stdin(Stdio::null()).output().expect("cargo runs");
    assert!(built.status.success(), "cargo cannot build:\n{}", String::from_utf8_lossy(&built.stderr));
    folder
}

/// Creates a table of which nothing goes to the disk; returns its id.
pub fn create_in_memory(client: &mut Client, name: &str) -> u32 {
    let options = TableOptions { durability: Some(Durability::Memory), ..TableOptions::default() };
    client.table_create_with(name, options).expect("the table is created")
}

/// What a metrics port answers to a request of this path, in one piece; `None` while nobody listens there.
pub fn fetch(metrics: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(metrics).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn has_replayed(state: &ServerState) -> bool {
    state.replayed_bytes == state.log_bytes
}
