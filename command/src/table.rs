//! `splinter table`: the tenant's tables.

mod alter;
mod disk;

use super::bytes::{from_hex, shown, to_hex};
use super::failure::{Failure, FailureKind};
use super::object::{listed_value, more_follow};
use super::options::{TableCommand, TableDurability};
use super::output::{Answer, moment, table_of, thousands};
use super::settings::Settings;
use client::{Client, CountedTable, Cursor, Durability, Listed, PageSize, TableOptions};
use serde_json::json;

/// Head of the column with the time when a table lost objects because one of its servers ended.
const LOST: &str = "lost its objects";

/// Head of the column with the bytes that a change of the durability has rewritten.
const REWRITTEN: &str = "rewritten bytes";

/// Runs a command about tables.
pub fn run(settings: &Settings, command: TableCommand) -> Result<Answer, Failure> {
    let mut client = settings.connect()?;
    match command {
        TableCommand::Create {
            name,
            ordered,
            cache: cache_bytes,
            tagged,
            tablets,
            migration,
            durability,
        } => {
            let durability = durability.map(TableDurability::durability);
            let options =
                TableOptions { ordered, cache_bytes, migration: migration.mode(), durability, tagged };
            let id = match tablets {
                None => client.table_create_with(&name, options)?,
                Some(tablets) => client.table_create_spread(&name, options, tablets)?,
            };
            let value = json!({ "table": name, "id": id, "ordered": ordered, "cache_bytes": cache_bytes, "tagged": tagged, "tablets": tablets.or((!tagged).then_some(1)), "migration": migration.mode().name(), "durability": durability.map(Durability::name) });
            Ok(Answer::new(format!("created {name}"), value))
        }
        TableCommand::Alter { name, durability } => {
            alter::alter(settings, client, &name, durability.durability())
        }
        TableCommand::List => list(&mut client),
        TableCommand::Drop { name } => {
            client.table_drop(&name)?;
            Ok(Answer::new(format!("dropped {name}"), json!({ "dropped": name })))
        }
        TableCommand::Stat { name } => stat(&mut client, &name),
        TableCommand::Enumerate { name, keys_only, limit, cursor } => {
            enumerate(&mut client, &name, keys_only, limit, &cursor)
        }
        TableCommand::Verify { name, disk: true } => disk::verify(client, (&name, &settings.tenant()?.0)),
        TableCommand::Verify { name, disk: false } => verify(&mut client, &name),
    }
}

/// Lists the tables with their sizes on all servers.
fn list(client: &mut Client) -> Result<Answer, Failure> {
    let counted = client.table_list_counted()?;
    let mut heads =
        vec!["table", "id", "kind", "durability", "objects", "bytes", "index bytes", "cache", "evicted"];
    let is_rewritten = counted.iter().any(|table| table.entry.rewritten_bytes.is_some());
    heads.extend(is_rewritten.then_some(REWRITTEN));
    if counted.iter().any(|table| table.entry.emptied_ms.is_some()) {
        heads.push(LOST);
    }
    let rows = counted.iter().map(|CountedTable { entry: table, .. }| {
        let kind = if table.ordered { "ordered" } else { "hash" };
        let kind = format!("{kind}{}", if table.tagged { ", tagged" } else { "" });
        let mut row = vec![table.name.clone(), table.id.to_string(), kind];
        row.push(durability_of(table.durability));
        row.extend([table.objects, table.bytes, table.index_bytes].map(thousands));
        row.extend(cache_of(table.cache_bytes, table.evicted));
        row.extend(is_rewritten.then(|| table.rewritten_bytes.map_or_else(|| "-".to_owned(), thousands)));
        row.extend(table.emptied_ms.map(moment));
        row
    });
    let values = counted.iter().map(|CountedTable { entry: table, uncounted }| {
        json!({
            "table": table.name, "id": table.id, "ordered": table.ordered, "tagged": table.tagged, "objects": table.objects, "bytes": table.bytes,
            "index_bytes": table.index_bytes, "cache_bytes": table.cache_bytes, "evicted": table.evicted,
            "emptied_ms": table.emptied_ms, "durability": table.durability.map(Durability::name),
            "rewritten_bytes": table.rewritten_bytes, "uncounted_servers": uncounted,
        })
    });
    let text = table_of(&heads, rows) + &counted.iter().map(missing_of).collect::<String>();
    Ok(Answer::new(text, values.collect()))
}

/// Counts one table on all servers.
fn stat(client: &mut Client, name: &str) -> Result<Answer, Failure> {
    let counted = client.table_stat_counted(name)?;
    let found = &counted.entry;
    let mut heads = vec!["table", "durability", "objects", "bytes", "index bytes", "cache", "evicted"];
    heads.extend(found.rewritten_bytes.map(|_| REWRITTEN));
    heads.extend(found.emptied_ms.map(|_| LOST));
    let mut row = vec![name.to_owned(), durability_of(found.durability)];
    row.extend([found.objects, found.bytes, found.index_bytes].map(thousands));
    row.extend(cache_of(found.cache_bytes, found.evicted));
    row.extend(found.rewritten_bytes.map(thousands));
    row.extend(found.emptied_ms.map(moment));
    let text = table_of(&heads, [row]) + &missing_of(&counted);
    let value = json!({
        "table": name, "id": found.id, "objects": found.objects, "bytes": found.bytes,
        "index_bytes": found.index_bytes, "cache_bytes": found.cache_bytes, "evicted": found.evicted,
        "emptied_ms": found.emptied_ms, "durability": found.durability.map(Durability::name),
        "rewritten_bytes": found.rewritten_bytes, "uncounted_servers": counted.uncounted,
    });
    Ok(Answer::new(text, value))
}

/// Returns a line for each server that did not report its part of a table.
fn missing_of(counted: &CountedTable) -> String {
    let line = |server| {
        let name = &counted.entry.name;
        format!("not counted: the part of {name} on server {server}, which does not answer\n")
    };
    counted.uncounted.iter().map(line).collect()
}

/// Formats the durability of a table; a dash if the server does not say.
fn durability_of(durability: Option<Durability>) -> String {
    durability.map_or("-", Durability::name).to_owned()
}

/// Formats the cache size of a table and the number of evictions; dashes if it does not evict.
fn cache_of(cache_bytes: Option<u64>, evicted: u64) -> [String; 2] {
    cache_bytes.map_or_else(|| ["-", "-"].map(str::to_owned), |bytes| [thousands(bytes), thousands(evicted)])
}

/// Prints objects up to the limit, and the cursor to continue from.
fn enumerate(
    client: &mut Client,
    name: &str,
    keys_only: bool,
    limit: u64,
    cursor: &str,
) -> Result<Answer, Failure> {
    let table = client.table_open(name)?;
    let cursor = from_hex(cursor).ok_or_else(|| {
        Failure::new(FailureKind::Local, "the cursor is not hex")
            .next("give --cursor the hex that an enumeration printed")
    })?;
    let (mut next, mut objects, mut corrupted) = (Some(Cursor::from_bytes(&cursor)), Vec::new(), Vec::new());
    while let Some(from) = next.as_ref().filter(|_| (objects.len() as u64) < limit) {
        let left = limit - objects.len() as u64;
        let size = PageSize { keys_only, objects: left.min(512) as usize, ..PageSize::default() };
        let page = client.enumerate_page(table, from, size)?;
        objects.extend(page.objects);
        corrupted.extend(page.corrupted);
        next = page.next;
    }
    let next = next.map(|cursor| to_hex(cursor.as_bytes()));
    let row = |object: &Listed| vec![shown(&object.key), object.version.to_string(), shown(&object.value)];
    let mut text = table_of(&["key", "version", "value"], objects.iter().map(row));
    for hash in &corrupted {
        text += &format!("corrupted: the object of table {name} whose key has the hash {hash:016x}\n");
    }
    if let Some(next) = &next {
        text += &format!("more: --cursor {next}\n");
    }
    let values: Vec<_> = objects.iter().map(|object| listed_value(object, keys_only)).collect();
    let hashes: Vec<_> = corrupted.iter().map(|hash| format!("{hash:016x}")).collect();
    let value = json!({ "table": name, "objects": values, "corrupted": hashes, "cursor": next });
    Ok(Answer::new(text, value).with_note(more_follow(&next)))
}

/// Verifies a table; fails if an object is corrupted.
fn verify(client: &mut Client, name: &str) -> Result<Answer, Failure> {
    let table = client.table_open(name)?;
    let found = client.verify(table)?;
    if found.corrupted.is_empty() {
        let text = format!(
            "{} objects of table {name} match their checksums, {} bytes",
            thousands(found.objects),
            thousands(found.bytes)
        );
        let value = json!({ "table": name, "objects": found.objects, "bytes": found.bytes, "corrupted": [] });
        return Ok(Answer::new(text, value));
    }
    let hashes: Vec<_> = found.corrupted.iter().map(|hash| format!("{hash:016x}")).collect();
    let what = format!(
        "{} of {} objects of table {name} are corrupted; hashes of their keys: {}",
        thousands(hashes.len() as u64),
        thousands(found.objects),
        hashes.join(" ")
    );
    Err(Failure::new(FailureKind::Different, what)
        .next("check the server's memory, and write these objects again"))
}
