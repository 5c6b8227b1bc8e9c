//! Records of plans: migrations that together lead to a goal, each recorded before it begins.
//!
//! One plan runs at a time. The coordinator executes it move by move ([`crate::coordinator`]). All its actions
//! are changes of these records, each made once whichever server makes it, however often it is tried.

use control::PlanProgress;
use serde::{Deserialize, Serialize};
use store::HashRange;
use wire::TenantId;

use super::encoding::padded;
use super::row::{Row, number};
use super::tablets::{hash_of, hash_text};
use super::{Metadata, MetadataError, ServerRun, TabletError, next_u32};
use crate::limits::{PLAN_MOVES_MAX, PLANS_KEPT};

/// The goal of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// The server owns nothing, and receives nothing until it is restarted or a balance is requested.
    Drain(ServerRun),
    /// Every server owns an equal share of all tables together.
    Balance,
}

/// A move of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PlannedMoveRecord", into = "PlannedMoveRecord")]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRow {
    /// The number of the plan, never reused.
    #[serde(skip)]
    pub id: u32,
    /// The goal.
    pub goal: Goal,
    /// The state.
    #[serde(alias = "standing")]
    pub state: PlanProgress,
    /// The creation, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
    /// The moves in the order in which they begin.
    pub moves: Vec<PlannedMove>,
}

/// Tenant, table, first and last hash, target, migration or 0, and 0, 1 if it succeeded, 2 if it failed.
type PlannedMoveRecord = (u32, u32, String, String, u32, u32, u8);

impl TryFrom<PlannedMoveRecord> for PlannedMove {
    type Error = &'static str;

    fn try_from(record: PlannedMoveRecord) -> Result<Self, Self::Error> {
        let (tenant, table, first, last, to, migration, outcome) = record;
        let range = hash_of(&first).zip(hash_of(&last)).and_then(|(first, last)| HashRange::new(first, last));
        Ok(Self {
            tenant: TenantId(tenant),
            table,
            hashes: range.ok_or("the hashes of a move are not a range")?,
            to,
            migration: (migration != 0).then_some(migration),
            is_done: (outcome != 0).then_some(outcome == 1),
        })
    }
}

impl From<PlannedMove> for PlannedMoveRecord {
    fn from(planned: PlannedMove) -> Self {
        let PlannedMove { tenant, table, hashes, to, migration, is_done } = planned;
        let (first, last) = (hash_text(hashes.first()), hash_text(hashes.last()));
        let outcome = is_done.map_or(0, |is_done| if is_done { 1 } else { 2 });
        (tenant.0, table, first, last, to, migration.unwrap_or_default(), outcome)
    }
}

impl Row for PlanRow {
    const PREFIX: &'static str = "plans/";

    fn key(&self) -> String {
        padded(self.id)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[id] = parts else { return None };
        Some(Self { id: number(id)?, ..self })
    }
}

/// Returns the servers that must receive nothing, by these plans in their order.
#[must_use]
pub fn drained(plans: &[PlanRow]) -> Vec<ServerRun> {
    let mut drained = Vec::new();
    for plan in plans {
        match plan.goal {
            Goal::Drain(run) if plan.state != PlanProgress::Stopped => drained.push(run),
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
            let plans = transaction.rows::<PlanRow>("")?;
            if let Some(running) = plans.iter().find(|plan| plan.state == PlanProgress::Running) {
                return Err(TabletError::PlanRuns(running.id).into());
            }
            for old in plans.iter().rev().skip(PLANS_KEPT - 1) {
                transaction.remove_row::<PlanRow>(&old.key());
            }
            let id = next_u32(transaction, "plan")?;
            let row = PlanRow { id, goal, state: PlanProgress::Running, begun_ms, moves: Vec::new() };
            transaction.store(&row)?;
            Ok(row)
        })
    }

    /// Stops a plan: begins no further move; running migrations continue.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn plan_stop(&self, id: u32) -> Result<PlanRow, MetadataError> {
        self.write(|transaction| {
            let mut row = transaction.row::<PlanRow>(&padded(id))?.ok_or(MetadataError::NotFound)?;
            if row.state == PlanProgress::Running {
                row.state = PlanProgress::Stopped;
                transaction.store(&row)?;
            }
            Ok(row)
        })
    }

    /// Returns the kept plans, by number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn plans(&self) -> Result<Vec<PlanRow>, MetadataError> {
        self.read(|transaction| Ok(transaction.rows("")?))
    }
}

/// Returns as many of the added moves as one plan may have at a time.
pub(super) fn bounded(moves: &[PlannedMove]) -> Vec<PlannedMove> {
    moves.iter().take(PLAN_MOVES_MAX).copied().collect()
}
