//! Records of the servers that a cluster has had: where each was reached last, and how often it was started.
//!
//! They stay when a server goes, unlike its registration ([`super::servers`]): so there is something to say of the
//! tablets that it owns, and a server that comes back is known to be one that has lost what it had.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::TabletError;
use super::encoding::{damaged, padded};
use super::{Metadata, MetadataError, MetadataTransaction, ServerRun};
use crate::cluster::records::RecordsError;

pub(super) const MEMBERS: &str = "catalog/members/";

#[derive(Serialize, Deserialize)]
struct MemberValue {
    tcp: SocketAddr,
    start: u32,
}

/// A server that the cluster has, or has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// Its number and its last start.
    pub run: ServerRun,
    /// Where it accepts streams, or did last.
    pub tcp: SocketAddr,
}

fn key_of(server: u32) -> String {
    format!("{MEMBERS}{}", padded(server))
}

/// The last start of a server.
pub(super) fn run_of(
    transaction: &mut MetadataTransaction<'_>,
    server: u32,
) -> Result<ServerRun, MetadataError> {
    let MemberValue { start, .. } = transaction.get(&key_of(server))?.ok_or(TabletError::NoServer(server))?;
    Ok(ServerRun { server, start })
}

/// All of them, by number.
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
    /// Notes that a server was started, and where it accepts streams.
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

    /// The servers that the cluster has, or has had, by number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn members(&self) -> Result<Vec<MemberRow>, MetadataError> {
        self.read(|transaction| Ok(all(transaction)?))
    }
}
