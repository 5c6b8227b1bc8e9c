//! Changes of migrations: each begins, advances and ends in atomic commits.

use std::time::Duration;

use store::HashRange;
use wire::TenantId;

use super::migrations::{self, MigrationRow, Side, may_follow, numbered};
use super::row::Row;
use super::servers::is_gone;
use super::tablets::{self, TabletsRow, overlap};
use super::{
    MemberRow, Metadata, MetadataError, MetadataTransaction, ServerRun, TabletError, members, next_u32,
    tables,
};
use crate::limits::{MIGRATIONS_ENDED_AT_ONCE, MIGRATIONS_MAX};
use crate::migration::{MigrationMode, MigrationPhase};
use crate::records::{KeySpan, Query, Revision};

/// A migration and the state of its table, as of one commit.
#[derive(Clone, Debug)]
pub struct MigrationView {
    /// The migration.
    pub row: MigrationRow,
    /// The tablets of its table.
    pub tablets: TabletsRow,
    /// The table's migrations.
    pub migrations: Vec<MigrationRow>,
    /// The servers of the cluster, present or not.
    pub members: Vec<MemberRow>,
    /// The commit.
    pub revision: Revision,
}

/// Begins to move hashes of a table: see [`Metadata::migration_begin`]. A refusal writes nothing.
pub(super) fn begin(
    transaction: &mut MetadataTransaction<'_>,
    (tenant, table): (TenantId, u32),
    hashes: HashRange,
    target: u32,
    mode: Option<MigrationMode>,
    begun_ms: u64,
) -> Result<MigrationRow, MetadataError> {
    let mut row = tablets::find(transaction, tenant, table)?.ok_or(MetadataError::NotFound)?;
    let others = transaction.rows::<MigrationRow>("")?;
    let same = |other: &&MigrationRow| {
        (other.tenant, other.table) == (tenant, table) && overlap(other.hashes, hashes)
    };
    if let Some(other) = others.iter().find(same) {
        return Err(TabletError::OnTheMove(other.id).into());
    }
    if others.len() >= MIGRATIONS_MAX {
        return Err(MetadataError::LimitExceeded);
    }
    if row.is_tagged {
        if row.tablets.iter().all(|tablet| tablet.hashes != hashes) {
            return Err(TabletError::Tagged.into());
        }
        tables::all_know_tags(transaction)?;
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
    let (own_mode, is_durable) = tables::moving_of(transaction, tenant, table)?;
    if is_durable && !members::has_disk(transaction, target.server)? {
        return Err(TabletError::NoDisk(target.server).into());
    }
    let mode = match mode.unwrap_or(own_mode) {
        MigrationMode::Recovery => MigrationMode::Recovery,
        // Objects on the disk move by copies, since until the end each side may return from its disk.
        _ if is_durable => MigrationMode::PreCopy,
        // Which objects have arrived is told by their hashes, which do not say what of the table they are.
        MigrationMode::Cooperative if row.is_tagged => MigrationMode::Rocksteady,
        mode => mode,
    };
    let id = next_u32(transaction, "migration")?;
    transaction.store(&row)?;
    let is_tagged = row.is_tagged;
    let row = MigrationRow {
        id,
        tenant,
        table,
        hashes,
        source,
        target,
        mode,
        phase: MigrationPhase::Preparing,
        is_durable,
        is_tagged,
        begun_ms,
        is_aborted: false,
        is_source_done: false,
        is_target_done: false,
    };
    transaction.store(&row)?;
    Ok(row)
}

/// Records that a side of a finished migration has nothing left to do.
pub(super) fn leave(
    transaction: &mut MetadataTransaction<'_>,
    mut row: MigrationRow,
    side: Side,
) -> Result<(), MetadataError> {
    match side {
        Side::Source => row.is_source_done = true,
        Side::Target => row.is_target_done = true,
    }
    // Who is recovered takes no part in it.
    if row.is_target_done && (row.is_source_done || row.mode == MigrationMode::Recovery) {
        transaction.remove_row::<MigrationRow>(&row.key());
        return Ok(());
    }
    Ok(transaction.store(&row)?)
}

impl Metadata {
    /// Begins to move hashes of a table with a single owner to a present server. The hashes begin and end with tablets.
    /// Of a tagged table they are one tablet. Uses `mode`, or the table's mode; for a table on the disk
    /// [`MigrationMode::PreCopy`], for a tagged one [`MigrationMode::Rocksteady`] in place of cooperative.
    ///
    /// # Errors
    /// `NotFound` when no such table was placed, `LimitExceeded`, [`TabletError`], or that it cannot be stored.
    pub fn migration_begin(
        &self,
        (tenant, table): (TenantId, u32),
        hashes: HashRange,
        target: u32,
        mode: impl Into<Option<MigrationMode>>,
        begun_ms: u64,
    ) -> Result<MigrationRow, MetadataError> {
        let mode = mode.into();
        self.write(|transaction| begin(transaction, (tenant, table), hashes, target, mode, begun_ms))
    }

    /// Advances a migration from one phase to another, together with the owner of the hashes, if it is in the first;
    /// returns the resulting state, changed or not.
    ///
    /// # Errors
    /// `NotFound` when there is none with this number (any more), or that it cannot be stored.
    ///
    /// # Panics
    /// When the transition is not allowed.
    pub fn migration_advance(
        &self,
        id: u32,
        from: MigrationPhase,
        to: MigrationPhase,
    ) -> Result<MigrationRow, MetadataError> {
        self.advance_without(id, (from, to), None)
    }

    /// Like [`Metadata::migration_advance`] because the server on that side is gone: changes nothing if it is
    /// registered at that moment. So that server reads the outcome when it registers again, and a server that has read
    /// after it registered is not treated as gone.
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
        from: MigrationPhase,
        to: MigrationPhase,
    ) -> Result<MigrationRow, MetadataError> {
        self.advance_without(id, (from, to), Some(gone))
    }

    fn advance_without(
        &self,
        id: u32,
        (from, to): (MigrationPhase, MigrationPhase),
        gone: Option<Side>,
    ) -> Result<MigrationRow, MetadataError> {
        assert!(may_follow(from, to), "a migration never comes from {from:?} to {to:?}");
        self.write(|transaction| {
            let mut row = numbered(transaction, id)?.ok_or(MetadataError::NotFound)?;
            let gone = gone.map(|side| is_gone(transaction, row.run_on(side))).transpose()?;
            if row.phase == from && gone != Some(false) {
                row.advance(transaction, to)?;
            }
            Ok(row)
        })
    }

    /// Ends the migrations in which an earlier start of this server took part, as the other side would once it took that start
    /// for gone: those of tables on the disk, since until the end the source has everything, and those that have not begun
    /// to move; not those that recover what it has ([`Metadata::owner_returns`]). Returns their number.
    ///
    /// # Errors
    /// When it cannot be stored: then some may have ended.
    pub fn migrations_restarted(&self, run: ServerRun) -> Result<usize, MetadataError> {
        let is_earlier = |side: ServerRun| side.server == run.server && side.start < run.start;
        let ends = |row: &MigrationRow| {
            let can_end = row.is_durable || row.phase == MigrationPhase::Preparing;
            let is_recovered = row.mode == MigrationMode::Recovery;
            !row.is_over() && can_end && (is_earlier(row.source) && !is_recovered || is_earlier(row.target))
        };
        let mut count = 0;
        loop {
            let ended = self.write(|transaction| {
                let rows = transaction.rows::<MigrationRow>("")?;
                let mut ended = 0;
                for mut row in rows.into_iter().filter(ends).take(MIGRATIONS_ENDED_AT_ONCE) {
                    row.advance(transaction, MigrationPhase::Ended)?;
                    ended += 1;
                }
                Ok(ended)
            })?;
            count += ended;
            if ended < MIGRATIONS_ENDED_AT_ONCE {
                return Ok(count);
            }
        }
    }

    /// Records that the hashes should stay at the source. Changes nothing if the migration is over.
    ///
    /// # Errors
    /// `NotFound` when there is none with this number (any more), or that it cannot be stored.
    pub fn migration_abort(&self, id: u32) -> Result<MigrationRow, MetadataError> {
        self.write(|transaction| {
            let mut row = numbered(transaction, id)?.ok_or(MetadataError::NotFound)?;
            if !row.is_over() && !row.is_aborted {
                row.is_aborted = true;
                transaction.store(&row)?;
            }
            Ok(row)
        })
    }

    /// Records that a side of a finished migration has nothing left to do; deletes the record with the second side.
    /// Changes nothing if the migration is not over or does not exist.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn migration_leave(&self, id: u32, side: Side) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let row = numbered(transaction, id)?.filter(MigrationRow::is_over);
            row.map_or(Ok(()), |row| leave(transaction, row, side))
        })
    }

    /// Returns a migration by its number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn migration_find(&self, id: u32) -> Result<Option<MigrationRow>, MetadataError> {
        self.read(|transaction| Ok(numbered(transaction, id)?))
    }

    /// Returns a migration by its number, with the state of its table.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn migration_view(&self, id: u32) -> Result<Option<MigrationView>, MetadataError> {
        self.read(|transaction| {
            let Some(row) = numbered(transaction, id)? else { return Ok(None) };
            let Some(tablets) = tablets::find(transaction, row.tenant, row.table)? else { return Ok(None) };
            let migrations = migrations::of_table(transaction, row.tenant, row.table)?;
            let members = transaction.rows("")?;
            Ok(Some(MigrationView { row, tablets, migrations, members, revision: transaction.revision() }))
        })
    }

    /// Returns the last commit that changed the tablets of a table; `None` if it has none. Gives up after `patience` if the
    /// records are remote.
    ///
    /// # Errors
    /// When the metadata cannot be read in time.
    pub fn tablets_changed_within(
        &self,
        tenant: TenantId,
        table: u32,
        patience: Duration,
    ) -> Result<Option<Revision>, MetadataError> {
        let query = Query::all(KeySpan::one(&tablets::record_of(tenant, table)));
        let reading = self.records().read_within(&[query], None, patience)?;
        Ok(reading.found.iter().flatten().next().map(|record| record.revision))
    }

    /// Returns all migrations with a record.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn migrations(&self) -> Result<Vec<MigrationRow>, MetadataError> {
        self.read(|transaction| Ok(transaction.rows("")?))
    }
}

/// Changes the tablets of a table about a hash, none of which moves there.
pub(super) fn change_tablets(
    transaction: &mut MetadataTransaction<'_>,
    (tenant, table): (TenantId, u32),
    at: u64,
    change: impl Fn(&mut TabletsRow) -> Result<(), MetadataError>,
) -> Result<TabletsRow, MetadataError> {
    let mut row = tablets::find(transaction, tenant, table)?.ok_or(MetadataError::NotFound)?;
    let beside = [at.saturating_sub(1), at];
    for migration in migrations::of_table(transaction, tenant, table)? {
        if !migration.is_over() && beside.iter().any(|&hash| migration.hashes.contains(hash)) {
            return Err(TabletError::OnTheMove(migration.id).into());
        }
    }
    let before = row.clone();
    change(&mut row)?;
    if row != before {
        transaction.store(&row)?;
    }
    Ok(row)
}

/// Merges the tablets on both sides of a hash, unless that is no longer possible.
pub(super) fn merge_quiet(
    transaction: &mut MetadataTransaction<'_>,
    table: (TenantId, u32),
    at: u64,
) -> Result<(), MetadataError> {
    match change_tablets(transaction, table, at, |row| Ok(row.merge(at)?)) {
        Ok(_) | Err(MetadataError::NotFound | MetadataError::Tablets(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
