//! The coordinator of a cluster in the records, and its changes of them.
//!
//! The coordinator is the server whose number stands in the record `coordinator`, which ends with the lease of its
//! registration. Each election has a number; a step is committed on condition that this election is still the latest.
//! So a server that does not know yet that it was replaced changes nothing.

use std::collections::BTreeSet;

use control::PlanProgress;
use serde::{Deserialize, Serialize};
use store::HashRange;
use wire::TenantId;

use super::encoding::{self, padded};
use super::migrations::{self, MigrationRow, Side};
use super::moving::{self, begin, leave};
use super::plans::{self, PlannedMove};
use super::recoveries;
use super::servers::is_gone;
use super::{
    MemberRow, Metadata, MetadataError, MetadataTransaction, PlanRow, ReplicasRow, ServerRow, ServerRun,
    TableRow, TabletError, TabletsRow,
};
use super::{next, tablets};
use crate::migration::{MigrationMode, MigrationPhase};
use crate::records::{Committed, Condition, LeaseId, RecordChange};

pub(super) const COORDINATOR: &str = "coordinator";

/// The coordinating server, and the election that chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coordinator {
    /// The number of the server.
    pub server: u32,
    /// The number of the election.
    pub term: u64,
}

/// The input of a coordinator, as of one commit except for the present servers.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Tablets of all tables.
    pub tablets: Vec<TabletsRow>,
    /// All migrations.
    pub migrations: Vec<MigrationRow>,
    /// The kept plans, by number.
    pub plans: Vec<PlanRow>,
    /// The servers that are present.
    pub there: Vec<ServerRun>,
    /// The servers with a log, present or not.
    pub with_disk: BTreeSet<u32>,
    /// The replicas of servers' logs.
    pub replicas: Vec<ReplicasRow>,
    /// The numbers of the tables on the disk.
    pub durable: BTreeSet<u32>,
}

/// A step of a coordinator. Each is made once, whichever server makes it, however often it is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorStep {
    /// Ends a migration whose servers are both gone.
    Settle {
        /// The number of the migration.
        migration: u32,
        /// Its phase.
        from: MigrationPhase,
        /// A final phase with the same owner; for a table on the disk, `Ended`.
        to: MigrationPhase,
    },
    /// Completes a finished migration for a server that is gone.
    Leave {
        /// The number of the migration.
        migration: u32,
        /// The side that is gone.
        side: Side,
    },
    /// Records moves of a plan without moves left to begin.
    Plan {
        /// The number of the plan.
        plan: u32,
        /// The number of its moves when these were decided.
        known: usize,
        /// The new moves.
        moves: Vec<PlannedMove>,
    },
    /// Begins a move.
    Begin {
        /// The number of the plan.
        plan: u32,
        /// The index of the move.
        index: usize,
        /// The destination, a present server.
        to: u32,
    },
    /// Records the outcome of a move.
    Conclude {
        /// The number of the plan.
        plan: u32,
        /// The index of the move.
        index: usize,
    },
    /// Begins to recover hashes of a table, whose owner is gone, from the replicas of its log.
    Recover {
        /// The tenant and the number of the table.
        table: (TenantId, u32),
        /// The hashes.
        hashes: HashRange,
        /// The server that is to own them, a present one.
        to: u32,
    },
    /// Merges two tablets of one owner.
    Merge {
        /// The tenant and the number of the table.
        table: (TenantId, u32),
        /// The first hash of the second one.
        at: u64,
    },
    /// Ends a plan.
    End {
        /// The number of the plan.
        plan: u32,
        /// The number of its moves when this was decided.
        known: usize,
        /// `Done` or `Stopped`.
        state: PlanProgress,
    },
}

impl Metadata {
    /// Returns the coordinator; `None` for a moment after that server is gone.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn coordinator(&self) -> Result<Option<Coordinator>, MetadataError> {
        self.read(|transaction| Ok(transaction.get(COORDINATOR)?))
    }

    /// Returns the coordinator; elects this server, for as long as it holds its lease, if there is none.
    ///
    /// # Errors
    /// When the metadata does not answer.
    pub fn coordinator_elect(&self, server: u32, lease: LeaseId) -> Result<Coordinator, MetadataError> {
        if let Some(elected) = self.coordinator()? {
            return Ok(elected);
        }
        let term = self.write(|transaction| next(transaction, "term", 1))?;
        let elected = Coordinator { server, term };
        let value = encoding::encode(&elected)?;
        let put = RecordChange::Put { key: COORDINATOR.to_owned(), value, lease: Some(lease) };
        match self.records().commit(&[Condition::Absent(COORDINATOR.to_owned())], &[put])? {
            Committed::At(_) => Ok(elected),
            Committed::Conflict => self.coordinator()?.ok_or(MetadataError::Conflict),
        }
    }

    /// Returns the input of the coordinator.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, MetadataError> {
        let registered: Vec<ServerRow> = self.servers()?;
        self.read(|transaction| {
            let members = transaction.rows::<MemberRow>("")?;
            let is_registered = |run: &ServerRun| registered.iter().any(|row| row.id == run.server);
            let with_disk = members.iter().filter(|row| row.has_disk).map(|row| row.run.server).collect();
            let tables = transaction.rows::<TableRow>("")?.into_iter();
            Ok(Snapshot {
                with_disk,
                replicas: transaction.rows("")?,
                durable: tables.filter(|row| row.durability().is_on_disk()).map(|row| row.id).collect(),
                tablets: transaction.rows("")?,
                migrations: transaction.rows("")?,
                plans: transaction.rows("")?,
                there: members.into_iter().map(|row| row.run).filter(is_registered).collect(),
            })
        })
    }

    /// Makes a step, unless it is made already or its reason is gone.
    ///
    /// # Errors
    /// `Conflict` when another server coordinates by now; or that it cannot be stored.
    pub fn coordinate(&self, term: u64, step: &CoordinatorStep, now_ms: u64) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let elected: Option<Coordinator> = transaction.get(COORDINATOR)?;
            if elected.is_none_or(|elected| elected.term != term) {
                return Err(MetadataError::Conflict);
            }
            match *step {
                CoordinatorStep::Recover { table, hashes, to } => {
                    recoveries::begin(transaction, table, hashes, to, now_ms)
                }
                CoordinatorStep::Merge { table, at } => moving::merge_quiet(transaction, table, at),
                _ => take(transaction, step, now_ms),
            }
        })
    }
}

fn take(
    transaction: &mut MetadataTransaction<'_>,
    step: &CoordinatorStep,
    now_ms: u64,
) -> Result<(), MetadataError> {
    let (CoordinatorStep::Plan { plan, .. }
    | CoordinatorStep::Begin { plan, .. }
    | CoordinatorStep::Conclude { plan, .. }
    | CoordinatorStep::End { plan, .. }) = step
    else {
        return take_for_the_gone(transaction, step);
    };
    let Some(mut row) = transaction.row::<PlanRow>(&padded(*plan))? else { return Ok(()) };
    let is_running = row.state == PlanProgress::Running;
    match step {
        CoordinatorStep::Plan { known, moves, .. } if is_running && row.moves.len() == *known => {
            row.moves = plans::bounded(moves);
        }
        CoordinatorStep::Begin { index, to, .. } if is_running => {
            let Some(planned) = row.moves.get_mut(*index) else { return Ok(()) };
            if planned.migration.is_some() || planned.is_done.is_some() {
                return Ok(());
            }
            planned.to = *to;
            begin_planned(transaction, planned, now_ms)?;
        }
        CoordinatorStep::Conclude { index, .. } => {
            let Some(planned) = row.moves.get_mut(*index) else { return Ok(()) };
            conclude(transaction, planned)?;
        }
        CoordinatorStep::End { known, state, .. } if is_running && row.moves.len() == *known => {
            row.state = *state;
        }
        _ => return Ok(()),
    }
    Ok(transaction.store(&row)?)
}

/// Makes the steps of absent servers, unless they have returned.
fn take_for_the_gone(
    transaction: &mut MetadataTransaction<'_>,
    step: &CoordinatorStep,
) -> Result<(), MetadataError> {
    match *step {
        CoordinatorStep::Settle { migration, from, to } => {
            let row = migrations::numbered(transaction, migration)?.filter(|row| row.phase == from);
            let Some(mut row) = row else { return Ok(()) };
            let is_recovery = row.mode == MigrationMode::Recovery;
            if !is_gone(transaction, row.target)? || !is_recovery && !is_gone(transaction, row.source)? {
                return Ok(());
            }
            row.advance(transaction, to)?;
        }
        CoordinatorStep::Leave { migration, side } => {
            let row = migrations::numbered(transaction, migration)?.filter(MigrationRow::is_over);
            let Some(row) = row else { return Ok(()) };
            if is_gone(transaction, row.run_on(side))? {
                leave(transaction, row, side)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Begins the migration of a move. A move that cannot begin counts as failed, unless there is nothing to do.
fn begin_planned(
    transaction: &mut MetadataTransaction<'_>,
    planned: &mut PlannedMove,
    now_ms: u64,
) -> Result<(), MetadataError> {
    let PlannedMove { tenant, table, hashes, to, .. } = *planned;
    match begin(transaction, (tenant, table), hashes, to, None, now_ms) {
        Ok(row) => planned.migration = Some(row.id),
        // The hashes are there already, or the table was dropped.
        Err(MetadataError::Tablets(TabletError::OwnedAlready(_)) | MetadataError::NotFound) => {
            planned.is_done = Some(true);
        }
        Err(MetadataError::Tablets(_) | MetadataError::LimitExceeded) => planned.is_done = Some(false),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Records the outcome of a move whose migration is over.
fn conclude(
    transaction: &mut MetadataTransaction<'_>,
    planned: &mut PlannedMove,
) -> Result<(), MetadataError> {
    let Some(id) = planned.migration.filter(|_| planned.is_done.is_none()) else { return Ok(()) };
    if migrations::numbered(transaction, id)?.is_some_and(|row| !row.is_over()) {
        return Ok(());
    }
    let row = tablets::find(transaction, planned.tenant, planned.table)?;
    // A removed table has nothing left to move.
    let is_done = row.is_none_or(|row| row.owner_of(planned.hashes) == Ok(planned.to));
    planned.is_done = Some(is_done);
    Ok(())
}
