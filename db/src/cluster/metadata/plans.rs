//! Records of plans: several migrations that together lead to a goal, each noted before it is begun.
//!
//! One plan runs at a time. The coordinator carries it out move by move ([`crate::cluster::coordinator`]); all that it does is
//! a change of these records, made once whoever makes it, and as often as it is tried.

use serde::{Deserialize, Serialize};
use store::HashRange;

use super::encoding::{damaged, padded};
use super::tablets::{hash_of, hash_text};
use super::{Metadata, MetadataError, MetadataTransaction, ServerRun, TabletError, next_u32};
use crate::cluster::records::RecordsError;
use crate::limits::{PLAN_MOVES_MAX, PLANS_KEPT};
use crate::tenant::TenantId;

const PLANS: &str = "plans/";

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// The server owns nothing, and gets nothing until it is started again or a balance is asked for.
    Drain(ServerRun),
    /// Every server owns as much of all tables together as any other.
    Balance,
}

/// How far a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanState {
    /// Moves are begun.
    Running,
    /// The goal is reached.
    Done,
    /// A move came to nothing, or somebody stopped it.
    Stopped,
}

/// A move of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// Whose table it is.
    pub tenant: TenantId,
    /// The table's number.
    pub table: u32,
    /// What moves.
    pub hashes: HashRange,
    /// To which server.
    pub to: u32,
    /// The migration that does it, once it is begun.
    pub migration: Option<u32>,
    /// Whether it is there, once that is known.
    pub is_done: Option<bool>,
}

/// A plan as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRow {
    /// Number, never reused.
    pub id: u32,
    /// What it is for.
    pub goal: Goal,
    /// How far it is.
    pub standing: PlanState,
    /// When it was made, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
    /// In the order in which they are begun.
    pub moves: Vec<PlannedMove>,
}

/// Tenant, table, first and last hash, target, migration or 0, and 0, 1 when it is there, 2 when it came to nothing.
type PlannedMoveRecord = (u32, u32, String, String, u32, u32, u8);

#[derive(Serialize, Deserialize)]
struct PlanValue {
    goal: Goal,
    standing: PlanState,
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
            standing: value.standing,
            begun_ms: value.begun_ms,
            moves: moves.ok_or_else(|| damaged(key))?,
        })
    }

    pub(super) fn store(&self, transaction: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
        let Self { goal, standing, begun_ms, .. } = *self;
        let moves = self.moves.iter().map(PlannedMove::entry).collect();
        transaction.put(&key_of(self.id), &PlanValue { goal, standing, begun_ms, moves })
    }
}

fn key_of(id: u32) -> String {
    format!("{PLANS}{}", padded(id))
}

/// All that are kept, by number.
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

/// The servers that get nothing, of these plans in their order.
#[must_use]
pub fn drained(plans: &[PlanRow]) -> Vec<ServerRun> {
    let mut drained = Vec::new();
    for plan in plans {
        match plan.goal {
            Goal::Drain(run) if plan.standing != PlanState::Stopped => drained.push(run),
            Goal::Drain(run) => drained.retain(|other| *other != run),
            Goal::Balance => drained.clear(),
        }
    }
    drained
}

impl Metadata {
    /// Notes a plan, which the coordinator makes and carries out.
    ///
    /// # Errors
    /// `Tablets` when another one runs, or that it cannot be stored.
    pub fn plan_begin(&self, goal: Goal, begun_ms: u64) -> Result<PlanRow, MetadataError> {
        self.write(|transaction| {
            let plans = all(transaction)?;
            if let Some(running) = plans.iter().find(|plan| plan.standing == PlanState::Running) {
                return Err(TabletError::PlanRuns(running.id).into());
            }
            for old in plans.iter().rev().skip(PLANS_KEPT - 1) {
                transaction.delete(&key_of(old.id));
            }
            let id = next_u32(transaction, "plan")?;
            let row = PlanRow { id, goal, standing: PlanState::Running, begun_ms, moves: Vec::new() };
            row.store(transaction)?;
            Ok(row)
        })
    }

    /// Stops a plan: nothing more is begun, and what is on the move goes on.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn plan_stop(&self, id: u32) -> Result<PlanRow, MetadataError> {
        self.write(|transaction| {
            let mut row = find(transaction, id)?.ok_or(MetadataError::NotFound)?;
            if row.standing == PlanState::Running {
                row.standing = PlanState::Stopped;
                row.store(transaction)?;
            }
            Ok(row)
        })
    }

    /// The plans that are kept, by number.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn plans(&self) -> Result<Vec<PlanRow>, MetadataError> {
        self.read(|transaction| Ok(all(transaction)?))
    }
}

/// Of moves that are added, as many as one plan may have at a time.
pub(super) fn bounded(moves: &[PlannedMove]) -> Vec<PlannedMove> {
    moves.iter().take(PLAN_MOVES_MAX).copied().collect()
}
