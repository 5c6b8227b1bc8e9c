//! `splinter get | put | delete | increment | scan`: single objects and ranges here, many objects in `many`.

mod lines;
mod many;

use self::many::Work;
use super::bytes::{Bytes, from_hex, shown, to_hex};
use super::failure::{Failure, FailureKind};
use super::options::{DeleteOptions, GetOptions, PutOptions, ScanOptions, WriteCondition};
use super::output::{Answer, table_of};
use super::settings::Settings;
use client::{Client, Condition, Cursor, KeyRange, Listed, PageSize, Status};
use serde_json::{Value, json};

/// Reads objects.
pub fn get(settings: &Settings, options: &GetOptions) -> Result<Answer, Failure> {
    let table = options.table.as_str();
    if let Some(from) = &options.from {
        return many::get_lines(settings, table, (from, options.format));
    }
    let keys = options.keys.iter().map(Bytes::read).collect::<Result<Vec<_>, _>>()?;
    let [key] = &keys[..] else { return many::get(settings, table, &keys) };
    let (mut client, id) = open(settings, table)?;
    let Some(object) = client.get(id, key)? else {
        let failure = Failure::new(FailureKind::Missing, format!("table {table} has no such object"));
        return Err(failure.known_as(Status::NotFound));
    };
    let mut json = json!({ "version": object.version, "ttl_ms": object.ttl_ms });
    json["value"] = value_of(&object.value);
    Ok(Answer::bytes(&object.value, json))
}

/// Writes objects.
pub fn put(settings: &Settings, options: &PutOptions) -> Result<Answer, Failure> {
    let (table, condition) = (options.table.as_str(), condition_of(&options.condition));
    let ttl_ms = options.ttl.map(|ttl| ttl.0);
    let (key, value) = match (&options.from, &options.key, &options.value) {
        (None, Some(key), Some(value)) => (key.read()?, value.read()?),
        (from, ..) => {
            let from = (from.as_deref().unwrap_or("-"), options.format);
            return many::with_lines(settings, table, from, Work::Put { condition, ttl_ms });
        }
    };
    let (mut client, id) = open(settings, table)?;
    let version = match ttl_ms {
        None => client.put_if(id, &key, &value, condition)?,
        Some(ttl_ms) => client.put_for(id, &key, &value, ttl_ms, condition)?,
    };
    Ok(Answer::new(format!("version {version}"), json!({ "version": version, "ttl_ms": ttl_ms })))
}

fn condition_of(condition: &WriteCondition) -> Condition {
    match (condition.if_version, condition.if_absent, condition.if_present) {
        (Some(version), ..) => Condition::Version(version),
        (None, true, _) => Condition::Absent,
        (None, _, true) => Condition::Present,
        _ => Condition::Always,
    }
}

/// Deletes objects.
pub fn delete(settings: &Settings, options: &DeleteOptions) -> Result<Answer, Failure> {
    let table = options.table.as_str();
    let condition = options.if_version.map_or(Condition::Always, Condition::Version);
    let work = Work::Delete { condition };
    let key = match (&options.from, &options.keys[..]) {
        (Some(from), _) => return many::with_lines(settings, table, (from, options.format), work),
        (None, [key]) => key.read()?,
        (None, keys) => return many::with_keys(settings, table, keys, work),
    };
    let (mut client, id) = open(settings, table)?;
    let version = client.delete_if(id, &key, condition)?;
    Ok(Answer::new(format!("deleted, version {version}"), json!({ "version": version })))
}

/// Adds to a number.
pub fn increment(settings: &Settings, table: &str, key: &Bytes, delta: i64) -> Result<Answer, Failure> {
    let key = key.read()?;
    let (mut client, id) = open(settings, table)?;
    let (value, version) = client.increment(id, &key, delta)?;
    Ok(Answer::new(value.to_string(), json!({ "value": value, "version": version })))
}

/// Adds to a floating point number.
pub fn increment_float(settings: &Settings, table: &str, key: &Bytes, delta: f64) -> Result<Answer, Failure> {
    let key = key.read()?;
    let (mut client, id) = open(settings, table)?;
    let (value, version) = client.increment_float(id, &key, delta)?;
    Ok(Answer::new(value.to_string(), json!({ "value": value, "version": version })))
}

/// Bytes as JSON: as text when they are text, and always as hex.
pub fn value_of(bytes: &[u8]) -> Value {
    json!({ "bytes": bytes.len(), "text": std::str::from_utf8(bytes).ok(), "hex": to_hex(bytes) })
}

/// An object of a listing as JSON, as a line of a file for `put` takes it.
pub fn listed_value(object: &Listed, keys_only: bool) -> Value {
    let value = (!keys_only).then(|| value_of(&object.value));
    json!({
        "key": value_of(&object.key), "version": object.version, "ttl_ms": object.ttl_ms, "value": value,
    })
}

/// Connects and finds the table.
pub fn open(settings: &Settings, table: &str) -> Result<(Client, u32), Failure> {
    let mut client = settings.connect()?;
    let id = client.table_open(table)?;
    Ok((client, id))
}

/// Prints the objects of a range up to the limit, and the cursor to continue from.
pub fn scan(settings: &Settings, options: &ScanOptions) -> Result<Answer, Failure> {
    let read = |bytes: &Option<Bytes>| bytes.as_ref().map(Bytes::read).transpose();
    let (from, to, prefix) = (read(&options.from)?, read(&options.to)?, read(&options.prefix)?);
    let range = KeyRange {
        from: from.as_deref().unwrap_or_default(),
        to: to.as_deref(),
        prefix: prefix.as_deref().unwrap_or_default(),
        reverse: options.reverse,
        hashes: None,
    };
    let cursor = from_hex(&options.cursor).ok_or_else(|| {
        Failure::new(FailureKind::Local, "the cursor is not hex")
            .next("give --cursor the hex that a scan printed")
    })?;
    let mut client = settings.connect()?;
    let table = client.table_open(&options.table)?;
    let (mut next, mut objects) = (Some(Cursor::from_bytes(&cursor)), Vec::new());
    while let Some(from) = next.as_ref().filter(|_| (objects.len() as u64) < options.limit) {
        let left = options.limit - objects.len() as u64;
        let keys_only = options.keys_only;
        let size = PageSize { keys_only, objects: left.min(512) as usize, ..PageSize::default() };
        let page = client.scan_page(table, range, from, size)?;
        objects.extend(page.objects);
        next = page.next;
    }
    let next = next.map(|cursor| to_hex(cursor.as_bytes()));
    let row = |object: &Listed| vec![shown(&object.key), object.version.to_string(), shown(&object.value)];
    let mut text = table_of(&["key", "version", "value"], objects.iter().map(row));
    if let Some(next) = next.as_ref().filter(|next| !next.is_empty()) {
        text += &format!("more: --cursor {next}\n");
    }
    let values: Vec<_> = objects.iter().map(|object| listed_value(object, options.keys_only)).collect();
    let value = json!({ "table": options.table, "objects": values, "cursor": next });
    Ok(Answer::new(text, value).with_note(more_follow(&next)))
}

/// Returns a note that a listing has ended at its limit, if there is a cursor to go on from.
pub fn more_follow(next: &Option<String>) -> Option<String> {
    let next = next.as_ref().filter(|next| !next.is_empty())?;
    Some(format!(
        "more objects follow; for all of them give --limit 4000000000, for the next --cursor {next}"
    ))
}
