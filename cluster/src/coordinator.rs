//! The next steps of a coordinator: a function of the records and of the present servers.
//!
//! No I/O, no clock, no memory of its own. So any other server replaces a coordinator that dies and continues from the
//! same records, and one seed replays a cluster. A plan is executed move by move, each recorded before it begins; a
//! step that was decided twice is made once ([`CoordinatorStep`]). The server at the other end of a migration completes
//! the part of a dead server; the coordinator does so only if both are gone.

mod planning;

use std::collections::BTreeSet;

use self::planning::{moves_of, takers};
use crate::limits::PLAN_MOVES_AT_ONCE;
use crate::metadata::{
    CoordinatorStep, Goal, MigrationRow, PlanRow, PlanState, PlannedMove, ServerRun, Side, Snapshot,
};
use crate::migration::Phase;

/// Returns the due steps, in their order.
#[must_use]
pub fn steps(snapshot: &Snapshot) -> Vec<CoordinatorStep> {
    let there: BTreeSet<ServerRun> = snapshot.there.iter().copied().collect();
    let mut steps: Vec<CoordinatorStep> = Vec::new();
    for row in &snapshot.migrations {
        clear(row, &there, &mut steps);
    }
    for plan in snapshot.plans.iter().filter(|plan| plan.state == PlanState::Running) {
        carry_out(snapshot, plan, &mut steps);
    }
    steps
}

/// Adds the steps that absent servers can no longer make.
fn clear(row: &MigrationRow, there: &BTreeSet<ServerRun>, steps: &mut Vec<CoordinatorStep>) {
    let gone = [(row.source, Side::Source), (row.target, Side::Target)].map(|(run, side)| {
        let is_done = if side == Side::Source { row.is_source_done } else { row.is_target_done };
        (!there.contains(&run), is_done, side)
    });
    let migration = row.id;
    if row.is_over() {
        let left = gone.into_iter().filter(|(is_gone, is_done, _)| *is_gone && !is_done);
        steps.extend(left.map(|(_, _, side)| CoordinatorStep::Leave { migration, side }));
    } else if gone.iter().all(|(is_gone, _, _)| *is_gone) {
        let to = match row.phase {
            Phase::Moving => Phase::Finished,
            _ => Phase::Ended,
        };
        steps.push(CoordinatorStep::Settle { migration, from: row.phase, to });
    }
}

fn is_on_the_way(planned: &PlannedMove) -> bool {
    planned.migration.is_some() && planned.is_done.is_none()
}

/// Adds the next steps of a plan.
fn carry_out(snapshot: &Snapshot, plan: &PlanRow, steps: &mut Vec<CoordinatorStep>) {
    let known = plan.moves.len();
    let mut on_the_way = 0;
    for (index, planned) in plan.moves.iter().enumerate().filter(|(_, planned)| is_on_the_way(planned)) {
        let row = snapshot.migrations.iter().find(|row| Some(row.id) == planned.migration);
        if row.is_none_or(MigrationRow::is_over) {
            steps.push(CoordinatorStep::Conclude { plan: plan.id, index });
        }
        on_the_way += 1;
    }
    let is_vain = match plan.goal {
        // The drained server is gone, and so are its objects.
        Goal::Drain(run) => !snapshot.there.contains(&run),
        Goal::Balance => false,
    };
    if is_vain || plan.moves.iter().any(|planned| planned.is_done == Some(false)) {
        if on_the_way == 0 {
            steps.push(CoordinatorStep::End { plan: plan.id, known, state: PlanState::Stopped });
        }
        return;
    }
    let waits = |planned: &PlannedMove| planned.migration.is_none() && planned.is_done.is_none();
    let waiting = plan.moves.iter().enumerate().filter(|(_, planned)| waits(planned));
    let ready = waiting.filter(|(_, planned)| !snapshot.is_on_the_move(planned.table, planned.hashes));
    for (index, planned) in ready.take(PLAN_MOVES_AT_ONCE.saturating_sub(on_the_way)) {
        let takers = takers(snapshot);
        let least =
            takers.iter().min_by_key(|(server, share)| (**share, **server)).map(|(server, _)| *server);
        let to = takers.contains_key(&planned.to).then_some(planned.to).or(least);
        steps.extend(to.map(|to| CoordinatorStep::Begin { plan: plan.id, index, to }));
    }
    if plan.moves.iter().all(|planned| planned.is_done == Some(true)) {
        let more = moves_of(plan.goal, snapshot);
        let is_reached = more.is_empty() && !snapshot.has_left(plan.goal);
        if !more.is_empty() {
            steps.push(CoordinatorStep::Plan { plan: plan.id, known, moves: more });
        } else if is_reached {
            steps.push(CoordinatorStep::End { plan: plan.id, known, state: PlanState::Done });
        }
    }
}

impl Snapshot {
    /// Returns whether some of these hashes are moving, or the servers have not finished an earlier move of them.
    fn is_on_the_move(&self, table: u32, hashes: store::HashRange) -> bool {
        let overlaps =
            |other: store::HashRange| other.first() <= hashes.last() && hashes.first() <= other.last();
        self.migrations.iter().any(|row| row.table == table && overlaps(row.hashes))
    }

    /// Returns whether a server that is to be drained still owns hashes.
    fn has_left(&self, goal: Goal) -> bool {
        let Goal::Drain(run) = goal else { return false };
        self.tablets.iter().any(|row| !row.owned_by(run.server).is_empty())
    }
}

#[cfg(test)]
mod tests;
