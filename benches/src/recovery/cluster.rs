//! etcd and the servers, each as if on a machine of its own; the table `lost` is at the victim alone, `kept` at a survivor.

use std::process::Command;

use client::{Client, ClientConfig, MigrationMode, Transport};

use super::namespace::{self, Namespace};
use super::{Death, RecoverySettings};
use crate::etcd;
use crate::fleet::{self, Fleet};
use crate::loading;
use crate::machine;
use crate::operator::move_hashes;
use crate::options::{Access, DataSettings, DurabilityOption};
use crate::process::{Folder, LOOPBACK, Process};
use crate::server::{Launch, OurServer};
use crate::workload::Workload;

/// Their names; the last one that is started is the victim.
const NAMES: [&str; 8] = ["one", "two", "three", "four", "five", "six", "seven", "eight"];
/// Most servers.
pub(super) const SERVERS_MAX: usize = NAMES.len();
/// Who has the tables.
const TENANT: &str = "bench";
/// Objects of the table `kept`.
pub(super) const KEPT_OBJECTS: u64 = 100_000;
/// Memory beside what objects take: log heads, reserve, indexes.
const ROOM_MIB: u64 = 256;

/// What runs; the servers end first, then etcd, then their files.
pub(super) struct RecoveryCluster {
    survivors: Vec<OurServer>,
    victim: OurServer,
    victim_number: u32,
    _etcd: Process,
    namespace: Option<Namespace>,
    _folder: Folder,
    /// How to open sessions with `kept`, and with `lost`, at a survivor.
    pub(super) kept: Access,
    lost: Access,
}

impl RecoveryCluster {
    /// Starts all, and loads both tables.
    pub(super) fn start(settings: &RecoverySettings, death: Death) -> Result<Self, String> {
        let folder = Folder::make("recovery")?;
        let namespace = (death == Death::Drop).then(Namespace::make).transpose()?;
        let host = if namespace.is_some() { namespace::OTHERS } else { LOOPBACK };
        let (etcd, address) = etcd::start(&settings.etcd, host, &folder)?;
        let metadata = format!("etcd://{address}/bench");
        let listen = format!("{host}:0");
        let start = |name| start_server(settings, &folder, (name, &metadata), (Vec::new(), &listen));
        let first = start(NAMES[0])?;
        // The first server alone is there when the tables are made, so it gets them whole.
        let kept = Access { durability: DurabilityOption::Synced, ..first.tenant(TENANT, "kept")? };
        let lost = Access { table: "lost".into(), ..kept.clone() };
        [&kept, &lost].into_iter().try_for_each(|access| fleet::table(access).map(drop))?;
        let others = NAMES[1..settings.survivors].iter().map(|name| start(name));
        let others = others.collect::<Result<Vec<_>, _>>()?;
        let (within, own) = match &namespace {
            Some(namespace) => (namespace.within(), Namespace::listen()),
            None => (Vec::new(), listen.clone()),
        };
        let name = NAMES[settings.survivors];
        let mut victim = start_server(settings, &folder, (name, &metadata), (within, &own))?;
        let victim_number = victim.number()?;
        let survivors: Vec<OurServer> = [first].into_iter().chain(others).collect();
        let whole = 0..=u64::MAX;
        let to_victim = (victim_number, MigrationMode::PreCopy);
        move_hashes(&mut survivors[0].admin()?, &format!("{TENANT}/lost"), whole, to_victim)?;
        let mut cluster =
            Self { survivors, victim, victim_number, _etcd: etcd, namespace, _folder: folder, kept, lost };
        cluster.await_replicas(settings.replicas as u64)?;
        cluster.load(settings)?;
        Ok(cluster)
    }

    /// Waits until each log is at as many others as are wanted.
    fn await_replicas(&mut self, replicas: u64) -> Result<(), String> {
        for server in self.survivors.iter_mut().chain([&mut self.victim]) {
            let mut admin = server.admin()?;
            server.process().wait_for(|| {
                let statistics = admin.statistics().ok()?;
                let found = statistics.iter().find(|statistic| statistic.name == "log_replicas")?;
                (found.value == replicas).then_some(())
            })?;
        }
        Ok(())
    }

    fn load(&self, settings: &RecoverySettings) -> Result<(), String> {
        for (access, objects) in [(&self.kept, KEPT_OBJECTS), (&self.lost, settings.objects())] {
            let data = DataSettings::plain(objects, settings.key_bytes, settings.value_bytes);
            let table = fleet::table(access)?;
            loading::load(&mut Fleet::open(access, 1, false)?, table, Workload::Get, &data)?;
        }
        Ok(())
    }

    /// A client of `lost`, whose calls fail after `patience`, and the table's number.
    pub(super) fn client_of_lost(&self, config: ClientConfig) -> Result<(Client, u32), String> {
        let Access { address, tenant, table, .. } = &self.lost;
        // Shared memory would be there while all packets are lost.
        let config = ClientConfig { transport: Transport::Udp, ..config };
        let opened = Client::connect_with(&address.to_string(), tenant, &self.lost.secret()?, config);
        let mut client = opened.map_err(|error| self.lost.not_opened(&error))?;
        let table = client.table_open(table).map_err(|error| format!("no table {table}: {error}"))?;
        Ok((client, table))
    }

    /// Lets the victim die.
    pub(super) fn kill(&self, death: Death) -> Result<(), String> {
        let signal = match death {
            Death::Kill => "-KILL",
            Death::Stop => "-STOP",
            Death::Drop => return self.namespace.as_ref().map_or(Ok(()), Namespace::cut),
        };
        let killed = Command::new("kill").args([signal, &self.victim.id().to_string()]).status();
        match killed {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("cannot kill the victim: {other:?}")),
        }
    }

    /// A connection of the administrator with a survivor, and the victim's number.
    pub(super) fn admin(&self) -> Result<(client::Admin, u32), String> {
        Ok((self.survivors[0].admin()?, self.victim_number))
    }

    /// How long all survivors have run together, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.survivors.iter().filter_map(|server| machine::process_cpu_ns(server.id())).sum()
    }
}

fn start_server(
    settings: &RecoverySettings,
    folder: &Folder,
    (name, metadata): (&'static str, &str),
    (within, listen): (Vec<String>, &str),
) -> Result<OurServer, String> {
    // The victim has all of it; the log's cleaner finds room at two thirds.
    let memory_mib = settings.megabytes as u64 * 3 / 2 + ROOM_MIB;
    let (replicas, label) = (settings.replicas.to_string(), format!("machine-{name}"));
    let arguments = ["--metadata", metadata, "--replicas", &replicas, "--host-label", &label];
    let launch = Launch {
        arguments: arguments.map(String::from).to_vec(),
        within,
        listen,
        ..Launch::new(name, settings.server.as_deref(), memory_mib)
    };
    let mut server = OurServer::start(folder, &launch)?;
    server.number()?;
    Ok(server)
}
