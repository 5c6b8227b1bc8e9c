//! Two network namespaces, client in one and server in the other, which go when the run goes, however it ends.
//!
//! `scripts/dpdk_veth` makes them, which this program carries along; a keeper takes them away.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::keeper::Keeper;
use crate::process::Folder;

/// What makes them.
const SCRIPT: &str = include_str!("../../../scripts/dpdk_veth");
/// The server's address in its namespace.
pub const SERVER: &str = "10.9.0.1:7700";
/// Ends what runs in them and takes them away. `$1` begins the namespaces' names.
const CLEAR: &str = "for end in ask serve; do ip netns pids $1-$end 2>/dev/null | xargs -r kill -9; \
                      ip netns del $1-$end 2>/dev/null; done";

/// Which end of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VethEnd {
    /// Where clients are.
    Ask,
    /// Where the server is.
    Serve,
}

/// The namespaces.
pub struct Veth {
    prefix: String,
    _keeper: Keeper,
}

impl Veth {
    /// Makes them: with the server's address at the kernel's end of the pair, or left to DPDK.
    ///
    /// # Errors
    /// What the system says; only root may.
    pub fn up(folder: &Folder, for_kernel: bool) -> Result<Self, String> {
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
    pub fn within(&self, end: VethEnd) -> Vec<String> {
        let end = if end == VethEnd::Ask { "ask" } else { "serve" };
        ["ip", "netns", "exec", &format!("{}-{end}", self.prefix)].map(String::from).to_vec()
    }
}
