//! Records of the present servers of a cluster, each under its own lease; a server that is gone has none.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::encoding::{bytes_of, damaged, encode, hexadecimal, padded};
use super::row::{Row, number, row_of};
use super::{MemberRow, Metadata, MetadataError, MetadataTransaction, ServerRun, members, next_u32};
use crate::records::{
    Committed, Condition, KeySpan, LeaseId, Query, RecordChange, Records, RecordsError, Revision,
};
use crate::secret::random_bytes;

/// The key of the cluster's identity.
pub(super) const CLUSTER: &str = "cluster";
const SECRET: &str = "secret";

#[derive(Serialize, Deserialize)]
struct Cluster {
    id: String,
}

#[derive(Serialize, Deserialize)]
struct Secret {
    /// Hexadecimal digits.
    secret: String,
}

/// A server's registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRow {
    /// The number of the server in the cluster, never reused.
    #[serde(skip)]
    pub id: u32,
    /// The number of its start; 0 in records older than this field.
    #[serde(default)]
    pub start: u32,
    /// The address where it accepts streams.
    pub tcp: SocketAddr,
    /// The UDP port of each core.
    #[serde(rename = "udp")]
    pub frame_ports: Vec<u16>,
    /// The server's view.
    pub view: u64,
    /// The time of its start, in milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// The server's version.
    pub version: String,
    /// The host of the server, if it keeps replicas of others' logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_host: Option<String>,
}

impl Row for ServerRow {
    const PREFIX: &'static str = "servers/";

    fn key(&self) -> String {
        padded(self.id)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[id] = parts else { return None };
        Some(Self { id: number(id)?, ..self })
    }
}

fn key_of(server: u32) -> String {
    format!("{}{}", ServerRow::PREFIX, padded(server))
}

/// Returns whether a server is unregistered, has ended or was restarted; the commit ensures that this still holds.
pub(super) fn is_gone(
    transaction: &mut MetadataTransaction<'_>,
    run: ServerRun,
) -> Result<bool, MetadataError> {
    let last = members::run_of(transaction, run.server)?;
    let is_other = last.start > run.start || members::has_ended(transaction, run)?;
    Ok(is_other || !transaction.has(&key_of(run.server))?)
}

impl Metadata {
    /// Returns the cluster's random number, drawn when its first server was started. It distinguishes clusters whose
    /// etcd was recreated.
    ///
    /// # Errors
    /// When it cannot be read or stored.
    pub fn cluster_id(&self) -> Result<String, MetadataError> {
        self.write(|transaction| {
            if let Some(Cluster { id }) = transaction.get(CLUSTER)? {
                return Ok(id);
            }
            let drawn = random_bytes::<16>().map_err(|error| RecordsError::Storage(error.to_string()))?;
            let id = hexadecimal(&drawn);
            transaction.put(CLUSTER, &Cluster { id: id.clone() })?;
            Ok(id)
        })
    }

    /// Returns whether these records are a cluster's; writes nothing.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn is_of_cluster(records: &dyn Records) -> Result<bool, MetadataError> {
        let reading = records.read(&[Query::all(KeySpan::one(CLUSTER))], None)?;
        Ok(reading.found.iter().flatten().next().is_some())
    }

    /// Returns the secret that servers prove to each other, and under which they make proofs of sessions, also a lone
    /// server; drawn at the first request.
    ///
    /// # Errors
    /// When it cannot be read or stored.
    pub fn cluster_secret(&self) -> Result<[u8; 32], MetadataError> {
        self.write(|transaction| {
            if let Some(Secret { secret }) = transaction.get(SECRET)? {
                return bytes_of(&secret).ok_or_else(|| damaged(SECRET).into());
            }
            let drawn = random_bytes::<32>().map_err(|error| RecordsError::Storage(error.to_string()))?;
            transaction.put(SECRET, &Secret { secret: hexadecimal(&drawn) })?;
            Ok(drawn)
        })
    }

    /// Returns a number for a new server.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn server_number(&self) -> Result<u32, MetadataError> {
        self.write(|transaction| next_u32(transaction, "server"))
    }

    /// Registers a server while the lease is held. It replaces an earlier start that is registered under a live lease:
    /// that start is gone, because a data directory has one server at a time.
    ///
    /// # Errors
    /// `AlreadyExists` when there was a later start, `NotFound` when this one is known to have ended; `Conflict` when the
    /// registration changes meanwhile; or that it cannot be stored.
    pub fn server_register(&self, row: &ServerRow, lease: LeaseId) -> Result<(), MetadataError> {
        let run = ServerRun { server: row.id, start: row.start };
        self.read(|transaction| {
            if members::run_of(transaction, run.server)?.start > run.start {
                return Err(MetadataError::AlreadyExists);
            }
            if members::has_ended(transaction, run)? { Err(MetadataError::NotFound) } else { Ok(()) }
        })?;
        let condition = match self.registered(row)? {
            Some((_, revision)) => Condition::Is(key_of(row.id), revision),
            None => Condition::Absent(key_of(row.id)),
        };
        self.write_registration(condition, row, lease)
    }

    /// Updates the registration of a server that holds the lease.
    ///
    /// # Errors
    /// `AlreadyExists` when a later start has taken it over, `NotFound` when there is none any more, `Conflict` when it
    /// changes meanwhile; or that it cannot be read or stored.
    pub fn server_renew(&self, row: &ServerRow, lease: LeaseId) -> Result<(), MetadataError> {
        let (found, revision) = self.registered(row)?.ok_or(MetadataError::NotFound)?;
        if found == *row {
            return Ok(());
        }
        self.write_registration(Condition::Is(key_of(row.id), revision), row, lease)
    }

    /// Returns the registration of a server, and the commit that wrote it. Refuses if a later start is registered.
    fn registered(&self, row: &ServerRow) -> Result<Option<(ServerRow, Revision)>, MetadataError> {
        let reading = self.records().read(&[Query::all(KeySpan::one(&key_of(row.id)))], None)?;
        let Some(record) = reading.found.iter().flatten().next() else { return Ok(None) };
        let found = row_of::<ServerRow>(&record.key, &record.value)?;
        if found.start > row.start {
            return Err(MetadataError::AlreadyExists);
        }
        Ok(Some((found, record.revision)))
    }

    fn write_registration(
        &self,
        condition: Condition,
        row: &ServerRow,
        lease: LeaseId,
    ) -> Result<(), MetadataError> {
        let (key, value) = (key_of(row.id), encode(row)?);
        let registration = RecordChange::Put { key, value, lease: Some(lease) };
        match self.records().commit(&[condition], &[registration])? {
            Committed::At(_) => Ok(()),
            Committed::Conflict => Err(MetadataError::Conflict),
        }
    }

    /// Records that the process of a server has ended, as its machine says: it counts as gone at once. Changes nothing if another
    /// start of it is known.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn member_ended(&self, run: ServerRun) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let row = transaction.row::<MemberRow>(&padded(run.server))?;
            let Some(row) = row.filter(|row| row.run == run && row.ended < run.start) else { return Ok(()) };
            transaction.delete(&key_of(run.server));
            Ok(transaction.store(&MemberRow { ended: run.start, ..row })?)
        })
    }

    /// Returns the registered servers, by number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn servers(&self) -> Result<Vec<ServerRow>, MetadataError> {
        let reading = self.records().read(&[Query::all(KeySpan::prefix(ServerRow::PREFIX))], None)?;
        let records = reading.found.iter().flatten();
        Ok(records.map(|record| row_of(&record.key, &record.value)).collect::<Result<_, _>>()?)
    }
}
