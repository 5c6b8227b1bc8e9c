//! The moves that lead to a goal. The size of ownership is measured in hashes, as if all tables were equally large.

use std::collections::BTreeMap;

use store::{HASH_RANGE_WIDTH_MIN, HashRange};

use crate::limits::PLAN_MOVES_MAX;
use crate::metadata::{Goal, PlannedMove, Snapshot, Tablet, TabletsRow, drained};

/// Possible tablet boundaries in one table.
const TABLE_STEPS: u64 = u64::MAX / HASH_RANGE_WIDTH_MIN + 1;
/// The divisor of a server's fair share that bounds its deviation from it.
const SLACK_DIVISOR: u64 = 16;

fn steps_of(hashes: HashRange) -> u64 {
    (hashes.last() - hashes.first()) / HASH_RANGE_WIDTH_MIN + 1
}

/// Returns the servers that may receive tablets, and how much each owns.
pub(super) fn takers(snapshot: &Snapshot) -> BTreeMap<u32, u64> {
    let drained = drained(&snapshot.plans);
    let there = snapshot.there.iter().filter(|run| !drained.contains(run));
    let mut shares: BTreeMap<u32, u64> = there.map(|run| (run.server, 0)).collect();
    for tablet in snapshot.tablets.iter().flat_map(|row| &row.tablets) {
        shares.entry(tablet.server).and_modify(|share| *share += steps_of(tablet.hashes));
    }
    shares
}

/// Returns the missing moves to a goal, at most as many as a plan may have at a time.
pub(super) fn moves_of(goal: Goal, snapshot: &Snapshot) -> Vec<PlannedMove> {
    match goal {
        Goal::Drain(run) => draining(snapshot, run.server),
        Goal::Balance => balancing(snapshot),
    }
}

/// Returns the tablets that no migration moves, with their tables.
fn idle(snapshot: &Snapshot) -> impl Iterator<Item = (&TabletsRow, &Tablet)> {
    let all = snapshot.tablets.iter().flat_map(|row| row.tablets.iter().map(move |tablet| (row, tablet)));
    all.filter(|(row, tablet)| !snapshot.is_on_the_move(row.table, tablet.hashes))
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
/// fits, otherwise a part of one.
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
        let chosen = fits.max_by_key(widest).or_else(|| free.iter().filter(own).max_by_key(widest));
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
