//! `splinter archive`: a tenant's objects, extensions, limits and grants as of one moment, in files elsewhere.
//!
//! ```text
//!   create:   server ── keys ──► newest versions ── objects ──► files of some MB ──► place: TENANT/files/CHECKSUM
//!                                                               manifest, the last ► place: TENANT/MOMENT.json
//!   restore:  manifest ──► files, each checked ──► tables of a tenant
//! ```
//! [`manifest`] describes an archive, [`file`](mod@file) holds its objects and sources, [`place`] stores both. A file is
//! named by its checksum, so what a place has is not sent again, and a changed file is noticed. Nothing that is read back
//! is trusted: names, counts and lengths are checked, and the server checks each object.

mod counts;
mod create;
mod file;
mod manifest;
mod place;
mod restore;
mod servers;

use super::failure::{Failure, FailureKind};
use super::options::ArchiveCommand;
use super::output::{Answer, moment, table_of, thousands};
use super::settings::Settings;
use counts::Counts;
use indicatif::{ProgressBar, ProgressStyle};
use manifest::Archive;
use place::Place;
use serde_json::{Value, json};
pub use servers::{Content, Server, Source};

/// Runs a command about archives.
pub fn run(settings: &Settings, command: ArchiveCommand) -> Result<Answer, Failure> {
    match command {
        ArchiveCommand::Create { to } => create::run(settings, &Place::create(&to)?),
        ArchiveCommand::List(place) => list(&Place::open(&place.from)?),
        ArchiveCommand::Verify { name, place } => verify(&Place::open(&place.from)?, name),
        ArchiveCommand::Restore { name, place, new_name, secret_file, native } => {
            let new = (new_name.as_deref(), secret_file.as_deref(), native);
            restore::run(settings, &Place::open(&place.from)?, &name, new)
        }
    }
}

/// Returns a bar of bytes on standard error, hidden if that is not a terminal.
pub fn bar(total_bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(total_bytes);
    let template = "{msg:9} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn list(place: &Place) -> Result<Answer, Failure> {
    let heads = ["archive", "moment", "tables", "objects", "bytes", "stored bytes", "extensions"];
    let (mut rows, mut values, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for name in place.archives()? {
        match Archive::read(place, &name) {
            Ok(archive) => {
                let counts = [
                    archive.tables.len() as u64,
                    archive.objects(),
                    archive.bytes(),
                    archive.stored_bytes(),
                    archive.extensions.len() as u64,
                ];
                let row = [name.clone(), moment(archive.moment_ms)].into_iter();
                rows.push(row.chain(counts.map(thousands)).collect());
                values.push(value_of(&name, &archive));
            }
            Err(failure) => refused.push(failure),
        }
    }
    Ok(Answer::new(table_of(&heads, rows), json!(values)).but_all(refused))
}

/// Returns an archive as JSON.
fn value_of(name: &str, archive: &Archive) -> Value {
    let table = |table: &manifest::Table| json!({ "table": table.name, "objects": table.objects, "bytes": table.bytes });
    let extension = |extension: &manifest::Extension| json!(extension.name);
    json!({
        "archive": name, "tenant": archive.tenant, "moment_ms": archive.moment_ms, "cut": archive.cut,
        "cuts": archive.cuts,
        "tables": archive.tables.iter().map(table).collect::<Vec<_>>(), "left_out": archive.left_out,
        "object_count": archive.objects(), "bytes": archive.bytes(), "stored_bytes": archive.stored_bytes(),
        "extensions": archive.extensions.iter().map(extension).collect::<Vec<_>>(),
    })
}

fn verify(place: &Place, name: Option<String>) -> Result<Answer, Failure> {
    let names = name.map_or_else(|| place.archives(), |name| Ok(vec![name]))?;
    let (mut text, mut values, mut refused) = (String::new(), Vec::new(), Vec::new());
    for name in &names {
        match verify_one(place, name) {
            Ok((line, value)) => {
                text += &line;
                values.push(value);
            }
            Err(failure) if names.len() == 1 => return Err(failure),
            Err(failure) => refused.push(failure.after(name)),
        }
    }
    Ok(Answer::new(text, json!(values)).but_all(refused))
}

/// Reads an archive as a whole; returns a line about it, and its JSON.
fn verify_one(place: &Place, name: &str) -> Result<(String, Value), Failure> {
    let archive = Archive::read(place, name)?;
    let bar = bar(archive.stored_bytes());
    bar.set_message("verify");
    let mut counts = Counts::default();
    for file in &archive.files {
        counts.add_file(&archive, file, &file::read(place, &archive.tenant, file)?)?;
        bar.inc(file.bytes);
    }
    counts.check(&archive)?;
    for source in archive.extensions.iter().flat_map(|extension| &extension.versions) {
        file::read_source(place, &archive.tenant, &source.file)?;
    }
    bar.finish_and_clear();
    let line = format!(
        "archive {name}: {} objects of {} tables match their checksums, {} bytes in {} files\n",
        thousands(archive.objects()),
        archive.tables.len(),
        thousands(archive.stored_bytes()),
        archive.files.len()
    );
    Ok((line, value_of(name, &archive)))
}

/// Returns the failure for an archive that is not what it was when it was written.
fn damaged(what: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Different, format!("the archive is damaged or was changed: {what}"))
        .next("use another archive; `splinter archive verify` tells which ones are whole")
}
