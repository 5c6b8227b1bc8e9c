//! Records of the replicas of servers' logs: which backups count, and how many of them have what was acknowledged.
//!
//! Written when a backup comes or is lost, by the server whose log it is ([`super::recoveries`]): see [`crate::replication`].

use serde::{Deserialize, Serialize};

use super::encoding::padded;
use super::row::{Row, number};
use super::{Metadata, MetadataError, MetadataTransaction};
use crate::records::RecordsError;
use crate::replication::{BackupId, ReplicasRecord};

/// Up to where a log counts, as the first server decided that recovered it. Its own server and all others keep to it, so that
/// nothing is in one tablet and not in another, or told to a client and not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedCut {
    /// The start of the log that wrote its newest digest: what a later one wrote is above.
    pub start: u64,
    /// The latest cut that counts.
    pub cut: u64,
    /// Whether the log's own disk has all of it for certain.
    pub is_on_own_disk: bool,
}

/// What a server that starts again finds of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnLogEnd {
    /// The last start that wrote a digest.
    pub start: u64,
    /// The latest cut.
    pub cut: u64,
    /// The latest one that wrote anything: until `cut` nothing follows it.
    pub latest: u64,
    /// The one before it on the disk; `None` if backups had no cuts in between.
    pub before: Option<u64>,
    /// Whether all of the latest one is there.
    pub is_whole: bool,
}

/// Up to where a server that starts again takes its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnLogExtent {
    /// All of it that is whole.
    Whole,
    /// As far as this cut.
    UpTo(u64),
    /// Not at all: others recover more than it has.
    Behind,
}

impl OwnLogEnd {
    /// Returns the latest cut of which the disk has everything for certain.
    #[must_use]
    pub fn whole_until(self) -> u64 {
        if self.is_whole { self.cut } else { self.before.unwrap_or(self.latest.saturating_sub(1)) }
    }
}

impl DecidedCut {
    /// Returns up to where the server's own log counts; `None` of one that another start has written by now.
    #[must_use]
    pub fn of_own(self, own: OwnLogEnd) -> Option<OwnLogExtent> {
        // A cut is written when the one before is on the own disk. Backups may have others in between.
        let has_it = if self.cut < own.latest {
            own.before.is_none_or(|before| self.cut <= before)
        } else {
            self.cut <= own.cut && own.is_whole
        };
        let counts =
            if self.is_on_own_disk || has_it { OwnLogExtent::UpTo(self.cut) } else { OwnLogExtent::Behind };
        (own.start == self.start).then_some(counts)
    }
}

/// The replicas of a server's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicasRow {
    /// The server whose log it is.
    #[serde(skip)]
    pub server: u32,
    /// The log's random number: a server that begins with an empty disk has another one.
    pub log: u64,
    /// The number of the log's start that may write this record.
    pub start: u64,
    /// The backups that count: the number of each one's server, and of its file.
    pub backups: Vec<(u32, u64)>,
    /// See [`ReplicasRecord::replicas`].
    pub replicas: usize,
    /// What was decided when others last recovered the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<DecidedCut>,
    /// Until then nobody else begins to recover the log, since its server is starting with it, or is stopped for a moment, in
    /// milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub returns_until_ms: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

impl ReplicasRow {
    /// Returns what the row says of the replicas.
    #[must_use]
    pub fn record(&self) -> ReplicasRecord {
        let backups = self.backups.iter().map(|&(server, file)| BackupId { server, file });
        ReplicasRecord { backups: backups.collect(), replicas: self.replicas }
    }
}

impl Row for ReplicasRow {
    const PREFIX: &'static str = "replicas/";

    fn key(&self) -> String {
        padded(self.server)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[server] = parts else { return None };
        Some(Self { server: number(server)?, ..self })
    }
}

pub(super) fn find(
    transaction: &mut MetadataTransaction<'_>,
    server: u32,
) -> Result<Option<ReplicasRow>, RecordsError> {
    transaction.row::<ReplicasRow>(&padded(server))
}

/// Returns how many others have, at least, each thing that a server acknowledged.
pub(super) fn promised(
    transaction: &mut MetadataTransaction<'_>,
    server: u32,
) -> Result<usize, RecordsError> {
    Ok(find(transaction, server)?.map_or(0, |row| row.replicas))
}

impl Metadata {
    /// Returns the records of all servers' replicas, by number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn replicas(&self) -> Result<Vec<ReplicasRow>, MetadataError> {
        self.read(|transaction| Ok(transaction.rows("")?))
    }
}

#[cfg(test)]
mod tests {
    use super::{DecidedCut, OwnLogEnd, OwnLogExtent};

    #[test]
    fn a_cut_that_backups_had_between_two_of_the_disk_is_not_on_the_disk() {
        // Cuts 4 and 7 of the disk, 5 and 6 of backups alone, and until 9 nothing.
        let own = OwnLogEnd { start: 2, cut: 9, latest: 7, before: Some(4), is_whole: true };
        let extent = |cut, is_on_own_disk| DecidedCut { start: 2, cut, is_on_own_disk }.of_own(own);
        for (cut, is_there) in
            [(3, true), (4, true), (5, false), (6, false), (7, true), (9, true), (10, false)]
        {
            let expected = if is_there { OwnLogExtent::UpTo(cut) } else { OwnLogExtent::Behind };
            assert_eq!(extent(cut, false), Some(expected), "cut {cut}");
            assert_eq!(extent(cut, true), Some(OwnLogExtent::UpTo(cut)), "who decided knows that it is");
        }
        let broken = OwnLogEnd { is_whole: false, ..own };
        let whole = [own, broken, OwnLogEnd { before: None, ..broken }].map(OwnLogEnd::whole_until);
        assert_eq!(whole, [9, 4, 6]);
        let of_broken = |cut| DecidedCut { start: 2, cut, is_on_own_disk: false }.of_own(broken);
        assert_eq!(of_broken(7), Some(OwnLogExtent::Behind));
        assert_eq!(of_broken(4), Some(OwnLogExtent::UpTo(4)));
        let other = DecidedCut { start: 1, cut: 4, is_on_own_disk: true };
        assert_eq!(other.of_own(own), None, "another start has written it since");
    }
}
