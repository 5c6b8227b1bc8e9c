//! `splinter cluster status`: draws the servers, the tablets of each, and the running migrations.
//!
//! ```text
//!   demo/visits   |111111111111111111111111222222222222222222222222|   column: a share of all hashes, by its owner
//!                 |                        <<<<<<<<<<<<            |   migration 7, 1 to 2: moving
//! ```

use client::{ClusterStatus, MemberEntry, MigrationEntry, MigrationProgress, PlanEntry, TabletEntry};
use serde_json::{Value, json};

use super::super::output::{Answer, moment, table_of};
use super::{progress, value_of, value_of_tablet};

/// Columns of a table's hashes.
const COLUMNS: u32 = 48;

/// Draws the whole cluster.
pub fn answer(
    status: &ClusterStatus,
    tablets: &[TabletEntry],
    (migrations, all): (&[MigrationEntry], &[MigrationProgress]),
) -> Answer {
    let json = json!({
        "asked": status.asked, "coordinator": (status.coordinator != 0).then_some(status.coordinator),
        "servers": status.members.iter().map(|member| json!({
            "server": member.id, "address": member.tcp, "there": member.is_present,
            "drained": member.is_drained, "starts": member.starts, "replicas": member.replicas,
            "missing_ms": member.missing_ms,
            "tablets": owned(tablets, member.id).count(), "tables_owned": share(tablets, member.id),
        })).collect::<Value>(),
        "tablets": tablets.iter().map(value_of_tablet).collect::<Value>(),
        "migrations": migrations.iter().map(value_of).collect::<Value>(),
        "progress": all.iter().map(progress::value_of).collect::<Value>(),
        "plans": status.plans.iter().map(plan_value).collect::<Value>(),
    });
    if status.asked == 0 {
        return Answer::new("this server is not part of a cluster and owns everything", json);
    }
    let mut text = servers(status, tablets);
    if !tablets.is_empty() {
        text += "\n";
        text += &tables(tablets, (migrations, all));
    }
    for plan in status.plans.iter().rev().take(1) {
        text += &format!("\n{}\n", plan_text(plan));
    }
    for warning in warnings(status, tablets) {
        text += &format!("\n{warning}\n");
    }
    Answer::new(text, json)
}

fn owned(tablets: &[TabletEntry], server: u32) -> impl Iterator<Item = &TabletEntry> {
    tablets.iter().filter(move |tablet| tablet.server == server)
}

/// Returns the total size of a server's tablets, in tables.
fn share(tablets: &[TabletEntry], server: u32) -> f64 {
    // `sum` over no tablets would return -0.0.
    let parts =
        owned(tablets, server).map(|tablet| tablet.last.saturating_sub(tablet.first) as f64 / 2f64.powi(64));
    parts.fold(0.0, |sum, part| sum + part)
}

/// Returns whether others recover what a server owned if it is missing.
fn is_recovered(member: &MemberEntry) -> bool {
    member.replicas > Some(0)
}

fn servers(status: &ClusterStatus, tablets: &[TabletEntry]) -> String {
    let heads = ["server", "address", "state", "tablets", "tables", "replicas"];
    let rows = status.members.iter().map(|member| {
        let asked = if member.id == status.asked { "*" } else { "" };
        let since = member.missing_ms.map(|ms| format!(" for {} s", ms / 1_000));
        let missing = format!("missing{}", since.unwrap_or_default());
        let state = match (member.is_present, member.is_drained) {
            (false, _) if is_recovered(member) && owned(tablets, member.id).next().is_some() => {
                missing + ", recovering"
            }
            (false, _) => missing,
            (true, true) => "drained".to_owned(),
            (true, false) if member.id == status.coordinator => "present, coordinator".to_owned(),
            (true, false) => "present".to_owned(),
        };
        vec![
            format!("{}{asked}", member.id),
            member.tcp.clone(),
            state,
            owned(tablets, member.id).count().to_string(),
            format!("{:.2}", share(tablets, member.id)),
            member.replicas.map_or_else(String::new, |replicas| replicas.to_string()),
        ]
    });
    table_of(&heads, rows)
}

/// Returns the column of a hash.
fn column(hash: u64) -> usize {
    ((u128::from(hash) * u128::from(COLUMNS)) >> 64) as usize
}

/// Returns the character that represents a server.
fn mark(server: u32) -> char {
    char::from_digit(server, 36).unwrap_or('#')
}

fn tables(tablets: &[TabletEntry], (migrations, all): (&[MigrationEntry], &[MigrationProgress])) -> String {
    let mut names: Vec<&str> = tablets.iter().map(|tablet| tablet.table.as_str()).collect();
    names.dedup();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for name in names {
        let mut drawn = vec![' '; COLUMNS as usize];
        for tablet in tablets.iter().filter(|tablet| tablet.table == name) {
            drawn[column(tablet.first)..=column(tablet.last)].fill(mark(tablet.server));
        }
        rows.push(vec![name.to_owned(), format!("|{}|", drawn.iter().collect::<String>())]);
        for entry in migrations.iter().filter(|entry| entry.table == name) {
            let arrow = if entry.source < entry.target { '>' } else { '<' };
            let mut drawn = vec![' '; COLUMNS as usize];
            drawn[column(entry.first)..=column(entry.last)].fill(arrow);
            let aborted = if entry.is_aborted { ", aborted" } else { "" };
            let phase = entry.phase.name();
            let moved = progress::of(entry, all);
            let moved = moved.map(|moved| format!(", {}", progress::text(moved))).unwrap_or_default();
            let what = format!(
                "migration {}, {} to {}: {phase}{aborted}{moved}",
                entry.id, entry.source, entry.target
            );
            rows.push(vec![String::new(), format!("|{}|  {what}", drawn.iter().collect::<String>())]);
        }
    }
    let width = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
    rows.iter().map(|row| format!("{:width$}  {}\n", row[0], row[1])).collect()
}

/// Returns warnings that require action.
fn warnings(status: &ClusterStatus, tablets: &[TabletEntry]) -> Vec<String> {
    let mut warnings = Vec::new();
    for member in status.members.iter().filter(|member| !member.is_present) {
        let count = owned(tablets, member.id).count();
        let id = member.id;
        if count > 0 && is_recovered(member) {
            warnings.push(format!(
                "server {id} is missing: others take over its {count} tablets, with the objects of durable tables"
            ));
        } else if count > 0 {
            warnings.push(format!(
                "server {id} is missing: its {count} tablets are not served; start it again, with the objects of durable \
                 tables, or give them up: `splinter cluster adopt {id}`"
            ));
        }
    }
    for tablet in tablets.iter().filter(|tablet| tablet.emptied_ms > 0) {
        let (table, at) = (&tablet.table, moment(tablet.emptied_ms));
        let hashes = format!("{:016x}..{:016x}", tablet.first, tablet.last);
        warnings.push(format!("{table} {hashes} on server {} lost its objects at {at}", tablet.server));
    }
    warnings
}

/// Formats a plan as one line.
pub fn plan_text(plan: &PlanEntry) -> String {
    let goal = match plan.drains {
        0 => "balances the servers".to_owned(),
        server => format!("drains server {server}"),
    };
    let failed = if plan.failed > 0 { format!(", {} failed", plan.failed) } else { String::new() };
    format!(
        "plan {} {goal}: {}, {} of {} moves done, {} running{failed}",
        plan.id,
        plan.progress.name(),
        plan.done,
        plan.moves,
        plan.in_flight
    )
}

/// Returns the JSON form of a plan.
pub fn plan_value(plan: &PlanEntry) -> Value {
    json!({
        "plan": plan.id, "goal": if plan.drains == 0 { "balance" } else { "drain" },
        "server": (plan.drains != 0).then_some(plan.drains), "progress": plan.progress.name(),
        "begun_ms": plan.begun_ms, "moves": plan.moves, "on_the_way": plan.in_flight,
        "done": plan.done, "failed": plan.failed,
    })
}

#[cfg(test)]
mod tests {
    use client::{MigrationEntry, MigrationMode, MigrationPhase, TabletEntry};

    use super::{column, mark, tables};

    #[test]
    fn tables_are_drawn_by_their_owners_with_what_moves_below() {
        let tablet = |first, last, server| TabletEntry {
            table: "ann/t".into(),
            id: 1,
            first,
            last,
            server,
            emptied_ms: 0,
        };
        let (half, end) = (1 << 63, u64::MAX);
        let migration = MigrationEntry {
            id: 7,
            table: "ann/t".into(),
            first: half,
            last: end,
            source: 12,
            target: 1,
            mode: MigrationMode::Rocksteady,
            phase: MigrationPhase::Moving,
            is_aborted: false,
            begun_ms: 5,
        };
        let drawn = tables(&[tablet(0, half - 1, 1), tablet(half, end, 12)], (&[migration], &[]));
        let (ones, twelves) = ("1".repeat(24), "c".repeat(24));
        let below = format!("|{}{}|  migration 7, 12 to 1: moving", " ".repeat(24), "<".repeat(24));
        assert_eq!(drawn, format!("ann/t  |{ones}{twelves}|\n       {below}\n"));
        assert_eq!((column(0), column(end), mark(36)), (0, 47, '#'));
    }
}
