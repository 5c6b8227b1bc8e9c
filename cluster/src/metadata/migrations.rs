//! Records of migrations: which hashes of a table move from which server to which, and the phase.
//!
//! The owner implied by a [`MigrationPhase`] and the one in the tablets agree after every commit, because both change
//! in one. A finished migration keeps its record until both servers are done with it, or another server is done for one
//! that died. A restarted server is a different one to a migration, because it has lost its objects in memory.

use serde::{Deserialize, Serialize};
use store::HashRange;
use wire::TenantId;

use super::encoding::padded;
use super::row::{Row, below, number, tenant};
use super::tablets::{self, TabletsRow};
use super::{MetadataError, MetadataTransaction, TabletError};
use crate::migration::{MigrationMode, MigrationPhase};
use crate::records::{KeySpan, Query, RecordsError};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationRow {
    /// The number of the migration, never reused.
    #[serde(skip)]
    pub id: u32,
    /// The tenant of the table.
    #[serde(skip)]
    pub tenant: TenantId,
    /// The table's number.
    #[serde(skip)]
    pub table: u32,
    /// The hashes that move.
    #[serde(flatten, with = "bounds")]
    pub hashes: HashRange,
    /// The source.
    pub source: ServerRun,
    /// The target.
    pub target: ServerRun,
    /// The way of moving.
    pub mode: MigrationMode,
    /// The phase, and so the owner of the hashes.
    #[serde(alias = "standing")]
    pub phase: MigrationPhase,
    /// Whether the table is on the disk: nobody is served from the target before everything is on its disk, and a side
    /// that is gone leaves the hashes to the source.
    #[serde(default)]
    pub is_durable: bool,
    /// Whether the table is tagged: a tablet of it moves, and `hashes` are the positions of its keys.
    #[serde(default)]
    pub is_tagged: bool,
    /// The begin, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
    /// An abort was requested: the hashes should stay at the source.
    #[serde(default)]
    pub is_aborted: bool,
    /// The source has nothing left to do.
    #[serde(default)]
    pub is_source_done: bool,
    /// The target has nothing left to do.
    #[serde(default)]
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
    pub fn end_by(self, tablets: &TabletsRow, hashes: HashRange, own: u32) -> Option<MigrationPhase> {
        let owned = tablets.owned_by(own);
        let has_all =
            owned.iter().any(|range| range.contains(hashes.first()) && range.contains(hashes.last()));
        let has_none = owned.iter().all(|range| !tablets::overlap(*range, hashes));
        match (self, has_all, has_none) {
            (Side::Source, true, _) | (Side::Target, _, true) => Some(MigrationPhase::Ended),
            (Side::Source, _, true) | (Side::Target, true, _) => Some(MigrationPhase::Finished),
            _ => None,
        }
    }
}

impl MigrationRow {
    /// Returns whether the hashes have their final owner.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, MigrationPhase::Finished | MigrationPhase::Ended)
    }

    /// Returns the hashes of the keys that move. Those of a tagged table may have any.
    #[must_use]
    pub fn key_hashes(&self) -> HashRange {
        if self.is_tagged { HashRange::ALL } else { self.hashes }
    }

    /// Returns the server that owns the hashes.
    #[must_use]
    pub fn owner(&self) -> ServerRun {
        match self.phase {
            MigrationPhase::Preparing | MigrationPhase::Returning | MigrationPhase::Ended => self.source,
            MigrationPhase::Moving | MigrationPhase::Finished => self.target,
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

    /// Writes another phase, and the owner that goes with it.
    pub(super) fn advance(
        &mut self,
        transaction: &mut MetadataTransaction<'_>,
        to: MigrationPhase,
    ) -> Result<(), MetadataError> {
        assert!(may_follow(self.phase, to), "a migration never comes from {:?} to {to:?}", self.phase);
        let before = self.owner().server;
        self.phase = to;
        let after = self.owner().server;
        if after != before {
            let mut row = owned_tablets(transaction, self)?;
            if row.owner_of(self.hashes)? != before {
                return Err(TabletError::OwnedAlready(after).into());
            }
            row.give(self.hashes, after);
            transaction.store(&row)?;
        }
        Ok(transaction.store(self)?)
    }
}

/// The hashes of a row: the first and the last one in hexadecimal.
mod bounds {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use store::HashRange;

    use crate::metadata::tablets::{hash_of, hash_text};

    #[derive(Serialize, Deserialize)]
    struct Bounds {
        first: String,
        last: String,
    }

    pub(super) fn serialize<S: Serializer>(hashes: &HashRange, serializer: S) -> Result<S::Ok, S::Error> {
        let (first, last) = (hash_text(hashes.first()), hash_text(hashes.last()));
        Bounds { first, last }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HashRange, D::Error> {
        let Bounds { first, last } = Bounds::deserialize(deserializer)?;
        let range = hash_of(&first).zip(hash_of(&last)).and_then(|(first, last)| HashRange::new(first, last));
        range.ok_or_else(|| Error::custom("the hashes are not a range"))
    }
}

impl Row for MigrationRow {
    const PREFIX: &'static str = "catalog/migrations/";

    fn key(&self) -> String {
        below_table(self.tenant, self.table) + &padded(self.id)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[of, table, id] = parts else { return None };
        Some(Self { id: number(id)?, tenant: tenant(of)?, table: number(table)?, ..self })
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
pub(super) fn may_follow(from: MigrationPhase, to: MigrationPhase) -> bool {
    use MigrationPhase::{Ended, Finished, Moving, Preparing, Returning};
    matches!(
        (from, to),
        (Preparing, Moving | Ended) | (Moving, Returning | Finished | Ended) | (Returning, Ended | Finished)
    )
}

fn below_table(tenant: TenantId, table: u32) -> String {
    format!("{}{}/", below(tenant), padded(table))
}

pub(super) fn remove_table(transaction: &mut MetadataTransaction<'_>, tenant: TenantId, table: u32) {
    transaction.remove_rows::<MigrationRow>(&below_table(tenant, table));
}

/// Returns the migrations of a table.
pub(super) fn of_table(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    table: u32,
) -> Result<Vec<MigrationRow>, RecordsError> {
    transaction.rows(&below_table(tenant, table))
}

/// Returns a migration by its number. Other migrations may change meanwhile.
pub(super) fn numbered(
    transaction: &mut MetadataTransaction<'_>,
    id: u32,
) -> Result<Option<MigrationRow>, RecordsError> {
    let found = transaction.glance(&[Query::all(KeySpan::prefix(MigrationRow::PREFIX))])?;
    let number = format!("/{}", padded(id));
    let Some(record) = found.iter().flatten().find(|record| record.key.ends_with(&number)) else {
        return Ok(None);
    };
    transaction.row(&record.key[MigrationRow::PREFIX.len()..])
}
