//! Questions over many nodes: the ends of a list, and the ends of their lists, with their objects.
//!
//! The code is not specific to people: "friends" are the ends of the requested list, and friends of friends follow the
//! same type twice. Work is bounded by [`FRIENDS_MAX`] lists and [`EDGES_VISITED_MAX`] edges; after a few thousand
//! edges, the invocation yields.

use crate::chunked::{Chunked, fetch};
use crate::entry::Run;
use crate::head::Head;
use crate::key::{self, AssocType, ListId, ObjectId};
use crate::limits::{EDGES_VISITED_MAX, FRIENDS_MAX, HEADS_AT_ONCE};
use crate::message::NO_OBJECT;
use crate::tally::Tally;
use alloc::vec::Vec;
use sandstorm::{Db, Error, Reply, Table};

/// Chunks gathered from several lists before they are fetched.
const CHUNKS_GATHERED: usize = 64;
/// Edges of short lists visited before a yield.
const EDGES_AT_ONCE: u32 = 4_096;

/// Writes the newest `limit` ends of a list, and their objects on request.
///
/// # Errors
/// [`crate::fault::DAMAGED`], those of the reply and of the store.
pub async fn friends(
    db: &Db<'_>,
    table: Table,
    list: ListId,
    (limit, objects): (u32, bool),
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let ids = ends(db, table, list, (limit as usize).min(FRIENDS_MAX)).await?;
    reply.u32(ids.len() as u32)?;
    for id in &ids {
        reply.u64(*id)?;
    }
    if objects { write_objects(db, table, &ids, reply).await } else { Ok(()) }
}

/// Writes the objects that a list's friends lead to, those on most paths first: `limit` of them, after visiting at most
/// `visits` edges (0: [`EDGES_VISITED_MAX`]). Excludes the asking object and its friends. A walk that finds more
/// objects than a tally holds stops there and reports that it is not complete.
///
/// # Errors
/// [`crate::fault::DAMAGED`], those of the reply and of the store.
pub async fn friends_of_friends(
    db: &Db<'_>,
    table: Table,
    list: ListId,
    (limit, visits, objects): (u32, u32, bool),
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let friends = ends(db, table, list, FRIENDS_MAX).await?;
    let heads = heads(db, table, list.atype, &friends).await?;
    let limit_visits = if visits == 0 { EDGES_VISITED_MAX } else { visits.min(EDGES_VISITED_MAX) };
    let mut edges = 0;
    for record in heads.iter().flatten() {
        edges += Head::parse(record)?.count().min(limit_visits) as usize;
    }
    let mut visit = Visit::new(limit_visits, friends.len() + 1 + edges.min(limit_visits as usize));
    visit.tally.leave_out(list.id1.0);
    for friend in &friends {
        visit.tally.leave_out(*friend);
    }
    visit_lists(db, table, list.atype, (&friends, &heads), &mut visit).await?;
    reply.u32(visit.tally.distinct() as u32)?;
    reply.u32(limit_visits - visit.left)?;
    reply.u32(u32::from(visit.complete))?;
    let ranked = visit.tally.into_ranked((limit as usize).min(FRIENDS_MAX));
    reply.u32(ranked.len() as u32)?;
    for (id, paths) in &ranked {
        reply.u64(*id)?;
        reply.u32(*paths)?;
    }
    if !objects {
        return Ok(());
    }
    let mut ids = Vec::with_capacity(ranked.len());
    ranked.iter().for_each(|entry| ids.push(entry.0));
    write_objects(db, table, &ids, reply).await
}

/// The state of a walk over edges.
struct Visit {
    tally: Tally,
    left: u32,
    complete: bool,
}

impl Visit {
    fn new(limit: u32, ids: usize) -> Visit {
        Visit { tally: Tally::new(ids), left: limit, complete: true }
    }

    /// Counts the ends of a run, until the edges to visit, or the places in the tally, are used up.
    fn run(&mut self, mut run: Run<'_>) {
        while let Some(entry) = run.take_first() {
            if self.left == 0 || !self.tally.meet(entry.id2.0) {
                self.complete = false;
                return;
            }
            self.left -= 1;
        }
    }
}

/// Returns the head records of some objects' lists.
async fn heads<'a>(
    db: &Db<'a>,
    table: Table,
    atype: AssocType,
    ids: &[u64],
) -> Result<Vec<Option<&'a [u8]>>, Error> {
    let mut heads = Vec::with_capacity(ids.len());
    for some in ids.chunks(HEADS_AT_ONCE) {
        let mut records = [None; HEADS_AT_ONCE];
        {
            let mut keys = [[0; key::HEAD_KEY_BYTES]; HEADS_AT_ONCE];
            for (key, id) in keys.iter_mut().zip(some) {
                *key = key::head(ListId { id1: ObjectId(*id), atype });
            }
            let keys: [&[u8]; HEADS_AT_ONCE] = core::array::from_fn(|index| &keys[index][..]);
            db.get_many(table, &keys[..some.len()], &mut records[..some.len()]).await?;
        }
        records[..some.len()].iter().for_each(|record| heads.push(record.map(|record| record.value)));
    }
    Ok(heads)
}

/// Visits the lists of some objects, whose heads are given. Gathers chunks of long lists across lists and fetches many
/// at a time.
async fn visit_lists(
    db: &Db<'_>,
    table: Table,
    atype: AssocType,
    (ids, heads): (&[u64], &[Option<&[u8]>]),
    visit: &mut Visit,
) -> Result<(), Error> {
    let mut gathered = [[0; key::CHUNK_KEY_BYTES]; CHUNKS_GATHERED];
    let (mut count, mut left_before) = (0, visit.left);
    for (id, head) in ids.iter().zip(heads) {
        if left_before - visit.left >= EDGES_AT_ONCE {
            left_before = visit.left;
            db.yield_now().await;
        }
        let Some(record) = head else { continue };
        let directory = match Head::parse(record)? {
            Head::Inline { run, .. } => {
                visit.run(run);
                continue;
            }
            Head::Chunked(directory) => directory,
        };
        for index in 0..directory.chunks() {
            let list = ListId { id1: ObjectId(*id), atype };
            gathered[count] = key::chunk(list, directory.slot(index).number);
            count += 1;
            if count == CHUNKS_GATHERED {
                visit_chunks(db, table, &gathered, visit).await?;
                count = 0;
            }
            if !visit.complete {
                return Ok(());
            }
        }
    }
    visit_chunks(db, table, &gathered[..count], visit).await
}

/// Visits some chunks, then yields.
async fn visit_chunks(
    db: &Db<'_>,
    table: Table,
    chunks: &[[u8; key::CHUNK_KEY_BYTES]],
    visit: &mut Visit,
) -> Result<(), Error> {
    if chunks.is_empty() || !visit.complete {
        return Ok(());
    }
    let mut keys: [&[u8]; CHUNKS_GATHERED] = [&[]; CHUNKS_GATHERED];
    for (key, chunk) in keys.iter_mut().zip(chunks) {
        *key = chunk;
    }
    let mut records = [None; CHUNKS_GATHERED];
    db.get_many(table, &keys[..chunks.len()], &mut records[..chunks.len()]).await?;
    for record in &records[..chunks.len()] {
        visit.run(Run::new(record.map_or(&[], |record| record.value)));
    }
    db.yield_now().await;
    Ok(())
}

/// Returns the newest `limit` ends of a list.
async fn ends(db: &Db<'_>, table: Table, list: ListId, limit: usize) -> Result<Vec<u64>, Error> {
    let mut ids = Vec::new();
    let Some(record) = db.get(table, &key::head(list)).await? else { return Ok(ids) };
    let head = Head::parse(record)?;
    ids.reserve_exact(limit.min(head.count() as usize));
    let directory = match head {
        Head::Inline { run, .. } => {
            append_ends(run, limit, &mut ids);
            return Ok(ids);
        }
        Head::Chunked(directory) => directory,
    };
    let chunks = Chunked { table, list, directory };
    let mut next = 0;
    while ids.len() < limit && next < directory.chunks() {
        let fetched = fetch(db, &chunks, next, limit - ids.len()).await?;
        for index in 0..fetched.count {
            append_ends(fetched.run(index), limit, &mut ids);
        }
        next += fetched.count;
    }
    Ok(ids)
}

fn append_ends(mut run: Run<'_>, limit: usize, ids: &mut Vec<u64>) {
    while ids.len() < limit
        && let Some(entry) = run.take_first()
    {
        ids.push(entry.id2.0);
    }
}

/// Writes the records of objects, each after its length.
async fn write_objects(db: &Db<'_>, table: Table, ids: &[u64], reply: &mut Reply<'_>) -> Result<(), Error> {
    for some in ids.chunks(HEADS_AT_ONCE) {
        let mut records = [None; HEADS_AT_ONCE];
        {
            let mut keys = [[0; key::OBJECT_KEY_BYTES]; HEADS_AT_ONCE];
            for (key, id) in keys.iter_mut().zip(some) {
                *key = key::object(ObjectId(*id));
            }
            let keys: [&[u8]; HEADS_AT_ONCE] = core::array::from_fn(|index| &keys[index][..]);
            db.get_many(table, &keys[..some.len()], &mut records[..some.len()]).await?;
        }
        for record in &records[..some.len()] {
            let Some(record) = record else {
                reply.u32(NO_OBJECT)?;
                continue;
            };
            reply.u32(record.value.len() as u32)?;
            reply.write(record.value)?;
        }
    }
    Ok(())
}
