//! etcd, two servers, and a tenant with a table that begins at the first of them.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use clap::ValueEnum;
use client::MigrationMode;
use serde::Serialize;

use super::TimelineRun;
use crate::etcd;
use crate::fleet;
use crate::operator::move_hashes;
use crate::options::{Access, admin};
use crate::process::{Folder, LOOPBACK, Process};
use crate::server::{Launch, OurServer};

/// Memory of a server for each object beyond key and value: header, index, and the room of a log at two thirds.
const OBJECT_OVERHEAD_BYTES: u64 = 120;
/// Who has the table.
const TENANT: &str = "bench";
/// Its name.
const TABLE: &str = "records";

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
        let (etcd, client_address) = etcd::start(&settings.own.etcd, LOOPBACK, &folder)?;
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
        let table = format!("{TENANT}/{TABLE}");
        // A thread of its own asks, so that the load goes on.
        let watched = move || {
            move_hashes(&mut admin(address, &secret)?, &table, 1 << 63..=u64::MAX, (target, way.mode()))
        };
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
    let number = server.number()?;
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
