//! Records of migrations: which hashes of a table move from which server to which, and the phase.
//!
//! The owner implied by a [`Phase`] and the one in the tablets agree after every commit, because both change in one. A
//! finished migration keeps its record until both servers are done with it, or another server is done for one that
//! died. A restarted server is a different one to a migration, because it has lost its objects.

use serde::{Deserialize, Serialize};
use store::HashRange;
use wire::TenantId;

use super::encoding::{damaged, of_any, of_tenant, padded, parts, tenant_of};
use super::tablets::{self, TabletsRow, hash_of, hash_text};
use super::{MetadataError, MetadataTransaction, TabletError};
use crate::migration::{Mode, Phase};
use crate::records::{KeySpan, Query, RecordsError};

pub(super) const MIGRATIONS: &str = "catalog/migrations/";

#[derive(Serialize, Deserialize)]
struct MigrationValue {
    first: String,
    last: String,
    source: ServerRun,
    target: ServerRun,
    mode: Mode,
    #[serde(alias = "standing")]
    phase: Phase,
    begun_ms: u64,
    #[serde(default)]
    is_aborted: bool,
    #[serde(default)]
    is_source_done: bool,
    #[serde(default)]
    is_target_done: bool,
}

/// A server during one run, from start to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerRun {
    /// The server's number.
    pub server: u32,
    /// The number of its start.
    pub start: u32,
}

/// One of the two servers of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The server that the hashes leave.
    Source,
    /// The server that receives the hashes.
    Target,
}

/// A migration as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationRow {
    /// The number of the migration, never reused.
    pub id: u32,
    /// The tenant of the table.
    pub tenant: TenantId,
    /// The table's number.
    pub table: u32,
    /// The hashes that move.
    pub hashes: HashRange,
    /// The source.
    pub source: ServerRun,
    /// The target.
    pub target: ServerRun,
    /// The way of moving.
    pub mode: Mode,
    /// The phase, and so the owner of the hashes.
    pub phase: Phase,
    /// The begin, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
    /// An abort was requested: the hashes should stay at the source.
    pub is_aborted: bool,
    /// The source has nothing left to do.
    pub is_source_done: bool,
    /// The target has nothing left to do.
    pub is_target_done: bool,
}

impl Side {
    /// Returns the other side.
    #[must_use]
    pub fn opposite(self) -> Side {
        match self {
            Side::Source => Side::Target,
            Side::Target => Side::Source,
        }
    }

    /// Returns how a migration without a record ended for this side, from the hashes that its server owns. `None` if it
    /// owns only some of them.
    #[must_use]
    pub fn end_by(self, tablets: &TabletsRow, hashes: HashRange, own: u32) -> Option<Phase> {
        let owned = tablets.owned_by(own);
        let has_all =
            owned.iter().any(|range| range.contains(hashes.first()) && range.contains(hashes.last()));
        let has_none = owned.iter().all(|range| !tablets::overlap(*range, hashes));
        match (self, has_all, has_none) {
            (Side::Source, true, _) | (Side::Target, _, true) => Some(Phase::Ended),
            (Side::Source, _, true) | (Side::Target, true, _) => Some(Phase::Finished),
            _ => None,
        }
    }
}

impl MigrationRow {
    /// Returns whether the hashes have their final owner.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Finished | Phase::Ended)
    }

    /// Returns the server that owns the hashes.
    #[must_use]
    pub fn owner(&self) -> ServerRun {
        match self.phase {
            Phase::Preparing | Phase::Returning | Phase::Ended => self.source,
            Phase::Moving | Phase::Finished => self.target,
        }
    }

    /// Returns the server on that side.
    #[must_use]
    pub fn run_on(&self, side: Side) -> ServerRun {
        match side {
            Side::Source => self.source,
            Side::Target => self.target,
        }
    }

    /// Returns the side of a server.
    #[must_use]
    pub fn side_of(&self, run: ServerRun) -> Option<Side> {
        match run {
            run if run == self.source => Some(Side::Source),
            run if run == self.target => Some(Side::Target),
            _ => None,
        }
    }

    fn of(key: &str, value: &MigrationValue) -> Result<Self, RecordsError> {
        let [tenant, table, id] = parts(key, MIGRATIONS)?;
        let bounds = hash_of(&value.first).zip(hash_of(&value.last));
        let hashes = bounds.and_then(|(first, last)| HashRange::new(first, last));
        let MigrationValue { source, target, mode, phase, begun_ms, .. } = *value;
        Ok(Self {
            id: id.parse().map_err(|_| damaged(key))?,
            tenant: tenant_of(tenant)?,
            table: table.parse().map_err(|_| damaged(key))?,
            hashes: hashes.ok_or_else(|| damaged(key))?,
            source,
            target,
            mode,
            phase,
            begun_ms,
            is_aborted: value.is_aborted,
            is_source_done: value.is_source_done,
            is_target_done: value.is_target_done,
        })
    }

    pub(super) fn key(&self) -> String {
        format!("{}{}", table_prefix(self.tenant, self.table), padded(self.id))
    }

    pub(super) fn store(&self, transaction: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
        let Self { source, target, mode, phase, begun_ms, .. } = *self;
        let value = MigrationValue {
            first: hash_text(self.hashes.first()),
            last: hash_text(self.hashes.last()),
            source,
            target,
            mode,
            phase,
            begun_ms,
            is_aborted: self.is_aborted,
            is_source_done: self.is_source_done,
            is_target_done: self.is_target_done,
        };
        transaction.put(&self.key(), &value)
    }

    /// Writes another phase, and the owner that goes with it.
    pub(super) fn advance(
        &mut self,
        transaction: &mut MetadataTransaction<'_>,
        to: Phase,
    ) -> Result<(), MetadataError> {
        let before = self.owner().server;
        self.phase = to;
        let after = self.owner().server;
        if after != before {
            let mut row = owned_tablets(transaction, self)?;
            if row.owner_of(self.hashes)? != before {
                return Err(TabletError::OwnedAlready(after).into());
            }
            row.give(self.hashes, after);
            row.store(transaction)?;
        }
        Ok(self.store(transaction)?)
    }
}

fn owned_tablets(
    transaction: &mut MetadataTransaction<'_>,
    row: &MigrationRow,
) -> Result<TabletsRow, MetadataError> {
    tablets::find(transaction, row.tenant, row.table)?.ok_or(MetadataError::NotFound)
}

/// Returns whether one phase may follow another: by the diagram of [`crate::migration`], or because a server
/// ended.
#[must_use]
pub(super) fn may_follow(from: Phase, to: Phase) -> bool {
    use Phase::{Ended, Finished, Moving, Preparing, Returning};
    matches!(
        (from, to),
        (Preparing, Moving | Ended) | (Moving, Returning | Finished | Ended) | (Returning, Ended | Finished)
    )
}

fn table_prefix(tenant: TenantId, table: u32) -> String {
    format!("{}{}/", of_tenant(MIGRATIONS, tenant), padded(table))
}

pub(super) fn remove_table(transaction: &mut MetadataTransaction<'_>, tenant: TenantId, table: u32) {
    transaction.clear(&table_prefix(tenant, table));
}

/// Returns the migrations of a table.
pub(super) fn of_table(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    table: u32,
) -> Result<Vec<MigrationRow>, RecordsError> {
    rows(transaction, &table_prefix(tenant, table))
}

/// Returns the migrations of a tenant's tables, or of all.
pub(super) fn all(
    transaction: &mut MetadataTransaction<'_>,
    of: Option<TenantId>,
) -> Result<Vec<MigrationRow>, RecordsError> {
    rows(transaction, &of_any(MIGRATIONS, of))
}

fn rows(transaction: &mut MetadataTransaction<'_>, prefix: &str) -> Result<Vec<MigrationRow>, RecordsError> {
    transaction.all(prefix)?.iter().map(|(key, value)| MigrationRow::of(key, value)).collect()
}

/// Returns a migration by its number. Other migrations may change meanwhile.
pub(super) fn numbered(
    transaction: &mut MetadataTransaction<'_>,
    id: u32,
) -> Result<Option<MigrationRow>, RecordsError> {
    let found = transaction.glance(&[Query::all(KeySpan::prefix(MIGRATIONS))])?;
    let number = format!("/{}", padded(id));
    let Some(record) = found.iter().flatten().find(|record| record.key.ends_with(&number)) else {
        return Ok(None);
    };
    transaction.get(&record.key)?.map(|value| MigrationRow::of(&record.key, &value)).transpose()
}
