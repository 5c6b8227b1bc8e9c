//! Records of migrations: which hashes of a table go from which server to which, and how far that is.
//!
//! What a [`Standing`] says of the owner and what the tablets say is the same after every commit, since both change in
//! one. A migration that is over has its record until both servers are done with it, or somebody is for one that died.
//! A server that was started again is another one to a migration: it has lost what it had.

use serde::{Deserialize, Serialize};
use store::HashRange;

use super::encoding::{damaged, padded, parts, tenant_of};
use super::tablets::{self, TabletError, TabletsRow, hash_of, hash_text, overlap};
use super::{Metadata, MetadataError, Transaction, members, next_u32};
use crate::cluster::migration::{Mode, Standing};
use crate::cluster::records::{Query, RecordsError, Span};
use crate::limits::MIGRATIONS_MAX;
use crate::tenant::TenantId;

const MIGRATIONS: &str = "catalog/migrations/";

#[derive(Serialize, Deserialize)]
struct Value {
    first: String,
    last: String,
    source: ServerRun,
    target: ServerRun,
    mode: Mode,
    standing: Standing,
    begun_ms: u64,
    #[serde(default)]
    is_aborted: bool,
    #[serde(default)]
    is_source_done: bool,
    #[serde(default)]
    is_target_done: bool,
}

/// A server from one of its starts until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerRun {
    /// Its number.
    pub server: u32,
    /// How often it had been started.
    pub start: u32,
}

/// One of the two servers of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// That the hashes leave.
    Source,
    /// That they go to.
    Target,
}

/// A migration as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationRow {
    /// Number, never reused.
    pub id: u32,
    /// Whose table it is.
    pub tenant: TenantId,
    /// The table's number.
    pub table: u32,
    /// What moves.
    pub hashes: HashRange,
    /// From where.
    pub source: ServerRun,
    /// To where.
    pub target: ServerRun,
    /// In which way.
    pub mode: Mode,
    /// How far it is, and so who owns the hashes.
    pub standing: Standing,
    /// When it was begun, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
    /// Somebody wants the hashes to stay at the source.
    pub is_aborted: bool,
    /// The source has nothing to do any more.
    pub is_source_done: bool,
    /// The target has nothing to do any more.
    pub is_target_done: bool,
}

impl MigrationRow {
    /// Whether the hashes have an owner who is not to change.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.standing, Standing::Finished | Standing::Ended)
    }

    /// The server that owns the hashes.
    #[must_use]
    pub fn owner(&self) -> ServerRun {
        match self.standing {
            Standing::Preparing | Standing::Returning | Standing::Ended => self.source,
            Standing::Moving | Standing::Finished => self.target,
        }
    }

    /// Which of the two a server is.
    #[must_use]
    pub fn side_of(&self, run: ServerRun) -> Option<Side> {
        match run {
            run if run == self.source => Some(Side::Source),
            run if run == self.target => Some(Side::Target),
            _ => None,
        }
    }

    fn of(key: &str, value: &Value) -> Result<Self, RecordsError> {
        let [tenant, table, id] = parts(key, MIGRATIONS)?;
        let bounds = hash_of(&value.first).zip(hash_of(&value.last));
        let hashes = bounds.and_then(|(first, last)| HashRange::new(first, last));
        let Value { source, target, mode, standing, begun_ms, .. } = *value;
        Ok(Self {
            id: id.parse().map_err(|_| damaged(key))?,
            tenant: tenant_of(tenant)?,
            table: table.parse().map_err(|_| damaged(key))?,
            hashes: hashes.ok_or_else(|| damaged(key))?,
            source,
            target,
            mode,
            standing,
            begun_ms,
            is_aborted: value.is_aborted,
            is_source_done: value.is_source_done,
            is_target_done: value.is_target_done,
        })
    }

    fn key(&self) -> String {
        format!("{}{}", table_prefix(self.tenant, self.table), padded(self.id))
    }

    fn store(&self, transaction: &mut Transaction<'_>) -> Result<(), RecordsError> {
        let Self { source, target, mode, standing, begun_ms, .. } = *self;
        let value = Value {
            first: hash_text(self.hashes.first()),
            last: hash_text(self.hashes.last()),
            source,
            target,
            mode,
            standing,
            begun_ms,
            is_aborted: self.is_aborted,
            is_source_done: self.is_source_done,
            is_target_done: self.is_target_done,
        };
        transaction.put(&self.key(), &value)
    }

    /// Writes another standing, and the owner that goes with it.
    fn advance(&mut self, transaction: &mut Transaction<'_>, to: Standing) -> Result<(), MetadataError> {
        let before = self.owner().server;
        self.standing = to;
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

fn owned_tablets(transaction: &mut Transaction<'_>, row: &MigrationRow) -> Result<TabletsRow, MetadataError> {
    tablets::find(transaction, row.tenant, row.table)?.ok_or(MetadataError::NotFound)
}

/// Whether a migration may come from one standing to another: what [`crate::cluster::migration`] draws, and what the end of
/// a server leads to.
#[must_use]
fn may_follow(from: Standing, to: Standing) -> bool {
    use Standing::{Ended, Finished, Moving, Preparing, Returning};
    matches!(
        (from, to),
        (Preparing, Moving | Ended) | (Moving, Returning | Finished | Ended) | (Returning, Ended | Finished)
    )
}

fn table_prefix(tenant: TenantId, table: u32) -> String {
    format!("{}{}/", prefix_of(tenant), padded(table))
}

fn prefix_of(tenant: TenantId) -> String {
    format!("{MIGRATIONS}{}/", padded(tenant.0))
}

pub(super) fn remove_tenant(transaction: &mut Transaction<'_>, tenant: TenantId) {
    transaction.clear(&prefix_of(tenant));
}

pub(super) fn remove_table(transaction: &mut Transaction<'_>, tenant: TenantId, table: u32) {
    transaction.clear(&table_prefix(tenant, table));
}

/// Those of a table.
pub(super) fn of_table(
    transaction: &mut Transaction<'_>,
    tenant: TenantId,
    table: u32,
) -> Result<Vec<MigrationRow>, RecordsError> {
    rows(transaction, &table_prefix(tenant, table))
}

/// Those of a tenant's tables, or of all.
pub(super) fn all(
    transaction: &mut Transaction<'_>,
    of: Option<TenantId>,
) -> Result<Vec<MigrationRow>, RecordsError> {
    let prefix = of.map_or_else(|| MIGRATIONS.to_owned(), prefix_of);
    rows(transaction, &prefix)
}

fn rows(transaction: &mut Transaction<'_>, prefix: &str) -> Result<Vec<MigrationRow>, RecordsError> {
    transaction.all(prefix)?.iter().map(|(key, value)| MigrationRow::of(key, value)).collect()
}

/// One by its number. Others may change meanwhile.
fn numbered(transaction: &mut Transaction<'_>, id: u32) -> Result<Option<MigrationRow>, RecordsError> {
    let found = transaction.glance(&[Query::all(Span::prefix(MIGRATIONS))])?;
    let number = format!("/{}", padded(id));
    let Some(record) = found.iter().flatten().find(|record| record.key.ends_with(&number)) else {
        return Ok(None);
    };
    transaction.get(&record.key)?.map(|value| MigrationRow::of(&record.key, &value)).transpose()
}

impl Metadata {
    /// Begins to move hashes of a table, all of one owner, to a server that is there: with tablets that begin and end
    /// where they do.
    ///
    /// # Errors
    /// `NotFound` when nobody placed such a table, `LimitExceeded`, [`TabletError`], or that it cannot be stored.
    pub fn migration_begin(
        &self,
        (tenant, table): (TenantId, u32),
        hashes: HashRange,
        target: u32,
        mode: Mode,
        begun_ms: u64,
    ) -> Result<MigrationRow, MetadataError> {
        self.write(|transaction| {
            let mut row = tablets::find(transaction, tenant, table)?.ok_or(MetadataError::NotFound)?;
            let others = all(transaction, None)?;
            let same = |other: &&MigrationRow| {
                (other.tenant, other.table) == (tenant, table) && overlap(other.hashes, hashes)
            };
            if let Some(other) = others.iter().find(same) {
                return Err(TabletError::OnTheMove(other.id).into());
            }
            if others.len() >= MIGRATIONS_MAX {
                return Err(MetadataError::LimitExceeded);
            }
            row.split(hashes.first())?;
            if let Some(behind) = hashes.last().checked_add(1) {
                row.split(behind)?;
            }
            let source = row.owner_of(hashes)?;
            if source == target {
                return Err(TabletError::OwnedAlready(target).into());
            }
            let source = members::run_of(transaction, source)?;
            let target = members::run_of(transaction, target)?;
            let id = next_u32(transaction, "migration")?;
            row.store(transaction)?;
            let row = MigrationRow {
                id,
                tenant,
                table,
                hashes,
                source,
                target,
                mode,
                standing: Standing::Preparing,
                begun_ms,
                is_aborted: false,
                is_source_done: false,
                is_target_done: false,
            };
            row.store(transaction)?;
            Ok(row)
        })
    }

    /// Changes how far a migration is, if it is that far, together with the owner of the hashes; and says how far it is
    /// then, changed or not.
    ///
    /// # Errors
    /// `NotFound` when there is none of this number (any more), or that it cannot be stored.
    ///
    /// # Panics
    /// When no migration comes from one to the other.
    pub fn migration_advance(
        &self,
        id: u32,
        from: Standing,
        to: Standing,
    ) -> Result<MigrationRow, MetadataError> {
        assert!(may_follow(from, to), "a migration never comes from {from:?} to {to:?}");
        self.write(|transaction| {
            let mut row = numbered(transaction, id)?.ok_or(MetadataError::NotFound)?;
            if row.standing == from {
                row.advance(transaction, to)?;
            }
            Ok(row)
        })
    }

    /// Notes that the hashes are to stay at the source. Of a migration that is over it changes nothing.
    ///
    /// # Errors
    /// `NotFound` when there is none of this number (any more), or that it cannot be stored.
    pub fn migration_abort(&self, id: u32) -> Result<MigrationRow, MetadataError> {
        self.write(|transaction| {
            let mut row = numbered(transaction, id)?.ok_or(MetadataError::NotFound)?;
            if !row.is_over() && !row.is_aborted {
                row.is_aborted = true;
                row.store(transaction)?;
            }
            Ok(row)
        })
    }

    /// Notes of a migration that is over that a side has nothing to do any more. With the second one its record goes. What
    /// is not over, or is not there, stays as it is.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn migration_leave(&self, id: u32, side: Side) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let Some(mut row) = numbered(transaction, id)?.filter(MigrationRow::is_over) else {
                return Ok(());
            };
            match side {
                Side::Source => row.is_source_done = true,
                Side::Target => row.is_target_done = true,
            }
            if row.is_source_done && row.is_target_done {
                transaction.delete(&row.key());
                return Ok(());
            }
            Ok(row.store(transaction)?)
        })
    }

    /// A migration by its number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn migration_find(&self, id: u32) -> Result<Option<MigrationRow>, MetadataError> {
        self.read(|transaction| Ok(numbered(transaction, id)?))
    }

    /// All migrations that have a record.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn migrations(&self) -> Result<Vec<MigrationRow>, MetadataError> {
        self.read(|transaction| Ok(all(transaction, None)?))
    }
}
