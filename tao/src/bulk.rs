//! A whole list as records at once, for loading a graph with plain puts.
//!
//! The records equal those from adding the entries one by one, except that long lists have full chunks. This code does
//! not read the store: the caller owns the list and writes all of its records.

use crate::edit::encode_edge;
use crate::entry::{Entry, Rank, Run};
use crate::head::{Slot, encode_chunked, encode_inline};
use crate::key::{self, ListId};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_ENTRIES_MAX, INLINE_BYTES_MAX, INLINE_ENTRIES_MAX};
use alloc::vec::Vec;

/// A key and a value to put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// Returns the records of a list. `entries` may come in any order; of several that lead to the same object the last one
/// counts, as if they were added in turn. An empty list has no record.
pub fn list_records(list: ListId, entries: &[Entry<'_>]) -> Vec<Put> {
    let entries = in_list_order(entries);
    if entries.is_empty() {
        return Vec::new();
    }
    let mut run = Vec::new();
    entries.iter().for_each(|entry| entry.append_to(&mut run));
    if entries.len() <= INLINE_ENTRIES_MAX && run.len() <= INLINE_BYTES_MAX {
        return Vec::from([Put { key: key::head(list).to_vec(), value: encode_inline(entries.len(), &run) }]);
    }
    let mut puts = Vec::with_capacity(entries.len() + entries.len() / CHUNK_ENTRIES_MAX + 2);
    for entry in &entries {
        puts.push(Put { key: key::edge(list, entry.id2).to_vec(), value: encode_edge(entry) });
    }
    let mut slots: Vec<Slot> = Vec::new();
    let mut rest = Run::new(&run);
    while let Some(first) = rest.first() {
        let (bytes, count) = chunk_of(rest);
        let number = slots.len() as u32;
        slots.push(Slot { first: first.rank(), number, count: count as u32 });
        puts.push(Put { key: key::chunk(list, number).to_vec(), value: rest.bytes()[..bytes].to_vec() });
        rest = Run::new(&rest.bytes()[bytes..]);
    }
    let head = encode_chunked(&slots, slots.len() as u32);
    puts.push(Put { key: key::head(list).to_vec(), value: head });
    puts
}

/// Sorts newest first and keeps the last given entry of each object.
fn in_list_order<'a>(entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let mut indexed: Vec<(usize, Entry<'a>)> = entries.iter().copied().enumerate().collect();
    indexed.sort_unstable_by_key(|(index, entry)| (entry.id2, core::cmp::Reverse(*index)));
    indexed.dedup_by_key(|(_, entry)| entry.id2);
    let mut kept: Vec<Entry<'a>> = indexed.into_iter().map(|(_, entry)| entry).collect();
    kept.sort_unstable_by_key(|entry| core::cmp::Reverse(Rank { time: entry.time, id2: entry.id2 }));
    kept
}

/// Returns the bytes and entries of the next chunk of a run.
fn chunk_of(run: Run<'_>) -> (usize, usize) {
    let (mut rest, mut bytes, mut count) = (run, 0, 0);
    while count < CHUNK_ENTRIES_MAX
        && let Some(entry) = rest.take_first()
    {
        if count > 0 && bytes + entry.encoded_bytes() > CHUNK_BYTES_MAX {
            break;
        }
        bytes += entry.encoded_bytes();
        count += 1;
    }
    (bytes, count)
}
