//! `splinter cluster`: the servers of a cluster, their tablets and migrations, as the asked server knows them.

mod plans;
mod progress;
mod status;

use std::thread::sleep;
use std::time::Duration;

use super::failure::{Failure, FailureKind};
use super::options::{ClusterCommand, MigrateOptions, MigrationWay};
use super::output::{Answer, moment, table_of};
use super::settings::Settings;
use client::{
    Admin, MigrationEntry, MigrationMode, MigrationPhase, MigrationProgress, ServerEntry, Status, TabletEntry,
};
use serde_json::{Value, json};

/// Polling interval while waiting for a migration or a plan.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs a command about the cluster.
pub fn run(settings: &Settings, command: ClusterCommand) -> Result<Answer, Failure> {
    let mut admin = settings.connect_admin()?;
    match command {
        ClusterCommand::Status => {
            let (status, tablets) = (admin.cluster_status()?, admin.tablet_list()?);
            let (migrations, progress) = (admin.migration_list()?, admin.migration_progress()?);
            Ok(status::answer(&status, &tablets, (&migrations, &progress)))
        }
        ClusterCommand::Drain { server, wait } => {
            let plan = admin.cluster_drain(server)?;
            plans::begun(&mut admin, plan, wait)
        }
        ClusterCommand::Balance { wait } => {
            let plan = admin.cluster_balance()?;
            plans::begun(&mut admin, plan, wait)
        }
        ClusterCommand::Stop { plan } => plans::stop(&mut admin, plan),
        ClusterCommand::Adopt { server, it_is_off, lose_objects } => {
            plans::adopt(&mut admin, server, it_is_off, lose_objects)
        }
        ClusterCommand::Servers => Ok(servers(&admin.server_list()?)),
        ClusterCommand::Tablets { table } => tablets(&mut admin, table.as_deref()),
        ClusterCommand::Split { table, at } => {
            let at = at
                .get()
                .ok_or_else(|| Failure::new(FailureKind::Usage, "no tablet begins after the last hash"))?;
            admin.tablet_split(&table, at)?;
            Ok(Answer::new(format!("a tablet of {table} begins at {}", text_of(at)), edge(&table, at)))
        }
        ClusterCommand::Merge { table, at } => {
            let at = at
                .get()
                .ok_or_else(|| Failure::new(FailureKind::Usage, "no tablet begins after the last hash"))?;
            admin.tablet_merge(&table, at)?;
            let text = format!("one tablet of {table} now spans {}", text_of(at));
            Ok(Answer::new(text, edge(&table, at)))
        }
        ClusterCommand::Migrate(options) => migrate(&mut admin, &options),
        ClusterCommand::Migrations => migrations(&admin.migration_list()?, &admin.migration_progress()?),
        ClusterCommand::Abort { migration } => {
            let entry = admin.migration_abort(migration)?;
            let text = match entry.phase {
                MigrationPhase::Finished => {
                    format!("migration {migration} is complete: server {} owns the range", entry.target)
                }
                MigrationPhase::Ended => {
                    format!("migration {migration} was undone: server {} owns the range", entry.source)
                }
                MigrationPhase::Preparing | MigrationPhase::Moving | MigrationPhase::Returning => {
                    format!("migration {migration} returns the range to server {}", entry.source)
                }
            };
            Ok(Answer::new(text, value_of(&entry)))
        }
    }
}

fn servers(servers: &[ServerEntry]) -> Answer {
    let value = |server: &ServerEntry| {
        json!({
            "server": server.id, "asked": server.is_asked, "address": server.tcp,
            "udp_ports": server.frame_ports, "view": server.view, "started_ms": server.started_ms,
            "version": server.version,
        })
    };
    let json = servers.iter().map(value).collect();
    if servers.is_empty() {
        return Answer::new("this server is not part of a cluster, or is currently not registered", json);
    }
    let heads = ["server", "address", "cores", "view", "version", "since"];
    let rows = servers.iter().map(|server| {
        let mark = if server.is_asked { "*" } else { "" };
        vec![
            format!("{}{mark}", server.id),
            server.tcp.clone(),
            server.frame_ports.len().to_string(),
            server.view.to_string(),
            server.version.clone(),
            moment(server.started_ms),
        ]
    });
    Answer::new(table_of(&heads, rows), json)
}

fn tablets(admin: &mut Admin, table: Option<&str>) -> Result<Answer, Failure> {
    let mut tablets = admin.tablet_list()?;
    if let Some(table) = table {
        tablets.retain(|tablet| tablet.table == table);
        if tablets.is_empty() {
            let failure = Failure::new(FailureKind::Missing, format!("no server owns a tablet of `{table}`"));
            return Err(failure.known_as(Status::UnknownTable).next("tables are named OWNER/NAME"));
        }
    }
    let json = tablets.iter().map(value_of_tablet).collect();
    if tablets.is_empty() {
        return Ok(Answer::new("there are no tables, or this server is not part of a cluster", json));
    }
    let heads = ["table", "first", "last", "part", "server", "lost its objects"];
    let rows = tablets.iter().map(|tablet| {
        let lost = if tablet.emptied_ms == 0 { String::new() } else { moment(tablet.emptied_ms) };
        let part = part_of(tablet.first, tablet.last);
        let server = tablet.server.to_string();
        vec![tablet.table.clone(), text_of(tablet.first), text_of(tablet.last), part, server, lost]
    });
    Ok(Answer::new(table_of(&heads, rows), json))
}

fn migrate(admin: &mut Admin, options: &MigrateOptions) -> Result<Answer, Failure> {
    let mode = options.mode.map(|mode| match mode {
        MigrationWay::Rocksteady => MigrationMode::Rocksteady,
        MigrationWay::Cooperative => MigrationMode::Cooperative,
        MigrationWay::StopAndCopy => MigrationMode::StopAndCopy,
        MigrationWay::PreCopy => MigrationMode::PreCopy,
    });
    let begun = admin.migration_begin(&options.table, options.hashes.range(), options.to, mode)?;
    let MigrationEntry { id, source, target, .. } = begun;
    let what =
        format!("{} of {} from server {source} to {target}", part_of(begun.first, begun.last), options.table);
    if !options.wait {
        return Ok(Answer::new(format!("migration {id} moves {what}"), value_of(&begun)));
    }
    let phase = wait(admin, &begun)?;
    let over = MigrationEntry { phase, ..begun };
    if phase == MigrationPhase::Finished {
        return Ok(Answer::new(format!("migration {id} has moved {what}"), value_of(&over)));
    }
    let undone = format!("migration {id} was undone: server {source} owns the range");
    let failure = Failure::new(FailureKind::Refused, undone);
    Err(failure.known_as(Status::Conflict).next("see the logs of both servers for the reason"))
}

/// Waits until both servers have finished a migration, and returns its final phase.
fn wait(admin: &mut Admin, begun: &MigrationEntry) -> Result<MigrationPhase, Failure> {
    let mut seen = begun.phase;
    while let Some(entry) = admin.migration_list()?.iter().find(|entry| entry.id == begun.id) {
        seen = entry.phase;
        sleep(LOOK_EVERY);
    }
    if matches!(seen, MigrationPhase::Finished | MigrationPhase::Ended) {
        return Ok(seen);
    }
    // The migration ended and was removed between two polls: the owner of the hashes tells the outcome.
    let tablets = admin.tablet_list()?;
    let owner = tablets
        .iter()
        .find(|tablet| tablet.table == begun.table && (tablet.first..=tablet.last).contains(&begun.first));
    match owner {
        Some(tablet) if tablet.server == begun.target => Ok(MigrationPhase::Finished),
        Some(tablet) if tablet.server == begun.source => Ok(MigrationPhase::Ended),
        _ => Err(Failure::new(
            FailureKind::Missing,
            format!("migration {} is over with an unknown outcome: its range has moved again", begun.id),
        )),
    }
}

fn migrations(migrations: &[MigrationEntry], all: &[MigrationProgress]) -> Result<Answer, Failure> {
    let value = |entry: &MigrationEntry| {
        let mut value = value_of(entry);
        value["progress"] = progress::of(entry, all).map_or(Value::Null, progress::value_of);
        value
    };
    let over = all.iter().filter(|progress| progress.is_over);
    let json = json!({
        "migrations": migrations.iter().map(value).collect::<Value>(),
        "lately": over.map(progress::value_of).collect::<Value>(),
    });
    let lately = progress::lately(all);
    if migrations.is_empty() {
        let lately = if lately.is_empty() { lately } else { format!("; recent ones:\n{lately}") };
        return Ok(Answer::new(format!("no migration is running{lately}"), json));
    }
    let heads =
        ["migration", "table", "first", "last", "part", "from", "to", "mode", "phase", "begun", "moved"];
    let rows = migrations.iter().map(|entry| {
        let aborted = if entry.is_aborted { ", aborted" } else { "" };
        vec![
            entry.id.to_string(),
            entry.table.clone(),
            text_of(entry.first),
            text_of(entry.last),
            part_of(entry.first, entry.last),
            entry.source.to_string(),
            entry.target.to_string(),
            entry.mode.name().to_owned(),
            format!("{}{aborted}", entry.phase.name()),
            moment(entry.begun_ms),
            progress::of(entry, all).map(progress::text).unwrap_or_default(),
        ]
    });
    let lately = if lately.is_empty() { lately } else { format!("\n{lately}") };
    Ok(Answer::new(table_of(&heads, rows) + &lately, json))
}

fn value_of_tablet(tablet: &TabletEntry) -> Value {
    json!({
        "table": tablet.table, "number": tablet.id, "first": text_of(tablet.first),
        "last": text_of(tablet.last), "server": tablet.server,
        "emptied_ms": (tablet.emptied_ms != 0).then_some(tablet.emptied_ms),
    })
}

fn value_of(entry: &MigrationEntry) -> Value {
    json!({
        "migration": entry.id, "table": entry.table, "first": text_of(entry.first), "last": text_of(entry.last),
        "source": entry.source, "target": entry.target, "mode": entry.mode.name(),
        "phase": entry.phase.name(), "aborted": entry.is_aborted, "begun_ms": entry.begun_ms,
    })
}

fn edge(table: &str, at: u64) -> Value {
    json!({ "table": table, "at": text_of(at) })
}

fn text_of(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Formats the share of all hashes in a range.
fn part_of(first: u64, last: u64) -> String {
    let percent = (last.saturating_sub(first) as f64 + 1.0) / 2f64.powi(64) * 100.0;
    format!("{percent:.1}%")
}
