//! `splinter get | put | delete` of many objects: each is read, written or refused by itself.
//!
//! The writes of a batch are not ordered, so a repeated key begins another batch: the last line of a key in a file
//! takes effect. Each refusal is printed with its line, and the command fails with the first one.
//!
//! Enumerations list objects in the order of their hashes. A table that is filled in that order collects too many keys
//! in the few buckets that it has so far. Objects refused only for that reason are written again after the others.

use std::collections::HashSet;

use client::{Client, Condition, Error, Status, Write};
use serde_json::{Value, json};

use super::lines::{LineObject, Lines};
use super::{open, value_of};
use crate::bytes::{Bytes, shown};
use crate::failure::{Failure, FailureKind};
use crate::options::LineFormat;
use crate::output::{Answer, table_of, thousands};
use crate::settings::Settings;

/// Maximum number of objects in a batch.
const BATCH_OBJECTS: usize = 1024;
/// Approximate maximum of bytes in a batch.
const BATCH_BYTES: usize = 4 << 20;
/// Maximum number of refusals printed one by one; the others are only counted.
const REFUSALS_TOLD: usize = 20;
/// Approximate maximum of bytes of objects kept for a second attempt.
const DEFERRED_BYTES_MAX: usize = 256 << 20;

/// Reads the objects of a file, in the order of its lines.
pub fn get_lines(
    settings: &Settings,
    table: &str,
    (path, format): (&str, LineFormat),
) -> Result<Answer, Failure> {
    let (mut lines, mut keys) = (Lines::open(path, format)?, Vec::new());
    while let Some(object) = lines.read()? {
        keys.push(object.key);
    }
    get(settings, table, &keys)
}

/// Reads objects, in the order of the keys.
pub fn get(settings: &Settings, table: &str, keys: &[Vec<u8>]) -> Result<Answer, Failure> {
    let (mut client, id) = open(settings, table)?;
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let objects = client.multi_get(id, &slices)?;
    let (mut rows, mut values, mut missing) = (Vec::new(), Vec::new(), 0);
    for (key, object) in keys.iter().zip(&objects) {
        let mut value = json!({ "key": value_of(key), "version": null, "value": null });
        let mut row = vec![shown(key), "-".to_owned(), "-".to_owned()];
        match object {
            Some(object) => {
                value["version"] = object.version.into();
                value["value"] = value_of(&object.value);
                row[1..].clone_from_slice(&[object.version.to_string(), shown(&object.value)]);
            }
            None => missing += 1,
        }
        rows.push(row);
        values.push(value);
    }
    let text = table_of(&["key", "version", "value"], rows);
    let answer = Answer::new(text, json!({ "table": table, "objects": values }));
    let what = format!("{missing} of the {} objects are not in table {table}", thousands(keys.len() as u64));
    Ok(match missing {
        0 => answer,
        _ => answer.but(Failure::new(FailureKind::Missing, what).known_as(Status::NotFound)),
    })
}

/// The operation on every object.
#[derive(Clone, Copy)]
pub enum Work {
    /// Write it, with this time to live unless the line has one.
    Put { condition: Condition, ttl_ms: Option<u64> },
    /// Delete it.
    Delete { condition: Condition },
}

/// Runs the operation on the objects of a file.
pub fn with_lines(
    settings: &Settings,
    table: &str,
    (path, format): (&str, LineFormat),
    work: Work,
) -> Result<Answer, Failure> {
    let mut lines = Lines::open(path, format)?;
    run(settings, table, work, || Ok(lines.read()?.map(|object| (lines.number, object))))
}

/// Runs the operation on the objects of the command line.
pub fn with_keys(settings: &Settings, table: &str, keys: &[Bytes], work: Work) -> Result<Answer, Failure> {
    let mut keys = keys.iter().zip(1..);
    run(settings, table, work, || {
        let Some((key, number)) = keys.next() else { return Ok(None) };
        Ok(Some((number, LineObject { key: key.read()?, ..LineObject::default() })))
    })
}

/// Results so far.
#[derive(Default)]
struct Tally {
    done: u64,
    refused: u64,
    told: Vec<(u64, Vec<u8>, String, Option<Status>)>,
    first: Option<Error>,
    deferred: Deferred,
}

/// Objects to write again, in order.
#[derive(Default)]
struct Deferred {
    objects: Vec<(u64, LineObject)>,
    keys: HashSet<Vec<u8>>,
    bytes: usize,
}

impl Deferred {
    /// Keeps an object, or returns it if there are too many.
    fn take(&mut self, number: u64, object: LineObject) -> Option<LineObject> {
        let bytes = self.bytes + bytes_of(&object);
        if bytes > DEFERRED_BYTES_MAX {
            return Some(object);
        }
        self.bytes = bytes;
        self.keys.insert(object.key.clone());
        self.objects.push((number, object));
        None
    }
}

fn bytes_of(object: &LineObject) -> usize {
    object.key.len() + object.value.as_ref().map_or(0, Vec::len)
}

fn run(
    settings: &Settings,
    table: &str,
    work: Work,
    mut next: impl FnMut() -> Result<Option<(u64, LineObject)>, Failure>,
) -> Result<Answer, Failure> {
    let (mut client, id) = open(settings, table)?;
    let mut tally = Tally::default();
    let end = pass(&mut client, id, work, &mut next, &mut tally)?;
    loop {
        let again = std::mem::take(&mut tally.deferred).objects;
        let count = again.len();
        let mut again = again.into_iter();
        pass(&mut client, id, work, &mut || Ok(again.next()), &mut tally)??;
        if tally.deferred.objects.len() == count {
            break;
        }
    }
    let deferred = std::mem::take(&mut tally.deferred);
    for (number, object) in deferred.objects {
        tally.refuse(number, object, Error::of_answer(Status::Collisions, &[]));
    }
    // The lines before an invalid one take effect, and the message says so.
    let done = tally.done;
    end.map_err(|failure| failure.after(format!("{} done before the error", thousands(done))))?;
    Ok(tally.answer(table, work))
}

/// Runs the operation on all objects from `next`, and returns why they ended.
fn pass(
    client: &mut Client,
    id: u32,
    work: Work,
    next: &mut dyn FnMut() -> Result<Option<(u64, LineObject)>, Failure>,
    tally: &mut Tally,
) -> Result<Result<(), Failure>, Failure> {
    let (mut batch, mut keys, mut bytes) = (Vec::new(), HashSet::new(), 0);
    let end = loop {
        let (number, object) = match next() {
            Ok(Some(next)) => next,
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        };
        let is_full = batch.len() == BATCH_OBJECTS || bytes >= BATCH_BYTES;
        if is_full || keys.contains(&object.key) {
            write(client, id, work, &mut batch, tally)?;
            keys.clear();
            bytes = 0;
        }
        if matches!(work, Work::Put { .. }) && object.value.is_none() {
            let what = format!("line {number} has no value");
            break Err(Failure::new(FailureKind::Local, what).next("a line is KEY, tab, VALUE"));
        }
        if tally.deferred.keys.contains(&object.key) {
            // An earlier line with this key is still deferred.
            if let Some(object) = tally.deferred.take(number, object) {
                tally.refuse(number, object, Error::of_answer(Status::Collisions, &[]));
            }
            continue;
        }
        bytes += bytes_of(&object);
        keys.insert(object.key.clone());
        batch.push((number, object));
    };
    write(client, id, work, &mut batch, tally)?;
    Ok(end)
}

/// Sends a batch and empties it.
fn write(
    client: &mut Client,
    table: u32,
    work: Work,
    batch: &mut Vec<(u64, LineObject)>,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let writes: Vec<_> = batch.iter().map(|(_, object)| work.write(object)).collect();
    let results = client.multi_write(table, &writes).map_err(|error| {
        let (done, unknown) = (tally.done, batch.len());
        let done = format!("{done} done before the error, the outcome of the next {unknown} is unknown");
        Failure::from(error).after(done)
    })?;
    for ((number, object), result) in batch.drain(..).zip(results) {
        match result {
            Ok(_) => tally.done += 1,
            Err(error) if error.status() == Some(Status::Collisions) => {
                if let Some(object) = tally.deferred.take(number, object) {
                    tally.refuse(number, object, error);
                }
            }
            Err(error) => tally.refuse(number, object, error),
        }
    }
    Ok(())
}

impl Work {
    fn write<'o>(&self, object: &'o LineObject) -> Write<'o> {
        let key = &object.key;
        match *self {
            Work::Put { condition, ttl_ms } => {
                Write { key, value: object.value.as_deref(), condition, ttl_ms: object.ttl_ms.or(ttl_ms) }
            }
            Work::Delete { condition } => Write { key, value: None, condition, ttl_ms: None },
        }
    }
}

impl Tally {
    fn refuse(&mut self, number: u64, object: LineObject, error: Error) {
        self.refused += 1;
        if self.told.len() < REFUSALS_TOLD {
            self.told.push((number, object.key, error.to_string(), error.status()));
        }
        self.first.get_or_insert(error);
    }

    fn answer(self, table: &str, work: Work) -> Answer {
        let done = match work {
            Work::Put { .. } => "written",
            Work::Delete { .. } => "deleted",
        };
        let (count, refused) = (thousands(self.done), thousands(self.refused));
        let mut text = format!("{count} {done}, {refused} refused\n");
        let mut values = Vec::<Value>::new();
        for (number, key, error, status) in &self.told {
            text += &format!("{number}: {}: {error}\n", shown(key));
            let status = status.map(Status::name);
            values.push(json!({ "line": number, "key": value_of(key), "error": error, "status": status }));
        }
        let mut json = json!({ "table": table, "refused": self.refused, "refusals": values });
        json[done] = self.done.into();
        let answer = Answer::new(text, json);
        match self.first {
            None => answer,
            Some(error) => {
                let of = thousands(self.done + self.refused);
                answer.but(Failure::from(error).after(format!("{refused} of {of} objects were refused")))
            }
        }
    }
}
