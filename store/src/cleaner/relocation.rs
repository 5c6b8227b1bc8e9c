//! Relocation: walks through a segment and moves its live objects to the survivors.
//!
//! ```text
//!   read ──► prefetch bucket ──┐  meanwhile, the previous batch:
//!                              └► does the index point here? ──► checksum, copy ──► swap under the bucket's lock
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
use crate::store::Store;
use crate::store::cleaning::{Cleaner, Source};
use crate::store::core::Pinned;
use crate::sync::Ordering;
use crate::table::Table;

/// Entries that pass through the stages together.
const BATCH: usize = 32;
/// The highest version that is remembered of a damaged object; above it, too few versions would be left.
const DAMAGED_VERSION_MAX: u64 = VERSION_MAX / 2;

/// An entry of the source.
#[derive(Clone, Copy)]
struct SourceEntry<'p> {
    location: Location,
    bytes: u32,
    version: u64,
    hash: u64,
    /// The number of its table, and the table that now has the number.
    table_id: u32,
    table: Option<&'p Table>,
    /// The location of its copy.
    copy: Option<Location>,
}

/// Consecutive entries.
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

/// The tables, with the last one looked up cached: objects of one table mostly lie side by side.
struct Tables<'p> {
    listing: &'p Listing,
    id: u32,
    table: Option<&'p Arc<Table>>,
}

impl<'p> Tables<'p> {
    fn of(store: &Store, pinned: &'p Pinned<'_>) -> Tables<'p> {
        Tables { listing: store.directory.listing(&pinned.pin), id: 0, table: None }
    }

    /// Returns the table of that id that is in service, or was last.
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
        debug_assert!(source.next <= source.end, "a walk stays in its segment");
        let stop = source.end.min(source.next + budget);
        let mut tables = Tables::of(self, pinned);
        let (mut batch, mut ahead) = (Batch::new(), Batch::new());
        let mut reached = self.read_batch(&mut tables, pinned, source.next, (stop, source.end), &mut ahead);
        let mut has_room = true;
        while source.next < stop && has_room {
            std::mem::swap(&mut batch, &mut ahead);
            if batch.count == 0 {
                // No entry begins here, so the position of the next one is unknown.
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

    /// Reads a batch of entries from `offset` on that begin before `stop` and end before `end`, and prefetches what the
    /// check of their liveness needs. Returns the offset of the next entry.
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

    /// Finds the tables whose indexes point to the entries.
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

    /// Copies the live entries that are intact and have not expired to the survivors. Returns the number of finished
    /// entries: all, or those before the first one that does not fit.
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
                    // The cleaner's copy of the whole object, checksum included.
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

    /// Points the index to the copies, and buries whatever is unreachable afterwards. Returns false if another thread
    /// holds a bucket.
    #[inline]
    fn swap_copied(&self, pinned: &Pinned<'_>, entries: &[SourceEntry<'_>]) -> bool {
        let mut all = true;
        for entry in entries {
            let (Some(table), Some(copy)) = (entry.table, entry.copy) else { continue };
            debug_assert_ne!(copy, entry.location, "a copy is elsewhere");
            let is_it = |location| (location == entry.location).then_some(());
            let locked = table.index.lock(&pinned.pin, entry.hash);
            all &= !matches!(locked, Err(NotLocked::Busy));
            let moved = locked.is_ok_and(|mut bucket| {
                let found = bucket.find(entry.hash, is_it);
                if let Some((place, ())) = found {
                    bucket.relocate(place, entry.hash, copy);
                }
                found.is_some()
            });
            // A faster writer has already buried the old object.
            self.log.bury(pinned.core.index, if moved { entry.location } else { copy }, entry.bytes);
        }
        all
    }

    /// Removes a damaged object from the index. Returns false if another thread holds its bucket.
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
        table.remember_version(entry.version.min(DAMAGED_VERSION_MAX));
        let (mark, changed) = bucket.remove(place);
        table.note_removal(object.key(), changed);
        drop(bucket);
        pinned.leave(table, entry.hash, object.key());
        pinned.bury(table, entry.location, &object, mark);
        self.cleaning.damaged_objects.fetch_add(1, Ordering::Relaxed);
        true
    }
}
