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
    /// Whether all of that cut is there.
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

impl DecidedCut {
    /// Returns up to where the server's own log counts; `None` of one that another start has written by now.
    #[must_use]
    pub fn of_own(self, own: OwnLogEnd) -> Option<OwnLogExtent> {
        // A cut begins when the one before is on the own disk.
        let has_it = own.cut > self.cut || own.cut == self.cut && own.is_whole;
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
