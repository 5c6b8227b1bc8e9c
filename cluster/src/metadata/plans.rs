//! Records of plans: migrations that together lead to a goal, each recorded before it begins.
//!
//! One plan runs at a time. The coordinator executes it move by move ([`crate::coordinator`]). All its actions
//! are changes of these records, each made once whichever server makes it, however often it is tried.

use serde::{Deserialize, Serialize};
use store::HashRange;
use wire::TenantId;

use super::encoding::{damaged, padded};
use super::tablets::{hash_of, hash_text};
use super::{Metadata, MetadataError, MetadataTransaction, ServerRun, TabletError, next_u32};
use crate::limits::{PLAN_MOVES_MAX, PLANS_KEPT};
use crate::records::RecordsError;

const PLANS: &str = "plans/";

/// The goal of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// The server owns nothing, and receives nothing until it is restarted or a balance is requested.
    Drain(ServerRun),
    /// Every server owns an equal share of all tables together.
    Balance,
}

/// The state of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanState {
    /// Moves are begun.
    Running,
    /// The goal is reached.
    Done,
    /// A move failed, or the plan was stopped on request.
    Stopped,
}

/// A move of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The tenant of the table.
    pub tenant: TenantId,
    /// The table's number.
    pub table: u32,
    /// The hashes that move.
    pub hashes: HashRange,
    /// The destination server.
    pub to: u32,
    /// The migration that performs it, once begun.
    pub migration: Option<u32>,
    /// Whether it succeeded, once known.
    pub is_done: Option<bool>,
}

/// A plan as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRow {
    /// The number of the plan, never reused.
    pub id: u32,
    /// The goal.
    pub goal: Goal,
    /// The state.
    pub state: PlanState,
    /// The creation, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
    /// The moves in the order in which they begin.
    pub moves: Vec<PlannedMove>,
}

/// Tenant, table, first and last hash, target, migration or 0, and 0, 1 if it succeeded, 2 if it failed.
type PlannedMoveRecord = (u32, u32, String, String, u32, u32, u8);

#[derive(Serialize, Deserialize)]
struct PlanValue {
    goal: Goal,
    #[serde(alias = "standing")]
    state: PlanState,
    begun_ms: u64,
    moves: Vec<PlannedMoveRecord>,
}

impl PlannedMove {
    fn of(entry: &PlannedMoveRecord) -> Option<Self> {
        let (tenant, table, first, last, to, migration, outcome) = entry;
        Some(Self {
            tenant: TenantId(*tenant),
            table: *table,
            hashes: HashRange::new(hash_of(first)?, hash_of(last)?)?,
            to: *to,
            migration: (*migration != 0).then_some(*migration),
            is_done: (*outcome != 0).then_some(*outcome == 1),
        })
    }

    fn entry(&self) -> PlannedMoveRecord {
        let (first, last) = (hash_text(self.hashes.first()), hash_text(self.hashes.last()));
        let outcome = self.is_done.map_or(0, |is_done| if is_done { 1 } else { 2 });
        (self.tenant.0, self.table, first, last, self.to, self.migration.unwrap_or_default(), outcome)
    }
}

impl PlanRow {
    fn of(key: &str, value: &PlanValue) -> Result<Self, RecordsError> {
        let id = key.strip_prefix(PLANS).and_then(|number| number.parse().ok());
        let moves: Option<Vec<_>> = value.moves.iter().map(PlannedMove::of).collect();
        Ok(Self {
            id: id.ok_or_else(|| damaged(key))?,
            goal: value.goal,
            state: value.state,
            begun_ms: value.begun_ms,
            moves: moves.ok_or_else(|| damaged(key))?,
        })
    }

    pub(super) fn store(&self, transaction: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
        let Self { goal, state, begun_ms, .. } = *self;
        let moves = self.moves.iter().map(PlannedMove::entry).collect();
        transaction.put(&key_of(self.id), &PlanValue { goal, state, begun_ms, moves })
    }
}

fn key_of(id: u32) -> String {
    format!("{PLANS}{}", padded(id))
}

/// Returns all kept plans, by number.
pub(super) fn all(transaction: &mut MetadataTransaction<'_>) -> Result<Vec<PlanRow>, RecordsError> {
    transaction.all(PLANS)?.iter().map(|(key, value)| PlanRow::of(key, value)).collect()
}

pub(super) fn find(
    transaction: &mut MetadataTransaction<'_>,
    id: u32,
) -> Result<Option<PlanRow>, RecordsError> {
    let key = key_of(id);
    transaction.get(&key)?.map(|value| PlanRow::of(&key, &value)).transpose()
}

/// Returns the servers that must receive nothing, by these plans in their order.
#[must_use]
pub fn drained(plans: &[PlanRow]) -> Vec<ServerRun> {
    let mut drained = Vec::new();
    for plan in plans {
        match plan.goal {
            Goal::Drain(run) if plan.state != PlanState::Stopped => drained.push(run),
            Goal::Drain(run) => drained.retain(|other| *other != run),
            Goal::Balance => drained.clear(),
        }
    }
    drained
}

impl Metadata {
    /// Records a plan, which the coordinator then executes.
    ///
    /// # Errors
    /// `Tablets` when another one runs, or that it cannot be stored.
    pub fn plan_begin(&self, goal: Goal, begun_ms: u64) -> Result<PlanRow, MetadataError> {
        self.write(|transaction| {
            let plans = all(transaction)?;
            if let Some(running) = plans.iter().find(|plan| plan.state == PlanState::Running) {
                return Err(TabletError::PlanRuns(running.id).into());
            }
            for old in plans.iter().rev().skip(PLANS_KEPT - 1) {
                transaction.delete(&key_of(old.id));
            }
            let id = next_u32(transaction, "plan")?;
            let row = PlanRow { id, goal, state: PlanState::Running, begun_ms, moves: Vec::new() };
            row.store(transaction)?;
            Ok(row)
        })
    }

    /// Stops a plan: begins no further move; running migrations continue.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn plan_stop(&self, id: u32) -> Result<PlanRow, MetadataError> {
        self.write(|transaction| {
            let mut row = find(transaction, id)?.ok_or(MetadataError::NotFound)?;
            if row.state == PlanState::Running {
                row.state = PlanState::Stopped;
                row.store(transaction)?;
            }
            Ok(row)
        })
    }

    /// Returns the kept plans, by number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn plans(&self) -> Result<Vec<PlanRow>, MetadataError> {
        self.read(|transaction| Ok(all(transaction)?))
    }
}

/// Returns as many of the added moves as one plan may have at a time.
pub(super) fn bounded(moves: &[PlannedMove]) -> Vec<PlannedMove> {
    moves.iter().take(PLAN_MOVES_MAX).copied().collect()
}
