//! Recovers hashes of a server that is gone: the target rebuilds them from the replicas of that server's log.
//!
//! ```text
//!   record of the recovery ──► streams to the backups ──► newest digest, up to which cut ──► decided in the metadata
//!     ──► of segments, the newest first, what is of these hashes ──► parts ──► own disk, own backups ──► owner ──► served
//! ```
//! One thread takes all that this server is to have of the other one, so that the log is read once: those of other migrations
//! wait for it. What ended a key is remembered until all segments have come, since they come in any order. Until the metadata
//! names this server as the owner the other one may return: then it has everything on its own disk, and the parts are dropped.

mod holders;
mod log_parts;
mod parts;
mod tablet;
#[cfg(test)]
mod tests;

pub use self::log_parts::LogParts;
pub use self::tablet::{NotStored, RecoveredTablet};

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use cluster::metadata::{DecidedCut, Metadata, MetadataError, RecoveryRow, ReplicasRow};
use cluster::migration::MigrationPhase;
use store::{DamagedEntry, FoundCompletions, SegmentEntries, SegmentEntry};

use self::holders::Holders;
use super::background::map_in;
use super::context::MigrationContext;
use crate::control_plane::migrations::inbox::Notice;
use crate::control_plane::migrations::{ExitReason, Figure, RecoveryShare};
use crate::durability::replicas::gathered::Gathered;
use crate::limits::{
    CLUSTER_RETRY_MS, PULL_LOOK_US, RECOVERED_REPLIES_BYTES_MAX, RECOVERY_AGAIN_MS, RECOVERY_GATHER_MS,
    RECOVERY_LOOK_MS, REPLAY_PATIENCE_MS, RESTARTED_PATIENCE_MS,
};
use crate::process::BulkWork;
use crate::sync::lock;
use crate::tablet::{PartsChange, subtract};

/// Steps of the store's background work after each batch: the writer pays for the room.
const STEPS_PER_BATCH: usize = 2;
/// Steps of the store's background work while there is no room.
const STEPS_WITHOUT_ROOM: usize = 16;

/// The target of a recovery.
pub(super) struct Recovering {
    context: MigrationContext,
    /// What this thread recovers, that of its own migration first.
    tablets: Vec<(RecoveredTablet, Option<Sender<MigrationPhase>>)>,
    log_parts: LogParts,
    /// Replies to clients of the other server, from all segments that have come; `None` if one is damaged, or they are too many.
    completions: Option<FoundCompletions>,
}

/// The record of the log's replicas, and up to where it counts.
type Basis = (ReplicasRow, DecidedCut);

/// The reason why it goes no further.
enum Halt {
    Exit(ExitReason),
    /// It may succeed elsewhere, or later.
    Failed,
}

impl Recovering {
    pub(super) fn new(context: MigrationContext) -> Self {
        Self {
            context,
            tablets: Vec::new(),
            log_parts: LogParts::default(),
            completions: Some(FoundCompletions::default()),
        }
    }

    /// Runs until the hashes are recovered, or their owner is back.
    pub(super) fn run(mut self) -> ExitReason {
        let ended = match self.share() {
            Some(ended) => self.wait(&ended),
            None => {
                let recovered = self.recover();
                if recovered.is_err() {
                    // Whoever waits for it begins anew.
                    self.take_shares();
                }
                recovered
            }
        };
        let reason = match ended {
            Ok(phase) => ExitReason::Over(phase),
            Err(Halt::Exit(reason)) => reason,
            Err(Halt::Failed) => self.rest().map_or_else(|reason| reason, |()| self.give_up()),
        };
        let parts: Vec<_> = self.tablets.drain(..).filter_map(|(tablet, _)| tablet.left()).collect();
        self.context.control.retire(&parts);
        self.context.progress.set(Figure::EndedUs, self.context.now_us());
        reason
    }

    /// Leaves its hashes to a thread that is about to recover others of the same server; returns what that will say.
    fn share(&self) -> Option<Receiver<MigrationPhase>> {
        let migrations = self.context.control.migrations.as_ref()?;
        let mut all = lock(&migrations.shares);
        let Some(shares) = all.get_mut(&self.context.row.source.server) else {
            all.insert(self.context.row.source.server, Vec::new());
            return None;
        };
        let (ended, says) = channel();
        let (row, progress) = (self.context.row.clone(), Arc::clone(&self.context.progress));
        shares.push(RecoveryShare { row, progress, ended });
        Some(says)
    }

    /// Takes what others have left to this thread; from then on others begin by themselves.
    fn take_shares(&self) -> Vec<RecoveryShare> {
        let Some(migrations) = &self.context.control.migrations else { return Vec::new() };
        lock(&migrations.shares).remove(&self.context.row.source.server).unwrap_or_default()
    }

    fn wait(&mut self, ended: &Receiver<MigrationPhase>) -> Result<MigrationPhase, Halt> {
        loop {
            match ended.recv_timeout(Duration::from_millis(RECOVERY_LOOK_MS)) {
                Ok(phase) => return Ok(phase),
                Err(RecvTimeoutError::Timeout) => _ = self.listen()?,
                Err(RecvTimeoutError::Disconnected) => return Err(Halt::Failed),
            }
        }
    }

    fn recover(&mut self) -> Result<MigrationPhase, Halt> {
        self.context.take_slot();
        let begun = Instant::now();
        while !self.listen()? || begun.elapsed() < Duration::from_millis(RECOVERY_GATHER_MS) {
            self.context.rest(Duration::from_micros(PULL_LOOK_US));
        }
        self.context.begin();
        // Clients of everything else are served first: who waits for this has waited for its detection already.
        self.context.lower_priority();
        let server = self.context.row.source.server;
        let (mut holders, found, basis) = self.find(server)?;
        let _bulk = BulkWork::begin();
        self.log_parts = LogParts::new(self.insist(|metadata| metadata.log_parts(server))?);
        self.context.control.store.advance_clock(found.clock_ms);
        let shares = self.all_shares();
        holders.want(self.log_parts.wanted(shares.iter().map(|(row, ..)| row)));
        let bytes = found.segments.values().map(|bytes| u64::from(*bytes)).sum::<u64>();
        let sample = self.sample(&mut holders, &found)?;
        self.make_parts(shares, &sample, bytes)?;
        self.tablets.iter().for_each(|(tablet, _)| tablet.progress.set(Figure::LogBytesExpected, bytes));
        let (tablets, segments) = (self.tablets.len(), found.segments.len());
        tracing::info!(server, tablets, segments, bytes, cut = found.cut, "recovers the log of a server");
        let mut looked = Instant::now();
        let segments: Vec<(u32, u32)> = found.segments.into_iter().rev().collect();
        for (index, &(sequence, bytes)) in segments.iter().enumerate() {
            // The next ones come while this one is taken in; the sample is here.
            holders.ask_ahead(segments[index..].iter().filter(|(ahead, _)| *ahead != sample.sequence));
            self.listen()?;
            if looked.elapsed() >= Duration::from_millis(RECOVERY_LOOK_MS) {
                looked = Instant::now();
                self.insist_on(&basis)?;
            }
            let is_taken = sample.sequence == sequence && self.entries((sequence, &sample.part))?;
            if !is_taken {
                self.segment(&mut holders, (sequence, bytes))?;
            }
            self.tablets.iter().for_each(|(tablet, _)| tablet.progress.add(Figure::LogBytes, bytes.into()));
        }
        for index in 0..self.tablets.len() {
            self.storing(index, RecoveredTablet::store)?;
        }
        self.sync()?;
        self.commit(&basis)
    }

    /// Takes in what has come; returns whether this side is admitted.
    fn listen(&mut self) -> Result<bool, Halt> {
        while let Some(notice) = self.context.inbox.take() {
            match notice {
                Notice::Admitted(core) => self.context.admit(core),
                Notice::Stop => return Err(Halt::Exit(ExitReason::Stopped)),
                // From here on the metadata says of each tablet what becomes of it.
                _ if self.tablets.iter().any(|(tablet, _)| tablet.is_claimed()) => {}
                // Nobody but the thread that this one waits for finishes it.
                Notice::Phase(phase) | Notice::Forgotten(phase)
                    if !matches!(phase, MigrationPhase::Preparing | MigrationPhase::Finished) =>
                {
                    return Err(Halt::Exit(ExitReason::Over(phase)));
                }
                Notice::Abort => return Err(Halt::Failed),
                Notice::Gone => return Err(Halt::Exit(ExitReason::Gone)),
                _ => {}
            }
        }
        Ok(self.context.is_admitted())
    }

    /// Waits for some time after a failure, unless something else ends it.
    fn rest(&mut self) -> Result<(), ExitReason> {
        let until = Instant::now() + Duration::from_millis(RECOVERY_AGAIN_MS);
        while Instant::now() < until {
            if let Err(Halt::Exit(reason)) = self.listen() {
                return Err(reason);
            }
            thread::sleep(Duration::from_millis(RECOVERY_LOOK_MS));
        }
        Ok(())
    }

    /// Repeats a question to the metadata until that answers.
    fn insist<T>(&mut self, ask: impl Fn(&Metadata) -> Result<T, MetadataError>) -> Result<T, Halt> {
        loop {
            match ask(&self.context.control.metadata) {
                Ok(answer) => return Ok(answer),
                Err(MetadataError::NotFound) => return Err(Halt::Exit(ExitReason::Gone)),
                Err(error) => {
                    let migration = self.context.row.id;
                    tracing::debug!(%error, migration, "the metadata does not answer a recovery");
                    thread::sleep(Duration::from_millis(CLUSTER_RETRY_MS));
                    self.listen()?;
                }
            }
        }
    }

    /// Finds the log at its backups, as of the cut that is decided for all who recover it.
    fn find(&mut self, server: u32) -> Result<(Holders, Gathered, Basis), Halt> {
        let (mut told, begun) = (None, Instant::now());
        loop {
            let has_waited = begun.elapsed() > Duration::from_millis(RESTARTED_PATIENCE_MS);
            let recovery = self.insist(|metadata| metadata.recovery(server))?;
            // Its owner is back.
            let Some(mut recovery) = recovery else { return Err(Halt::Failed) };
            let found = Holders::open(&self.context.control, &recovery.replicas, has_waited)
                .and_then(|mut holders| holders.gather(&recovery).map(|found| (holders, found)));
            match found {
                Ok((mut holders, (found, own))) => {
                    let decide = |metadata: &Metadata| match metadata.recovery_decide(&recovery, own) {
                        // Its owner is back.
                        Err(MetadataError::NotFound) => Ok(None),
                        decided => decided.map(Some),
                    };
                    let decided = self.insist(decide)?.ok_or(Halt::Failed)?;
                    recovery.decided = Some(decided);
                    let found = if decided == own {
                        Some(found)
                    } else {
                        let again = holders.gather(&recovery).ok().filter(|(_, as_of)| *as_of == decided);
                        again.map(|(found, _)| found)
                    };
                    if let Some(found) = found {
                        return Ok((holders, found, (recovery.replicas, decided)));
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    if told.as_ref() != Some(&text) {
                        tracing::warn!(server, %error, "cannot recover the log of a server yet");
                        told = Some(text);
                    }
                }
            }
            self.listen()?;
            thread::sleep(Duration::from_millis(CLUSTER_RETRY_MS));
        }
    }

    /// Goes no further if the owner of the log is back, or was since.
    fn insist_on(&mut self, (replicas, decided): &Basis) -> Result<(), Halt> {
        let recovery = self.insist(|metadata| metadata.recovery(replicas.server))?;
        let is_same = |recovery: &RecoveryRow| {
            (recovery.replicas.log, recovery.replicas.start, recovery.decided)
                == (replicas.log, replicas.start, Some(*decided))
        };
        recovery.filter(is_same).map(drop).ok_or(Halt::Failed)
    }

    /// Takes what a segment has of the hashes. It is lost only if all backups that count say that it is damaged.
    fn segment(&mut self, holders: &mut Holders, segment: (u32, u32)) -> Result<(), Halt> {
        let mut halt = None;
        let read = holders.read(segment, |bytes| match self.entries((segment.0, bytes)) {
            Ok(is_sound) => is_sound,
            Err(error) => {
                halt = Some(error);
                true
            }
        });
        if let Some(halt) = halt {
            return Err(halt);
        }
        let is_there = read.map_err(|error| {
            tracing::warn!(sequence = segment.0, %error, "cannot read the log of a server any further");
            Halt::Failed
        })?;
        if !is_there {
            self.completions = None;
            self.context.progress.add(Figure::Damaged, 1);
            let (sequence, server) = (segment.0, self.context.row.source.server);
            tracing::error!(
                sequence,
                server,
                "no backup has this segment of the log as it was written: objects are lost"
            );
        }
        Ok(())
    }

    /// Takes in entries of a segment; returns whether all are as they were written.
    fn entries(&mut self, (sequence, bytes): (u32, &[u8])) -> Result<bool, Halt> {
        let Ok(mut entries) = SegmentEntries::new(sequence, bytes, 0) else { return Ok(false) };
        let now_ms = self.context.control.store.now_ms();
        loop {
            let completed = |found| _ = self.completions.as_mut().map(|completions| completions.add(found));
            let next = entries.next_with(completed);
            if self.completions.take_if(|all| all.bytes() > RECOVERED_REPLIES_BYTES_MAX).is_some() {
                let server = self.context.row.source.server;
                tracing::warn!(
                    server,
                    "too many replies: calls that were under way there have an unknown outcome"
                );
            }
            let entry = match next {
                Some(Ok(entry)) => entry,
                Some(Err(DamagedEntry(_))) => return Ok(false),
                None => return Ok(true),
            };
            let Some(index) = self.tablet_of(&entry) else { continue };
            let tablet = &mut self.tablets[index].0;
            if tablet.take(&entry, now_ms) {
                self.storing(index, RecoveredTablet::store)?;
                self.context.tidy(STEPS_PER_BATCH);
            }
        }
    }

    /// Returns the tablet of an entry: none if nobody recovers it here, or a later part of the log has its hash.
    fn tablet_of(&self, entry: &SegmentEntry<'_>) -> Option<usize> {
        let place = self.log_parts.place_of(entry)?;
        self.tablets.iter().position(|(tablet, _)| self.log_parts.is_of(place, entry, &tablet.row))
    }

    /// Repeats a tablet's work until there is room for it.
    fn storing(
        &mut self,
        index: usize,
        store: impl Fn(&mut RecoveredTablet, &store::Core) -> Result<(), NotStored>,
    ) -> Result<(), Halt> {
        let since = Instant::now();
        loop {
            let stored = store(&mut self.tablets[index].0, self.context.core());
            let Err(error) = stored else { return Ok(()) };
            if !error.is_passing() || since.elapsed() >= Duration::from_millis(REPLAY_PATIENCE_MS) {
                let migration = self.tablets[index].0.row.id;
                tracing::error!(migration, %error, "cannot store recovered objects");
                return Err(Halt::Failed);
            }
            self.listen()?;
            self.context.tidy(STEPS_WITHOUT_ROOM);
        }
    }

    /// Waits until the own log has everything stable.
    fn sync(&mut self) -> Result<(), Halt> {
        let mut cut = None;
        while !self.context.is_on_disk(&mut cut) {
            if self.context.has_failed_disk() {
                return Err(Halt::Failed);
            }
            self.listen()?;
            thread::sleep(Duration::from_micros(PULL_LOOK_US));
        }
        Ok(())
    }

    /// Becomes the owner of each tablet, unless the other server is back, and serves it.
    fn commit(&mut self, (replicas, decided): &Basis) -> Result<MigrationPhase, Halt> {
        let mut own = Err(Halt::Exit(ExitReason::Gone));
        for index in 0..self.tablets.len() {
            let row = self.tablets[index].0.row.clone();
            self.tablets[index].0.claim(true);
            let phase = match self.insist(|metadata| metadata.migration_recovered(&row, (replicas, *decided)))
            {
                Ok(row) => Some(row.phase),
                // Its table is gone, or others own only some of its hashes.
                Err(Halt::Exit(ExitReason::Gone)) => None,
                Err(halt) => return Err(halt),
            };
            let is_owner = phase == Some(MigrationPhase::Finished);
            if is_owner && let Some(completions) = self.completions.take() {
                self.context.control.recovered_replies.add(replicas, completions, self.context.now_us());
            }
            let is_served = is_owner && self.serve(index);
            self.tablets[index].0.claim(is_served);
            let Some(phase) = phase.filter(|_| is_served == is_owner) else { continue };
            if index == 0 {
                own = Ok(phase);
            }
            if let Some(ended) = self.tablets[index].1.take() {
                // Its thread may have ended.
                let _ = ended.send(phase);
            }
        }
        self.context.release_guard(MigrationPhase::Finished);
        own
    }

    /// Serves a tablet; returns false if its table is gone.
    fn serve(&mut self, index: usize) -> bool {
        let RecoveredTablet { row, .. } = &self.tablets[index].0;
        // If the metadata does not answer now, clients hear of it later.
        let view = self.context.control.metadata.migration_view(row.id).ok().flatten();
        let (table, take) = (row.table, vec![(row.hashes.first(), row.hashes.last())]);
        let change = PartsChange { take, come: vec![self.tablets[index].0.part()], ..PartsChange::default() };
        self.context.alter_table(table, &change, &view.and_then(|view| map_in(&view))).is_some()
    }

    /// Records that this attempt has failed: the coordinator begins another one.
    fn give_up(&mut self) -> ExitReason {
        let id = self.context.row.id;
        let (from, to) = (MigrationPhase::Preparing, MigrationPhase::Ended);
        loop {
            match self.insist(|metadata| metadata.migration_advance(id, from, to)) {
                Ok(row) if row.phase == MigrationPhase::Finished => return self.await_service(),
                Ok(row) => return ExitReason::Over(row.phase),
                Err(Halt::Exit(reason)) => return reason,
                // It was aborted meanwhile, which is the same.
                Err(Halt::Failed) => {}
            }
        }
    }

    /// Waits until the hashes are served that another thread has recovered with its own: who leaves a migration leaves them to what the
    /// records say.
    fn await_service(&mut self) -> ExitReason {
        let hashes = [self.context.bounds()];
        loop {
            let Some(entry) = self.context.control.table_of(self.context.row.table) else {
                return ExitReason::Gone;
            };
            if subtract(&hashes, &entry.parts.owned()).is_empty() {
                return ExitReason::Over(MigrationPhase::Finished);
            }
            if let Err(Halt::Exit(reason)) = self.listen() {
                return reason;
            }
            thread::sleep(Duration::from_millis(RECOVERY_LOOK_MS));
        }
    }
}
