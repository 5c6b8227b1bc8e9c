//! `splinter get | put | delete | increment`: single objects.

use super::bytes::{Bytes, to_hex};
use super::failure::{Failure, Kind};
use super::options::{TimeToLive, WriteCondition};
use super::output::Answer;
use super::settings::Settings;
use client::{Client, Condition, Status};
use serde_json::{Value, json};

/// Reads an object.
pub fn get(settings: &Settings, table: &str, key: &Bytes) -> Result<Answer, Failure> {
    let key = key.read()?;
    let (mut client, id) = open(settings, table)?;
    let Some(object) = client.get(id, &key)? else {
        let failure = Failure::new(Kind::Missing, format!("table {table} has no such object"));
        return Err(failure.known_as(Status::NotFound));
    };
    let mut json = json!({ "version": object.version, "ttl_ms": object.ttl_ms });
    json["value"] = value_of(&object.value);
    Ok(Answer::bytes(&object.value, json))
}

/// Writes an object.
pub fn put(
    settings: &Settings,
    table: &str,
    (key, value): (&Bytes, &Bytes),
    condition: &WriteCondition,
    ttl: Option<TimeToLive>,
) -> Result<Answer, Failure> {
    let (key, value) = (key.read()?, value.read()?);
    let condition = match (condition.if_version, condition.if_absent, condition.if_present) {
        (Some(version), ..) => Condition::Version(version),
        (None, true, _) => Condition::Absent,
        (None, _, true) => Condition::Present,
        _ => Condition::Always,
    };
    let (mut client, id) = open(settings, table)?;
    let version = match ttl {
        None => client.put_if(id, &key, &value, condition)?,
        Some(TimeToLive(ttl_ms)) => client.put_for(id, &key, &value, ttl_ms, condition)?,
    };
    let json = json!({ "version": version, "ttl_ms": ttl.map(|ttl| ttl.0) });
    Ok(Answer::new(format!("version {version}"), json))
}

/// Deletes an object.
pub fn delete(
    settings: &Settings,
    table: &str,
    key: &Bytes,
    if_version: Option<u64>,
) -> Result<Answer, Failure> {
    let key = key.read()?;
    let (mut client, id) = open(settings, table)?;
    let condition = if_version.map_or(Condition::Always, Condition::Version);
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

/// Connects and finds the table.
pub fn open(settings: &Settings, table: &str) -> Result<(Client, u32), Failure> {
    let mut client = settings.connect()?;
    let id = client.table_open(table)?;
    Ok((client, id))
}
