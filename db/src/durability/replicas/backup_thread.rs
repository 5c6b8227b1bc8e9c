//! The thread that keeps replicas of other servers' logs.
//!
//! ```text
//!   stream threads ── streams ──► thread: receive from all ── flush ──► acknowledge to all
//! ```
//! One thread for all streams: what came of any of them while it flushed becomes stable with one write. Like the log's own
//! thread it waits in the kernel, at real-time priority where it gets that: other servers' writes wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::replication::message::{FromBackup, ToBackup};
use disk::DiskError;
use guest::cycles;
use net::{Duplex, Sleeper, Stream, StreamError, Waker};

use super::divided::DividedLog;
use super::file::{LogId, ReplicaError, ReplicaFile};
use super::promised::PromisesGiven;
use super::receiver::{HeldLog, ReplicaReceiver};
use crate::limits::{
    BACKUP_ANSWER_MS, BACKUP_IDLE_MS, BACKUP_ROUND_RECORDS, BACKUP_TURN_US, BACKUP_UNTAKEN_BYTES,
    RECORD_TIMEOUT_MS, REPLICA_RECORD_BYTES_MAX,
};
use crate::process::{self, RealTime};
use crate::sync::lock;

/// What comes to the thread.
enum Arrival {
    /// A stream of another server's log.
    Stream(u32, Stream),
    /// These logs alone are needed, of each server and number.
    Needed(BTreeSet<(u32, u64)>),
    /// Somebody recovers a log, of which this is the latest start.
    Recovery(LogId, u64, SyncSender<Result<HeldLog, DiskError>>),
    /// A server starts, and asks how much of its log was received.
    Start(LogId, SyncSender<u64>),
}

/// What others know of the thread.
#[derive(Clone, Debug)]
pub struct BackupHandle {
    arrivals: Sender<Arrival>,
    waker: Waker,
    has_failed: Arc<AtomicBool>,
    /// Those that somebody recovers.
    divided: Arc<Mutex<BTreeMap<LogId, Weak<DividedLog>>>>,
    promised: Arc<PromisesGiven>,
}

impl BackupHandle {
    /// Returns whether the disk has failed, so that no streams are served any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Hands over a stream that another server has opened for its log.
    pub fn serve(&self, server: u32, stream: Stream) {
        // After a failure it ends.
        let _ = self.arrivals.send(Arrival::Stream(server, stream));
        self.waker.wake();
    }

    /// Forgets logs that are not among these.
    pub fn keep(&self, needed: BTreeSet<(u32, u64)>) {
        // After a failure everything stays as it is.
        let _ = self.arrivals.send(Arrival::Needed(needed));
        self.waker.wake();
    }

    /// Promises a server not to give its log to others for this time; returns false if somebody has begun to recover it.
    #[must_use]
    pub fn promise(&self, server: u32, time: Duration) -> bool {
        self.promised.promise(server, Instant::now(), time)
    }

    /// Takes nothing of a log from this start on, or an earlier one, and returns what there is of it. `None` after a failure of
    /// the disk, if the thread does not answer, or while its owner has a promise.
    #[must_use]
    pub fn recover(&self, log: LogId, start: u64) -> Option<HeldLog> {
        if !self.promised.may_give(log.server, Instant::now()) {
            tracing::debug!(server = log.server, "its log is not given yet: it may have a promise");
            return None;
        }
        let (answer, found) = sync_channel(1);
        self.arrivals.send(Arrival::Recovery(log, start, answer)).ok()?;
        self.waker.wake();
        let found = found.recv_timeout(Duration::from_millis(BACKUP_ANSWER_MS)).ok()?;
        found.inspect_err(|error| tracing::warn!(%error, "cannot read the replicas of a log")).ok()
    }

    /// Returns the latest cut of a log that was only to be received; `None` as of [`BackupHandle::recover`].
    #[must_use]
    pub fn ahead(&self, log: LogId) -> Option<u64> {
        let (answer, ahead) = sync_channel(1);
        self.arrivals.send(Arrival::Start(log, answer)).ok()?;
        self.waker.wake();
        ahead.recv_timeout(Duration::from_millis(BACKUP_ANSWER_MS)).ok()
    }

    /// Returns what all who recover a log have in common.
    #[must_use]
    pub fn divided(&self, log: LogId) -> Arc<DividedLog> {
        let mut all = lock(&self.divided);
        all.retain(|_, divided| divided.strong_count() > 0);
        let known = all.get(&log).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let divided = Arc::default();
            all.insert(log, Arc::downgrade(&divided));
            divided
        })
    }
}

/// The machine of a server, as a place for replicas.
#[derive(Clone, Debug)]
pub struct BackupHost {
    /// Its name: no two replicas of anything are on one.
    pub name: String,
    /// Replicas of other servers' logs, if this server keeps any.
    pub backup: Option<BackupHandle>,
}

/// The running thread.
pub struct BackupThread {
    handle: BackupHandle,
    is_stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl BackupThread {
    /// Starts the thread, off the workers' CPUs.
    ///
    /// # Errors
    /// If the kernel gives no thread, or no descriptors.
    pub fn start(mut file: ReplicaFile, number: u64, workers_cpus: Vec<usize>) -> io::Result<Self> {
        let (arrivals, arriving) = channel();
        let sleeper = Sleeper::alone()?;
        let [is_stopping, has_failed] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (waker, divided) = (sleeper.waker(), Arc::default());
        let (has_failed_too, promised) =
            (Arc::clone(&has_failed), Arc::new(PromisesGiven::at_start(Instant::now())));
        let handle = BackupHandle { arrivals, waker, has_failed: has_failed_too, divided, promised };
        let stopping = Arc::clone(&is_stopping);
        let thread = thread::Builder::new().name("backup".to_owned()).spawn(move || {
            let real_time = process::stay_off(&workers_cpus).and_then(|()| RealTime::take());
            let real_time = real_time.inspect_err(|error| {
                tracing::debug!(%error, "the backup's thread shares the workers' CPUs, or has no real-time priority");
            });
            // A frame that does not read says nothing of the others.
            let speed = file.measure().unwrap_or(1);
            tracing::debug!(speed, "the disk of replicas reads so many MB/s");
            let (receiver, streams) = (ReplicaReceiver::new(file, number, speed), Vec::new());
            let turn = cycles::of_this_thread();
            let real_time = real_time.ok();
            let mut backup = BackupState { receiver, arriving, streams, is_behind: false, turn, real_time };
            while !stopping.load(Ordering::Relaxed) {
                if let Err(error) = backup.round() {
                    has_failed.store(true, Ordering::Relaxed);
                    tracing::error!(
                        %error,
                        "the disk of replicas failed: this server keeps none until it is restarted"
                    );
                    return;
                }
                if !backup.is_behind {
                    backup.sleep(&sleeper);
                    backup.turn = cycles::of_this_thread();
                }
            }
        })?;
        Ok(Self { handle, is_stopping, thread })
    }

    /// Returns what others may know of it.
    #[must_use]
    pub fn handle(&self) -> BackupHandle {
        self.handle.clone()
    }

    /// Ends all streams, and the thread.
    pub fn stop(self) -> JoinHandle<()> {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.handle.waker.wake();
        self.thread
    }
}

/// A stream that is served.
struct OwnerStream {
    server: u32,
    /// Known once it has begun.
    log: Option<LogId>,
    stream: Duplex,
}

impl OwnerStream {
    fn answer(&mut self, answer: &FromBackup) -> Result<(), StreamError> {
        let record = answer.encode();
        self.stream.send(&(record.len() as u32).to_le_bytes(), &record)
    }
}

/// The reason why a stream ends.
enum StreamEnd {
    /// The other server's.
    Owner,
    /// All end.
    Disk(DiskError),
}

impl From<StreamError> for StreamEnd {
    fn from(_: StreamError) -> Self {
        Self::Owner
    }
}

impl From<DiskError> for StreamEnd {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// The state of the thread.
struct BackupState {
    receiver: ReplicaReceiver,
    arriving: Receiver<Arrival>,
    streams: Vec<OwnerStream>,
    /// Whether some of what has come is not taken in yet.
    is_behind: bool,
    /// Cycles that the thread had used when it last gave way.
    turn: u64,
    real_time: Option<RealTime>,
}

impl BackupState {
    fn round(&mut self) -> Result<(), DiskError> {
        while let Ok(arrival) = self.arriving.try_recv() {
            let (server, stream) = match arrival {
                Arrival::Stream(server, stream) => (server, stream),
                Arrival::Needed(needed) => {
                    self.keep(&needed);
                    continue;
                }
                Arrival::Recovery(log, start, answer) => {
                    self.streams.retain(|owner| owner.log != Some(log));
                    // Whoever asked may have given up.
                    let _ = answer.send(self.receiver.recover(log, start));
                    continue;
                }
                Arrival::Start(log, answer) => {
                    let _ = answer.send(self.receiver.ahead(log));
                    continue;
                }
            };
            let patience = Duration::from_millis(RECORD_TIMEOUT_MS);
            match Duplex::over(stream, patience, REPLICA_RECORD_BYTES_MAX) {
                Ok(stream) => {
                    let stream = stream.held_back_above(BACKUP_UNTAKEN_BYTES);
                    self.streams.push(OwnerStream { server, log: None, stream });
                }
                Err(error) => tracing::debug!(server, %error, "a stream of a log ended"),
            }
        }
        self.is_behind = false;
        let mut left = Vec::new();
        for mut owner in std::mem::take(&mut self.streams) {
            let begun = owner.log;
            // What was received is acknowledged before the disk is waited for.
            let received = self.receive(&mut owner).and_then(|()| Ok(owner.stream.flush()?));
            match received {
                Ok(()) => {
                    // A stream of an earlier start, or one whose end is not known yet.
                    left.retain(|other: &OwnerStream| owner.log == begun || other.log != owner.log);
                    left.push(owner);
                }
                Err(StreamEnd::Disk(error)) => return Err(error),
                Err(StreamEnd::Owner) => self.end(&owner),
            }
        }
        self.streams = left;
        let (stable, with_room) = (self.receiver.flush()?, self.receiver.with_room());
        let mut left = Vec::new();
        for mut owner in std::mem::take(&mut self.streams) {
            let Some(log) = owner.log else {
                left.push(owner);
                continue;
            };
            let stable = stable.get(&log).map(|&ticket| FromBackup::Stable { ticket });
            let has_room = with_room.contains(&log).then_some(FromBackup::HasRoom);
            let sent = stable.iter().chain(&has_room).try_for_each(|answer| owner.answer(answer));
            match sent.and_then(|()| owner.stream.flush()) {
                Ok(()) => left.push(owner),
                Err(_) => self.end(&owner),
            }
        }
        self.streams = left;
        Ok(())
    }

    /// Forgets logs that are not needed, and have no stream.
    fn keep(&mut self, needed: &BTreeSet<(u32, u64)>) {
        for log in self.receiver.file().logs() {
            let has_stream = self.streams.iter().any(|owner| owner.log == Some(log));
            if !has_stream && !needed.contains(&(log.server, log.number)) {
                tracing::info!(
                    server = log.server,
                    "forgets the log of a server, which is not needed any more"
                );
                self.receiver.forget_log(log);
            }
        }
    }

    fn end(&mut self, owner: &OwnerStream) {
        tracing::debug!(server = owner.server, "a stream of a log ended");
        if let Some(log) = owner.log {
            self.receiver.end(log);
        }
    }

    /// Takes in what has come over a stream, up to some records.
    fn receive(&mut self, owner: &mut OwnerStream) -> Result<(), StreamEnd> {
        for _ in 0..BACKUP_ROUND_RECORDS {
            let Some(record) = owner.stream.receive()? else { return Ok(()) };
            let Ok(message) = ToBackup::decode(record) else { return Err(StreamEnd::Owner) };
            let answer = match (owner.log, message) {
                (None, ToBackup::Begin { log, start }) => {
                    let log = LogId { server: owner.server, number: log };
                    let held =
                        self.receiver.begin(log, start)?.ok_or(StreamEnd::Owner).inspect_err(|_| {
                            tracing::warn!(
                                server = owner.server,
                                start,
                                "refused the log of an earlier start"
                            );
                        })?;
                    owner.log = Some(log);
                    Some(held)
                }
                (Some(log), message) => match self.receiver.receive(log, &message) {
                    Ok(answer) => answer,
                    Err(ReplicaError::Disk(error)) => return Err(error.into()),
                    Err(error) => {
                        tracing::warn!(server = owner.server, %error, "the log of another server is out of order");
                        return Err(StreamEnd::Owner);
                    }
                },
                (None, _) => return Err(StreamEnd::Owner),
            };
            if let Some(answer) = answer {
                owner.answer(&answer)?;
            }
            self.give_way();
        }
        self.is_behind = true;
        Ok(())
    }

    /// Rests after some work without a pause: at real-time priority the workers of this CPU wait for it.
    fn give_way(&mut self) {
        let Some(real_time) = self.real_time.as_mut() else { return };
        real_time.look();
        if !real_time.is_taken() {
            return;
        }
        let now = cycles::of_this_thread();
        if now.saturating_sub(self.turn) > cycles::of_us(BACKUP_TURN_US) {
            thread::sleep(Duration::from_micros(BACKUP_TURN_US / 2));
            self.turn = now;
        }
    }

    fn sleep(&self, sleeper: &Sleeper) {
        let timeout = Duration::from_millis(BACKUP_IDLE_MS);
        let streams = self.streams.iter().map(|owner| &owner.stream);
        if let Err(error) = Duplex::sleep_over(sleeper, streams, timeout) {
            tracing::warn!(%error, "the backup's thread cannot wait for its streams");
            thread::sleep(timeout);
        }
    }
}
