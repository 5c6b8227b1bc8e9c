//! The writes of a list: add, replace and delete one entry, and change between the two forms of a list.
//!
//! A write to a short list rewrites its head record. A write to a long one rewrites one chunk and its directory, and
//! keeps one record per edge, so that an existing edge is found without a walk. All writes of one call belong to one
//! invocation and are applied together, or not at all.

use crate::chunk::Chunks;
use crate::entry::{Entry, Rank, Run, with_entry, without};
use crate::fault;
use crate::head::{Directory, Head, Slot, encode_chunked, encode_inline};
use crate::key::{self, ListId, ObjectId};
use crate::limits::{INLINE_BYTES_AGAIN, INLINE_BYTES_MAX, INLINE_ENTRIES_AGAIN, INLINE_ENTRIES_MAX};
use alloc::vec::Vec;
use sandstorm::{Db, Error, Table};

/// Adds an entry, or replaces the one that leads to the same object; returns whether it is new.
///
/// # Errors
/// [`fault::LIST_FULL`], [`fault::DAMAGED`], and those of the store.
pub async fn add(db: &Db<'_>, table: Table, list: ListId, entry: &Entry<'_>) -> Result<bool, Error> {
    let head_key = key::head(list);
    let Some(record) = db.get(table, &head_key).await? else {
        let mut run = Vec::with_capacity(entry.encoded_bytes());
        entry.append_to(&mut run);
        db.put(table, &head_key, &encode_inline(1, &run)).await?;
        return Ok(true);
    };
    match Head::parse(record)? {
        Head::Inline { count, run } => add_inline(db, table, list, (count, run), entry).await,
        Head::Chunked(directory) => add_chunked(db, table, list, directory, entry).await,
    }
}

/// Deletes the entry that leads to `id2`; returns whether it existed.
///
/// # Errors
/// [`fault::DAMAGED`], and those of the store.
pub async fn delete(db: &Db<'_>, table: Table, list: ListId, id2: ObjectId) -> Result<bool, Error> {
    let head_key = key::head(list);
    let Some(record) = db.get(table, &head_key).await? else { return Ok(false) };
    let (count, run) = match Head::parse(record)? {
        Head::Inline { count, run } => (count, run),
        Head::Chunked(directory) => return delete_chunked(db, table, list, directory, id2).await,
    };
    let Some(place) = run.find(id2) else { return Ok(false) };
    if count <= 1 {
        db.delete(table, &head_key).await?;
    } else {
        db.put(table, &head_key, &encode_inline(count as usize - 1, &without(run, &place))).await?;
    }
    Ok(true)
}

async fn add_inline(
    db: &Db<'_>,
    table: Table,
    list: ListId,
    (count, run): (u32, Run<'_>),
    entry: &Entry<'_>,
) -> Result<bool, Error> {
    let old = run.find(entry.id2);
    let bytes = match &old {
        Some(place) => with_entry(Run::new(&without(run, place)), entry).0,
        None => with_entry(run, entry).0,
    };
    let count = count as usize + usize::from(old.is_none());
    if count <= INLINE_ENTRIES_MAX && bytes.len() <= INLINE_BYTES_MAX {
        db.put(table, &key::head(list), &encode_inline(count, &bytes)).await?;
    } else {
        move_into_chunk(db, table, list, count, &bytes).await?;
    }
    Ok(old.is_none())
}

async fn add_chunked(
    db: &Db<'_>,
    table: Table,
    list: ListId,
    directory: Directory<'_>,
    entry: &Entry<'_>,
) -> Result<bool, Error> {
    let mut chunks = Chunks::open(table, list, directory);
    let old = edge_time(db, table, list, entry.id2).await?;
    if let Some(time) = old {
        chunks.remove(db, Rank { time, id2: entry.id2 }).await?;
    }
    chunks.insert(db, entry).await?;
    db.put(table, &key::edge(list, entry.id2), &encode_edge(entry)).await?;
    db.put(table, &key::head(list), &chunks.encode()).await?;
    Ok(old.is_none())
}

async fn delete_chunked(
    db: &Db<'_>,
    table: Table,
    list: ListId,
    directory: Directory<'_>,
    id2: ObjectId,
) -> Result<bool, Error> {
    let Some(time) = edge_time(db, table, list, id2).await? else { return Ok(false) };
    let mut chunks = Chunks::open(table, list, directory);
    chunks.remove(db, Rank { time, id2 }).await?;
    db.delete(table, &key::edge(list, id2)).await?;
    match chunks.only() {
        None if chunks.is_empty() => db.delete(table, &key::head(list)).await?,
        Some(slot) if slot.count as usize <= INLINE_ENTRIES_AGAIN => {
            if !move_into_head(db, table, list, &slot).await? {
                db.put(table, &key::head(list), &chunks.encode()).await?;
            }
        }
        _ => db.put(table, &key::head(list), &chunks.encode()).await?,
    }
    Ok(true)
}

/// Converts a short list to a long one: its entries become the first chunk.
async fn move_into_chunk(
    db: &Db<'_>,
    table: Table,
    list: ListId,
    count: usize,
    run: &[u8],
) -> Result<(), Error> {
    let Some(first) = Run::new(run).first() else { return Err(fault::DAMAGED) };
    let mut rest = Run::new(run);
    while let Some(entry) = rest.take_first() {
        db.put(table, &key::edge(list, entry.id2), &encode_edge(&entry)).await?;
    }
    let slot = Slot { first: first.rank(), number: 0, count: count as u32 };
    db.put(table, &key::chunk(list, 0), run).await?;
    db.put(table, &key::head(list), &encode_chunked(&[slot], 1)).await?;
    Ok(())
}

/// Converts a long list to a short one: its only chunk moves into the head, if its bytes fit.
async fn move_into_head(db: &Db<'_>, table: Table, list: ListId, slot: &Slot) -> Result<bool, Error> {
    let chunk_key = key::chunk(list, slot.number);
    let Some(bytes) = db.get(table, &chunk_key).await? else { return Err(fault::DAMAGED) };
    if bytes.len() > INLINE_BYTES_AGAIN {
        return Ok(false);
    }
    db.put(table, &key::head(list), &encode_inline(slot.count as usize, bytes)).await?;
    let mut rest = Run::new(bytes);
    while let Some(entry) = rest.take_first() {
        db.delete(table, &key::edge(list, entry.id2)).await?;
    }
    db.delete(table, &chunk_key).await?;
    Ok(true)
}

async fn edge_time(db: &Db<'_>, table: Table, list: ListId, id2: ObjectId) -> Result<Option<u64>, Error> {
    let Some(record) = db.get(table, &key::edge(list, id2)).await? else { return Ok(None) };
    let Some((time, _)) = record.split_first_chunk::<8>() else { return Err(fault::DAMAGED) };
    Ok(Some(u64::from_le_bytes(*time)))
}

/// Encodes the record of one edge of a long list: time u64, data.
pub fn encode_edge(entry: &Entry<'_>) -> Vec<u8> {
    let mut record = Vec::with_capacity(8 + entry.data.len());
    record.extend_from_slice(&entry.time.to_le_bytes());
    record.extend_from_slice(entry.data);
    record
}
