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

use crate::completion::RequestId;
use crate::directory::Listing;
use crate::index::{Location, NotLocked};
use crate::limits::VERSION_MAX;
use crate::log::{NoSegment, SEGMENT_HEADER_BYTES};
use crate::object::{Header, Kind, Lengths, Object};
use crate::store::Store;
use crate::store::cleaning::{Cleaner, Source};
use crate::store::core::Pinned;
use crate::sync::Ordering;
use crate::table::Table;
use crate::weakened;

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
    kind: Kind,
    predecessor: u32,
    hash: u64,
    /// The number of its table, and the table that now has the number.
    table_id: u32,
    table: Option<&'p Table>,
    /// The location and bytes of its copy.
    copy: Option<(Location, u32)>,
}

/// Consecutive entries.
struct Batch<'p> {
    entries: [SourceEntry<'p>; BATCH],
    count: usize,
}

impl<'p> Batch<'p> {
    fn new() -> Batch<'p> {
        let location = Location::from_offset(SEGMENT_HEADER_BYTES);
        let none = SourceEntry {
            location,
            bytes: 0,
            version: 0,
            kind: Kind::Object,
            predecessor: 0,
            hash: 0,
            table_id: 0,
            table: None,
            copy: None,
        };
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
            let done = self.end_dead(cleaner, &mut tables, pinned, source, batch.entries());
            let done = self.copy_living(cleaner, pinned, source, &mut batch.entries()[..done]);
            has_room = done == batch.count;
            source.busy |= !self.swap_copied(cleaner, pinned, source, &batch.entries()[..done]);
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
            let Some((header, key, predecessor)) = self.log.entry(offset, end, &pinned.pin) else { break };
            let Header { table: table_id, version, kind, .. } = header;
            let hash = match kind {
                // In no index.
                Kind::Completion => 0,
                Kind::Object | Kind::Tombstone => {
                    let hash = crate::hash(key);
                    if let Some(table) = tables.get(table_id) {
                        table.index.prefetch_bucket(&pinned.pin, hash);
                    }
                    hash
                }
            };
            let (location, bytes) = (Location::from_offset(offset), header.object_bytes());
            let entry = SourceEntry {
                location,
                bytes: bytes as u32,
                version,
                kind,
                predecessor,
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
            if entry.kind == Kind::Completion {
                entry.table = None;
                continue;
            }
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
        let mut copied_bytes = 0;
        let mut done = 0;
        for entry in entries {
            if let Some(table) = entry.table {
                let object = self.log.object(entry.location, &pinned.pin);
                let is_damaged = !object.verify();
                if is_damaged {
                    let place = (entry.location, entry.hash, entry.version);
                    source.busy |= !self.take_out_damaged(pinned, table, place);
                    source.damaged = true;
                    // A damaged one may be above all that the key can get from now on.
                    entry.version = entry.version.min(DAMAGED_VERSION_MAX);
                }
                if is_damaged || pinned.is_expired(&object) && pinned.expire(table, entry.location, &object) {
                    // What it ends on the disk, it ends for good.
                    if entry.version != 0
                        && cleaner.on_disk.has(entry.predecessor)
                        && self.leave_tombstone(cleaner, pinned, source, entry).is_err()
                    {
                        break;
                    }
                } else {
                    let Ok(copy) = self.copy_object(cleaner, source, entry, &object) else { break };
                    entry.copy = Some(copy);
                    copied_bytes += u64::from(copy.1);
                }
            }
            done += 1;
        }
        if copied_bytes > 0 {
            self.cleaning.copied_bytes.fetch_add(copied_bytes, Ordering::Relaxed);
        }
        done
    }

    /// Copies a live object to the head of survivors, without a predecessor that is worth nothing if that saves memory.
    /// Returns location and bytes of the copy.
    #[inline]
    fn copy_object(
        &self,
        cleaner: &mut Cleaner,
        source: &Source,
        entry: &SourceEntry<'_>,
        object: &Object<'_>,
    ) -> Result<(Location, u32), NoSegment> {
        let lengths = object.lengths();
        let alone_bytes = Lengths { predecessor: false, ..lengths }.object_bytes() as u32;
        let is_shorter = alone_bytes < entry.bytes && !cleaner.on_disk.has(entry.predecessor);
        let takes_reserve = cleaner.takes_reserve;
        let head = cleaner.head(source);
        let bytes = if is_shorter { alone_bytes } else { entry.bytes };
        let claim = || self.claim_of_survivors(source, takes_reserve, bytes as usize);
        let copy = match is_shorter {
            true => self.log.copy_alone(head, object, entry.table_id, claim)?.location,
            // The cleaner's copy of the whole object, checksum included.
            false => self.log.copy(head, entry.location, bytes as usize, claim)?,
        };
        head.note_origin(source.generation);
        Ok((copy, bytes))
    }

    /// Leaves a tombstone for each dead entry that has to keep a replay from finding an older one, which the disk still
    /// holds. Returns the number of entries before the first one whose tombstone does not fit.
    #[inline]
    fn end_dead(
        &self,
        cleaner: &mut Cleaner,
        tables: &mut Tables<'_>,
        pinned: &Pinned<'_>,
        source: &Source,
        entries: &[SourceEntry<'_>],
    ) -> usize {
        if source.sequence == 0 {
            return entries.len();
        }
        for (at, entry) in entries.iter().enumerate() {
            if entry.table.is_some() || entry.version == 0 {
                continue;
            }
            if entry.kind == Kind::Completion {
                if self.keep_completion(cleaner, pinned, source, entry).is_err() {
                    return at;
                }
                continue;
            }
            let matters = !weakened::by("tombstone")
                && entry.predecessor != source.sequence
                && cleaner.on_disk.has(entry.predecessor)
                && tables.get(entry.table_id).is_some_and(|table| table.is_in_log_as(entry.table_id));
            if matters && self.leave_tombstone(cleaner, pinned, source, entry).is_err() {
                return at;
            }
            if entry.kind == Kind::Tombstone {
                // So that it is not buried once more when the segment is walked through again.
                self.log.void(entry.location, false);
                self.log.bury(pinned.core.index, entry.location, entry.bytes);
            }
        }
        entries.len()
    }

    /// Copies a completion record of a source to the survivors if it is needed.
    fn keep_completion(
        &self,
        cleaner: &mut Cleaner,
        pinned: &Pinned<'_>,
        source: &Source,
        entry: &SourceEntry<'_>,
    ) -> Result<(), NoSegment> {
        let object = self.log.object(entry.location, &pinned.pin);
        let Some(request) = RequestId::of(entry.table_id, object.key()) else { return Ok(()) };
        let needs = self.log.durable.as_ref().and_then(|durable| durable.needs.get());
        if !cleaner.recovering && !needs.is_some_and(|needs| needs(request)) {
            return Ok(());
        }
        let takes_reserve = cleaner.takes_reserve;
        let head = cleaner.head(source);
        let claim = || self.claim_of_survivors(source, takes_reserve, entry.bytes as usize);
        let copy = self.log.copy(head, entry.location, entry.bytes as usize, claim)?;
        head.note_origin(source.generation);
        head.note_needed(entry.bytes);
        self.log.bury(pinned.core.index, copy, entry.bytes);
        Ok(())
    }

    fn leave_tombstone(
        &self,
        cleaner: &mut Cleaner,
        pinned: &Pinned<'_>,
        source: &Source,
        entry: &SourceEntry<'_>,
    ) -> Result<(), NoSegment> {
        let takes_reserve = cleaner.takes_reserve;
        let key = self.log.object(entry.location, &pinned.pin).key();
        let head = cleaner.head(source);
        let claim = |bytes| self.claim_of_survivors(source, takes_reserve, bytes);
        let staged = self.log.stage_tombstone(head, claim, entry.table_id, key)?;
        self.log.seal(&staged, entry.kind.ends_to(entry.version), entry.predecessor);
        head.note_origin(source.generation);
        Ok(())
    }

    /// Points the index to the copies, and buries whatever is unreachable afterwards. Returns false if another thread
    /// holds a bucket.
    #[inline]
    fn swap_copied(
        &self,
        cleaner: &mut Cleaner,
        pinned: &Pinned<'_>,
        source: &Source,
        entries: &[SourceEntry<'_>],
    ) -> bool {
        let mut all = true;
        for entry in entries {
            let (Some(table), Some((copy, bytes))) = (entry.table, entry.copy) else { continue };
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
            let core = pinned.core.index;
            if moved {
                self.log.bury(core, entry.location, entry.bytes);
                if bytes != entry.bytes {
                    table.count(core, 0, u64::from(bytes).wrapping_sub(u64::from(entry.bytes)));
                }
            } else if source.is_combined() && cleaner.on_disk.has(entry.predecessor) {
                // A faster writer has already buried the old object. No replay may find the copy, nor what it ends.
                self.log.void(copy, true);
                cleaner.head(source).note_tombstone(bytes);
            } else {
                if source.is_combined() {
                    self.log.void(copy, false);
                }
                self.log.bury(core, copy, bytes);
            }
        }
        if let (Some(durable), true) = (&self.log.durable, source.is_combined()) {
            durable.cuts.reach(self.cores() + source.class, self.log.position(cleaner.head(source)));
        }
        all
    }

    /// Removes a damaged object from the index. Returns false if another thread holds its bucket.
    #[cold]
    pub(crate) fn take_out_damaged(
        &self,
        pinned: &Pinned<'_>,
        table: &Table,
        (location, hash, version): (Location, u64, u64),
    ) -> bool {
        let is_it = |found| (found == location).then_some(());
        let mut bucket = match table.index.lock(&pinned.pin, hash) {
            Ok(bucket) => bucket,
            Err(reason) => return reason == NotLocked::Gone,
        };
        let Some((place, ())) = bucket.find(hash, is_it) else { return true };
        let object = self.log.object(location, &pinned.pin);
        table.lets_go_in_any_case(object.key());
        table.remember_end(version.min(DAMAGED_VERSION_MAX));
        let (mark, changed) = bucket.remove(place);
        table.note_removal(object.key(), changed);
        drop(bucket);
        pinned.leave(table, hash, object.key());
        pinned.bury(table, location, &object, mark);
        self.cleaning.damaged_objects.fetch_add(1, Ordering::Relaxed);
        true
    }
}
