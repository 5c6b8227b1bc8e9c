//! Associations: the list reads of the ATC'13 paper, and the writes with their inverse.
//!
//! A read of a short list is one get and one copy, without allocation: the entries lie in the head record exactly as
//! the reply carries them. A read of a long list fetches the necessary chunks with multi-gets. Writes go through
//! [`crate::edit`], once per direction.

use crate::chunked::{Chunked, write_range, write_time_range};
use crate::edit;
use crate::entry::{ENTRY_BYTES, Entry, Span};
use crate::fault;
use crate::head::Head;
use crate::key::{self, AssocType, ListId, ObjectId};
use crate::limits::{ASSOC_DATA_BYTES_MAX, ASSOC_LIMIT_MAX, CHUNKS_AT_ONCE};
use sandstorm::{Db, Error, Record, Reply, Table};

/// Returns the number of a list's entries.
///
/// # Errors
/// [`fault::DAMAGED`], and those of the store.
#[inline]
pub async fn count(db: &Db<'_>, table: Table, list: ListId) -> Result<u64, Error> {
    match db.get(table, &key::head(list)).await? {
        Some(record) => Ok(u64::from(Head::parse(record)?.count())),
        None => Ok(0),
    }
}

/// Writes at most `limit` entries from position `position`, newest first.
///
/// # Errors
/// [`fault::DAMAGED`], those of the reply and of the store.
#[inline]
pub async fn range(
    db: &Db<'_>,
    table: Table,
    list: ListId,
    (position, limit): (u32, u32),
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let Some(record) = db.get(table, &key::head(list)).await? else { return Ok(()) };
    let (position, limit) = (position as usize, limit.min(ASSOC_LIMIT_MAX) as usize);
    match Head::parse(record)? {
        Head::Inline { run, .. } => reply.write(run.range(position, limit).bytes()),
        Head::Chunked(directory) => {
            let (first, skip) = directory.seek_position(position);
            let chunks = Chunked { table, list, directory };
            write_range(db, &chunks, (first, skip, limit), reply).await
        }
    }
}

/// Writes at most `limit` entries whose time lies in `span`, newest first.
///
/// # Errors
/// [`fault::DAMAGED`], those of the reply and of the store.
#[inline]
pub async fn time_range(
    db: &Db<'_>,
    table: Table,
    list: ListId,
    (span, limit): (Span, u32),
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let Some(record) = db.get(table, &key::head(list)).await? else { return Ok(()) };
    let limit = limit.min(ASSOC_LIMIT_MAX) as usize;
    match Head::parse(record)? {
        Head::Inline { run, .. } => reply.write(run.time_range(span, limit).0.bytes()),
        Head::Chunked(directory) => {
            let chunks = Chunked { table, list, directory };
            write_time_range(db, &chunks, (span, limit), reply).await
        }
    }
}

/// Writes the entries that lead to the objects in `ids` (u64 each, in that order) and lie in `span`.
///
/// # Errors
/// [`fault::DAMAGED`], those of the reply and of the store.
#[inline]
pub async fn get(
    db: &Db<'_>,
    table: Table,
    list: ListId,
    (ids, span): (&[u8], Span),
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let Some(record) = db.get(table, &key::head(list)).await? else { return Ok(()) };
    match Head::parse(record)? {
        Head::Inline { run, .. } => {
            for id in ids.as_chunks::<8>().0 {
                let Some(place) = run.find(ObjectId(u64::from_le_bytes(*id))) else { continue };
                if span.contains(place.rank.time) {
                    reply.write(&run.bytes()[place.offset..place.offset + place.bytes])?;
                }
            }
            Ok(())
        }
        Head::Chunked(_) => write_edges(db, table, list, (ids, span), reply).await,
    }
}

/// Adds an association, or replaces the one between these objects, and the inverse if the type has one; returns whether
/// it is new.
///
/// # Errors
/// [`fault::DATA_TOO_LARGE`], [`fault::LIST_FULL`], [`fault::DAMAGED`], and those of the store.
pub async fn add(db: &Db<'_>, table: Table, list: ListId, entry: &Entry<'_>) -> Result<bool, Error> {
    if entry.data.len() > ASSOC_DATA_BYTES_MAX {
        return Err(fault::DATA_TOO_LARGE);
    }
    let inverse = inverse_type(db, table, list.atype).await?;
    let new = edit::add(db, table, list, entry).await?;
    if let Some(atype) = inverse {
        let back = Entry { id2: list.id1, ..*entry };
        edit::add(db, table, ListId { id1: entry.id2, atype }, &back).await?;
    }
    Ok(new)
}

/// Deletes an association, and the inverse if the type has one; returns whether it existed.
///
/// # Errors
/// [`fault::DAMAGED`], and those of the store.
pub async fn delete(db: &Db<'_>, table: Table, list: ListId, id2: ObjectId) -> Result<bool, Error> {
    let inverse = inverse_type(db, table, list.atype).await?;
    let existed = edit::delete(db, table, list, id2).await?;
    if let Some(atype) = inverse {
        edit::delete(db, table, ListId { id1: id2, atype }, list.id1).await?;
    }
    Ok(existed)
}

/// Declares an association type: every later write of it is also made in `inverse`, in the other direction. A symmetric
/// type (friends) is its own inverse. The inverse type gets the reverse declaration.
///
/// # Errors
/// Those of the store.
pub async fn declare(db: &Db<'_>, table: Table, atype: AssocType, inverse: AssocType) -> Result<(), Error> {
    db.put(table, &key::assoc_type(atype), &inverse.0.to_le_bytes()).await?;
    db.put(table, &key::assoc_type(inverse), &atype.0.to_le_bytes()).await?;
    Ok(())
}

/// Returns the declared inverse of a type.
///
/// # Errors
/// [`fault::DAMAGED`], and those of the store.
pub async fn inverse_type(db: &Db<'_>, table: Table, atype: AssocType) -> Result<Option<AssocType>, Error> {
    let Some(record) = db.get(table, &key::assoc_type(atype)).await? else { return Ok(None) };
    let Some((inverse, _)) = record.split_first_chunk::<4>() else { return Err(fault::DAMAGED) };
    Ok(Some(AssocType(u32::from_le_bytes(*inverse))))
}

async fn write_edges(
    db: &Db<'_>,
    table: Table,
    list: ListId,
    (ids, span): (&[u8], Span),
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    for some in ids.chunks(8 * CHUNKS_AT_ONCE) {
        let some = some.as_chunks::<8>().0;
        let mut keys = [[0; key::EDGE_KEY_BYTES]; CHUNKS_AT_ONCE];
        for (index, id) in some.iter().enumerate() {
            keys[index] = key::edge(list, ObjectId(u64::from_le_bytes(*id)));
        }
        let keys: [&[u8]; CHUNKS_AT_ONCE] = core::array::from_fn(|index| &keys[index][..]);
        let mut records = [None; CHUNKS_AT_ONCE];
        db.get_many(table, &keys[..some.len()], &mut records[..some.len()]).await?;
        for (id, record) in some.iter().zip(&records) {
            let Some(record) = record else { continue };
            write_edge(*id, record, &span, reply)?;
        }
    }
    Ok(())
}

fn write_edge(id: [u8; 8], record: &Record<'_>, span: &Span, reply: &mut Reply<'_>) -> Result<(), Error> {
    let Some((time, data)) = record.value.split_first_chunk::<8>() else { return Err(fault::DAMAGED) };
    if !span.contains(u64::from_le_bytes(*time)) {
        return Ok(());
    }
    let mut head = [0; ENTRY_BYTES];
    head[..8].copy_from_slice(time);
    head[8..16].copy_from_slice(&id);
    head[16..].copy_from_slice(&(data.len() as u16).to_le_bytes());
    reply.write(&head)?;
    reply.write(data)
}
