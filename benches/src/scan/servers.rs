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
use crate::options::{Access, TransportOption, secret};
use crate::process::{Folder, Process, address_in, beside_this, free_address};

/// Puts outstanding while loading.
const OUTSTANDING: usize = 128;
/// Memory of our server for each record beyond key and value: object, index, tree, and the room of a log at 50 %.
const RECORD_OVERHEAD_BYTES: u64 = 150;

/// Our server.
pub(super) struct Ours {
    process: Process,
    folder: Folder,
    address: SocketAddr,
}

impl Ours {
    /// Starts it on free ports, with memory for the data.
    pub(super) fn start(settings: &ScanSettings, data: Dataset) -> Result<Self, String> {
        let program = match &settings.server {
            Some(program) => program.clone(),
            None => beside_this("splinter-server")?,
        };
        let folder = Folder::make("scan")?;
        let (data_folder, ready) = (folder.join("data"), folder.join("ready"));
        let object_bytes = (data.key_bytes() + data.value_bytes()) as u64 + RECORD_OVERHEAD_BYTES;
        let memory_mib = ((2 * data.keys() * object_bytes) >> 20).max(256);
        let mut command = Command::new(&program);
        command.args(["--listen", "127.0.0.1:0", "--cores", "1", "--log", "warn"]);
        command.arg("--memory").arg(format!("{memory_mib}MiB"));
        command.arg("--data").arg(&data_folder).arg("--ready-file").arg(&ready);
        let process = Process::start("our server", command)?;
        let mut process = process.ok_or_else(|| format!("there is no {}", program.display()))?;
        let address = process.wait_for(|| address_in(&ready))?;
        Ok(Self { process, folder, address })
    }

    /// Its threads, to see how long they run.
    pub(super) fn threads(&self) -> Option<ServerThreads> {
        ServerThreads::of(self.process.id())
    }

    /// Makes a tenant with an ordered table and loads the data; how to open sessions, and the table.
    pub(super) fn load(&self, mut data: Dataset) -> Result<(Access, u32), String> {
        let path = self.folder.join("data/admin.secret");
        let admin_secret = secret(&format!("@{}", path.display()))?;
        let (name, address) = ("bench", self.address.to_string());
        let failed = |what: &str, error: client::Error| format!("{what}: {error}");
        let secret = Admin::connect(&address, &admin_secret, ClientConfig::default())
            .and_then(|mut admin| admin.tenant_create(name))
            .map_err(|error| failed("no tenant", error))?;
        let table = Client::connect(&address, name, &secret)
            .and_then(|mut client| client.table_create_ordered("records"))
            .map_err(|error| failed("no ordered table", error))?;
        let (tenant, table_name) = (name.to_string(), "records".to_string());
        let access = Access {
            address: self.address,
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
