//! The servers of a run: ours in a folder of its own, Redis if there is one. Both end with the run.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::{ScanSettings, shuffled};
use client::TableOptions;

use crate::dataset::Dataset;
use crate::fleet::Fleet;
use crate::loading::put_all;
use crate::machine::ServerThreads;
use crate::options::{Access, DurabilityOption};
use crate::process::{Folder, LOOPBACK, Process, free_address};
use crate::server::{Launch, OurServer};

/// Memory of our server for each record beyond key and value: object, index, tree, and the room of a log at 50 %.
const RECORD_OVERHEAD_BYTES: u64 = 150;

/// Starts our server on free ports, with memory for the data.
pub(super) fn start(folder: &Folder, settings: &ScanSettings, data: &Dataset) -> Result<OurServer, String> {
    let object_bytes = (data.key_bytes() + data.value_bytes()) as u64 + RECORD_OVERHEAD_BYTES;
    let memory_mib = ((2 * data.keys() * object_bytes) >> 20).max(256);
    OurServer::start(folder, &Launch::new("server", settings.pair.server.as_deref(), memory_mib))
}

/// Makes a tenant with an ordered table, and loads the data.
pub(super) fn load(
    server: &OurServer,
    durability: DurabilityOption,
    mut data: Dataset,
) -> Result<(Access, u32), String> {
    let access = server.tenant("bench", "records")?;
    let options = TableOptions { ordered: true, ..durability.table_options() };
    let made = access.connect()?.table_create_with(&access.table, options);
    let table = made.map_err(|error| format!("no ordered table: {error}"))?;
    let (mut fleet, keys) = (Fleet::open(&access, 1, false)?, data.keys());
    put_all(&mut fleet, table, "loading records", keys, |turn| vec![data.record(shuffled(turn, keys))])?;
    Ok((access, table))
}

/// A Redis of this run, or one that was there.
pub(super) struct Theirs {
    process: Option<Process>,
    address: SocketAddr,
}

impl Theirs {
    /// Starts `redis`, or takes the one at that address; `None` where there is no such program.
    pub(super) fn start(redis: &str) -> Result<Option<Self>, String> {
        if let Ok(address) = redis.parse() {
            return Ok(Some(Self { process: None, address }));
        }
        let address = free_address(LOOPBACK)?;
        let mut command = Command::new(redis);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]);
        command.arg(address.port().to_string());
        command.stderr(Stdio::null());
        let process = Process::listening("redis", command, address)?;
        if process.is_none() {
            eprintln!("there is no {redis} on this machine: ours is measured alone");
        }
        Ok(process.map(|process| Self { process: Some(process), address }))
    }

    /// Its threads, of one that was started here.
    pub(super) fn threads(&self) -> Option<ServerThreads> {
        self.process.as_ref().and_then(|process| ServerThreads::of(process.id()))
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}
