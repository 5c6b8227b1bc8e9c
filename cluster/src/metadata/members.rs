//! Records of all servers that a cluster has had: the last address of each, and the number of its starts.
//!
//! They stay when a server goes, unlike its registration ([`super::servers`]). So its tablets keep a known owner, and a
//! server that returns is known to have lost its objects in memory.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::TabletError;
use super::encoding::padded;
use super::row::{Row, number};
use super::{Metadata, MetadataError, MetadataTransaction, ServerRun};

/// A present or former server of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// The server's number and last start.
    #[serde(rename = "start", with = "start")]
    pub run: ServerRun,
    /// The address where it accepts streams, or did last.
    pub tcp: SocketAddr,
    /// Whether it has a log on its disk, or did last: only then can it own hashes of a table on the disk.
    #[serde(default)]
    pub has_disk: bool,
    /// Whether it is of a release with tagged tables.
    #[serde(default)]
    pub knows_tags: bool,
    /// The last start whose process is known to have ended; 0 for none.
    #[serde(default)]
    pub ended: u32,
}

/// The last start of a row, whose key has the server.
mod start {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::ServerRun;

    pub(super) fn serialize<S: Serializer>(run: &ServerRun, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(run.start)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ServerRun, D::Error> {
        Ok(ServerRun { server: 0, start: u32::deserialize(deserializer)? })
    }
}

impl Row for MemberRow {
    const PREFIX: &'static str = "catalog/members/";

    fn key(&self) -> String {
        padded(self.run.server)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[server] = parts else { return None };
        Some(Self { run: ServerRun { server: number(server)?, ..self.run }, ..self })
    }
}

/// Returns whether the process of a start is known to have ended.
pub(super) fn has_ended(
    transaction: &mut MetadataTransaction<'_>,
    run: ServerRun,
) -> Result<bool, MetadataError> {
    Ok(transaction.row::<MemberRow>(&padded(run.server))?.is_some_and(|row| row.ended >= run.start))
}

/// Returns the last start of a server.
pub(super) fn run_of(
    transaction: &mut MetadataTransaction<'_>,
    server: u32,
) -> Result<ServerRun, MetadataError> {
    let row = transaction.row::<MemberRow>(&padded(server))?.ok_or(TabletError::NoServer(server))?;
    Ok(row.run)
}

/// Returns whether a server has a log on its disk.
pub(super) fn has_disk(
    transaction: &mut MetadataTransaction<'_>,
    server: u32,
) -> Result<bool, MetadataError> {
    Ok(transaction.row::<MemberRow>(&padded(server))?.is_some_and(|row| row.has_disk))
}

impl Metadata {
    /// Records a server's start, the address of its streams, and whether it has a log on its disk.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn member_start(
        &self,
        server: u32,
        tcp: SocketAddr,
        has_disk: bool,
    ) -> Result<ServerRun, MetadataError> {
        self.write(|transaction| {
            let before = transaction.row::<MemberRow>(&padded(server))?.map_or(0, |row| row.run.start);
            let start = before.checked_add(1).ok_or(MetadataError::LimitExceeded)?;
            let run = ServerRun { server, start };
            transaction.store(&MemberRow { run, tcp, has_disk, knows_tags: true, ended: before })?;
            Ok(run)
        })
    }

    /// Returns the present and former servers of the cluster, by number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn members(&self) -> Result<Vec<MemberRow>, MetadataError> {
        self.read(|transaction| Ok(transaction.rows("")?))
    }
}
