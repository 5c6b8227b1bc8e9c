//! `splinter archive create`: reads a tenant from the server as of one cut, and writes files and a manifest.
//!
//! The server sends what its log has, old versions and ends of keys included. So keys are read first, to know the newest
//! version of each (about 50 bytes of memory for each key), then objects, of which only these go to files. A file ends
//! where a segment of the log ends, as far as its size permits: what did not change gives the same files again.

use super::counts::Counts;
use super::file;
use super::manifest::{Archive, Extension, FORMAT, File, Grant, Limit, Table, Version};
use super::place::Place;
use crate::failure::{Failure, FailureKind};
use crate::output::{Answer, thousands};
use crate::settings::Settings;
use client::{
    Admin, ArchiveBegun, ArchivePiece, ArchivedSource, Client, Error, archived_keys, archived_objects,
};
use indicatif::ProgressBar;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Bytes of content with which a file ends, wherever that is.
const CONTENT_BYTES: usize = 16 << 20;
/// A file ends behind each segment whose number is a multiple of this: some MB of a log that is half dead.
const SEGMENTS_PER_FILE: u32 = 4;

/// A connection of one who may archive a tenant.
enum Source {
    Own(Box<Client>),
    Any(Box<Admin>),
}

impl Source {
    fn begin(&mut self, tenant: &str) -> Result<ArchiveBegun, Error> {
        match self {
            Source::Own(client) => client.archive_begin(),
            Source::Any(admin) => admin.archive_begin(tenant),
        }
    }

    fn read(&mut self, id: u64, piece: u32, keys_only: bool) -> Result<ArchivePiece, Error> {
        match self {
            Source::Own(client) => client.archive_read(id, piece, keys_only),
            Source::Any(admin) => admin.archive_read(id, piece, keys_only),
        }
    }

    fn source(&mut self, id: u64, extension: &str, version: u32) -> Result<ArchivedSource, Error> {
        match self {
            Source::Own(client) => client.archive_source(id, extension, version),
            Source::Any(admin) => admin.archive_source(id, extension, version),
        }
    }

    fn end(&mut self, id: u64) -> Result<(), Error> {
        match self {
            Source::Own(client) => client.archive_end(id),
            Source::Any(admin) => admin.archive_end(id),
        }
    }
}

/// An archive that was written.
struct Created {
    name: String,
    archive: Archive,
    sent_bytes: u64,
}

/// Archives the tenant, or as the administrator the tenant that is named, or all.
pub fn run(settings: &Settings, place: &Place) -> Result<Answer, Failure> {
    let (mut source, tenants) = if settings.is_admin() {
        let mut admin = settings.connect_admin()?;
        let tenants = match settings.given_tenant() {
            Some(tenant) => vec![tenant.to_owned()],
            None => admin.tenant_list()?.into_iter().map(|tenant| tenant.name).collect(),
        };
        (Source::Any(Box::new(admin)), tenants)
    } else {
        (Source::Own(Box::new(settings.connect()?)), vec![settings.tenant()?.0])
    };
    let (mut text, mut values) = (String::new(), Vec::new());
    for tenant in tenants {
        match create(&mut source, &tenant, place) {
            Ok(created) => {
                text += &created.text();
                values.push(created.value());
            }
            Err(failure) if values.is_empty() => return Err(failure),
            Err(failure) => {
                return Ok(Answer::new(text, json!(values)).but(failure.after(format!("tenant {tenant}"))));
            }
        }
    }
    Ok(Answer::new(text, json!(values)))
}

impl Created {
    fn text(&self) -> String {
        let Created { name, archive, sent_bytes } = self;
        let mut text = format!(
            "archived {name}: {} objects of {} tables, {} bytes in {} files, {} bytes of them new\n",
            thousands(archive.objects()),
            archive.tables.len(),
            thousands(archive.stored_bytes()),
            archive.files.len(),
            thousands(*sent_bytes)
        );
        if !archive.left_out.is_empty() {
            text += &format!("left out, since they are in memory only: {}\n", archive.left_out.join(", "));
        }
        text
    }

    fn value(&self) -> Value {
        let mut value = super::value_of(&self.name, &self.archive);
        value["sent_bytes"] = json!(self.sent_bytes);
        value
    }
}

fn create(source: &mut Source, tenant: &str, place: &Place) -> Result<Created, Failure> {
    let begun = source.begin(tenant)?;
    let mut writing = Writing {
        place,
        tenant: begun.tenant.clone(),
        content: file::begin(),
        files: Vec::new(),
        counts: Counts::default(),
        sent_bytes: 0,
    };
    let written = write(source, &begun, &mut writing);
    // One that has ended by itself is no failure of its own.
    let ended = source.end(begun.id);
    let extensions = written?;
    if let Err(error) = ended {
        return Err(Failure::from(error).after("the archive was not completed"));
    }
    let table = |table: &client::ArchivedTable| {
        let (objects, bytes) = writing.counts.of(table.id);
        Table { id: table.id, name: table.name.clone(), options: table.options, objects, bytes }
    };
    let changed = begun.limits.iter().filter(|limit| limit.value != limit.default);
    let archive = Archive {
        format: FORMAT,
        tenant: begun.tenant.clone(),
        moment_ms: begun.clock_ms,
        cut: begun.cut,
        tables: begun.tables.iter().map(table).collect(),
        left_out: begun.left_out,
        extensions,
        limits: changed.map(|limit| Limit { name: limit.name.clone(), value: limit.value }).collect(),
        grants: begun
            .grants
            .into_iter()
            .map(|grant| Grant { name: grant.name, to: grant.to, right: grant.right })
            .collect(),
        files: writing.files,
    };
    let name = format!("{}/{}", archive.tenant, moment_of(archive.moment_ms)?);
    // What makes it an archive comes last.
    place.put(&Place::manifest(&name)?, archive.clone().encode())?;
    Ok(Created { name, archive, sent_bytes: writing.sent_bytes })
}

/// Returns a moment as it stands in the name of an archive.
fn moment_of(at_ms: u64) -> Result<String, Failure> {
    let moment = i64::try_from(at_ms).ok().and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
    let moment = moment.ok_or_else(|| wrong("the server's clock shows no date"))?;
    Ok(moment.strftime("%Y%m%dT%H%M%S%.3fZ").to_string())
}

fn wrong(what: &str) -> Failure {
    Failure::new(FailureKind::Local, what).next("repeat it; if that fails too, look at the server's log")
}

/// Files of an archive that is being written.
struct Writing<'p> {
    place: &'p Place,
    tenant: String,
    content: Vec<u8>,
    files: Vec<File>,
    counts: Counts,
    sent_bytes: u64,
}

impl Writing<'_> {
    /// Writes the file that has begun, if it has an object.
    fn end_file(&mut self) -> Result<(), Failure> {
        let content = std::mem::replace(&mut self.content, file::begin());
        if content.len() > self.content.len() {
            let file = self.store(&content)?;
            self.files.push(file);
        }
        Ok(())
    }

    fn store(&mut self, content: &[u8]) -> Result<File, Failure> {
        let (file, is_new) = file::write(self.place, &self.tenant, content)?;
        self.sent_bytes += if is_new { file.bytes } else { 0 };
        Ok(file)
    }
}

/// Writes objects and sources; returns the extensions.
fn write(
    source: &mut Source,
    begun: &ArchiveBegun,
    writing: &mut Writing<'_>,
) -> Result<Vec<Extension>, Failure> {
    let bar = super::bar(0);
    let mut newest = read_keys(source, begun.id, &bar)?;
    write_objects(source, begun.id, (&mut newest, &bar), writing)?;
    bar.finish_and_clear();
    if newest.values().any(|word| word & ENDED == 0) {
        return Err(wrong("the server's log has fewer objects than keys"));
    }
    let mut extensions = Vec::new();
    for extension in &begun.extensions {
        let mut versions = Vec::new();
        for &version in &extension.versions {
            let content = file::of_source(&source.source(begun.id, &extension.name, version)?);
            versions.push(Version { version, file: writing.store(&content)? });
        }
        extensions.push(Extension { name: extension.name.clone(), versions, state: extension.state });
    }
    Ok(extensions)
}

/// Set in the word of a key that has ended, or whose object was written; the rest is twice its version.
const ENDED: u64 = 1;

/// Reads all keys; returns the newest version of each.
fn read_keys(source: &mut Source, id: u64, bar: &ProgressBar) -> Result<HashMap<u128, u64>, Failure> {
    let mut newest: HashMap<u128, u64> = HashMap::new();
    bar.set_message("keys");
    for number in 0.. {
        let piece = source.read(id, number, true)?;
        show(bar, &piece, 0);
        for key in archived_keys(&piece.records.0)? {
            // An end of the same version counts more.
            let word = key.version << 1 | if key.ends { ENDED } else { 0 };
            let known = newest.entry(key.hash).or_default();
            *known = word.max(*known);
        }
        if piece.is_last {
            break;
        }
    }
    Ok(newest)
}

/// Reads all objects, and writes those that are the newest of their keys.
fn write_objects(
    source: &mut Source,
    id: u64,
    (newest, bar): (&mut HashMap<u128, u64>, &ProgressBar),
    writing: &mut Writing<'_>,
) -> Result<(), Failure> {
    bar.set_message("objects");
    let mut segment = 0;
    for number in 0.. {
        let piece = source.read(id, number, false)?;
        show(bar, &piece, piece.all_bytes);
        if piece.segment / SEGMENTS_PER_FILE != segment / SEGMENTS_PER_FILE {
            writing.end_file()?;
        }
        segment = piece.segment;
        for object in archived_objects(&piece.records.0)? {
            let (key, entry) = (object.key, object.entry);
            match newest.get_mut(&key.hash) {
                Some(word) if *word == key.version << 1 => *word |= ENDED,
                _ => continue,
            }
            if writing.content.len() + entry.len() > CONTENT_BYTES {
                writing.end_file()?;
            }
            file::append(&mut writing.content, key.table, entry);
            writing.counts.add(key.table, entry.len());
        }
        if piece.is_last {
            break;
        }
    }
    writing.end_file()
}

/// Shows how much of the log was read; it is read twice.
fn show(bar: &ProgressBar, piece: &ArchivePiece, before_bytes: u64) {
    bar.set_length(2 * piece.all_bytes);
    bar.set_position(before_bytes + piece.done_bytes);
}
