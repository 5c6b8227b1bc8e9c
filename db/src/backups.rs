//! The thread that finds backups for this server's log, and tells the metadata which of them count.
//!
//! ```text
//!   registered servers ──► a stream to each backup ──► what it has of the log ──► Joined ──► the log's thread
//!   records of the log's thread ──► metadata ──► Recorded ──► the log's thread
//!   who counts, and does not come ──► Lost ──► the log's thread
//! ```
//! From then on the log's thread has the stream; when it drops it, the backup is asked again.

pub mod holder;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::metadata::{MetadataError, ReplicasRow, ServerRun};
use cluster::moment::Moment;
use cluster::peer::Purpose;
use cluster::records::LeaseId;
use cluster::replication::message::{FromBackup, HeldItem, ToBackup};
use cluster::replication::{Backup, BackupId, ReplicasRecord};
use net::{Duplex, Stream};

use crate::control_plane::Control;
use crate::control_plane::migrations::Migrations;
use crate::durability::log_thread::LogWaker;
use crate::durability::replicas::sender::{LinkEnded, ReplicaEvent, ReplicaLink};
use crate::limits::{
    BACKUP_QUEUED_BYTES_MAX, BACKUPS_LOOK_MS, BACKUPS_PATIENCE_MS, BACKUPS_STEP_MS, CONTROL_STACK_BYTES,
    RECORD_TIMEOUT_MS, REPLICAS_HELD_BYTES_MAX, REPLICAS_HELD_MS,
};
use crate::peer::{self, PeerError};

/// The other end of what the log's thread knows of its backups.
pub struct LogBackups {
    /// The record as the start found it.
    pub row: ReplicasRow,
    /// Takes what happens to backups.
    pub events: Sender<ReplicaEvent>,
    /// Gives records that the metadata is to have.
    pub records: Receiver<ReplicasRecord>,
}

/// Starts the thread, which ends when the server stops.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(
    control: &Arc<Control>,
    stopping: &Arc<AtomicBool>,
    log: LogBackups,
) -> io::Result<JoinHandle<()>> {
    let (control, stopping) = (Arc::clone(control), Arc::clone(stopping));
    thread::Builder::new().name("backups".to_owned()).spawn(move || {
        let Some(waker) = control.log.as_ref().map(|log| log.waker.clone()) else { return };
        let record = log.row.record();
        control.ownership_guard.set_backups(servers_of(&record));
        let (links, opening, gone) = Default::default();
        let (lease, opened) = ((None, Instant::now()), channel());
        let mut finding = Finding { control, log, waker, record, links, opening, opened, gone, lease };
        let mut looked: Option<Instant> = None;
        while !stopping.load(Ordering::Relaxed) {
            if !finding.step() {
                return finding.control.ownership_guard.is_replaced.store(true, Ordering::Relaxed);
            }
            if looked.is_none_or(|at| at.elapsed() >= Duration::from_millis(BACKUPS_LOOK_MS)) {
                looked = Some(Instant::now());
                match finding.look() {
                    Ok(true) => {}
                    Ok(false) => {
                        return finding.control.ownership_guard.is_replaced.store(true, Ordering::Relaxed);
                    }
                    Err(error) => tracing::debug!(%error, "cannot look for backups"),
                }
            }
        }
    })
}

/// Lets this server forget replicas of logs that nobody needs any more.
pub fn tidy(control: &Control) {
    let Some(backup) = &control.host.backup else { return };
    match control.metadata.needed_logs() {
        Ok(needed) => backup.keep(needed),
        Err(error) => tracing::debug!(%error, "cannot look which replicas are needed"),
    }
}

/// The end of an attempt to open a stream to a server on this host.
type Attempt = (ServerRun, String, Result<Opened, NotOpened>);

/// The reason why there is no stream to a backup.
enum NotOpened {
    /// Its machine says that nobody listens.
    Refused,
    Other,
}

/// What a backup has of the log, and the stream to it.
struct Opened {
    file: u64,
    speed: u32,
    held: Vec<HeldItem>,
    stream: Duplex,
}

/// A stream to a backup, while the log's thread has it.
struct PeerLink {
    stream: Duplex,
    _open: Arc<()>,
}

impl ReplicaLink for PeerLink {
    fn send(&mut self, message: &[u8]) -> Result<(), LinkEnded> {
        let head = (message.len() as u32).to_le_bytes();
        if message.len() <= BACKUP_QUEUED_BYTES_MAX {
            self.stream.queue(&head, message);
            return Ok(());
        }
        self.stream.send(&head, message).map_err(|_| LinkEnded)
    }

    fn flush(&mut self) -> Result<(), LinkEnded> {
        self.stream.flush().map_err(|_| LinkEnded)
    }

    fn receive(&mut self) -> Result<Option<FromBackup>, LinkEnded> {
        self.stream.flush().map_err(|_| LinkEnded)?;
        let record = self.stream.receive().map_err(|_| LinkEnded)?;
        record.map(FromBackup::decode).transpose().map_err(|_| LinkEnded)
    }

    fn socket(&self) -> Option<&Duplex> {
        Some(&self.stream)
    }
}

/// The state of the thread.
struct Finding {
    control: Arc<Control>,
    log: LogBackups,
    waker: LogWaker,
    /// As the metadata has it.
    record: ReplicasRecord,
    /// Servers of which the log's thread has a stream.
    links: BTreeMap<u32, Weak<()>>,
    opening: BTreeSet<u32>,
    opened: (Sender<Attempt>, Receiver<Attempt>),
    /// Backups that count and of which it was said that they are lost.
    gone: BTreeSet<BackupId>,
    /// The lease of this server at the last look, and since when it is that.
    lease: (Option<LeaseId>, Instant),
}

impl Finding {
    fn tell(&self, event: ReplicaEvent) {
        // The log's thread may have ended: then nothing is acknowledged any more.
        let _ = self.log.events.send(event);
        self.waker.wake();
    }

    /// Waits for a record of the log's thread, not for long, and stores it; takes in streams that were opened. Returns false if
    /// the record is no longer this start's.
    fn step(&mut self) -> bool {
        while let Ok((run, host, opened)) = self.opened.1.try_recv() {
            self.opening.remove(&run.server);
            match opened {
                Ok(opened) => self.joined(run.server, host, opened),
                Err(NotOpened::Refused) => self.note_ended(run),
                Err(NotOpened::Other) => {}
            }
        }
        match self.log.records.recv_timeout(Duration::from_millis(BACKUPS_STEP_MS)) {
            Ok(record) => self.store(&record),
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(Duration::from_millis(BACKUPS_STEP_MS));
                true
            }
        }
    }

    /// Stores a record, however long that takes: until the answer, either may be in force.
    fn store(&mut self, record: &ReplicasRecord) -> bool {
        let ReplicasRow { server, start, .. } = self.log.row;
        // From then on others may recover what this server owns.
        while record.replicas > 0 && !self.control.guard_ownership() {
            if self.is_stopping() {
                return true;
            }
            thread::sleep(Duration::from_millis(BACKUPS_STEP_MS));
        }
        self.control.ownership_guard.set_backups(&servers_of(&self.record) | &servers_of(record));
        loop {
            match self.control.metadata.replicas_record(server, start, record) {
                Ok(Some(record)) => {
                    self.gone.retain(|id| record.backups.contains(id));
                    self.record = record;
                    self.control.ownership_guard.set_backups(servers_of(&self.record));
                    self.tell(ReplicaEvent::Recorded(self.record.clone()));
                    return true;
                }
                Ok(None) => return false,
                Err(error) if self.is_stopping() => {
                    tracing::debug!(%error, "the replicas of the log are not recorded");
                    return true;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot record the replicas of the log; durable writes wait");
                    thread::sleep(Duration::from_millis(BACKUPS_LOOK_MS));
                }
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.control.migrations.as_ref().is_none_or(Migrations::is_stopping)
    }

    fn joined(&mut self, server: u32, host: String, opened: Opened) {
        let id = BackupId { server, file: opened.file };
        // One that lost its file is another one.
        let earlier: Vec<BackupId> = self
            .record
            .backups
            .iter()
            .filter(|other| other.server == server && **other != id)
            .copied()
            .collect();
        earlier.into_iter().for_each(|id| self.lose(id));
        self.gone.remove(&id);
        let open = Arc::new(());
        self.links.insert(server, Arc::downgrade(&open));
        let link = Box::new(PeerLink { stream: opened.stream, _open: open });
        let backup = Backup { id, host, speed: opened.speed };
        self.tell(ReplicaEvent::Joined { backup, held: opened.held, link });
    }

    /// Tells the metadata that a server's process has ended, unless that does not answer.
    fn note_ended(&self, run: ServerRun) {
        tracing::warn!(server = run.server, "a server has ended: its machine refuses connections to it");
        if let Err(error) = self.control.metadata.member_ended(run) {
            tracing::debug!(%error, "cannot record that a server has ended");
        }
    }

    fn lose(&mut self, id: BackupId) {
        if self.gone.insert(id) {
            tracing::warn!(server = id.server, "a backup of this server's log does not come");
            self.tell(ReplicaEvent::Lost(id));
        }
    }

    /// Opens streams to backups that are registered, and gives up those that count and are not. Returns false if others have
    /// begun to recover the log before this server was registered: no backup takes anything of it any more.
    fn look(&mut self) -> Result<bool, MetadataError> {
        let servers = self.control.metadata.servers()?;
        let own = self.log.row.server;
        if self.control.metadata.recovery(own)?.is_some() {
            return Ok(false);
        }
        for row in &servers {
            let Some(host) = row.backup_host.as_ref().filter(|host| **host != self.control.host.name) else {
                continue;
            };
            if row.id != own && !self.is_linked(row.id) && self.opening.insert(row.id) {
                let run = ServerRun { server: row.id, start: row.start };
                self.open((run, row.tcp), host.clone());
            }
        }
        // At a start, and after an outage of the metadata, others register a little later.
        let lease = self.control.lease_cache.lease(Moment::now());
        if self.lease.0 != lease {
            self.lease = (lease, Instant::now());
        }
        let is_patient = self.lease.1.elapsed() < Duration::from_millis(BACKUPS_PATIENCE_MS);
        let is_away =
            |id: &&BackupId| lease.is_some() && !is_patient && servers.iter().all(|row| row.id != id.server);
        let away: Vec<BackupId> = self.record.backups.iter().filter(is_away).copied().collect();
        away.into_iter().for_each(|id| self.lose(id));
        Ok(true)
    }

    /// Returns whether the log's thread has a stream to a server.
    fn is_linked(&self, server: u32) -> bool {
        self.links.get(&server).is_some_and(|open| open.strong_count() > 0)
    }

    /// Opens a stream to a backup on a thread of its own.
    fn open(&self, (run, address): (ServerRun, SocketAddr), host: String) {
        let (control, post) = (Arc::clone(&self.control), self.opened.0.clone());
        let ReplicasRow { log, start, .. } = self.log.row;
        let opening = thread::Builder::new().name(format!("opening-{}", run.server));
        let (started_host, failed) = (host.clone(), self.opened.0.clone());
        let started = opening.stack_size(CONTROL_STACK_BYTES).spawn(move || {
            let opened = open(&control, (run.server, address), (log, start));
            // The thread may have ended with the server.
            let _ = post.send((run, started_host, opened));
        });
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start a thread to open a stream to a backup");
            let _ = failed.send((run, host, Err(NotOpened::Other)));
        }
    }
}

fn servers_of(record: &ReplicasRecord) -> BTreeSet<u32> {
    record.backups.iter().map(|id| id.server).collect()
}

/// Opens a stream to a backup, and asks what it has.
fn open(control: &Control, to: (u32, SocketAddr), (log, start): (u64, u64)) -> Result<Opened, NotOpened> {
    let migrations = control.migrations.as_ref().ok_or(NotOpened::Other)?;
    let opened = peer::open(migrations.secret(), migrations.own(), to, Purpose::Replicas);
    let stream = opened.map_err(|error| {
        tracing::debug!(server = to.0, %error, "cannot open a stream to a backup");
        match error {
            PeerError::Unreachable(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                NotOpened::Refused
            }
            _ => NotOpened::Other,
        }
    })?;
    ask(stream, (log, start)).ok_or(NotOpened::Other)
}

fn ask(mut stream: Stream, (log, start): (u64, u64)) -> Option<Opened> {
    let begin = ToBackup::Begin { log, start }.encode();
    stream.write_record(&(begin.len() as u32).to_le_bytes(), &begin).ok()?;
    let mut record = Vec::new();
    stream.read_record(&mut record, Duration::from_millis(REPLICAS_HELD_MS), REPLICAS_HELD_BYTES_MAX).ok()?;
    let Ok(FromBackup::Held { file, speed, items: held }) = FromBackup::decode(&record) else { return None };
    let stream =
        Duplex::over(stream, Duration::from_millis(RECORD_TIMEOUT_MS), REPLICAS_HELD_BYTES_MAX).ok()?;
    Some(Opened { file, speed, held, stream })
}
