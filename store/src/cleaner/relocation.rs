//! Relocation: walks through a segment and moves its live objects to the survivors.
//!
//! ```text
//!   read ──► bucket asked for ──┐  the batch before meanwhile:
//!                               └► does the index lead here? ──► checksum, copy ──► swapped under the bucket's lock
//! ```
//!
//! Entries pass in batches through one stage after the other: a batch waits for memory while another is processed,
//! several checksums are computed at once, and no lock waits for the stores of a copy. An index entry is swapped if
//! it still points to the old location; otherwise the copy is buried. A corrupted object is removed from the index
//! and counted, so that no reader gets it; an expired one is removed as a walk would do it. A segment whose lengths
//! cannot be trusted is left as it is.

use std::sync::Arc;

use crate::directory::Listing;
use crate::index::{Location, NotLocked};
use crate::limits::VERSION_MAX;
use crate::log::SEGMENT_HEADER_BYTES;
use crate::object::Header;
use crate::pinned::Pinned;
use crate::store::Store;
use crate::store::backlog::{Cleaner, Source};
use crate::sync::Ordering;
use crate::table::Table;

/// Entries that go through the stages together.
const BATCH: usize = 32;
/// Versions up to here are remembered of an object that is not what was written: of those above, too few are left.
const DAMAGED_VERSION_MAX: u64 = VERSION_MAX / 2;

/// An entry of the source.
#[derive(Clone, Copy)]
struct SourceEntry<'p> {
    location: Location,
    bytes: u32,
    version: u64,
    hash: u64,
    /// The number of its table, and the one that has it now.
    table_id: u32,
    table: Option<&'p Table>,
    /// Where it was copied to.
    copy: Option<Location>,
}

/// Entries that follow each other.
struct Batch<'p> {
    entries: [SourceEntry<'p>; BATCH],
    count: usize,
}

impl<'p> Batch<'p> {
    fn new() -> Batch<'p> {
        let location = Location::from_offset(SEGMENT_HEADER_BYTES);
        let none =
            SourceEntry { location, bytes: 0, version: 0, hash: 0, table_id: 0, table: None, copy: None };
        Batch { entries: [none; BATCH], count: 0 }
    }

    fn entries(&mut self) -> &mut [SourceEntry<'p>] {
        &mut self.entries[..self.count]
    }
}

/// The tables, with the one that was asked for last at hand: objects of a table mostly lie side by side.
struct Tables<'p> {
    listing: &'p Listing,
    id: u32,
    table: Option<&'p Arc<Table>>,
}

impl<'p> Tables<'p> {
    fn of(store: &Store, pinned: &'p Pinned<'_>) -> Tables<'p> {
        Tables { listing: store.directory.listing(&pinned.pin), id: 0, table: None }
    }

    /// The table of that id that is in service, or was last.
    #[inline]
    fn get(&mut self, id: u32) -> Option<&'p Arc<Table>> {
        if self.table.is_none() || self.id != id {
            (self.id, self.table) = (id, self.listing.get(id));
        }
        self.table
    }
}

impl Store {
    /// Continues with the source for about `budget` bytes. Returns false if there is no memory to copy to.
    pub(super) fn copy_survivors(
        &self,
        cleaner: &mut Cleaner,
        pinned: &Pinned<'_>,
        source: &mut Source,
        budget: usize,
    ) -> bool {
        let stop = source.end.min(source.next + budget);
        let mut tables = Tables::of(self, pinned);
        let (mut batch, mut ahead) = (Batch::new(), Batch::new());
        let mut reached = self.read_batch(&mut tables, pinned, source.next, (stop, source.end), &mut ahead);
        let mut has_room = true;
        while source.next < stop && has_room {
            std::mem::swap(&mut batch, &mut ahead);
            if batch.count == 0 {
                // No entry begins here: how to go on is not known.
                self.cleaning.damaged_entries.fetch_add(1, Ordering::Relaxed);
                (source.damaged, source.next) = (true, source.end);
                break;
            }
            reached = self.read_batch(&mut tables, pinned, reached, (stop, source.end), &mut ahead);
            self.find_living(&mut tables, pinned, batch.entries());
            let done = self.copy_living(cleaner, pinned, source, batch.entries());
            has_room = done == batch.count;
            source.busy |= !self.swap_copied(pinned, &batch.entries()[..done]);
            source.next += batch.entries()[..done].iter().map(|entry| entry.bytes as usize).sum::<usize>();
        }
        has_room
    }

    /// Reads a batch from `offset` on, of entries that begin before `stop` and end before `end`, and asks for what the
    /// look at their liveness will need. Returns where the next one begins.
    #[inline]
    fn read_batch<'p>(
        &self,
        tables: &mut Tables<'p>,
        pinned: &'p Pinned<'_>,
        mut offset: usize,
        (stop, end): (usize, usize),
        batch: &mut Batch<'p>,
    ) -> usize {
        batch.count = 0;
        while batch.count < BATCH && offset < stop {
            let Some((header, key)) = self.log.entry(offset, end, &pinned.pin) else { break };
            let Header { table: table_id, version, .. } = header;
            let hash = crate::hash(key);
            if let Some(table) = tables.get(table_id) {
                table.index.prefetch_bucket(&pinned.pin, hash);
            }
            let (location, bytes) = (Location::from_offset(offset), header.object_bytes());
            let entry = SourceEntry {
                location,
                bytes: bytes as u32,
                version,
                hash,
                table_id,
                table: None,
                copy: None,
            };
            batch.entries[batch.count] = entry;
            batch.count += 1;
            offset += bytes;
        }
        offset
    }

    /// Finds the tables whose indexes lead to the entries.
    #[inline]
    fn find_living<'p>(
        &self,
        tables: &mut Tables<'p>,
        pinned: &'p Pinned<'_>,
        entries: &mut [SourceEntry<'p>],
    ) {
        for entry in entries {
            let is_it = |location| (location == entry.location).then_some(());
            let leads_here = |table: &Table| table.index.find(&pinned.pin, entry.hash, is_it).is_some();
            entry.table = match tables.get(entry.table_id) {
                Some(table) if leads_here(table) => Some(table),
                _ => tables.listing.replaced(entry.table_id).find(|table| leads_here(table)).map(Arc::as_ref),
            };
        }
    }

    /// Copies the living to the survivors, those that are what was written and have not expired. Returns how many entries
    /// are done: all, or those before the one for which there is no room.
    #[inline]
    fn copy_living(
        &self,
        cleaner: &mut Cleaner,
        pinned: &Pinned<'_>,
        source: &mut Source,
        entries: &mut [SourceEntry<'_>],
    ) -> usize {
        let level = cleaner.level;
        let head = cleaner.head(source.class);
        let mut copied_bytes = 0;
        let mut done = 0;
        for entry in entries {
            if let Some(table) = entry.table {
                let object = self.log.object(entry.location, &pinned.pin);
                if !object.verify() {
                    source.busy |= !self.take_out(pinned, table, entry);
                    source.damaged = true;
                } else if !pinned.is_expired(&object) || !pinned.expire(table, entry.location, &object) {
                    let bytes = entry.bytes as usize;
                    let claim = || self.claim_of_survivors(level, source.live_bytes, bytes);
                    // The copy of the cleaner: as many bytes as the object has, checksum and all.
                    let Ok(copy) = self.log.copy(head, entry.location, bytes, claim) else { break };
                    head.note_origin(source.generation);
                    entry.copy = Some(copy);
                    copied_bytes += u64::from(entry.bytes);
                }
            }
            done += 1;
        }
        if copied_bytes > 0 {
            self.cleaning.copied_bytes.fetch_add(copied_bytes, Ordering::Relaxed);
        }
        done
    }

    /// Makes the index lead to the copies, and buries what nothing leads to then. False where another thread has a bucket.
    #[inline]
    fn swap_copied(&self, pinned: &Pinned<'_>, entries: &[SourceEntry<'_>]) -> bool {
        let mut all = true;
        for entry in entries {
            let (Some(table), Some(copy)) = (entry.table, entry.copy) else { continue };
            let is_it = |location| (location == entry.location).then_some(());
            let locked = table.index.lock(&pinned.pin, entry.hash);
            all &= !matches!(locked, Err(NotLocked::Busy));
            let moved = locked.is_ok_and(|mut bucket| {
                let found = bucket.find(entry.hash, is_it);
                if let Some((place, ())) = found {
                    bucket.replace(place, entry.hash, copy);
                }
                found.is_some()
            });
            // A writer that was faster has buried the old one.
            self.log.bury(pinned.core.index, if moved { entry.location } else { copy }, entry.bytes);
        }
        all
    }

    /// Takes an object out of the index that is not what was written. False where another thread has its bucket.
    #[cold]
    fn take_out(&self, pinned: &Pinned<'_>, table: &Table, entry: &SourceEntry<'_>) -> bool {
        let is_it = |location| (location == entry.location).then_some(());
        let mut bucket = match table.index.lock(&pinned.pin, entry.hash) {
            Ok(bucket) => bucket,
            Err(reason) => return reason == NotLocked::Gone,
        };
        let Some((place, ())) = bucket.find(entry.hash, is_it) else { return true };
        let object = self.log.object(entry.location, &pinned.pin);
        table.lets_go_in_any_case(object.key());
        table.remember_removal(object.key(), entry.version.min(DAMAGED_VERSION_MAX));
        let mark = bucket.remove(place);
        drop(bucket);
        pinned.leave(table, entry.hash, object.key());
        pinned.bury(table, entry.location, &object, mark);
        self.cleaning.damaged_objects.fetch_add(1, Ordering::Relaxed);
        true
    }
}
