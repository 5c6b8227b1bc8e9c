//! `splinter archive restore`: a new tenant, or the tables of one's own, from an archive.
//!
//! Objects keep versions and expiry; what has expired since stays out. Every file is checked before any of it is sent.
//! If a restore fails, what it made is removed: the administrator's new tenant, or the tables.

use super::counts::Counts;
use super::file::{self, Objects};
use super::manifest::{Archive, Extension, Grant, Limit, Table};
use super::place::Place;
use super::{damaged, value_of};
use crate::failure::{Failure, FailureKind};
use crate::limits::text_of;
use crate::output::{Answer, thousands};
use crate::settings::Settings;
use crate::tenant::write_secret;
use client::{Client, Error, LimitChange, Owners, PackageFile, Placement, Restored, SANDBOX, Status};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of objects in one request.
const REQUEST_BYTES: usize = 1 << 20;

/// What was restored, and what could not be.
#[derive(Default)]
struct Outcome {
    restored: Restored,
    not_granted: Vec<String>,
    renumbered: Vec<String>,
}

/// Restores an archive, as a new tenant with the administrator's secret, else in the tenant.
pub fn run(
    settings: &Settings,
    place: &Place,
    name: &str,
    (new_name, secret_file, native): (Option<&str>, Option<&Path>, bool),
) -> Result<Answer, Failure> {
    let archive = Archive::read(place, name)?;
    if !settings.is_admin() {
        if new_name.is_some() || secret_file.is_some() || native {
            return Err(Failure::new(
                FailureKind::Usage,
                "only the administrator restores under another name",
            )
            .next("give --admin-secret, or leave out --as, --secret-file and --native"));
        }
        let mut owners = Owners::of(settings.connect()?);
        let mut created = Vec::new();
        return match fill(&mut owners, place, &archive, &mut created) {
            Ok(outcome) => Ok(answer(name, &archive, (&settings.tenant()?.0, None), (&outcome, None))),
            Err(failure) => {
                let remains = remove(owners.client(), created);
                Err(failure.after(if remains.is_empty() {
                    "nothing was restored".to_owned()
                } else {
                    format!("restored in part, and not removed: {}", remains.join(", "))
                }))
            }
        };
    }
    let tenant = new_name.unwrap_or(&archive.tenant);
    let mut admin = settings.connect_admin()?;
    let secret = admin.tenant_create(tenant)?;
    let mut fill_new = || {
        let given = archive.limits.iter().filter(|limit| is_restored(limit, native));
        let changes: Vec<_> =
            given.map(|limit| LimitChange { limit: &limit.name, value: Some(limit.value) }).collect();
        if !changes.is_empty() {
            admin.tenant_limits_set(tenant, &changes)?;
        }
        if let Some(path) = secret_file {
            write_secret(path, &secret).map_err(|error| {
                Failure::new(FailureKind::Local, format!("cannot write {}: {error}", path.display()))
            })?;
        }
        fill(&mut Owners::of(settings.connect_as(tenant, &secret)?), place, &archive, &mut Vec::new())
    };
    match fill_new() {
        Ok(outcome) => {
            let shown = secret_file.is_none().then_some(&*secret);
            Ok(answer(name, &archive, (tenant, shown), (&outcome, Some(native))))
        }
        Err(failure) => {
            let before = match admin.tenant_drop(tenant) {
                Ok(()) => "nothing was restored".to_owned(),
                Err(error) => format!("tenant {tenant} is incomplete and could not be dropped ({error})"),
            };
            let is_left_out = archive.limits.iter().any(|limit| !is_restored(limit, native));
            let failure = failure.after(before);
            Err(if is_left_out && failure.is(Status::Unavailable) {
                failure.next("if you trust whoever can write the archives, give --native for an extension without a module")
            } else {
                failure
            })
        }
    }
}

fn answer(
    name: &str,
    archive: &Archive,
    (tenant, secret): (&str, Option<&str>),
    (outcome, set_limits): (&Outcome, Option<bool>),
) -> Answer {
    let Outcome { restored, not_granted, renumbered } = outcome;
    let mut text = format!(
        "restored {name} as {tenant}: {} objects of {} tables, {} extensions\n",
        thousands(restored.stored),
        archive.tables.len(),
        archive.extensions.len()
    );
    if restored.late > 0 {
        let late = thousands(restored.late);
        text +=
            &format!("{late} objects have expired since, or were there when they were sent a second time\n");
    }
    let (set, left_out): (Vec<_>, Vec<_>) =
        archive.limits.iter().partition(|limit| set_limits.is_some_and(|native| is_restored(limit, native)));
    for (what, limits) in [("limits", &set), ("limits of the archive that were left out", &left_out)] {
        let shown =
            limits.iter().map(|limit| format!("{}={}", limit.name, text_of(&limit.name, limit.value)));
        if !limits.is_empty() {
            text += &format!("{what}: {}\n", shown.collect::<Vec<_>>().join(", "));
        }
    }
    for line in renumbered {
        text += &format!("{line}\n");
    }
    for grant in not_granted {
        text += &format!("not granted, since there is no such tenant: {grant}\n");
    }
    if let Some(secret) = secret {
        text += &format!("secret: {secret}\n");
    }
    let mut value = value_of(name, archive);
    value["restored_as"] = json!(tenant);
    value["stored"] = json!(restored.stored);
    value["expired"] = json!(restored.late);
    let limits =
        |of: Vec<&Limit>| json!(of.iter().map(|it| (&*it.name, it.value)).collect::<BTreeMap<_, _>>());
    value["limits"] = limits(set);
    value["limits_left_out"] = limits(left_out);
    value["not_granted"] = json!(not_granted);
    value["secret"] = json!(secret);
    Answer::new(text, value)
}

/// Returns whether the administrator's restore sets a limit. Without `native` it does not set the sandbox, which whoever can write
/// the archive could turn off.
fn is_restored(limit: &Limit, native: bool) -> bool {
    native || limit.name != SANDBOX
}

/// What a restore makes.
enum Made {
    Table,
    Extension,
}

/// Removes what a restore made; returns what remains.
fn remove(client: &mut Client, made: Vec<(Made, String)>) -> Vec<String> {
    let removed = |(kind, name): (Made, String)| {
        let (removed, what) = match kind {
            Made::Table => (client.table_drop(&name), "table"),
            Made::Extension => (client.extension_remove(&name), "extension"),
        };
        let is_gone =
            |error: &Error| matches!(error.status(), Some(Status::UnknownTable | Status::UnknownExtension));
        removed.err().filter(|error| !is_gone(error)).map(|_| format!("{what} {name}"))
    };
    made.into_iter().rev().filter_map(removed).collect()
}

/// Makes tables, objects, extensions and grants; notes what it made.
fn fill(
    owners: &mut Owners,
    place: &Place,
    archive: &Archive,
    created: &mut Vec<(Made, String)>,
) -> Result<Outcome, Failure> {
    let (mut outcome, mut ids) = (Outcome::default(), BTreeMap::new());
    for table in &archive.tables {
        let made = create(owners.client(), table);
        let made = made.map_err(|error| Failure::from(error).after(format!("table {}", table.name)))?;
        ids.insert(table.id, (&*table.name, made));
        created.push((Made::Table, table.name.clone()));
    }
    fill_tables(owners, place, (archive, &ids), &mut outcome.restored)?;
    let client = owners.client();
    for extension in &archive.extensions {
        if client.extension_list()?.iter().any(|known| known.name == extension.name) {
            let what = format!("there is an extension {} already", extension.name);
            return Err(Failure::new(FailureKind::Condition, what));
        }
        created.push((Made::Extension, extension.name.clone()));
        outcome.renumbered.extend(install(client, place, archive, extension)?);
    }
    for Grant { name, to, right } in &archive.grants {
        match client.grant(name, to, *right) {
            Ok(()) => {}
            Err(error) if error.status() == Some(Status::UnknownTenant) => {
                outcome.not_granted.push(format!("{name} to {to}"));
            }
            // A grant on a table that was left out.
            Err(error) if archive.left_out.contains(name) && error.status() == Some(Status::UnknownTable) => {
            }
            Err(error) => return Err(Failure::from(error).after(format!("grant of {name} to {to}"))),
        }
    }
    Ok(outcome)
}

/// Makes a table, with as many tablets as it had, if this is a cluster. Returns its id.
fn create(client: &mut Client, table: &Table) -> Result<u32, Error> {
    let tablets = table.tablets.and_then(|tablets| u16::try_from(tablets).ok());
    // Tagged ones have a default that fits every cluster.
    if let Some(tablets) = tablets.filter(|tablets| *tablets > 1 && !table.options.tagged) {
        match client.table_create_spread(&table.name, table.options, tablets) {
            // The server is in no cluster.
            Err(error) if error.status() == Some(Status::Unavailable) => {}
            made => return made,
        }
    }
    client.table_create_with(&table.name, table.options)
}

/// Stores the objects in the tables, whose names and ids are given by their numbers in the archive.
fn fill_tables(
    owners: &mut Owners,
    place: &Place,
    (archive, tables): (&Archive, &BTreeMap<u32, (&str, u32)>),
    restored: &mut Restored,
) -> Result<(), Failure> {
    let bar = super::bar(archive.stored_bytes());
    bar.set_message("restore");
    let mut counts = Counts::default();
    for file in &archive.files {
        let content = file::read(place, &archive.tenant, file)?;
        counts.add_file(archive, file, &content)?;
        let mut gathered: BTreeMap<u32, (usize, Vec<&[u8]>)> = BTreeMap::new();
        for object in Objects::of(&content)? {
            let (table, entry) = object?;
            let (bytes, entries) = gathered.entry(table).or_default();
            *bytes += entry.len();
            entries.push(entry);
            if *bytes >= REQUEST_BYTES {
                let (_, entries) = gathered.remove(&table).unwrap_or_default();
                store(owners, tables[&table], &entries, restored)?;
            }
        }
        for (table, (_, entries)) in &gathered {
            store(owners, tables[table], entries, restored)?;
        }
        bar.inc(file.bytes);
    }
    bar.finish_and_clear();
    counts.check(archive)
}

fn store(
    owners: &mut Owners,
    table: (&str, u32),
    entries: &[&[u8]],
    restored: &mut Restored,
) -> Result<(), Failure> {
    let name = table.0;
    let stored = owners.restore(table, entries).map_err(|error| match error.status() {
        Some(Status::Malformed | Status::Overflow) => damaged(format!("table {name}: {error}")),
        _ => Failure::from(error).after(format!("table {name}")),
    })?;
    restored.stored += stored.stored;
    restored.late += stored.late;
    Ok(())
}

/// Builds the versions of an extension in their order, and makes the same one current. Returns a line about numbers, if
/// they are not those of the archive.
fn install(
    client: &mut Client,
    place: &Place,
    archive: &Archive,
    extension: &Extension,
) -> Result<Option<String>, Failure> {
    let Extension { name, versions, state } = extension;
    let after = |error| Failure::from(error).after(format!("extension {name}"));
    let (mut numbers, mut current) = (Vec::<(u32, u32)>::new(), 0);
    // Each becomes current when it is installed. A canary comes behind the choice of the current one, which would end it.
    let choose = |client: &mut Client, current: u32, last: u32| match state.pinned {
        _ if current == 0 => Ok(()),
        true => client.extension_pin(name, Some(current)).map(drop),
        false if current == last => Ok(()),
        false => client.extension_roll_back(name, Some(current)).map(drop),
    };
    for version in versions {
        let source = file::read_source(place, &archive.tenant, &version.file)?;
        let files = source.iter().map(|(path, bytes)| PackageFile { path, bytes }).collect();
        let mut placement = Placement::Current;
        if version.version == state.canary {
            placement = Placement::Canary(state.canary_percent);
            let last = numbers.last().map_or(0, |(_, last)| *last);
            choose(client, current, last).map_err(after)?;
        }
        let installed = client.extension_install_as(name, files, placement).map_err(after)?;
        if version.version == state.current {
            current = installed.version;
        }
        numbers.push((version.version, installed.version));
    }
    if state.canary == 0 {
        let last = numbers.last().map_or(0, |(_, last)| *last);
        choose(client, current, last).map_err(after)?;
    }
    let changed: Vec<_> = numbers.iter().filter(|(old, new)| old != new).collect();
    let lines = changed.iter().map(|(old, new)| format!("{name}@{old} is {name}@{new}"));
    let line = lines.collect::<Vec<_>>().join(", ");
    Ok((!line.is_empty()).then(|| format!("versions are numbered anew: {line}")))
}
