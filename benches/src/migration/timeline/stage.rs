//! etcd, two servers, and a tenant with a table that begins at the first of them.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use client::{Admin, MigrationMode, MigrationPhase, Status};
use serde::Serialize;

use super::TimelineRun;
use crate::fleet;
use crate::options::{Access, admin};
use crate::process::{Folder, Process, free_address};
use crate::server::{Launch, OurServer};

/// Memory of a server for each object beyond key and value: header, index, and the room of a log at two thirds.
const OBJECT_OVERHEAD_BYTES: u64 = 120;
/// Who has the table.
const TENANT: &str = "bench";
/// Its name.
const TABLE: &str = "records";
/// Between two looks at a migration.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Ways to move a tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MoveWay {
    /// The target owns the tablet at once and pulls; requested objects come first.
    Rocksteady,
    /// As rocksteady, but clients read both servers for objects in transit.
    Cooperative,
    /// The source sends everything while serving, then what was written meanwhile; the last part of that is
    /// unavailable.
    PreCopy,
    /// The range is unavailable until everything has moved.
    StopAndCopy,
}

impl MoveWay {
    fn mode(self) -> MigrationMode {
        match self {
            Self::Rocksteady => MigrationMode::Rocksteady,
            Self::Cooperative => MigrationMode::Cooperative,
            Self::PreCopy => MigrationMode::PreCopy,
            Self::StopAndCopy => MigrationMode::StopAndCopy,
        }
    }
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// From the source to the target.
    There,
    /// And back.
    Back,
}

/// A server.
struct StageServer {
    server: OurServer,
    /// In the cluster.
    number: u32,
}

/// What runs; the servers end first, then etcd, then their files.
pub(super) struct Stage {
    servers: [StageServer; 2],
    _etcd: Process,
    _folder: Folder,
    access: Access,
    table: u32,
}

impl Stage {
    /// Starts etcd and both servers, and makes the tenant.
    pub(super) fn start(settings: &TimelineRun) -> Result<Self, String> {
        let folder = Folder::make("migration")?;
        let (etcd, client_address) = start_etcd(&settings.own.etcd, &folder)?;
        let metadata = format!("etcd://{client_address}/bench");
        let source = start_server(settings, &folder, &metadata, ("source", settings.own.source_cpu))?;
        // The first server alone is there when the table is made, so it gets it whole.
        let access = source.server.tenant(TENANT, TABLE)?;
        let table = fleet::table(&access)?;
        let target = start_server(settings, &folder, &metadata, ("target", settings.own.target_cpu))?;
        Ok(Self { servers: [source, target], _etcd: etcd, _folder: folder, access, table })
    }

    /// The table's number.
    pub(super) fn table(&self) -> u32 {
        self.table
    }

    /// Begins to move the upper half of the table.
    pub(super) fn begin(&self, way: MoveWay, direction: Move) -> Moving {
        let [source, target] = &self.servers;
        let target = match direction {
            Move::There => target.number,
            Move::Back => source.number,
        };
        let (told, over) = channel();
        let (address, secret) = (source.server.address(), source.server.admin_secret_file());
        let watched = move || watch(admin(address, &secret)?, way, target);
        // Who does not wait for it any more does not hear of it.
        thread::spawn(move || drop(told.send(watched())));
        Moving { over }
    }

    /// Bytes that reads at a second server have cost so far, with what servers told of progress.
    pub(super) fn second_read_bytes(&self) -> Result<u64, String> {
        let mut bytes = 0;
        for server in &self.servers {
            let statistics = server.server.admin()?.statistics();
            let statistics = statistics.map_err(|error| format!("no statistics: {error}"))?;
            let names = ["migration_second_read_bytes", "migration_progress_bytes"];
            bytes +=
                statistics.iter().filter(|it| names.contains(&&*it.name)).map(|it| it.value).sum::<u64>();
        }
        Ok(bytes)
    }

    /// How to open sessions.
    pub(super) fn access(&self) -> &Access {
        &self.access
    }
}

fn start_etcd(program: &str, folder: &Folder) -> Result<(Process, SocketAddr), String> {
    let (clients, peers) = (free_address()?, free_address()?);
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

fn start_server(
    settings: &TimelineRun,
    folder: &Folder,
    metadata: &str,
    (name, cpu): (&'static str, Option<usize>),
) -> Result<StageServer, String> {
    let object_bytes = (settings.key_bytes + settings.own.value_bytes) as u64 + OBJECT_OVERHEAD_BYTES;
    let memory_mib = ((settings.objects() * object_bytes) >> 20).max(256);
    let launch = Launch {
        // The whole server, so that its migration's thread shares the core too.
        cpu,
        arguments: ["--metadata", metadata].map(String::from).to_vec(),
        ..Launch::new(name, settings.own.server.as_deref(), memory_mib)
    };
    let mut server = OurServer::start(folder, &launch)?;
    let mut admin = server.admin()?;
    let number = server.process().wait_for(|| {
        let servers = admin.server_list().ok()?;
        servers.iter().find(|server| server.is_asked).map(|server| server.id)
    })?;
    Ok(StageServer { server, number })
}

/// A migration under way.
pub(super) struct Moving {
    over: Receiver<Result<(), String>>,
}

impl Moving {
    /// Whether it is over.
    pub(super) fn is_over(&self) -> Result<bool, String> {
        match self.over.try_recv() {
            Ok(done) => done.map(|()| true),
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => Err("who watches the migration is gone".into()),
        }
    }

    /// Waits until it is.
    pub(super) fn wait(self) -> Result<(), String> {
        self.over.recv().map_err(|_| "who watches the migration is gone".to_string())?
    }
}

/// Moves the upper half of the table and looks until it is over. A thread of its own asks, so that the load goes on.
fn watch(mut admin: Admin, way: MoveWay, target: u32) -> Result<(), String> {
    let failed = |error: client::Error| format!("the migration failed: {error}");
    let table = format!("{TENANT}/{TABLE}");
    let half = 1 << 63..=u64::MAX;
    let begun = loop {
        match admin.migration_begin(&table, half.clone(), target, way.mode()) {
            // The one before is not cleared away yet.
            Err(client::Error::Refused { status: Status::WrongTablets, .. }) => thread::sleep(LOOK_EVERY),
            begun => break begun.map_err(failed)?,
        }
    };
    loop {
        let list = admin.migration_list().map_err(failed)?;
        match list.iter().find(|entry| entry.id == begun.id).map(|entry| entry.phase) {
            None | Some(MigrationPhase::Finished) => break,
            Some(MigrationPhase::Ended) => return Err("the migration was undone".into()),
            Some(_) => thread::sleep(LOOK_EVERY),
        }
    }
    let tablets = admin.tablet_list().map_err(failed)?;
    let upper = tablets.iter().find(|tablet| tablet.table == table && tablet.last == u64::MAX);
    match upper.map(|tablet| tablet.server) {
        Some(server) if server == target => Ok(()),
        other => Err(format!("the migration is over, and the half is at {other:?}, not at {target}")),
    }
}
