//! Reads of a long list: its chunks, fetched in groups with one multi-get each.
//!
//! The counts in the directory determine the size of a group. So a read of a hundred entries fetches one or two chunks,
//! and one of thousands overlaps its memory accesses (or, at a client, its round trips).

use crate::entry::{Rank, Run, Span};
use crate::head::Directory;
use crate::key::{self, ListId, ObjectId};
use crate::limits::CHUNKS_AT_ONCE;
use sandstorm::{Db, Error, Record, Reply, Table};

/// A long list, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Chunked<'a> {
    /// The table of the list.
    pub table: Table,
    /// The list.
    pub list: ListId,
    /// The directory of the list.
    pub directory: Directory<'a>,
}

/// Some chunks of a long list, fetched together.
#[derive(Debug)]
pub struct Fetched<'a> {
    records: [Option<Record<'a>>; CHUNKS_AT_ONCE],
    /// The number of requested chunks.
    pub count: usize,
}

impl<'a> Fetched<'a> {
    /// Returns the entries of the fetched chunk at `index`.
    pub fn run(&self, index: usize) -> Run<'a> {
        Run::new(self.records[index].map_or(&[], |record| record.value))
    }
}

/// Fetches chunks from `first` with one multi-get: as many as hold `entries` entries, at most [`CHUNKS_AT_ONCE`].
///
/// # Errors
/// Those of the store.
pub async fn fetch<'a>(
    db: &Db<'a>,
    chunks: &Chunked<'_>,
    first: usize,
    entries: usize,
) -> Result<Fetched<'a>, Error> {
    let (mut count, mut covered) = (0, 0);
    let mut keys = [[0; key::CHUNK_KEY_BYTES]; CHUNKS_AT_ONCE];
    while count < CHUNKS_AT_ONCE && first + count < chunks.directory.chunks() && covered < entries {
        let slot = chunks.directory.slot(first + count);
        keys[count] = key::chunk(chunks.list, slot.number);
        covered += slot.count as usize;
        count += 1;
    }
    let keys: [&[u8]; CHUNKS_AT_ONCE] = core::array::from_fn(|index| &keys[index][..]);
    let mut records = [None; CHUNKS_AT_ONCE];
    db.get_many(chunks.table, &keys[..count], &mut records[..count]).await?;
    Ok(Fetched { records, count })
}

/// Writes at most `limit` entries from chunk `first`, without the first `skip` of its entries.
///
/// # Errors
/// Those of the reply and of the store.
pub async fn write_range(
    db: &Db<'_>,
    chunks: &Chunked<'_>,
    (first, skip, limit): (usize, usize, usize),
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let (mut next, mut skip, mut left) = (first, skip, limit);
    while left > 0 && next < chunks.directory.chunks() {
        let fetched = fetch(db, chunks, next, skip + left).await?;
        for index in 0..fetched.count {
            let run = fetched.run(index).range(skip, left);
            let held = chunks.directory.slot(next + index).count as usize;
            left -= left.min(held.saturating_sub(skip));
            skip = 0;
            reply.write(run.bytes())?;
        }
        next += fetched.count;
    }
    Ok(())
}

/// Writes at most `limit` entries whose time lies in `span`, newest first.
///
/// # Errors
/// Those of the reply and of the store.
pub async fn write_time_range(
    db: &Db<'_>,
    chunks: &Chunked<'_>,
    (span, limit): (Span, usize),
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let newest = Rank { time: span.high, id2: ObjectId(u64::MAX) };
    let (mut next, mut left) = (chunks.directory.seek_rank(newest), limit);
    while left > 0 && next < chunks.directory.chunks() {
        if chunks.directory.slot(next).first.time < span.low {
            break;
        }
        let fetched = fetch(db, chunks, next, left).await?;
        for index in 0..fetched.count {
            let (run, count) = fetched.run(index).time_range(span, left);
            left -= count;
            reply.write(run.bytes())?;
        }
        next += fetched.count;
    }
    Ok(())
}
