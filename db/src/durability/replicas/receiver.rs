//! What a backup does with the messages of servers: it stores what they send, and acknowledges that it has come, and that it is
//! stable.
//!
//! ```text
//!   receive, receive, ... ── of all servers ──► flush ──► the tickets of all of them
//!                 └ received: in memory, where whoever recovers the log finds it
//! ```
//! So while a flush takes its time, messages gather for the next one. Messages of one server come in the order of sending;
//! an error ends its stream, and what it has sent stays.

use std::collections::{BTreeMap, BTreeSet};

use cluster::replication::Item;
use cluster::replication::message::{FromBackup, HeldItem, ToBackup};
use disk::{Disk, DiskError, Fragment};

use super::file::{LogId, PlacedReplica, ReplicaError, ReplicaFile};

/// Frames that are to be free before a log is told that there is room again.
const ROOM_FRAMES: u32 = 16;

/// Frames that are full and not stable, above which nobody has to ask for that: what a backup keeps in memory.
const UNSTABLE_FRAMES_MAX: usize = 8;

/// A log that is recovered: its replicas, which stay as they are, and a disk to read them from.
pub struct HeldLog {
    /// The random number of the file.
    pub file: u64,
    /// Whether some of the log's latest start came while this process ran.
    pub has_received: bool,
    /// The replicas.
    pub replicas: Vec<PlacedReplica>,
    /// The disk.
    pub disk: Box<dyn Disk>,
}

/// The state of a backup's server.
pub struct ReplicaReceiver {
    file: ReplicaFile,
    /// The random number of the file.
    number: u64,
    /// How fast the disk reads, in MB/s.
    speed: u32,
    /// The latest start of each server that came.
    starts: BTreeMap<u32, u64>,
    /// Logs that are recovered, each with its latest start: nothing of it is taken any more.
    ended: BTreeMap<LogId, u64>,
    /// What is stable after the next flush.
    due: BTreeMap<LogId, u64>,
    /// The latest cut of each log that came, and the latest that was only to be received.
    cuts: BTreeMap<LogId, (u64, u64)>,
    /// Items of which there was no room for a replica.
    refused: BTreeSet<(LogId, Item)>,
    /// Logs of which a digest has come over the present stream.
    with_digest: BTreeSet<LogId>,
    /// Logs that were told that there is no room.
    full: BTreeSet<LogId>,
}

impl ReplicaReceiver {
    /// Goes on with a file, which has this random number, on a disk that reads so many MB/s.
    #[must_use]
    pub fn new(file: ReplicaFile, number: u64, speed: u32) -> Self {
        let (due, cuts, refused, with_digest, full, starts, ended) = Default::default();
        Self { file, number, speed, starts, ended, due, cuts, refused, with_digest, full }
    }

    /// Begins with a new stream of a start of a log, after the earlier one has ended; returns what there is of the log, or `None` if
    /// nothing of this start is taken any more. Makes all stable, and reads a frame of each replica that a start found.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn begin(&mut self, log: LogId, start: u64) -> Result<Option<FromBackup>, DiskError> {
        let latest = self.starts.entry(log.server).or_insert(start);
        if start < *latest || self.ended.get(&log).is_some_and(|ended| start <= *ended) {
            return Ok(None);
        }
        if start > *latest {
            self.cuts.remove(&log);
        }
        *latest = start;
        self.ended.remove(&log);
        self.end(log);
        self.file.flush()?;
        let held = self.file.held(log)?.into_iter();
        let items = held.map(|held| HeldItem { item: held.item, cut: held.cut, bytes: held.bytes }).collect();
        Ok(Some(FromBackup::Held { file: self.number, speed: self.speed, items }))
    }

    /// Takes nothing of a log from this start on, or an earlier one, until a later one begins, and returns what there is of it. Its
    /// stream is to end before.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn recover(&mut self, log: LogId, start: u64) -> Result<HeldLog, DiskError> {
        let ended = self.ended.entry(log).or_insert(start);
        *ended = start.max(*ended);
        self.end(log);
        self.file.flush()?;
        // So that their ends are known to all who ask.
        self.file.held(log)?;
        let has_received = self.cuts.contains_key(&log) && self.starts.get(&log.server) == Some(&start);
        let (file, replicas) = (self.number, self.file.placed(log));
        Ok(HeldLog { file, has_received, replicas, disk: self.file.disk()? })
    }

    /// Returns the latest cut of a log that was only to be received; 0 if none was since this process began.
    #[must_use]
    pub fn ahead(&self, log: LogId) -> u64 {
        self.cuts.get(&log).map_or(0, |(_, ahead)| *ahead)
    }

    /// Forgets all of a log.
    pub fn forget_log(&mut self, log: LogId) {
        self.cuts.remove(&log);
        self.file.forget_log(log);
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
            ToBackup::Receive { ticket } => {
                let (latest, ahead) = self.cuts.entry(log).or_default();
                *ahead = *latest;
                return Ok(Some(FromBackup::Received { ticket }));
            }
            ToBackup::Flush { ticket } => {
                // One of what was written may come behind one of a later copy.
                let due = self.due.entry(log).or_default();
                *due = ticket.max(*due);
                return Ok(Some(FromBackup::Received { ticket }));
            }
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
        if item != Item::Digest {
            let latest = &mut self.cuts.entry(log).or_default().0;
            *latest = fragment.cut.max(*latest);
        }
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

    /// Makes stable what has come, if anybody waits for that or much has come, and returns what is to be acknowledged to whom. Takes
    /// some writes of the disk.
    ///
    /// # Errors
    /// If the disk fails: nothing is acknowledged any more.
    pub fn flush(&mut self) -> Result<BTreeMap<LogId, u64>, DiskError> {
        if self.due.is_empty() && self.file.filled_frames() < UNSTABLE_FRAMES_MAX {
            return Ok(BTreeMap::new());
        }
        self.file.flush()?;
        Ok(std::mem::take(&mut self.due))
    }

    /// Returns the replicas, for whoever recovers a log.
    pub fn file(&mut self) -> &mut ReplicaFile {
        &mut self.file
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cluster::replication::message::{FromBackup, ToBackup};
    use disk::{BLOCK_BYTES, SimulatedDisk};

    use super::{LogId, ReplicaFile, ReplicaReceiver};

    #[test]
    fn all_up_to_the_latest_ticket_is_acknowledged_whatever_was_asked_for_last() {
        let disk = Box::new(SimulatedDisk::new(1, 2 * BLOCK_BYTES, 40));
        let mut receiver = ReplicaReceiver::new(ReplicaFile::open(disk, 40).expect("it reads"), 1, 1);
        let log = LogId { server: 1, number: 2 };
        assert!(receiver.begin(log, 1).expect("a sound disk").is_some());
        for ticket in [7, 5] {
            let answer = receiver.receive(log, &ToBackup::Flush { ticket }).expect("it is taken");
            assert_eq!(answer, Some(FromBackup::Received { ticket }));
        }
        assert_eq!(receiver.flush().expect("a sound disk"), BTreeMap::from([(log, 7)]));
    }
}
