//! Records of all servers that a cluster has had: the last address of each, and the number of its starts.
//!
//! They stay when a server goes, unlike its registration ([`super::servers`]). So its tablets keep a known owner, and a
//! server that returns is known to have lost its objects.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::TabletError;
use super::encoding::{damaged, padded};
use super::{Metadata, MetadataError, MetadataTransaction, ServerRun};
use crate::records::RecordsError;

pub(super) const MEMBERS: &str = "catalog/members/";

#[derive(Serialize, Deserialize)]
struct MemberValue {
    tcp: SocketAddr,
    start: u32,
}

/// A present or former server of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// The server's number and last start.
    pub run: ServerRun,
    /// The address where it accepts streams, or did last.
    pub tcp: SocketAddr,
}

fn key_of(server: u32) -> String {
    format!("{MEMBERS}{}", padded(server))
}

/// Returns the last start of a server.
pub(super) fn run_of(
    transaction: &mut MetadataTransaction<'_>,
    server: u32,
) -> Result<ServerRun, MetadataError> {
    let MemberValue { start, .. } = transaction.get(&key_of(server))?.ok_or(TabletError::NoServer(server))?;
    Ok(ServerRun { server, start })
}

/// Returns all members, by number.
pub(super) fn all(transaction: &mut MetadataTransaction<'_>) -> Result<Vec<MemberRow>, RecordsError> {
    let mut rows = Vec::new();
    for (key, MemberValue { tcp, start }) in transaction.all(MEMBERS)? {
        let server = key.strip_prefix(MEMBERS).and_then(|number| number.parse().ok());
        let server = server.ok_or_else(|| damaged(&key))?;
        rows.push(MemberRow { run: ServerRun { server, start }, tcp });
    }
    Ok(rows)
}

impl Metadata {
    /// Records a server's start and the address of its streams.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn member_start(&self, server: u32, tcp: SocketAddr) -> Result<ServerRun, MetadataError> {
        self.write(|transaction| {
            let key = key_of(server);
            let before = transaction.get::<MemberValue>(&key)?.map_or(0, |value| value.start);
            let start = before.checked_add(1).ok_or(MetadataError::LimitExceeded)?;
            transaction.put(&key, &MemberValue { tcp, start })?;
            Ok(ServerRun { server, start })
        })
    }

    /// Returns the present and former servers of the cluster, by number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn members(&self) -> Result<Vec<MemberRow>, MetadataError> {
        self.read(|transaction| Ok(all(transaction)?))
    }
}
