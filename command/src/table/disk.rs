//! `splinter table verify --disk`: whether a start would find all objects that the table has now.
//!
//! ```text
//!   keys and versions of the table ──► the log as of a later moment ──► keys of which it has no version as new, nor an end
//! ```
//! The log is read as for an archive, online and at a bounded rate, past what is damaged; in a cluster that of each server
//! with tablets of the tenant.

use std::collections::HashMap;

use client::{Client, Cursor, Enumeration, Owners, PageSize, Status, archived_keys, key_hash};
use serde_json::json;

use crate::archive::{self, Content, Server, Source};
use crate::bytes::shown;
use crate::failure::{Failure, FailureKind};
use crate::object::value_of;
use crate::output::{Answer, thousands};

/// Keys that the text names; JSON has all.
const KEYS_SHOWN: usize = 20;

/// The newest version of each object, by the hash of its key.
type Versions = HashMap<u64, u64>;

/// What the log has.
#[derive(Default)]
struct Checked {
    log_bytes: u64,
    damaged_blocks: u64,
    damaged_bytes: u64,
}

/// Verifies a table; fails if the disk lacks an object, or the log is damaged.
pub fn verify(client: Client, (name, tenant): (&str, &str)) -> Result<Answer, Failure> {
    if name.contains('/') {
        let what = format!("{name} is another tenant's table, whose log only that tenant can read");
        return Err(Failure::new(FailureKind::Refused, what).next("let its owner verify it"));
    }
    let mut owners = Owners::of(client);
    let id = owners.client().table_open(name)?;
    let mut missing = Versions::new();
    for object in keys_of(owners.client(), id) {
        let object = object?;
        missing.insert(key_hash(&object.key), object.version);
    }
    let objects = missing.len() as u64;
    let mut source = Source::Own(Box::new(owners));
    let servers = source.begin(tenant)?;
    let checked = check(&mut source, &servers, name, &mut missing);
    let ended = source.end(&servers);
    let checked = checked?;
    ended?;
    let mut keys = Vec::new();
    if let Source::Own(mut owners) = source
        && !missing.is_empty()
    {
        for object in keys_of(owners.client(), id) {
            let object = object?;
            // One that was written anew has another version.
            if missing.get(&key_hash(&object.key)) == Some(&object.version) {
                keys.push(object.key);
            }
        }
    }
    keys.sort_unstable();
    Ok(report(name, objects, &checked, &keys))
}

/// Enumerates the keys and versions of a table.
fn keys_of(client: &mut Client, table: u32) -> Enumeration<'_> {
    client.enumerate_from(table, Cursor::start(), PageSize { keys_only: true, ..PageSize::default() })
}

/// Removes what the log has from what is missing.
fn check(
    source: &mut Source,
    servers: &[Server],
    name: &str,
    missing: &mut Versions,
) -> Result<Checked, Failure> {
    let tables = &servers[0].begun.tables;
    let Some(table) = tables.iter().find(|table| table.name == name).map(|table| table.id) else {
        let failure = Failure::new(FailureKind::Refused, format!("table {name} is in memory only"));
        return Err(failure.known_as(Status::NotDurable));
    };
    let (mut checked, mut log_bytes) = (Checked::default(), vec![0; servers.len()]);
    let bar = archive::bar(0);
    source.read_all(servers, Content::Check, &bar, |at, piece| {
        log_bytes[at] = piece.all_bytes;
        checked.damaged_blocks += u64::from(piece.damaged_blocks);
        checked.damaged_bytes += piece.damaged_bytes;
        for key in archived_keys(&piece.records.0)?.into_iter().filter(|key| key.table == table) {
            // A later end is as good: the object is gone since.
            let hash = key.hash as u64;
            if missing.get(&hash).is_some_and(|&version| key.version >= version) {
                missing.remove(&hash);
            }
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    checked.log_bytes = log_bytes.iter().sum();
    Ok(checked)
}

fn report(name: &str, objects: u64, checked: &Checked, keys: &[Vec<u8>]) -> Answer {
    let Checked { log_bytes, damaged_blocks, damaged_bytes } = checked;
    let is_damaged = damaged_blocks + damaged_bytes > 0;
    let mut text = match keys.len() {
        0 => format!("the disk has all {} objects of table {name}", thousands(objects)),
        lacking => format!(
            "the disk has {} of the {} objects of table {name}",
            thousands(objects - lacking as u64),
            thousands(objects)
        ),
    };
    text += &format!("; {} bytes of the log were read\n", thousands(*log_bytes));
    if is_damaged {
        text += &format!(
            "damaged in the log, of any table: {} blocks, with {} bytes of entries\n",
            thousands(*damaged_blocks),
            thousands(*damaged_bytes)
        );
    }
    let value = json!({
        "table": name, "objects": objects, "log_bytes": log_bytes, "damaged_blocks": damaged_blocks,
        "damaged_bytes": damaged_bytes, "lacking": keys.iter().map(|key| value_of(key)).collect::<Vec<_>>(),
    });
    let answer = Answer::new(text, value);
    match lacking(name, keys) {
        Some(failure) => answer.but(failure),
        None if is_damaged => answer.but(damaged(name)),
        None => answer,
    }
}

/// Returns the failure of a check that found damage, but all objects of the table.
fn damaged(name: &str) -> Failure {
    let what = format!("the log is damaged, though not in the objects of table {name}");
    Failure::new(FailureKind::Different, what).next(
        "verify the tenants' other tables; a deleted object may return at the next start; check the disk",
    )
}

/// Returns the failure of a check that found these keys of the table missing.
fn lacking(name: &str, keys: &[Vec<u8>]) -> Option<Failure> {
    let (first, last) = (keys.first()?, keys.last()?);
    let named: Vec<_> = keys.iter().take(KEYS_SHOWN).map(|key| shown(key)).collect();
    let more = match keys.len().saturating_sub(KEYS_SHOWN) {
        0 => String::new(),
        more => format!(" and {} more", thousands(more as u64)),
    };
    let what = format!(
        "the disk lacks {} objects of table {name}, from {} to {}: {}{more}",
        thousands(keys.len() as u64),
        shown(first),
        shown(last),
        named.join(" ")
    );
    Some(Failure::new(FailureKind::Different, what).next(
        "the server still has them in memory: read them and write them again before it ends; check the disk",
    ))
}
