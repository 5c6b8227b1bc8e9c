//! The servers of a run: ours in a folder of its own, Redis if there is one. Both end with the run.

use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

use client::{Admin, Client, ClientConfig, Condition, Request, Status};

use super::ScanSettings;
use super::requests::shuffled;
use crate::dataset::Dataset;
use crate::fleet::Fleet;
use crate::machine::ServerThreads;
use crate::options::{Access, TransportOption};
use crate::process::{Folder, Process, free_address};
use crate::server::{Launch, OurServer};

/// Puts outstanding while loading.
const OUTSTANDING: usize = 128;
/// Memory of our server for each record beyond key and value: object, index, tree, and the room of a log at 50 %.
const RECORD_OVERHEAD_BYTES: u64 = 150;

/// Our server.
pub(super) struct Ours {
    server: OurServer,
    _folder: Folder,
}

impl Ours {
    /// Starts it on free ports, with memory for the data.
    pub(super) fn start(settings: &ScanSettings, data: Dataset) -> Result<Self, String> {
        let object_bytes = (data.key_bytes() + data.value_bytes()) as u64 + RECORD_OVERHEAD_BYTES;
        let memory_mib = ((2 * data.keys() * object_bytes) >> 20).max(256);
        let folder = Folder::make("scan")?;
        let server =
            OurServer::start(&folder, &Launch::new("server", settings.server.as_deref(), memory_mib))?;
        Ok(Self { server, _folder: folder })
    }

    /// Its threads, to see how long they run.
    pub(super) fn threads(&self) -> Option<ServerThreads> {
        ServerThreads::of(self.server.id())
    }

    /// Makes a tenant with an ordered table and loads the data; how to open sessions, and the table.
    pub(super) fn load(&self, mut data: Dataset) -> Result<(Access, u32), String> {
        let admin_secret = self.server.admin_secret()?;
        let (name, address) = ("bench", self.server.address().to_string());
        let failed = |what: &str, error: client::Error| format!("{what}: {error}");
        let secret = Admin::connect(&address, &admin_secret, ClientConfig::default())
            .and_then(|mut admin| admin.tenant_create(name))
            .map_err(|error| failed("no tenant", error))?;
        let table = Client::connect(&address, name, &secret)
            .and_then(|mut client| client.table_create_ordered("records"))
            .map_err(|error| failed("no ordered table", error))?;
        let (tenant, table_name) = (name.to_string(), "records".to_string());
        let access = Access {
            address: self.server.address(),
            tenant,
            secret,
            table: table_name,
            cpu: None,
            transport: TransportOption::Udp,
        };
        let mut fleet = Fleet::open(&access, 1, false)?;
        let (mut under_way, mut refused) = (0, None);
        let began = Instant::now();
        for turn in 0..data.keys() {
            let (key, value) = data.object(shuffled(turn, data.keys()));
            let request = Request::Put { table, key, value, condition: Condition::Always };
            while under_way >= OUTSTANDING || !fleet.submit(0, &request, 0)? {
                take_answers(&mut fleet, &mut under_way, &mut refused)?;
            }
            under_way += 1;
        }
        while under_way > 0 {
            take_answers(&mut fleet, &mut under_way, &mut refused)?;
        }
        eprintln!("loaded {} objects in {:.1} s", data.keys(), began.elapsed().as_secs_f64());
        Ok((access, table))
    }
}

fn take_answers(
    fleet: &mut Fleet,
    under_way: &mut usize,
    refused: &mut Option<String>,
) -> Result<(), String> {
    fleet.poll(&mut |_, completion| {
        *under_way -= 1;
        if completion.status != Ok(Status::Ok) {
            refused.get_or_insert_with(|| format!("a put went wrong: {:?}", completion.status));
        }
    })?;
    refused.take().map_or(Ok(()), Err)
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
        let address = free_address()?;
        let mut command = Command::new(redis);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]);
        command.arg(address.port().to_string());
        command.stderr(Stdio::null());
        let Some(mut process) = Process::start("redis", command)? else {
            eprintln!("there is no {redis} on this machine: ours is measured alone");
            return Ok(None);
        };
        process.wait_for(|| TcpStream::connect(address).ok())?;
        Ok(Some(Self { process: Some(process), address }))
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
