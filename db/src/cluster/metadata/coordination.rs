//! The coordinator of a cluster, as the records know it, and what it does to them.
//!
//! It is the server whose number stands in the record `coordinator`, which goes with the lease of its registration. Each election
//! has a number of its own; a step is made under the condition that it is still this one, so a server that does not know
//! yet that it was replaced changes nothing.

use serde::{Deserialize, Serialize};

use super::migrations::{self, MigrationRow, Side};
use super::moving::{begin, leave};
use super::plans::{self, PlanState, PlannedMove};
use super::servers::is_gone;
use super::{
    Metadata, MetadataError, MetadataTransaction, PlanRow, ServerRow, ServerRun, TabletError, TabletsRow,
};
use super::{encoding, members, next, tablets};
use crate::cluster::migration::Phase;
use crate::cluster::records::{Committed, Condition, LeaseId, RecordChange};

const COORDINATOR: &str = "coordinator";

/// Who coordinates, and in which election that was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coordinator {
    /// Number of the server.
    pub server: u32,
    /// Number of the election.
    pub term: u64,
}

/// All that a coordinator goes by, as of one commit but for who is there.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Tablets of all tables.
    pub tablets: Vec<TabletsRow>,
    /// All migrations.
    pub migrations: Vec<MigrationRow>,
    /// The plans that are kept, by number.
    pub plans: Vec<PlanRow>,
    /// The servers that are there.
    pub there: Vec<ServerRun>,
}

/// What a coordinator does. Each is made once, whoever makes it, and as often as it is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorStep {
    /// Ends a migration of which both servers are gone.
    Settle {
        /// Its number.
        migration: u32,
        /// How far it was.
        from: Phase,
        /// Who owned the hashes owns them still.
        to: Phase,
    },
    /// Does for a server that is gone what it has left to do in a migration that is over.
    Leave {
        /// Its number.
        migration: u32,
        /// Which of the two is gone.
        side: Side,
    },
    /// Notes moves of a plan that has none to begin.
    Plan {
        /// Number of the plan.
        plan: u32,
        /// Moves that it had when these were thought of.
        known: usize,
        /// More of them.
        moves: Vec<PlannedMove>,
    },
    /// Begins a move.
    Begin {
        /// Number of the plan.
        plan: u32,
        /// Which of its moves.
        index: usize,
        /// To a server that is there.
        to: u32,
    },
    /// Notes what became of a move.
    Conclude {
        /// Number of the plan.
        plan: u32,
        /// Which of its moves.
        index: usize,
    },
    /// Ends a plan.
    End {
        /// Number of the plan.
        plan: u32,
        /// Moves that it had when that was decided.
        known: usize,
        /// `Done` or `Stopped`.
        standing: PlanState,
    },
}

impl Metadata {
    /// Who coordinates; nobody for a moment after that server is gone.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn coordinator(&self) -> Result<Option<Coordinator>, MetadataError> {
        self.read(|transaction| Ok(transaction.get(COORDINATOR)?))
    }

    /// Who coordinates: this server from now on, for as long as it holds its lease, if nobody did.
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

    /// What the coordinator goes by.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, MetadataError> {
        let registered: Vec<ServerRow> = self.servers()?;
        self.read(|transaction| {
            let members = members::all(transaction)?;
            let is_there = |run: &ServerRun| registered.iter().any(|row| row.id == run.server);
            Ok(Snapshot {
                tablets: tablets::all(transaction, None)?,
                migrations: migrations::all(transaction, None)?,
                plans: plans::all(transaction)?,
                there: members.into_iter().map(|row| row.run).filter(is_there).collect(),
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
            take(transaction, step, now_ms)
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
    let Some(mut row) = plans::find(transaction, *plan)? else { return Ok(()) };
    let is_running = row.standing == PlanState::Running;
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
        CoordinatorStep::End { known, standing, .. } if is_running && row.moves.len() == *known => {
            row.standing = *standing;
        }
        _ => return Ok(()),
    }
    Ok(row.store(transaction)?)
}

/// Does for servers what they cannot, unless they have come back.
fn take_for_the_gone(
    transaction: &mut MetadataTransaction<'_>,
    step: &CoordinatorStep,
) -> Result<(), MetadataError> {
    match *step {
        CoordinatorStep::Settle { migration, from, to } => {
            let row = migrations::numbered(transaction, migration)?.filter(|row| row.standing == from);
            let Some(mut row) = row else { return Ok(()) };
            if is_gone(transaction, row.source)? && is_gone(transaction, row.target)? {
                row.advance(transaction, to)?;
            }
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

/// Begins the migration of a move; one that cannot begin comes to nothing, unless there is nothing to do.
fn begin_planned(
    transaction: &mut MetadataTransaction<'_>,
    planned: &mut PlannedMove,
    now_ms: u64,
) -> Result<(), MetadataError> {
    let PlannedMove { tenant, table, hashes, to, .. } = *planned;
    match begin(transaction, (tenant, table), hashes, to, None, now_ms) {
        Ok(row) => planned.migration = Some(row.id),
        // It is there, or the table was dropped.
        Err(MetadataError::Tablets(TabletError::OwnedAlready(_)) | MetadataError::NotFound) => {
            planned.is_done = Some(true);
        }
        Err(MetadataError::Tablets(_) | MetadataError::LimitExceeded) => planned.is_done = Some(false),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Notes what became of a move whose migration is over.
fn conclude(
    transaction: &mut MetadataTransaction<'_>,
    planned: &mut PlannedMove,
) -> Result<(), MetadataError> {
    let Some(id) = planned.migration.filter(|_| planned.is_done.is_none()) else { return Ok(()) };
    if migrations::numbered(transaction, id)?.is_some_and(|row| !row.is_over()) {
        return Ok(());
    }
    let row = tablets::find(transaction, planned.tenant, planned.table)?;
    // Of a table that was dropped there is nothing left to move.
    let is_there = row.is_none_or(|row| row.owner_of(planned.hashes) == Ok(planned.to));
    planned.is_done = Some(is_there);
    Ok(())
}
