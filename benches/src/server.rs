//! Our server as a bench starts it: a process with a folder for its data, on ports that are free, and how to get in.
//!
//! It ends with the bench, however that ends ([`crate::process`]). Called by what compares servers or ways to one:
//! [`crate::scan`], [`crate::migration`], [`crate::transports`].

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use client::Admin;

use crate::options::{Access, admin};
use crate::process::{Folder, Process, address_in, beside_this, command_within, last_words};

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// What it is called in messages; its files begin with it.
    pub name: &'static str,
    /// The program; the one beside this one if nothing is said.
    pub program: Option<&'a Path>,
    /// Words before the program, such as those of `ip netns exec`.
    pub within: Vec<String>,
    /// The core of all its threads; those of this thread if nothing is said.
    pub cpu: Option<usize>,
    /// Where it listens.
    pub listen: &'a str,
    /// Memory of the store.
    pub memory_mib: u64,
    /// What it is told besides.
    pub arguments: Vec<String>,
    /// Its environment beside that of this process.
    pub environment: Vec<(String, String)>,
    /// Whether its log goes to a file of the folder, not to standard error.
    pub keeps_log: bool,
}

impl<'a> Launch<'a> {
    /// A server on a free port of loopback.
    pub fn new(name: &'static str, program: Option<&'a Path>, memory_mib: u64) -> Self {
        Self {
            name,
            program,
            within: Vec::new(),
            cpu: None,
            listen: "127.0.0.1:0",
            memory_mib,
            arguments: Vec::new(),
            environment: Vec::new(),
            keeps_log: false,
        }
    }

    fn command(&self) -> Result<Command, String> {
        let program = match self.program {
            Some(program) => program.to_path_buf(),
            None => beside_this("splinter-server")?,
        };
        let mut words = self.within.clone();
        if let Some(cpu) = self.cpu {
            // All of its threads, so that they do not get in the way of the load.
            words.extend(["taskset", "-c", &cpu.to_string()].map(String::from));
        }
        let mut command = command_within(&words, &program);
        command.args(["--listen", self.listen, "--cores", "1", "--log", "warn"]);
        command.arg("--memory").arg(format!("{}MiB", self.memory_mib)).args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// A server that runs.
pub struct OurServer {
    process: Process,
    address: SocketAddr,
    data: PathBuf,
    log: PathBuf,
}

impl OurServer {
    /// Starts it, and waits until it is ready.
    ///
    /// # Errors
    /// When there is no such program, or it does not come up; with the last words of its log, if that is kept.
    pub fn start(folder: &Folder, launch: &Launch<'_>) -> Result<Self, String> {
        let file = |ending: &str| folder.join(&format!("{}.{ending}", launch.name));
        let (data, ready, log) = (folder.join(launch.name), file("ready"), file("log"));
        let mut command = launch.command()?;
        command.arg("--data").arg(&data).arg("--ready-file").arg(&ready);
        if launch.keeps_log {
            let kept = File::create(&log).map_err(|error| format!("no log of {}: {error}", launch.name))?;
            command.stderr(kept);
        }
        let process = Process::start(launch.name, command)?;
        let mut process = process.ok_or_else(|| format!("cannot start {}: no such program", launch.name))?;
        folder.outlives(&process)?;
        let address = process.wait_for(|| address_in(&ready));
        let address = address.map_err(|error| match last_words(&log) {
            Some(words) => format!("{error}: {words}"),
            None => error,
        })?;
        Ok(Self { process, address, data, log })
    }

    /// Where its streams are accepted.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The administrator's secret, as `@FILE`.
    pub fn admin_secret_file(&self) -> String {
        format!("@{}", self.data.join("admin.secret").display())
    }

    /// A connection of the administrator.
    pub fn admin(&self) -> Result<Admin, String> {
        admin(self.address, &self.admin_secret_file())
    }

    /// Its number in the cluster, once it has one.
    pub fn number(&mut self) -> Result<u32, String> {
        let mut admin = self.admin()?;
        self.process.wait_for(|| {
            let servers = admin.server_list().ok()?;
            servers.iter().find(|server| server.is_asked).map(|server| server.id)
        })
    }

    /// Makes a tenant; returns how to open its sessions, with a table of this name.
    pub fn tenant(&self, tenant: &str, table: &str) -> Result<Access, String> {
        let secret = self.admin()?.tenant_create(tenant).map_err(|error| format!("no tenant: {error}"))?;
        Ok(Access::new(self.address, tenant, secret, table))
    }

    /// How it ended and what its log said last, if it has ended.
    pub fn has_ended(&mut self) -> Option<String> {
        let status = self.process.ended()?;
        let words = last_words(&self.log).map_or(String::new(), |words| format!(": {words}"));
        Some(format!("the server ended: {status}{words}"))
    }
}
