//! etcd as a bench starts it, for servers in a cluster.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::process::{Folder, Process, free_address};

/// Starts it on a free port of this address, and returns its process and where clients find it; its data goes to the folder.
///
/// # Errors
/// When there is no such program, or it does not come up.
pub fn start(program: &str, host: &str, folder: &Folder) -> Result<(Process, SocketAddr), String> {
    let (clients, peers) = (free_address(host)?, free_address(host)?);
    let mut command = Command::new(program);
    command.args(["--name", "bench", "--log-level", "error", "--data-dir"]).arg(folder.join("etcd"));
    for (option, address) in [
        ("--listen-client-urls", clients),
        ("--advertise-client-urls", clients),
        ("--listen-peer-urls", peers),
        ("--initial-advertise-peer-urls", peers),
    ] {
        command.arg(option).arg(format!("http://{address}"));
    }
    command.arg("--initial-cluster").arg(format!("bench=http://{peers}")).stderr(Stdio::null());
    let process = Process::listening("etcd", command, clients)?;
    let missing = || format!("there is no {program}: scripts/setup installs etcd-server");
    Ok((process.ok_or_else(missing)?, clients))
}
