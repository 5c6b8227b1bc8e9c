//! `splinter archive create`: reads a tenant from the server as of one cut, in a cluster of each server as of one, and writes
//! files and a manifest.
//!
//! A server sends what its log has, old versions and ends of keys included. So keys are read first, to know the newest
//! version of each (about 50 bytes of memory for each key), then objects, of which only these go to files. A file ends
//! where a segment of the log ends, as far as its size permits: what did not change gives the same files again.

use super::counts::Counts;
use super::file;
use super::manifest::{Archive, CLUSTER_FORMAT, Cut, Extension, FORMAT, File, Grant, Limit, Table, Version};
use super::place::Place;
use super::servers::{Content, Server, Source};
use crate::failure::{Failure, FailureKind};
use crate::output::{Answer, thousands};
use crate::settings::Settings;
use client::{ArchivePiece, Owners, Status, archived_keys, archived_objects};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Bytes of content with which a file ends, wherever that is.
const CONTENT_BYTES: usize = 16 << 20;
/// A file ends behind each segment whose number is a multiple of this: some MB of a log that is half dead.
const SEGMENTS_PER_FILE: u32 = 4;

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
        (Source::Own(Box::new(Owners::of(settings.connect()?))), vec![settings.tenant()?.0])
    };
    let (mut text, mut values, mut failed) = (String::new(), Vec::new(), Vec::new());
    for tenant in &tenants {
        match create(&mut source, tenant, place) {
            Ok(created) => {
                text += &created.text();
                values.push(created.value());
            }
            Err(failure) if tenants.len() == 1 => return Err(failure),
            // It was dropped since.
            Err(failure) if failure.is(Status::UnknownTenant) => {}
            Err(failure) => {
                let goes_on = failure.is_of_one();
                failed.push(failure.after(format!("tenant {tenant}")));
                if !goes_on {
                    break;
                }
            }
        }
    }
    Ok(Answer::new(text, json!(values)).but_all(failed))
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
    let servers = source.begin(tenant)?;
    let mut writing = Writing {
        place,
        tenant: servers[0].begun.tenant.clone(),
        files: Vec::new(),
        counts: Counts::default(),
        sent_bytes: 0,
    };
    let written = write(source, &servers, &mut writing);
    // One that has ended by itself is no failure of its own.
    let ended = source.end(&servers);
    let extensions = written?;
    let cuts = Cut::of(&servers);
    let begun = servers.into_iter().next().expect("the server that was asked first").begun;
    if let Err(error) = ended {
        return Err(Failure::from(error).after("the archive was not completed"));
    }
    let table = |table: &client::ArchivedTable| {
        let (objects, bytes) = writing.counts.of(table.id);
        let tablets = (begun.server > 0).then_some(table.tablets);
        Table { id: table.id, name: table.name.clone(), options: table.options, objects, bytes, tablets }
    };
    let changed = begun.limits.iter().filter(|limit| limit.value != limit.default);
    let archive = Archive {
        format: if begun.server > 0 { CLUSTER_FORMAT } else { FORMAT },
        tenant: begun.tenant.clone(),
        moment_ms: cuts.iter().map(|cut| cut.moment_ms).min().unwrap_or(begun.clock_ms),
        cut: begun.cut,
        cuts: if begun.server > 0 { cuts } else { Vec::new() },
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

/// Set in the word of a key that has ended, or whose object was written; the rest is twice its version.
const ENDED: u64 = 1;

/// What is gathered from a server.
struct Gathered {
    /// The newest version of each key.
    newest: HashMap<u128, u64>,
    /// The file that has begun.
    content: Vec<u8>,
    /// The segment that was read last.
    segment: u32,
}

/// Files of an archive that is being written.
struct Writing<'p> {
    place: &'p Place,
    tenant: String,
    files: Vec<File>,
    counts: Counts,
    sent_bytes: u64,
}

impl Writing<'_> {
    fn store(&mut self, content: &[u8]) -> Result<File, Failure> {
        let (file, is_new) = file::write(self.place, &self.tenant, content)?;
        self.sent_bytes += if is_new { file.bytes } else { 0 };
        Ok(file)
    }
}

/// Writes objects and sources; returns the extensions.
fn write(
    source: &mut Source,
    servers: &[Server],
    writing: &mut Writing<'_>,
) -> Result<Vec<Extension>, Failure> {
    // The first thing, since versions may be removed, and others get their numbers.
    let extensions = sources(source, servers, writing)?;
    let bar = super::bar(0);
    let none = || Gathered { newest: HashMap::new(), content: file::begin(), segment: 0 };
    let mut gathered: Vec<_> = servers.iter().map(|_| none()).collect();
    source.read_all(servers, Content::Keys, &bar, |at, piece| gathered[at].take_keys(piece))?;
    source
        .read_all(servers, Content::Objects, &bar, |at, piece| gathered[at].take_objects(piece, writing))?;
    bar.finish_and_clear();
    for gathered in &mut gathered {
        gathered.end_file(writing)?;
        if gathered.newest.values().any(|word| word & ENDED == 0) {
            return Err(wrong("the server's log has fewer objects than keys"));
        }
    }
    Ok(extensions)
}

/// Writes the sources of extensions.
fn sources(
    source: &mut Source,
    servers: &[Server],
    writing: &mut Writing<'_>,
) -> Result<Vec<Extension>, Failure> {
    let mut extensions = Vec::new();
    for extension in &servers[0].begun.extensions {
        let mut versions = Vec::new();
        for &version in &extension.versions {
            let content = file::of_source(&source.source(servers, &extension.name, version)?);
            versions.push(Version { version, file: writing.store(&content)? });
        }
        extensions.push(Extension { name: extension.name.clone(), versions, state: extension.state });
    }
    Ok(extensions)
}

impl Gathered {
    fn take_keys(&mut self, piece: &ArchivePiece) -> Result<(), Failure> {
        for key in archived_keys(&piece.records.0)? {
            // An end of the same version counts more.
            let word = key.version << 1 | if key.ends { ENDED } else { 0 };
            let known = self.newest.entry(key.hash).or_default();
            *known = word.max(*known);
        }
        Ok(())
    }

    /// Takes the objects that are the newest of their keys.
    fn take_objects(&mut self, piece: &ArchivePiece, writing: &mut Writing<'_>) -> Result<(), Failure> {
        if piece.segment / SEGMENTS_PER_FILE != self.segment / SEGMENTS_PER_FILE {
            self.end_file(writing)?;
        }
        self.segment = piece.segment;
        for object in archived_objects(&piece.records.0)? {
            let (key, entry) = (object.key, object.entry);
            match self.newest.get_mut(&key.hash) {
                Some(word) if *word == key.version << 1 => *word |= ENDED,
                _ => continue,
            }
            if self.content.len() + entry.len() > CONTENT_BYTES {
                self.end_file(writing)?;
            }
            file::append(&mut self.content, key.table, entry);
            writing.counts.add(key.table, entry.len());
        }
        Ok(())
    }

    /// Writes the file that has begun, if it has an object.
    fn end_file(&mut self, writing: &mut Writing<'_>) -> Result<(), Failure> {
        let content = std::mem::replace(&mut self.content, file::begin());
        if content.len() > self.content.len() {
            let file = writing.store(&content)?;
            writing.files.push(file);
        }
        Ok(())
    }
}
