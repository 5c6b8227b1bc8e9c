//! Changes of migrations: each begins, goes on and ends in commits that other servers see whole.

use store::HashRange;

use super::migrations::{MigrationRow, Side, all, may_follow, numbered};
use super::tablets::{self, TabletError, overlap};
use super::{Metadata, MetadataError, Transaction, members, next_u32};
use crate::cluster::migration::{Mode, Standing};
use crate::limits::MIGRATIONS_MAX;
use crate::tenant::TenantId;

/// Begins to move hashes of a table: see [`Metadata::migration_begin`]. Where it is refused nothing is written.
pub(super) fn begin(
    transaction: &mut Transaction<'_>,
    (tenant, table): (TenantId, u32),
    hashes: HashRange,
    target: u32,
    mode: Mode,
    begun_ms: u64,
) -> Result<MigrationRow, MetadataError> {
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
        self.write(|transaction| begin(transaction, (tenant, table), hashes, target, mode, begun_ms))
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
