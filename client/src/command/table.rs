//! `splinter table`: the tenant's tables.

use super::bytes::{from_hex, shown, to_hex};
use super::failure::{Failure, Kind};
use super::object::value_of;
use super::options::TableCommand;
use super::output::{Answer, columns, thousands};
use super::settings::Settings;
use client::{Client, Cursor, PageSize};
use serde_json::json;

/// Runs a command about tables.
pub fn run(settings: &Settings, command: TableCommand) -> Result<Answer, Failure> {
    let mut client = settings.connect()?;
    match command {
        TableCommand::Create { name, ordered } => {
            let id =
                if ordered { client.table_create_ordered(&name)? } else { client.table_create(&name)? };
            Ok(Answer::new(format!("created {name}"), json!({ "table": name, "id": id, "ordered": ordered })))
        }
        TableCommand::List => {
            let tables = client.table_list()?;
            let heads = ["table", "id", "kind", "objects", "bytes", "index bytes"];
            let mut rows = vec![heads.map(str::to_owned).to_vec()];
            rows.extend(tables.iter().map(|table| {
                let kind = if table.ordered { "ordered" } else { "hash" };
                let mut row = vec![table.name.clone(), table.id.to_string(), kind.to_owned()];
                row.extend([table.objects, table.bytes, table.index_bytes].map(thousands));
                row
            }));
            let values = tables.iter().map(|table| {
                json!({
                    "table": table.name, "id": table.id, "ordered": table.ordered, "objects": table.objects, "bytes": table.bytes,
                    "index_bytes": table.index_bytes,
                })
            });
            Ok(Answer::new(columns(&rows), values.collect()))
        }
        TableCommand::Drop { name } => {
            client.table_drop(&name)?;
            Ok(Answer::new(format!("dropped {name}"), json!({ "dropped": name })))
        }
        TableCommand::Stat { name } => {
            let found = client.table_stat(&name)?;
            let heads = ["table", "objects", "bytes", "index bytes"].map(str::to_owned).to_vec();
            let mut row = vec![name.clone()];
            row.extend([found.objects, found.bytes, found.index_bytes].map(thousands));
            let text = columns(&[heads, row]);
            let value = json!({
                "table": name, "id": found.id, "objects": found.objects, "bytes": found.bytes,
                "index_bytes": found.index_bytes,
            });
            Ok(Answer::new(text, value))
        }
        TableCommand::Enumerate { name, keys_only, limit, from } => {
            enumerate(&mut client, &name, keys_only, limit, &from)
        }
        TableCommand::Verify { name } => verify(&mut client, &name),
    }
}

/// Prints objects until there are enough, and where to go on.
fn enumerate(
    client: &mut Client,
    name: &str,
    keys_only: bool,
    limit: u64,
    from: &str,
) -> Result<Answer, Failure> {
    let table = client.table_open(name)?;
    let cursor = from_hex(from).ok_or_else(|| {
        Failure::new(Kind::Local, "no cursor: it is not hex")
            .next("give --from what an enumeration has printed")
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
    let mut rows = vec![["key", "version", "value"].map(str::to_owned).to_vec()];
    rows.extend(
        objects
            .iter()
            .map(|object| vec![shown(&object.key), object.version.to_string(), shown(&object.value)]),
    );
    let mut text = columns(&rows);
    for hash in &corrupted {
        text += &format!("corrupted: the object of table {name} whose key has the hash {hash:016x}\n");
    }
    if let Some(next) = &next {
        text += &format!("more: --from {next}\n");
    }
    let values: Vec<_> = objects
        .iter()
        .map(|object| {
            let value = (!keys_only).then(|| value_of(&object.value));
            json!({ "key": value_of(&object.key), "version": object.version, "value": value })
        })
        .collect();
    let hashes: Vec<_> = corrupted.iter().map(|hash| format!("{hash:016x}")).collect();
    let value = json!({ "table": name, "objects": values, "corrupted": hashes, "cursor": next });
    Ok(Answer::new(text, value))
}

/// Checks a table; fails where something in it is corrupted.
fn verify(client: &mut Client, name: &str) -> Result<Answer, Failure> {
    let table = client.table_open(name)?;
    let found = client.verify(table)?;
    if found.corrupted.is_empty() {
        let text = format!(
            "{} objects of table {name} are as they were written, {} bytes",
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
    Err(Failure::new(Kind::Different, what)
        .next("have the server's memory checked, and write these objects anew"))
}
