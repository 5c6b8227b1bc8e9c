//! What a backup does with the messages of servers: it stores what they send, and acknowledges it when it is stable.
//!
//! ```text
//!   receive, receive, ... ── of all servers ──► flush ──► the tickets of all of them
//! ```
//! So while a flush takes its time, messages gather for the next one. Messages of one server come in the order of sending;
//! an error ends its stream, and what it has sent stays.

use std::collections::{BTreeMap, BTreeSet};

use cluster::replication::Item;
use cluster::replication::message::{FromBackup, HeldItem, ToBackup};
use disk::{DiskError, Fragment};

use super::file::{LogId, ReplicaError, ReplicaFile};

/// Frames that are to be free before a log is told that there is room again.
const ROOM_FRAMES: u32 = 16;

/// The state of a backup's server.
pub struct ReplicaReceiver {
    file: ReplicaFile,
    /// What is stable after the next flush.
    due: BTreeMap<LogId, u64>,
    /// Items of which there was no room for a replica.
    refused: BTreeSet<(LogId, Item)>,
    /// Logs of which a digest has come over the present stream.
    with_digest: BTreeSet<LogId>,
    /// Logs that were told that there is no room.
    full: BTreeSet<LogId>,
}

impl ReplicaReceiver {
    /// Goes on with a file.
    #[must_use]
    pub fn new(file: ReplicaFile) -> Self {
        let (due, refused, with_digest, full) = Default::default();
        Self { file, due, refused, with_digest, full }
    }

    /// Begins with a new stream of a log, after the earlier one has ended; returns what there is of it. Makes all stable, and
    /// reads a frame of each replica that a start found.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn begin(&mut self, log: LogId) -> Result<Vec<HeldItem>, DiskError> {
        self.end(log);
        self.file.flush()?;
        let held = self.file.held(log)?.into_iter();
        Ok(held.map(|held| HeldItem { item: held.item, cut: held.cut, bytes: held.bytes }).collect())
    }

    /// Notes that the stream of a log has ended.
    pub fn end(&mut self, log: LogId) {
        self.due.remove(&log);
        self.with_digest.remove(&log);
        self.full.remove(&log);
        self.refused.retain(|(of, _)| *of != log);
    }

    /// Takes in a message of a log, and returns what is to be answered at once.
    ///
    /// # Errors
    /// [`ReplicaError`]: unless the disk has failed, the stream is to end, and all else goes on.
    pub fn receive(
        &mut self,
        log: LogId,
        message: &ToBackup<'_>,
    ) -> Result<Option<FromBackup>, ReplicaError> {
        match *message {
            ToBackup::Begin { .. } => return Err(ReplicaError::NotNext),
            ToBackup::Append { item, class, fragment } => return self.append(log, (item, class), fragment),
            ToBackup::Flush { ticket } => _ = self.due.insert(log, ticket),
            ToBackup::Forget { item } => self.file.forget(log, item),
            ToBackup::ForgetEarlier { item } => self.file.forget_earlier(log, item),
        }
        Ok(None)
    }

    fn append(
        &mut self,
        log: LogId,
        (item, class): (Item, u8),
        fragment: &[u8],
    ) -> Result<Option<FromBackup>, ReplicaError> {
        let (fragment, bytes, _) = Fragment::decode(fragment, 0)
            .filter(|(_, bytes, _)| disk::FRAGMENT_HEADER_BYTES + bytes.len() == fragment.len())
            .ok_or(ReplicaError::NotNext)?;
        // Digests follow each other in one replica.
        let begins = fragment.at == 0 && (item != Item::Digest || self.with_digest.insert(log));
        if begins {
            self.refused.remove(&(log, item));
            self.file.begin(log, item, class);
        } else if self.refused.contains(&(log, item)) {
            return Ok(None);
        }
        let result = self.file.append(log, item, &fragment, bytes);
        let Err(ReplicaError::Full) = result else { return result.map(|()| None) };
        // What there is of it stays until it is to be forgotten.
        if begins {
            self.file.withdraw(log, item);
        }
        self.refused.insert((log, item));
        self.full.insert(log);
        if item == Item::Digest {
            self.with_digest.remove(&log);
        }
        Ok(Some(FromBackup::Full { item }))
    }

    /// Returns the logs that are to be told that there is room again, once.
    pub fn with_room(&mut self) -> BTreeSet<LogId> {
        if self.file.room() < ROOM_FRAMES { BTreeSet::new() } else { std::mem::take(&mut self.full) }
    }

    /// Makes stable what has come, and returns what is to be acknowledged to whom. Takes some writes of the disk.
    ///
    /// # Errors
    /// If the disk fails: nothing is acknowledged any more.
    pub fn flush(&mut self) -> Result<BTreeMap<LogId, u64>, DiskError> {
        self.file.flush()?;
        Ok(std::mem::take(&mut self.due))
    }

    /// Returns the replicas, for whoever recovers a log.
    pub fn file(&mut self) -> &mut ReplicaFile {
        &mut self.file
    }
}
