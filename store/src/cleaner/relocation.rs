//! Relocation: walking through a segment and moving what lives to the survivors.
//!
//! An entry lives if the index leads to it. It is copied, then its index entry is swapped under the lock of the bucket,
//! if it still leads to the old place. Before that the object's checksum is held against its bytes: one that is not what
//! was written is taken out of the index and counted, so that nobody is given it. A segment in which lengths cannot be
//! trusted any more is left as it is.

use std::sync::Arc;

use crate::index::Location;
use crate::limits::VERSION_MAX;
use crate::object::Header;
use crate::pinned::Pinned;
use crate::store::Store;
use crate::store::backlog::{Cleaner, Source};
use crate::sync::Ordering;
use crate::table::Table;

/// Entries whose index buckets are asked for together.
const PREFETCH_BATCH: usize = 16;
/// Versions up to here are remembered of an object that is not what was written: of those above, too few are left.
const DAMAGED_VERSION_MAX: u64 = VERSION_MAX / 2;

/// An entry of the source.
#[derive(Clone, Copy)]
struct Entry {
    location: Location,
    bytes: usize,
    table: u32,
    version: u64,
    hash: u64,
}

/// What came of an entry.
enum Outcome {
    Dead,
    Moved,
    /// It lives and is not what was written.
    Damaged,
    NoRoom,
}

impl Store {
    /// Goes on through the source for about `budget` bytes. `false`: there is no memory to copy to.
    pub(super) fn copy_survivors(
        &self,
        cleaner: &mut Cleaner,
        pinned: &Pinned<'_>,
        source: &mut Source,
        budget: usize,
    ) -> bool {
        let stop = source.end.min(source.next + budget);
        let mut batch = [const { None }; PREFETCH_BATCH];
        let mut moved_bytes = 0;
        let mut has_room = true;
        while source.next < stop && has_room {
            let mut ahead = source.next;
            for slot in &mut batch {
                *slot = if ahead < stop { self.read_entry(pinned, ahead, source.end) } else { None };
                ahead += slot.as_ref().map_or(0, |entry| entry.bytes);
            }
            if batch[0].is_none() {
                // No entry begins here: how to go on is not known.
                self.cleaning.damaged_entries.fetch_add(1, Ordering::Relaxed);
                (source.damaged, source.next) = (true, source.end);
            }
            for entry in batch.iter().flatten() {
                match self.relocate(cleaner, pinned, source, entry) {
                    Outcome::Dead => {}
                    Outcome::Moved => moved_bytes += entry.bytes as u64,
                    Outcome::Damaged => source.damaged = true,
                    Outcome::NoRoom => {
                        has_room = false;
                        break;
                    }
                }
                source.next += entry.bytes;
            }
        }
        if moved_bytes > 0 {
            self.cleaning.copied_bytes.fetch_add(moved_bytes, Ordering::Relaxed);
        }
        has_room
    }

    /// Reads an entry and asks for what the look at its liveness will need.
    #[inline]
    fn read_entry(&self, pinned: &Pinned<'_>, offset: usize, end: usize) -> Option<Entry> {
        let (header, key) = self.log.entry(offset, end, &pinned.pin)?;
        let Header { table, version, .. } = header;
        let hash = crate::hash(key);
        for table in self.directory.listing(&pinned.pin).with_id(table) {
            table.index.prefetch_bucket(&pinned.pin, hash);
        }
        let (location, bytes) = (Location::from_offset(offset), header.object_bytes());
        Some(Entry { location, bytes, table, version, hash })
    }

    /// Moves an entry to the survivors if something leads to it.
    #[inline]
    fn relocate(
        &self,
        cleaner: &mut Cleaner,
        pinned: &Pinned<'_>,
        source: &Source,
        entry: &Entry,
    ) -> Outcome {
        let is_it = |location| (location == entry.location).then_some(());
        let leads_here = |table: &&Arc<Table>| table.index.find(&pinned.pin, entry.hash, is_it).is_some();
        let Some(table) = self.directory.listing(&pinned.pin).with_id(entry.table).find(leads_here) else {
            return Outcome::Dead;
        };
        if !self.log.object(entry.location, &pinned.pin).verify() {
            self.take_out(pinned, table, entry);
            return Outcome::Damaged;
        }
        let level = cleaner.level;
        let head = cleaner.head(source.class);
        let claim = || self.claim_of_survivors(level, source.live_bytes, entry.bytes);
        // The copy of the cleaner: as many bytes as the object has, checksum and all.
        let Ok(copy) = self.log.copy(head, entry.location, entry.bytes, claim) else {
            return Outcome::NoRoom;
        };
        let moved = table.index.lock(&pinned.pin, entry.hash).is_some_and(|mut bucket| {
            let found = bucket.find(entry.hash, is_it);
            if let Some((place, ())) = found {
                bucket.replace(place, entry.hash, copy);
            }
            found.is_some()
        });
        if !moved {
            self.log.uncopy(head, entry.bytes);
            return Outcome::Dead;
        }
        head.note_origin(source.generation);
        self.log.bury(entry.location, entry.bytes as u32);
        Outcome::Moved
    }

    /// Takes an object out of the index that is not what was written.
    #[cold]
    fn take_out(&self, pinned: &Pinned<'_>, table: &Table, entry: &Entry) {
        let is_it = |location| (location == entry.location).then_some(());
        let Some(mut bucket) = table.index.lock(&pinned.pin, entry.hash) else { return };
        let Some((place, ())) = bucket.find(entry.hash, is_it) else { return };
        table.remember_version(entry.version.min(DAMAGED_VERSION_MAX));
        bucket.remove(place);
        let object = self.log.object(entry.location, &pinned.pin);
        pinned.leave(table, object.key());
        drop(bucket);
        pinned.bury(table, entry.location, &object);
        self.cleaning.damaged_objects.fetch_add(1, Ordering::Relaxed);
    }
}
