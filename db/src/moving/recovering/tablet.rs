//! A tablet that is recovered: the part that it becomes, and what is known of its keys meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use cluster::metadata::MigrationRow;
use store::{Condition, Core, ReplayError, Replayed, SegmentEntry, Table, WriteError};

use crate::control_plane::migrations::{Figure, Progress};
use crate::limits::RECOVERY_BATCH_BYTES;

/// See the module's head.
pub struct RecoveredTablet {
    /// The migration.
    pub row: MigrationRow,
    /// Its progress.
    pub progress: Arc<Progress>,
    part: Arc<Table>,
    /// Whether the metadata may name this server as the owner.
    is_claimed: bool,
    /// Keys that have ended, with the highest version up to which they did.
    ended: HashMap<Box<[u8]>, u64>,
    /// Objects that are not stored yet, and keys that have ended and of which an older object may be stored.
    objects: Vec<u8>,
    ends: Vec<(Box<[u8]>, u64)>,
}

/// The reason why objects are not stored.
#[derive(Debug)]
pub enum NotStored {
    /// A key is not removed.
    Write(WriteError),
    /// An object is not stored.
    Replay(ReplayError),
}

impl NotStored {
    /// Returns whether there may be room later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        let (Self::Write(error) | Self::Replay(ReplayError::Refused(error))) = self else { return false };
        matches!(error, WriteError::Retry { .. } | WriteError::OutOfMemory | WriteError::StorageFull)
    }
}

impl fmt::Display for NotStored {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(error) => error.fmt(out),
            Self::Replay(error) => error.fmt(out),
        }
    }
}

impl RecoveredTablet {
    /// Begins with an empty part.
    #[must_use]
    pub fn new(row: MigrationRow, part: Arc<Table>, progress: Arc<Progress>) -> Self {
        let (ended, objects, ends) = Default::default();
        Self { row, progress, part, is_claimed: false, ended, objects, ends }
    }

    /// Takes in an entry; returns whether it is time to store what was taken in.
    pub fn take(&mut self, entry: &SegmentEntry<'_>, now_ms: u64) -> bool {
        let known = self.ended.get(entry.key).copied().unwrap_or(0);
        match entry.object.filter(|_| entry.expires_ms > now_ms) {
            Some(object) if known < entry.version => self.objects.extend_from_slice(object),
            None if known < entry.version => {
                self.ended.insert(entry.key.into(), entry.version);
                self.ends.push((entry.key.into(), entry.version));
            }
            _ => {}
        }
        self.objects.len() >= RECOVERY_BATCH_BYTES || self.ends.len() * 100 >= RECOVERY_BATCH_BYTES
    }

    /// Stores what was taken in; after an error a later call goes on.
    ///
    /// # Errors
    /// [`NotStored`]
    pub fn store(&mut self, core: &Core) -> Result<(), NotStored> {
        let mut rest = self.objects.as_slice();
        let mut replayed = Replayed::default();
        let stored = core.pin().copy(&self.part, self.row.key_hashes(), &mut rest, &mut replayed);
        let done = self.objects.len() - rest.len();
        self.objects.drain(..done);
        self.progress.add(Figure::Bytes, done as u64);
        self.progress.add(Figure::Objects, replayed.stored);
        self.progress.add(Figure::Late, replayed.late);
        self.progress.add(Figure::Damaged, replayed.corrupted);
        stored.map_err(NotStored::Replay)?;
        while let Some((key, version)) = self.ends.last() {
            let (pinned, hash) = (core.pin(), store::hash(key));
            if pinned.get(&self.part, hash, key).is_some_and(|object| object.version() <= *version) {
                pinned.delete(&self.part, hash, key, Condition::Always).map_err(NotStored::Write)?;
            }
            self.ends.pop();
        }
        Ok(())
    }

    /// Notes whether the metadata may name this server as the owner from now on: it is asked for that, and has not refused.
    pub fn claim(&mut self, is_claimed: bool) {
        self.is_claimed = is_claimed;
    }

    /// Returns whether the metadata may name this server as the owner.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.is_claimed
    }

    /// Returns the part.
    #[must_use]
    pub fn part(&self) -> Arc<Table> {
        Arc::clone(&self.part)
    }

    /// Returns the part, if nobody needs it.
    #[must_use]
    pub fn left(self) -> Option<Arc<Table>> {
        (!self.is_claimed).then_some(self.part)
    }
}
