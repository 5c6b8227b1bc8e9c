//! `splinter get | put | delete` of many objects: each is read, written or refused by itself.
//!
//! What is written in one go is not ordered, so a key that comes again begins another batch: of a file the last line
//! of a key counts. What was refused is told line by line, and the command fails as the first of it.

use std::collections::HashSet;

use client::{Client, Condition, Error, Status, Write};
use serde_json::{Value, json};

use super::lines::{LineObject, Lines};
use super::{open, value_of};
use crate::command::bytes::{Bytes, shown};
use crate::command::failure::{Failure, Kind};
use crate::command::options::LineFormat;
use crate::command::output::{Answer, columns, thousands};
use crate::command::settings::Settings;

/// Objects that are written in one go.
const BATCH_OBJECTS: usize = 1024;
/// Bytes of them, about.
const BATCH_BYTES: usize = 4 << 20;
/// Refusals that are told one by one; the others are counted.
const REFUSALS_TOLD: usize = 20;

/// Reads objects, in the order of their keys on the command line.
pub fn get(settings: &Settings, table: &str, keys: &[Bytes]) -> Result<Answer, Failure> {
    let keys = keys.iter().map(Bytes::read).collect::<Result<Vec<_>, _>>()?;
    let (mut client, id) = open(settings, table)?;
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let objects = client.multi_get(id, &slices)?;
    let mut rows = vec![["key", "version", "value"].map(str::to_owned).to_vec()];
    let (mut values, mut missing) = (Vec::new(), 0);
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
    let answer = Answer::new(columns(&rows), json!({ "table": table, "objects": values }));
    let what = format!("table {table} has {missing} of the {} objects not", thousands(keys.len() as u64));
    Ok(match missing {
        0 => answer,
        _ => answer.but(Failure::new(Kind::Missing, what).known_as(Status::NotFound)),
    })
}

/// What is done with every object.
#[derive(Clone, Copy)]
pub enum Work {
    /// Write it, for this time if the line names none.
    Put { condition: Condition, ttl_ms: Option<u64> },
    /// Delete it.
    Delete { condition: Condition },
}

/// Does it with the objects of a file.
pub fn with_lines(
    settings: &Settings,
    table: &str,
    (path, format): (&str, LineFormat),
    work: Work,
) -> Result<Answer, Failure> {
    let mut lines = Lines::open(path, format)?;
    run(settings, table, work, || Ok(lines.read()?.map(|object| (lines.number, object))))
}

/// Does it with the objects of the command line.
pub fn with_keys(settings: &Settings, table: &str, keys: &[Bytes], work: Work) -> Result<Answer, Failure> {
    let mut keys = keys.iter().zip(1..);
    run(settings, table, work, || {
        let Some((key, number)) = keys.next() else { return Ok(None) };
        Ok(Some((number, LineObject { key: key.read()?, ..LineObject::default() })))
    })
}

/// What has become of the objects so far.
#[derive(Default)]
struct Tally {
    done: u64,
    refused: u64,
    told: Vec<(u64, Vec<u8>, String, Option<Status>)>,
    first: Option<Error>,
}

fn run(
    settings: &Settings,
    table: &str,
    work: Work,
    mut next: impl FnMut() -> Result<Option<(u64, LineObject)>, Failure>,
) -> Result<Answer, Failure> {
    let (mut client, id) = open(settings, table)?;
    let (mut batch, mut keys, mut bytes) = (Vec::new(), HashSet::new(), 0);
    let mut tally = Tally::default();
    let end = loop {
        let (number, object) = match next() {
            Ok(Some(next)) => next,
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        };
        let is_full = batch.len() == BATCH_OBJECTS || bytes >= BATCH_BYTES;
        if is_full || keys.contains(&object.key) {
            write(&mut client, id, work, &batch, &mut tally)?;
            batch.clear();
            keys.clear();
            bytes = 0;
        }
        bytes += object.key.len() + object.value.as_ref().map_or(0, Vec::len);
        if matches!(work, Work::Put { .. }) && object.value.is_none() {
            let what = format!("line {number} has no value");
            break Err(Failure::new(Kind::Local, what).next("a line is KEY, tab, VALUE"));
        }
        keys.insert(object.key.clone());
        batch.push((number, object));
    };
    write(&mut client, id, work, &batch, &mut tally)?;
    // What stands before a line that is wrong is written, and the message says so.
    let done = tally.done;
    end.map_err(|failure| failure.after(format!("{} done before it", thousands(done))))?;
    Ok(tally.answer(table, work))
}

fn write(
    client: &mut Client,
    table: u32,
    work: Work,
    batch: &[(u64, LineObject)],
    tally: &mut Tally,
) -> Result<(), Failure> {
    let writes: Vec<_> = batch.iter().map(|(_, object)| work.write(object)).collect();
    let results = client.multi_write(table, &writes).map_err(|error| {
        let done = format!("{} done before it, of the next {} nobody knows", tally.done, batch.len());
        Failure::from(error).after(done)
    })?;
    for ((number, object), result) in batch.iter().zip(results) {
        let Err(error) = result else {
            tally.done += 1;
            continue;
        };
        tally.refused += 1;
        if tally.told.len() < REFUSALS_TOLD {
            tally.told.push((*number, object.key.clone(), error.to_string(), error.status()));
        }
        tally.first.get_or_insert(error);
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
