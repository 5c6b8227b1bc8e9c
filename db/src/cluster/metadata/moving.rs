//! Changes of migrations: each begins, goes on and ends in commits that other servers see whole.

use store::HashRange;

use super::migrations::{self, MigrationRow, Side, all, may_follow, numbered};
use super::servers::is_gone;
use super::tablets::{self, TabletsRow, overlap};
use super::{
    MemberRow, Metadata, MetadataError, MetadataTransaction, TabletError, members, next_u32, tables,
};
use crate::cluster::migration::{Mode, Phase};
use crate::cluster::records::Revision;
use crate::limits::MIGRATIONS_MAX;
use crate::tenant::TenantId;

/// A migration, and where its table is, as of one commit.
#[derive(Clone, Debug)]
pub struct MigrationView {
    /// The migration.
    pub row: MigrationRow,
    /// The tablets of its table.
    pub tablets: TabletsRow,
    /// What is on the move of it.
    pub migrations: Vec<MigrationRow>,
    /// The servers of the cluster, there or not.
    pub members: Vec<MemberRow>,
    /// The commit.
    pub revision: Revision,
}

/// Begins to move hashes of a table: see [`Metadata::migration_begin`]. Where it is refused nothing is written.
pub(super) fn begin(
    transaction: &mut MetadataTransaction<'_>,
    (tenant, table): (TenantId, u32),
    hashes: HashRange,
    target: u32,
    mode: Option<Mode>,
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
    let mode = match mode {
        Some(mode) => mode,
        None => tables::mode_of(transaction, tenant, table)?,
    };
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
        standing: Phase::Preparing,
        begun_ms,
        is_aborted: false,
        is_source_done: false,
        is_target_done: false,
    };
    row.store(transaction)?;
    Ok(row)
}

/// Notes that a side of a migration which is over has nothing to do any more.
pub(super) fn leave(
    transaction: &mut MetadataTransaction<'_>,
    mut row: MigrationRow,
    side: Side,
) -> Result<(), MetadataError> {
    match side {
        Side::Source => row.is_source_done = true,
        Side::Target => row.is_target_done = true,
    }
    if row.is_source_done && row.is_target_done {
        transaction.delete(&row.key());
        return Ok(());
    }
    Ok(row.store(transaction)?)
}

impl Metadata {
    /// Begins to move hashes of a table, all of one owner, to a server that is there: with tablets that begin and end
    /// where they do; in this mode, or in the table's.
    ///
    /// # Errors
    /// `NotFound` when nobody placed such a table, `LimitExceeded`, [`TabletError`], or that it cannot be stored.
    pub fn migration_begin(
        &self,
        (tenant, table): (TenantId, u32),
        hashes: HashRange,
        target: u32,
        mode: impl Into<Option<Mode>>,
        begun_ms: u64,
    ) -> Result<MigrationRow, MetadataError> {
        let mode = mode.into();
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
    pub fn migration_advance(&self, id: u32, from: Phase, to: Phase) -> Result<MigrationRow, MetadataError> {
        self.advance_without(id, (from, to), None)
    }

    /// The same because the server on that side is gone: where it is registered in that moment nothing changes. So it reads
    /// what became of it when it registers again, and none that has read after it registered is taken for gone.
    ///
    /// # Errors
    /// As [`Metadata::migration_advance`].
    ///
    /// # Panics
    /// As [`Metadata::migration_advance`].
    pub fn migration_advance_without(
        &self,
        gone: Side,
        id: u32,
        from: Phase,
        to: Phase,
    ) -> Result<MigrationRow, MetadataError> {
        self.advance_without(id, (from, to), Some(gone))
    }

    fn advance_without(
        &self,
        id: u32,
        (from, to): (Phase, Phase),
        gone: Option<Side>,
    ) -> Result<MigrationRow, MetadataError> {
        assert!(may_follow(from, to), "a migration never comes from {from:?} to {to:?}");
        self.write(|transaction| {
            let mut row = numbered(transaction, id)?.ok_or(MetadataError::NotFound)?;
            let gone = gone.map(|side| is_gone(transaction, row.run_on(side))).transpose()?;
            if row.standing == from && gone != Some(false) {
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
            let row = numbered(transaction, id)?.filter(MigrationRow::is_over);
            row.map_or(Ok(()), |row| leave(transaction, row, side))
        })
    }

    /// A migration by its number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn migration_find(&self, id: u32) -> Result<Option<MigrationRow>, MetadataError> {
        self.read(|transaction| Ok(numbered(transaction, id)?))
    }

    /// A migration by its number, with where its table is.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn migration_view(&self, id: u32) -> Result<Option<MigrationView>, MetadataError> {
        self.read(|transaction| {
            let Some(row) = numbered(transaction, id)? else { return Ok(None) };
            let Some(tablets) = tablets::find(transaction, row.tenant, row.table)? else { return Ok(None) };
            let migrations = migrations::of_table(transaction, row.tenant, row.table)?;
            let members = members::all(transaction)?;
            Ok(Some(MigrationView { row, tablets, migrations, members, revision: transaction.revision() }))
        })
    }

    /// All migrations that have a record.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn migrations(&self) -> Result<Vec<MigrationRow>, MetadataError> {
        self.read(|transaction| Ok(all(transaction, None)?))
    }
}
