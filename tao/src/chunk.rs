//! The chunks of a long list while one call changes them.
//!
//! They resemble the leaves of a B-tree of height two: a chunk that has grown too large is split, one that has shrunk
//! is merged with its neighbour. Splits follow the order of insertion: a list that grows at its newest or its oldest
//! end fills its chunks, one that grows in random order halves them.

use crate::entry::{Entry, Rank, Run, with_entry, without};
use crate::fault;
use crate::head::{Directory, Slot, encode_chunked};
use crate::key::{self, ListId};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_ENTRIES_MAX, CHUNK_ENTRIES_MERGE, CHUNKS_MAX};
use alloc::vec::Vec;
use sandstorm::{Db, Error, Table};

/// An owned directory, with the location of its chunks.
#[derive(Debug)]
pub struct Chunks {
    table: Table,
    list: ListId,
    slots: Vec<Slot>,
    next_number: u32,
}

impl Chunks {
    /// Opens a directory for changes.
    pub fn open(table: Table, list: ListId, directory: Directory<'_>) -> Chunks {
        let mut slots = Vec::with_capacity(directory.chunks() + 1);
        for index in 0..directory.chunks() {
            slots.push(directory.slot(index));
        }
        Chunks { table, list, slots, next_number: directory.next_number() }
    }

    /// Encodes the head record.
    pub fn encode(&self) -> Vec<u8> {
        encode_chunked(&self.slots, self.next_number)
    }

    /// Returns whether no chunk is left.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the only chunk, if there is exactly one.
    pub fn only(&self) -> Option<Slot> {
        if self.slots.len() == 1 { self.slots.first().copied() } else { None }
    }

    /// Inserts an entry into its chunk. No entry of the list may lead to the same object.
    ///
    /// # Errors
    /// [`fault::LIST_FULL`], [`fault::DAMAGED`], and those of the store.
    pub async fn insert(&mut self, db: &Db<'_>, entry: &Entry<'_>) -> Result<(), Error> {
        let rank = entry.rank();
        let index = self.seek(rank);
        let newest = self.slots.first().is_none_or(|slot| rank > slot.first);
        let first_is_full = self.slots.first().is_none_or(|slot| slot.count as usize >= CHUNK_ENTRIES_MAX);
        if newest && first_is_full {
            let mut bytes = Vec::with_capacity(entry.encoded_bytes());
            entry.append_to(&mut bytes);
            return self.write_new(db, 0, &bytes).await;
        }
        let record = self.read(db, index).await?;
        let (bytes, offset) = with_entry(Run::new(record), entry);
        let count = self.slots[index].count as usize + 1;
        if count <= CHUNK_ENTRIES_MAX && bytes.len() <= CHUNK_BYTES_MAX {
            return self.write(db, index, &bytes, count).await;
        }
        let oldest = offset == record.len() && index + 1 == self.slots.len();
        let cut = if oldest { offset } else { cut_of(Run::new(&bytes), count) };
        let (left, right) = bytes.split_at(cut);
        self.write(db, index, left, Run::new(left).count()).await?;
        self.write_new(db, index + 1, right).await
    }

    /// Removes the entry of this rank.
    ///
    /// # Errors
    /// [`fault::DAMAGED`] when it does not exist, and those of the store.
    pub async fn remove(&mut self, db: &Db<'_>, rank: Rank) -> Result<(), Error> {
        let index = self.seek(rank);
        let run = Run::new(self.read(db, index).await?);
        let Some(place) = run.find(rank.id2) else { return Err(fault::DAMAGED) };
        if place.rank != rank {
            return Err(fault::DAMAGED);
        }
        let bytes = without(run, &place);
        let count = self.slots[index].count as usize - 1;
        if count == 0 {
            return self.drop_chunk(db, index).await;
        }
        let neighbour = if index + 1 < self.slots.len() { index + 1 } else { index.saturating_sub(1) };
        if neighbour != index && count + self.slots[neighbour].count as usize <= CHUNK_ENTRIES_MERGE {
            let other = self.read(db, neighbour).await?;
            if bytes.len() + other.len() <= CHUNK_BYTES_MAX {
                let (left, right) = if index < neighbour { (&bytes[..], other) } else { (other, &bytes[..]) };
                return self.merge(db, index.min(neighbour), [left, right].concat()).await;
            }
        }
        self.write(db, index, &bytes, count).await
    }

    /// Returns the chunk in which an entry of this rank is, or would be.
    fn seek(&self, rank: Rank) -> usize {
        self.slots.partition_point(|slot| slot.first >= rank).saturating_sub(1)
    }

    async fn read<'a>(&self, db: &Db<'a>, index: usize) -> Result<&'a [u8], Error> {
        let Some(slot) = self.slots.get(index) else { return Err(fault::DAMAGED) };
        db.get(self.table, &key::chunk(self.list, slot.number)).await?.ok_or(fault::DAMAGED)
    }

    async fn write(&mut self, db: &Db<'_>, index: usize, bytes: &[u8], count: usize) -> Result<(), Error> {
        let Some(first) = Run::new(bytes).first() else { return Err(fault::DAMAGED) };
        let slot = &mut self.slots[index];
        slot.first = first.rank();
        slot.count = count as u32;
        db.put(self.table, &key::chunk(self.list, slot.number), bytes).await
    }

    async fn write_new(&mut self, db: &Db<'_>, index: usize, bytes: &[u8]) -> Result<(), Error> {
        let Some(first) = Run::new(bytes).first() else { return Err(fault::DAMAGED) };
        let number = self.next_number;
        if self.slots.len() >= CHUNKS_MAX || number == u32::MAX {
            return Err(fault::LIST_FULL);
        }
        self.next_number = number + 1;
        let count = Run::new(bytes).count() as u32;
        self.slots.insert(index, Slot { first: first.rank(), number, count });
        db.put(self.table, &key::chunk(self.list, number), bytes).await
    }

    /// Writes chunk `left` and the next one as one.
    async fn merge(&mut self, db: &Db<'_>, left: usize, bytes: Vec<u8>) -> Result<(), Error> {
        let count = (self.slots[left].count + self.slots[left + 1].count - 1) as usize;
        self.drop_chunk(db, left + 1).await?;
        self.write(db, left, &bytes, count).await
    }

    async fn drop_chunk(&mut self, db: &Db<'_>, index: usize) -> Result<(), Error> {
        let slot = self.slots.remove(index);
        db.delete(self.table, &key::chunk(self.list, slot.number)).await
    }
}

/// Returns where to split a chunk that has become too large: in half by entries, or by bytes if the bytes exceed their
/// limit.
fn cut_of(run: Run<'_>, count: usize) -> usize {
    if run.bytes().len() <= CHUNK_BYTES_MAX {
        return run.bytes_of(count / 2);
    }
    let half = run.bytes().len() / 2;
    let (mut rest, mut cut) = (run, 0);
    while let Some(entry) = rest.take_first() {
        if rest.is_empty() || (cut > 0 && cut + entry.encoded_bytes() > half) {
            break;
        }
        cut += entry.encoded_bytes();
    }
    cut
}
