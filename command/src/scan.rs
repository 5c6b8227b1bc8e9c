//! `splinter scan`: objects of an ordered table in the order of their keys.

use super::bytes::{Bytes, from_hex, shown, to_hex};
use super::failure::{Failure, FailureKind};
use super::object::listed_value;
use super::options::ScanOptions;
use super::output::{Answer, columns};
use super::settings::Settings;
use client::{Cursor, KeyRange, PageSize};
use serde_json::json;

/// Prints the objects of a range up to the limit, and the cursor to continue from.
pub fn run(settings: &Settings, options: &ScanOptions) -> Result<Answer, Failure> {
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
    let mut rows = vec![["key", "version", "value"].map(str::to_owned).to_vec()];
    let row =
        |object: &client::Listed| vec![shown(&object.key), object.version.to_string(), shown(&object.value)];
    rows.extend(objects.iter().map(row));
    let mut text = columns(&rows);
    if let Some(next) = next.as_ref().filter(|next| !next.is_empty()) {
        text += &format!("more: --cursor {next}\n");
    }
    let values: Vec<_> = objects.iter().map(|object| listed_value(object, options.keys_only)).collect();
    Ok(Answer::new(text, json!({ "table": options.table, "objects": values, "cursor": next })))
}
