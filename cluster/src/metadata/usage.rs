//! What tenants with limits that hold over the cluster use at each server, each record under its server's lease.

use serde::{Deserialize, Serialize};

use super::encoding::{encode, padded};
use super::row::{Row, number, row_of};
use super::{Metadata, MetadataError};
use crate::records::{KeySpan, LeaseId, Query, RecordChange};

/// What some tenants use at a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The number of the server.
    #[serde(skip)]
    pub server: u32,
    /// Of each tenant, by number: its number, bytes of its objects, and requests per second.
    pub tenants: Vec<(u32, u64, u64)>,
}

impl Row for UsageRow {
    const PREFIX: &'static str = "usage/";

    fn key(&self) -> String {
        padded(self.server)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[server] = parts else { return None };
        Some(Self { server: number(server)?, ..self })
    }
}

impl Metadata {
    /// Tells the other servers what tenants use at this one, for as long as it holds its lease.
    ///
    /// # Errors
    /// When it cannot be stored, or the lease is over.
    pub fn usage_report(&self, row: &UsageRow, lease: LeaseId) -> Result<(), MetadataError> {
        let key = format!("{}{}", UsageRow::PREFIX, row.key());
        let put = RecordChange::Put { key, value: encode(row)?, lease: Some(lease) };
        self.records().commit(&[], &[put])?;
        Ok(())
    }

    /// Returns the reports of all servers that have made one.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn usage_reports(&self) -> Result<Vec<UsageRow>, MetadataError> {
        let reading = self.records().read(&[Query::all(KeySpan::prefix(UsageRow::PREFIX))], None)?;
        let records = reading.found.into_iter().flatten();
        Ok(records.map(|record| row_of(&record.key, &record.value)).collect::<Result<_, _>>()?)
    }
}
