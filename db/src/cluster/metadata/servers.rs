//! Records of the servers of a cluster, each under a lease of its own: a server that is gone has none.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::encoding::{bytes_of, damaged, decode, encode, hexadecimal, padded};
use super::{Metadata, MetadataError, ServerRun, Transaction, members, next_u32};
use crate::cluster::records::{Change, Committed, Condition, LeaseId, Query, RecordsError, Span};
use crate::tenant::secret::random_bytes;

const SERVERS: &str = "servers/";
const CLUSTER: &str = "cluster";
const SECRET: &str = "secret";

#[derive(Serialize, Deserialize)]
struct Value {
    tcp: SocketAddr,
    udp: Vec<u16>,
    view: u64,
    started_ms: u64,
    version: String,
}

#[derive(Serialize, Deserialize)]
struct Cluster {
    id: String,
}

#[derive(Serialize, Deserialize)]
struct Secret {
    /// Hexadecimal digits.
    secret: String,
}

/// A server as it registered itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRow {
    /// Its number in the cluster, never reused.
    pub id: u32,
    /// Where it accepts streams.
    pub tcp: SocketAddr,
    /// The UDP port of each core.
    pub frame_ports: Vec<u16>,
    /// Its view.
    pub view: u64,
    /// When it was started, in milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// Its version.
    pub version: String,
}

impl ServerRow {
    fn registration(&self, lease: LeaseId) -> Result<Change, MetadataError> {
        let Self { tcp, view, started_ms, .. } = *self;
        let (udp, version) = (self.frame_ports.clone(), self.version.clone());
        let value = encode(&Value { tcp, udp, view, started_ms, version })?;
        Ok(Change::Put { key: key_of(self.id), value, lease: Some(lease) })
    }
}

fn key_of(server: u32) -> String {
    format!("{SERVERS}{}", padded(server))
}

/// Whether a server is not registered, or was started again: of that it stays so until the commit.
pub(super) fn is_gone(transaction: &mut Transaction<'_>, run: ServerRun) -> Result<bool, MetadataError> {
    let last = members::run_of(transaction, run.server)?;
    Ok(last.start > run.start || !transaction.has(&key_of(run.server))?)
}

impl Metadata {
    /// A number that was drawn when the first server of the cluster was started: it tells clusters apart whose etcd was
    /// made anew.
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

    /// What servers prove to each other that they know: drawn by the first one that asks.
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

    /// A number for a server that has none.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn server_number(&self) -> Result<u32, MetadataError> {
        self.write(|transaction| next_u32(transaction, "server"))
    }

    /// Registers a server for as long as the lease is held.
    ///
    /// # Errors
    /// `AlreadyExists` when there is a registration of this number, or that it cannot be stored.
    pub fn server_register(&self, row: &ServerRow, lease: LeaseId) -> Result<(), MetadataError> {
        let absent = Condition::Absent(key_of(row.id));
        match self.records().commit(&[absent], &[row.registration(lease)?])? {
            Committed::At(_) => Ok(()),
            Committed::Conflict => Err(MetadataError::AlreadyExists),
        }
    }

    /// Changes the registration of a server, which holds the lease.
    ///
    /// # Errors
    /// `NotFound` when there is none any more, or that it cannot be stored.
    pub fn server_renew(&self, row: &ServerRow, lease: LeaseId) -> Result<(), MetadataError> {
        let key = key_of(row.id);
        let reading = self.records().read(&[Query::all(Span::one(&key))], None)?;
        let record = reading.found.iter().flatten().next().ok_or(MetadataError::NotFound)?;
        let same = Condition::Is(key, record.revision);
        match self.records().commit(&[same], &[row.registration(lease)?])? {
            Committed::At(_) => Ok(()),
            Committed::Conflict => Err(MetadataError::NotFound),
        }
    }

    /// The servers that are there, by number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn servers(&self) -> Result<Vec<ServerRow>, MetadataError> {
        let reading = self.records().read(&[Query::all(Span::prefix(SERVERS))], None)?;
        let row = |record: &crate::cluster::records::Record| {
            let number = record.key.strip_prefix(SERVERS).and_then(|number| number.parse().ok());
            let id = number.ok_or_else(|| damaged(&record.key))?;
            let Value { tcp, udp, view, started_ms, version } = decode(&record.key, &record.value)?;
            Ok(ServerRow { id, tcp, frame_ports: udp, view, started_ms, version })
        };
        reading.found.iter().flatten().map(row).collect()
    }
}
