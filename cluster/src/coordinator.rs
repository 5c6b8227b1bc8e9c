//! The next steps of a coordinator: a function of the records and of the present servers.
//!
//! No I/O, no clock, no memory of its own. So any other server replaces a coordinator that dies and continues from the
//! same records, and one seed replays a cluster. A plan is executed move by move, each recorded before it begins; a
//! step that was decided twice is made once ([`CoordinatorStep`]). The server at the other end of a migration completes
//! the part of a dead server; the coordinator does so only if both are gone.
//!
//! The size of ownership is measured in hashes, as if all tables were equally large.

use std::collections::{BTreeMap, BTreeSet};

use store::{HASH_RANGE_WIDTH_MIN, HashRange};
use wire::limits::TABLETS_PER_TABLE_MAX;

use crate::limits::{MIGRATIONS_MAX, PLAN_MOVES_AT_ONCE, PLAN_MOVES_MAX};
use crate::metadata::{
    CoordinatorStep, Goal, MigrationRow, PlanProgress, PlanRow, PlannedMove, ReplicasRow, ServerRun, Side,
    Snapshot, Tablet, TabletsRow, drained,
};
use crate::migration::{MigrationMode, MigrationPhase};

/// Possible tablet boundaries in one table.
const TABLE_STEPS: u64 = u64::MAX / HASH_RANGE_WIDTH_MIN + 1;
/// The divisor of a server's fair share that bounds its deviation from it.
const SLACK_DIVISOR: u64 = 16;

/// Returns the due steps, in their order.
#[must_use]
pub fn steps(snapshot: &Snapshot) -> Vec<CoordinatorStep> {
    let there: BTreeSet<ServerRun> = snapshot.there.iter().copied().collect();
    let mut steps: Vec<CoordinatorStep> = Vec::new();
    for row in &snapshot.migrations {
        clear(row, &there, &mut steps);
    }
    recover(snapshot, &mut steps);
    for plan in snapshot.plans.iter().filter(|plan| plan.state == PlanProgress::Running) {
        carry_out(snapshot, plan, &mut steps);
    }
    if steps.is_empty() {
        steps.extend(snapshot.tablets.iter().filter_map(|row| merge(snapshot, row)));
    }
    steps
}

/// Returns a merge of two tablets of a table that has so many that recoveries and moves would soon be refused more: of neighbours
/// with one owner, which lost their objects at the same time or never, those that are least together. While something moves, nothing
/// is merged.
fn merge(snapshot: &Snapshot, row: &TabletsRow) -> Option<CoordinatorStep> {
    let is_moving = snapshot.migrations.iter().any(|migration| migration.table == row.table);
    if row.is_tagged || is_moving || row.tablets.len() <= TABLETS_PER_TABLE_MAX / 2 {
        return None;
    }
    let are_alike =
        |pair: &&[Tablet]| (pair[0].server, pair[0].emptied_ms) == (pair[1].server, pair[1].emptied_ms);
    let pairs = row.tablets.windows(2).filter(are_alike);
    let least = pairs.min_by_key(|pair| steps_of(pair[0].hashes) + steps_of(pair[1].hashes))?;
    Some(CoordinatorStep::Merge { table: (row.tenant, row.table), at: least[1].hashes.first() })
}

/// Adds recoveries of what absent servers own, if others have replicas of their logs: what one owns of a table on the disk in parts
/// of about equal width, as many as there are servers with a disk that may take some, or a few more, since each tablet is
/// divided by itself; each tablet of a tagged table as a whole; each one in memory as a whole, and without objects.
fn recover(snapshot: &Snapshot, steps: &mut Vec<CoordinatorStep>) {
    let is_lost = |server: u32| {
        let has_replicas = |row: &ReplicasRow| row.server == server && row.replicas > 0;
        snapshot.there.iter().all(|run| run.server != server) && snapshot.replicas.iter().any(has_replicas)
    };
    let mut shares = takers(snapshot);
    shares.retain(|server, _| snapshot.with_disk.contains(server));
    // What each is to recover counts first: all are done at once if all work.
    let mut shares: BTreeMap<u32, (u64, u64)> =
        shares.into_iter().map(|(server, owned)| (server, (0, owned))).collect();
    let mut left = MIGRATIONS_MAX.saturating_sub(snapshot.migrations.len()) / 2;
    for (row, tablet) in idle(snapshot) {
        if !is_lost(tablet.server) || shares.is_empty() {
            continue;
        }
        let table = (row.tenant, row.table);
        let is_durable = snapshot.durable.contains(&row.table);
        let is_parted = is_durable && !row.is_tagged;
        let parts = if is_parted { parts_of(tablet, row, shares.len()) } else { 1 };
        for hashes in pieces(tablet.hashes, parts) {
            if left == 0 {
                return;
            }
            left -= 1;
            let least = shares.iter_mut().min_by_key(|(server, share)| (**share, **server));
            let (to, share) = least.expect("there are some");
            // What is empty costs nothing.
            share.0 += if is_durable { steps_of(hashes) } else { 0 };
            steps.push(CoordinatorStep::Recover { table, hashes, to: *to });
        }
    }
}

/// Returns the number of parts of a tablet, if all that its server owns of the table makes about so many.
fn parts_of(tablet: &Tablet, row: &TabletsRow, all: usize) -> u64 {
    let own = row.tablets.iter().filter(|other| other.server == tablet.server);
    let width: u128 = own.map(|other| u128::from(steps_of(other.hashes))).sum();
    // A little more than one share is one part.
    let shares = u128::from(steps_of(tablet.hashes)) * all as u128;
    (shares.saturating_sub(width / 16).div_ceil(width) as u64).max(1)
}

/// Returns a tablet in at most so many parts of about equal width.
fn pieces(hashes: HashRange, count: u64) -> Vec<HashRange> {
    let all = steps_of(hashes);
    let count = count.clamp(1, all);
    let bound = |index: u64| {
        let steps = (u128::from(all) * u128::from(index) / u128::from(count)) as u64;
        hashes.first().wrapping_add(steps.wrapping_mul(HASH_RANGE_WIDTH_MIN))
    };
    let piece = |index: u64| {
        let last = if index + 1 == count { hashes.last() } else { bound(index + 1).wrapping_sub(1) };
        HashRange::new(bound(index), last)
    };
    (0..count).filter_map(piece).collect()
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
    } else if gone.iter().all(|(is_gone, _, _)| *is_gone)
        || row.mode == MigrationMode::Recovery && !there.contains(&row.target)
    {
        let to = match row.phase {
            MigrationPhase::Moving if row.is_durable => MigrationPhase::Ended,
            MigrationPhase::Moving | MigrationPhase::Finished => MigrationPhase::Finished,
            MigrationPhase::Preparing | MigrationPhase::Returning | MigrationPhase::Ended => {
                MigrationPhase::Ended
            }
        };
        steps.push(CoordinatorStep::Settle { migration, from: row.phase, to });
    }
}

fn is_in_flight(planned: &PlannedMove) -> bool {
    planned.migration.is_some() && planned.is_done.is_none()
}

/// Adds the next steps of a plan.
fn carry_out(snapshot: &Snapshot, plan: &PlanRow, steps: &mut Vec<CoordinatorStep>) {
    let known = plan.moves.len();
    let mut in_flight = 0;
    for (index, planned) in plan.moves.iter().enumerate().filter(|(_, planned)| is_in_flight(planned)) {
        let row = snapshot.migrations.iter().find(|row| Some(row.id) == planned.migration);
        if row.is_none_or(MigrationRow::is_over) {
            steps.push(CoordinatorStep::Conclude { plan: plan.id, index });
        }
        in_flight += 1;
    }
    let is_vain = match plan.goal {
        // The drained server is gone, and so are its objects.
        Goal::Drain(run) => !snapshot.there.contains(&run),
        Goal::Balance => false,
    };
    if is_vain || plan.moves.iter().any(|planned| planned.is_done == Some(false)) {
        if in_flight == 0 {
            steps.push(CoordinatorStep::End { plan: plan.id, known, state: PlanProgress::Stopped });
        }
        return;
    }
    let waits = |planned: &PlannedMove| planned.migration.is_none() && planned.is_done.is_none();
    let waiting = plan.moves.iter().enumerate().filter(|(_, planned)| waits(planned));
    let ready = waiting.filter(|(_, planned)| !snapshot.is_migrating(planned.table, planned.hashes));
    for (index, planned) in ready.take(PLAN_MOVES_AT_ONCE.saturating_sub(in_flight)) {
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
            steps.push(CoordinatorStep::End { plan: plan.id, known, state: PlanProgress::Done });
        }
    }
}

fn steps_of(hashes: HashRange) -> u64 {
    (hashes.last() - hashes.first()) / HASH_RANGE_WIDTH_MIN + 1
}

/// Returns the servers that may receive tablets, and how much each owns.
fn takers(snapshot: &Snapshot) -> BTreeMap<u32, u64> {
    let drained = drained(&snapshot.plans);
    let there = snapshot.there.iter().filter(|run| !drained.contains(run));
    let mut shares: BTreeMap<u32, u64> = there.map(|run| (run.server, 0)).collect();
    for tablet in snapshot.tablets.iter().flat_map(|row| &row.tablets) {
        shares.entry(tablet.server).and_modify(|share| *share += steps_of(tablet.hashes));
    }
    shares
}

/// Returns the missing moves to a goal, at most as many as a plan may have at a time.
fn moves_of(goal: Goal, snapshot: &Snapshot) -> Vec<PlannedMove> {
    match goal {
        Goal::Drain(run) => draining(snapshot, run.server),
        Goal::Balance => balancing(snapshot),
    }
}

/// Returns the tablets that no migration moves, with their tables.
fn idle(snapshot: &Snapshot) -> impl Iterator<Item = (&TabletsRow, &Tablet)> {
    let all = snapshot.tablets.iter().flat_map(|row| row.tablets.iter().map(move |tablet| (row, tablet)));
    all.filter(|(row, tablet)| !snapshot.is_migrating(row.table, tablet.hashes))
}

fn to_server(row: &TabletsRow, hashes: HashRange, to: u32) -> PlannedMove {
    PlannedMove { tenant: row.tenant, table: row.table, hashes, to, migration: None, is_done: None }
}

/// Moves everything of one server, each tablet to the server that owns least by then.
fn draining(snapshot: &Snapshot, server: u32) -> Vec<PlannedMove> {
    let mut shares = takers(snapshot);
    shares.remove(&server);
    let mut moves = Vec::new();
    let own = idle(snapshot).filter(|(_, tablet)| tablet.server == server);
    for (row, tablet) in own.take(PLAN_MOVES_MAX) {
        let least = shares.iter_mut().min_by_key(|(server, share)| (**share, **server));
        let Some((to, share)) = least else { break };
        *share += steps_of(tablet.hashes);
        moves.push(to_server(row, tablet.hashes, *to));
    }
    moves
}

/// Moves from the server that owns most to the one that owns least, until all own about the same: whole tablets if one
/// fits, otherwise a part of one, unless its table is tagged.
fn balancing(snapshot: &Snapshot) -> Vec<PlannedMove> {
    let mut shares = takers(snapshot);
    let fair = shares.values().sum::<u64>() / (shares.len() as u64).max(1);
    // At least 1/64 of a table: moving smaller pieces is useless.
    let slack = (fair / SLACK_DIVISOR).max(TABLE_STEPS / 64);
    let mut free: Vec<(&TabletsRow, Tablet)> = idle(snapshot).map(|(row, tablet)| (row, *tablet)).collect();
    let mut moves = Vec::new();
    while moves.len() < PLAN_MOVES_MAX {
        let most = shares.iter().max_by_key(|(server, share)| (**share, u32::MAX - **server));
        let least = shares.iter().min_by_key(|(server, share)| (**share, **server));
        let (Some((&from, &most)), Some((&to, &least))) = (most, least) else { break };
        let amount = most.saturating_sub(fair).min(fair.saturating_sub(least));
        if amount <= slack {
            break;
        }
        let own = |(_, tablet): &&(&TabletsRow, Tablet)| tablet.server == from;
        let fits = free.iter().filter(own).filter(|(_, tablet)| steps_of(tablet.hashes) <= amount);
        let widest = |(row, tablet): &&(&TabletsRow, Tablet)| {
            (steps_of(tablet.hashes), u32::MAX - row.table, u64::MAX - tablet.hashes.first())
        };
        // Tablets of tagged tables move only as a whole.
        let parted = || free.iter().filter(own).filter(|(row, _)| !row.is_tagged).max_by_key(widest);
        let chosen = fits.max_by_key(widest).or_else(parted);
        let Some(&(row, tablet)) = chosen else { break };
        free.retain(|(other, known)| other.table != row.table || known.hashes != tablet.hashes);
        let moved = steps_of(tablet.hashes).min(amount);
        let first = tablet.hashes.last() - (moved * HASH_RANGE_WIDTH_MIN - 1);
        if let Some(stays) = first.checked_sub(1).and_then(|last| HashRange::new(tablet.hashes.first(), last))
        {
            free.push((row, Tablet { hashes: stays, ..tablet }));
        }
        let Some(hashes) = HashRange::new(first, tablet.hashes.last()) else { break };
        shares.entry(from).and_modify(|share| *share -= moved);
        shares.entry(to).and_modify(|share| *share += moved);
        moves.push(to_server(row, hashes, to));
    }
    moves
}

impl Snapshot {
    /// Returns whether some of these hashes are moving, or the servers have not finished an earlier move of them.
    fn is_migrating(&self, table: u32, hashes: HashRange) -> bool {
        let overlaps = |other: HashRange| other.first() <= hashes.last() && hashes.first() <= other.last();
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
