//! The logs of servers in the simulated cluster: the disks that outlive a server, the real writer with its sender, and what a
//! start makes of a log. The order of a start is that of `db/src/boot/log.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use cluster::metadata::{Catalog, Metadata, MetadataError, OwnLogExtent, ServerRun, TableRow, TabletsRow};
use cluster::moment::Moment;
use cluster::records::LeaseId;
use cluster::replication::{BackupId, Item, ReplicasRecord, Replication};
use control::Durability;
use db::boot::log::parts;
use db::control_plane::ownership_guard::OwnershipGuard;
use db::durability::log_reader::{FoundEnd, find_end};
use db::durability::log_writer::{LogWriter, Sent, Step};
use db::durability::recovery::{self, LogStart, ReplayProgress};
use db::durability::replicas::file::ReplicaFile;
use db::durability::replicas::promised::PromisesGiven;
use db::durability::replicas::receiver::ReplicaReceiver;
use db::durability::replicas::sender::{ReplicaEvent, ReplicaSender};
use db::durability::{LogLayout, NumberedTables};
use db::tablet::DurableParts;
use db::tenant::account::Accounts;
use disk::{Disk, SimulatedDisk};
use fastrand::Rng;
use store::{HashRange, Store};

use super::promising::Asking;
use super::recovering::Recovering;
use super::{Event, World};
use crate::memory_records::MemoryRecords;
use crate::node::{DURABLE_SEGMENT_BYTES, LoggedParts, TABLE, new_store};

/// Frames of a log and of a file of replicas: more than is ever written.
const FRAMES_MAX: u32 = 4_000;
/// Numbers of segments that a start passes over: more than the memory has frames.
const PASSED_OVER: u32 = 1_000;
/// Other servers that are to have a log.
pub const REPLICAS: usize = 2;

/// What outlives a server.
#[derive(Clone)]
pub struct Disks {
    pub log: SimulatedDisk,
    replicas: SimulatedDisk,
    /// The random number of the file of replicas.
    pub file: u64,
    parts: Arc<MemoryRecords>,
}

impl Disks {
    pub fn new(random: &mut Rng) -> Disks {
        let frame_bytes = LogLayout::frame_bytes_of(DURABLE_SEGMENT_BYTES);
        let disk = |random: &mut Rng| SimulatedDisk::new(random.u64(..), frame_bytes, FRAMES_MAX);
        Disks {
            log: disk(random),
            replicas: disk(random),
            file: random.u64(..),
            parts: Arc::new(MemoryRecords::new(Box::new(|| Moment::after_boot(Duration::ZERO)))),
        }
    }

    /// The disks as the next start finds them.
    pub fn restart(&mut self) {
        self.log = self.log.restart();
        self.replicas = self.replicas.restart();
    }

    /// Loses the log.
    pub fn discard_log(&mut self, random: &mut Rng) {
        self.log = SimulatedDisk::new(random.u64(..), self.log.frame_bytes(), FRAMES_MAX);
    }

    pub fn receiver(&self) -> ReplicaReceiver {
        let file = ReplicaFile::open(Box::new(self.replicas.clone()), FRAMES_MAX).expect("a sound disk");
        ReplicaReceiver::new(file, self.file, 100)
    }
}

/// What a server with a log has besides.
pub struct Durable {
    pub disks: Disks,
    /// While it runs.
    pub log: Option<Log>,
    pub backup: Option<ReplicaReceiver>,
    /// Whether a flush of the replicas is about to happen.
    pub is_flushing: bool,
    pub recoveries: BTreeMap<u32, Recovering>,
    /// What it has promised others, and asks them for.
    pub promised: PromisesGiven,
    pub asking: Asking,
}

/// The log of a run.
pub struct Log {
    pub writer: LogWriter,
    /// The log's number.
    pub number: u64,
    /// The number of this start of it.
    pub start: u64,
    pub events: Sender<ReplicaEvent>,
    records: Receiver<ReplicasRecord>,
    /// What the metadata is to have, and what it has.
    pub wanted: Option<ReplicasRecord>,
    pub record: ReplicasRecord,
    /// Streams to servers, by their numbers.
    pub streams: BTreeMap<u32, u64>,
    pub gone: BTreeSet<BackupId>,
    /// The lease of the server at the last look for backups, and since when it is that.
    pub lease: (Option<LeaseId>, u64),
    pub guard: OwnershipGuard,
    /// Migrations that wait for a cut.
    waits: Vec<(u64, u32)>,
}

impl Log {
    /// Whether what it shows is at enough backups, and nobody else serves it.
    pub fn has_settled(&self) -> bool {
        self.writer.has_settled() && self.guard.is_satisfied()
    }

    pub fn describe(&self) -> String {
        let is_written = (self.writer.has_settled(), self.writer.is_waiting());
        format!(
            "settled and waiting {is_written:?}, guarded {}, {:?}",
            self.guard.is_satisfied(),
            self.record
        )
    }

    /// A backup does not come any more.
    pub fn lose(&mut self, id: BackupId) {
        if self.gone.insert(id) {
            self.tell(ReplicaEvent::Lost(id));
        }
    }

    pub fn tell(&self, event: ReplicaEvent) {
        self.events.send(event).expect("the writer is there");
    }
}

/// What a start has opened.
pub struct Opened {
    pub store: Arc<Store>,
    pub accounts: Accounts,
    pub logged: LoggedParts,
    pub log: Log,
}

/// Why a start has opened nothing.
pub enum NotOpened {
    /// Others recover more of the log than it has: the server waits, and begins a new one.
    Behind,
    /// Others recover what it owns, or have received more of the log than the disk has.
    Waits,
    /// The records do not answer, or something has changed.
    Records,
}

impl From<MetadataError> for NotOpened {
    fn from(_: MetadataError) -> Self {
        Self::Records
    }
}

/// Whether others are to recover what a server owns before it begins a new log.
fn waits_for_recovery(metadata: &Metadata, server: u32) -> Result<bool, MetadataError> {
    let has_replicas = metadata.replicas()?.iter().any(|row| row.server == server && row.replicas > 0);
    let snapshot = metadata.snapshot()?;
    let owns = |row: &TabletsRow| snapshot.durable.contains(&row.table) && !row.owned_by(server).is_empty();
    Ok(has_replicas && snapshot.tablets.iter().any(owns))
}

impl Disks {
    /// Finds how much of the log counts, and counts the start.
    fn judge(
        &self,
        metadata: &Metadata,
        run: ServerRun,
        (wall_ms, received): (u64, Option<u64>),
    ) -> Result<LogStart, NotOpened> {
        let mut disk = self.log.clone();
        let layout = LogLayout::of(disk.frame_bytes(), FRAMES_MAX);
        let found = find_end(&mut disk, layout).expect("a sound disk");
        let end = found.as_ref().map(FoundEnd::end);
        let number = metadata.log_start(run.server, end.map_or(0, |end| end.start))?;
        let number = number.expect("the metadata is as new as the log");
        if end.is_some_and(|end| received.is_none_or(|received| received > end.whole_until())) {
            let waits = waits_for_recovery(metadata, run.server)?;
            return Err(if waits { NotOpened::Waits } else { NotOpened::Behind });
        }
        let up_to = match end.map(|end| metadata.owner_returns(run.server, end, wall_ms)).transpose()? {
            None | Some(OwnLogExtent::Whole) => None,
            Some(OwnLogExtent::UpTo(cut)) => Some(cut),
            Some(OwnLogExtent::Behind) => return Err(NotOpened::Behind),
        };
        if found.is_none() && waits_for_recovery(metadata, run.server)? {
            return Err(NotOpened::Waits);
        }
        let passed_over = PASSED_OVER;
        Ok(LogStart { layout, frames_max: FRAMES_MAX, number, passed_over, found, up_to })
    }

    /// Opens the log at a start, and rebuilds what it has.
    pub fn open(
        &self,
        [metadata, of_parts]: [Metadata; 2],
        run: ServerRun,
        ((durability, workers, wall_ms, now_us), received): ((Durability, usize, u64, u64), Option<u64>),
        random: &mut Rng,
    ) -> Result<Opened, NotOpened> {
        metadata.migrations_restarted(run)?;
        let own = Metadata::over(Box::new(Arc::clone(&self.parts))).expect("the own file");
        let parts = DurableParts::of(own).expect("the own file");
        let start = self.judge(&metadata, run, (wall_ms, received))?;
        let (number, is_new) = (start.number, start.found.is_none());
        if is_new {
            metadata.tablets_emptied(run.server, wall_ms, |_, _| false)?;
        }
        let catalog = metadata.catalog(None)?;
        let named = parts::named(&catalog, Some((&parts, run)))?;
        metadata.log_parts_are(run.server, &parts.rows())?;
        let (store, accounts) = (new_store(workers, true), Accounts::over(workers));
        store.advance_clock(now_us / 1000);
        let made = named.iter().map(|(number, part)| (*number, part.make(&store, &accounts, *number)));
        let tables = Arc::new(made.collect());
        let mut writer = self.rebuild(&store, start, &tables);
        let left = parts::take(&parts, named, &tables);
        parts::discard(&left, &store.core(0), &AtomicBool::new(false));
        if !is_new {
            let keeps = |table: u32, hashes: HashRange| keeps(&parts, &catalog, table, hashes);
            metadata.tablets_emptied(run.server, wall_ms, keeps)?;
        }
        let row = metadata.replicas_begin(run.server, number, is_new)?;
        let items = writer.sequences().map(Item::Segment).chain([Item::Digest]);
        let machine = Replication::new((host_of(run.server), REPLICAS), row.record(), items, random.u64(..));
        let ((events, to_log), (from_log, records)) = (channel(), channel());
        writer.send_to(ReplicaSender::new(machine, to_log, from_log, store.stable_cut()), REPLICAS);
        let versions = metadata.reserve_versions()?;
        let log = Log {
            writer,
            number: row.log,
            start: number,
            events,
            records,
            wanted: None,
            record: row.record(),
            streams: BTreeMap::new(),
            gone: BTreeSet::new(),
            lease: (None, now_us),
            guard: OwnershipGuard::new(row.replicas > 0),
            waits: Vec::new(),
        };
        let logged = LoggedParts { parts, metadata: of_parts, run, versions, durability };
        Ok(Opened { store, accounts, logged, log })
    }

    /// Rebuilds tables from what the log has.
    fn rebuild(&self, store: &Arc<Store>, start: LogStart, tables: &Arc<NumberedTables>) -> LogWriter {
        // No client comes back for a reply.
        store.keep_completions(|_| false);
        let (progress, stopping) = (ReplayProgress::default(), AtomicBool::new(false));
        let cores = (store.cores(), vec![store.core(0)]);
        let (disk, known) = (Box::new(self.log.clone()), (Arc::clone(tables), 0));
        let begun = recovery::begin(store, disk, start, cores, known, &progress);
        let (writer, rest) = begun.expect("a sound log");
        let ended = rest.end(vec![store.core(0)], &|_| (), (&progress, &stopping)).expect("a sound log");
        let recovered = ended.expect("nobody stops it").recovered;
        assert!(recovered.damaged.is_empty(), "nothing is damaged");
        writer
    }
}

/// Whether the log has all of these hashes.
fn keeps(parts: &DurableParts, catalog: &Catalog, table: u32, hashes: HashRange) -> bool {
    let is_on_disk = |row: &TableRow| row.id == table && row.durability().is_on_disk();
    table == TABLE
        && catalog.tables.iter().any(is_on_disk)
        && parts.keep_all(table, (hashes.first(), hashes.last()))
}

/// The machine of a server.
pub fn host_of(server: u32) -> String {
    format!("host {server}")
}

impl World {
    /// The log of a server that lives.
    pub fn log(&mut self, run: ServerRun) -> Option<&mut Log> {
        let is_alive = self.is_alive(run);
        let place = self.places.get_mut(&run.server).filter(|_| is_alive)?;
        place.durable.as_mut()?.log.as_mut()
    }

    /// The log's thread takes a step.
    pub fn step_log(&mut self, run: ServerRun, is_regular: bool) {
        let (is_ahead, needs_disk) = (self.random.u8(0..3) == 0, self.random.u8(0..4) == 0);
        let is_written = self.plan.durability == Durability::Written;
        let Some(log) = self.log(run) else { return };
        let mut is_due = true;
        if is_ahead || is_written {
            log.writer.tend_backups();
            let sent = log.writer.send_ahead();
            is_due = !is_written || needs_disk || sent == Sent::WithDisk;
        }
        let stepped = if is_due || log.writer.is_waiting() { log.writer.step() } else { Ok(Step::Waiting) };
        // Its machine has lost power.
        let Ok(step) = stepped else { return self.die(run) };
        if let Some(record) = log.records.try_iter().last() {
            log.wanted = Some(record);
        }
        let stable = log.writer.store().stable_cut();
        let due: Vec<u32> = log.waits.extract_if(.., |(cut, _)| *cut <= stable).map(|(_, id)| id).collect();
        self.tally.cuts += u64::from(step == Step::Written);
        self.send_to_backups(run);
        for id in due {
            self.done(run, id);
        }
        for worker in 0..self.plan.workers {
            let node = self.places[&run.server].node.as_ref();
            if node.is_some_and(|node| node.is_due(worker, self.now_us)) {
                self.round(run.server, worker, None);
            }
        }
        if is_regular {
            self.within(self.plan.step_us, Event::StepLog(run));
        }
    }

    /// A migration goes on when the disk has all that was written until now.
    pub fn await_disk(&mut self, run: ServerRun, id: u32) {
        let Some(log) = self.log(run) else { return };
        let cut = log.writer.store().unstable_cut();
        log.waits.push((cut, id));
    }
}
