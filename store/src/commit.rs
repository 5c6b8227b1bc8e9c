//! A commit: changes several objects of several tables together, if everything read is unchanged.
//!
//! ```text
//!   stage objects ─► lock buckets by address ─► check reads ─► make room ─► mark committing ─► publish ─► unlock
//!       nothing can be seen yet, any refusal undoes it          ──┤├──  cannot fail any more
//! ```
//!
//! Buckets are locked in the order of their addresses, each once, so commits cannot wait for each other in a circle;
//! the growth of an index only tries locks. Readers wait while a bucket is marked. All buckets are marked before the
//! first object is published, so no reader sees half a commit. All objects of a commit get one version, above every
//! version they had. Under the locks nothing is allocated and the commit waits for no thread: new keys enter the
//! trees of ordered tables before, removed ones leave them afterwards.

mod ranges;

pub use ranges::RangeCheck;

use crate::cut::Writing;
use crate::error::{CommitError, WriteError};
use crate::index::generation::Purpose;
use crate::index::growth::NoMemory;
use crate::limits::{COMMIT_OPERATIONS_MAX, LEAVE_TRIES, RETRY_AFTER_US, VERSION_MAX};
use crate::lock_set::LockSet;
use crate::log::Staged;
use crate::object::NEVER_MS;
use crate::ordered::Entered;
use crate::store::core::{Pinned, Scratch};
use crate::sync::Busy;
use crate::table::Table;

/// A condition of a commit: the key still has this version.
#[derive(Clone, Copy, Debug)]
pub struct ReadCheck<'a> {
    /// Its table.
    pub table: &'a Table,
    /// Its hash.
    pub hash: u64,
    /// The key.
    pub key: &'a [u8],
    /// The version that was read, 0 where the key was absent.
    pub version: u64,
}

/// A change of a commit: writes or removes one key.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Its table.
    pub table: &'a Table,
    /// Its hash.
    pub hash: u64,
    /// The key.
    pub key: &'a [u8],
    /// The new value; `None` removes the key.
    pub value: Option<&'a [u8]>,
    /// When the object expires, in milliseconds of the store's clock; [`crate::NEVER_MS`] for never.
    pub expires_ms: u64,
}

impl Write<'_> {
    /// Returns the bytes in the log of the written object, 0 for a removal.
    pub(crate) fn object_bytes(&self) -> usize {
        let lengths = |value: &[u8]| self.table.lengths(self.key, value.len(), self.expires_ms);
        self.value.map_or(0, |value| lengths(value).object_bytes())
    }
}

/// The reason why a commit that has locked its buckets did not take place.
enum Uncommitted {
    /// The key of this write must enter the tree of its table first.
    MustEnter(usize),
    /// The commit is refused.
    Refused(CommitError),
}

impl<E: Into<CommitError>> From<E> for Uncommitted {
    fn from(error: E) -> Uncommitted {
        Uncommitted::Refused(error.into())
    }
}

impl Pinned<'_> {
    /// Applies all writes as one, if every read is still valid.
    ///
    /// If several writes have one key, the last counts. Returns the version that the written objects now have
    /// (without a meaning if there are no writes). Allocates nothing once the core has executed a commit of this
    /// size.
    pub fn commit(&self, reads: &[ReadCheck<'_>], writes: &[Write<'_>]) -> Result<u64, CommitError> {
        self.commit_ranges(reads, &[], writes)
    }

    /// As [`Pinned::commit`], if in addition no key has appeared in any of `ranges`. A changed range is reported with
    /// its number after those of the reads.
    pub fn commit_ranges(
        &self,
        reads: &[ReadCheck<'_>],
        ranges: &[RangeCheck<'_>],
        writes: &[Write<'_>],
    ) -> Result<u64, CommitError> {
        if reads.len() + writes.len() > COMMIT_OPERATIONS_MAX {
            return Err(CommitError::TooManyOperations);
        }
        reads.iter().for_each(|read| self.assert_own(read.table));
        ranges.iter().for_each(|range| self.assert_own(range.table));
        for write in writes {
            self.admit(write.table, write.key, write.value.map_or(0, <[u8]>::len), write.expires_ms)?;
            if write.table.is_replaying() {
                self.refuse_unknown(write.table, write.hash, write.key)?;
            }
        }
        let mut scratch = self.core.scratch.borrow_mut();
        self.make_room_for_all(writes, &mut scratch.growths)?;
        scratch.find_superseded(writes);
        scratch.entered.clear();
        scratch.entered.resize(writes.len(), None);
        let committed = match self.stage_writes(&mut scratch, writes) {
            Ok(()) => self.publish_or_grow(&mut scratch, (reads, ranges), writes),
            Err(error) => Err(error.into()),
        };
        if committed.is_err() {
            self.unstage_completion();
            for (staged, write) in scratch.staged.iter().zip(writes).rev() {
                staged.iter().for_each(|staged| self.unstage(write.table, staged));
            }
        } else {
            self.count_committed(&scratch, writes);
        }
        // Removed keys leave the trees; after a refusal, keys that have entered in vain do.
        let is_left = |at: usize| match committed {
            Ok(_) => writes[at].value.is_none(),
            Err(_) => scratch.entered[at].is_some(),
        };
        let left = (0..writes.len()).filter(|&at| is_left(at)).map(|at| &writes[at]);
        left.for_each(|write| self.leave(write.table, write.hash, write.key));
        committed
    }

    /// Counts the published writes, after the buckets are unlocked.
    fn count_committed(&self, scratch: &Scratch, writes: &[Write<'_>]) {
        for &at in &scratch.entering {
            let (write, staged) = (&writes[at as usize], &scratch.staged[at as usize]);
            if let Some(staged) = staged {
                write.table.count_inserted(self.core.index, write.hash, staged.bytes().into());
            }
        }
        for (write, staged) in writes.iter().zip(&scratch.staged) {
            if let Some(staged) = staged.as_ref().filter(|_| write.value.is_some()) {
                self.note_expiry(write.table, staged);
                self.help_growth(write.table);
            }
        }
        let removed = writes.iter().filter(|write| write.value.is_none());
        removed.for_each(|write| self.look_at_load(write.table, true));
    }

    /// Publishes the writes. If a bucket is full, grows the index for as many inserts as the commit has writes, and
    /// tells the writer to retry while it grows. If no index grows and a bucket is still full after two more tries, the
    /// keys collide.
    fn publish_or_grow(
        &self,
        scratch: &mut Scratch,
        checks: (&[ReadCheck<'_>], &[RangeCheck<'_>]),
        writes: &[Write<'_>],
    ) -> Result<u64, CommitError> {
        let mut committed = self.lock_and_publish(scratch, checks, writes);
        for _ in 0..2 {
            if committed != Err(CommitError::Write(WriteError::Collisions)) {
                break;
            }
            for write in writes {
                // Counts all writes as if they were for this table: the exact number is not worth computing.
                match self.hurry_growth(write.table, writes.len() as u64) {
                    Ok(true) => return Err(WriteError::Retry { after_us: RETRY_AFTER_US }.into()),
                    Ok(false) => {}
                    Err(NoMemory) => return Err(WriteError::OutOfMemory.into()),
                }
            }
            committed = self.lock_and_publish(scratch, checks, writes);
        }
        if committed == Err(CommitError::Write(WriteError::Collisions))
            && writes.iter().any(|write| self.hurry_arrival(write.table))
        {
            return Err(WriteError::Retry { after_us: RETRY_AFTER_US }.into());
        }
        committed
    }

    fn stage_writes(&self, scratch: &mut Scratch, writes: &[Write<'_>]) -> Result<(), WriteError> {
        scratch.staged.clear();
        for (write, &superseded) in writes.iter().zip(&scratch.superseded) {
            let staged = match write.value {
                _ if superseded => None,
                Some(value) => Some(self.stage(write.table, write.key, value, write.expires_ms)?),
                None => self.stage_removal(write.table, write.key)?,
            };
            scratch.staged.push(staged);
        }
        let durable = writes.iter().find(|write| write.table.is_durable());
        durable.map_or(Ok(()), |write| self.stage_completion_of_commit(write.table))
    }

    /// Adds new keys to the trees of ordered tables and publishes the writes. Repeats both if another writer has
    /// removed one of the keys meanwhile, or a key has become new.
    fn lock_and_publish(
        &self,
        scratch: &mut Scratch,
        checks: (&[ReadCheck<'_>], &[RangeCheck<'_>]),
        writes: &[Write<'_>],
    ) -> Result<u64, CommitError> {
        debug_assert_eq!(scratch.staged.len(), writes.len(), "every write is staged before it is published");
        let retry = WriteError::Retry { after_us: RETRY_AFTER_US };
        for _ in 0..LEAVE_TRIES {
            self.enter_new(scratch, writes)?;
            match self.publish_entered(scratch, checks, writes) {
                Err(Uncommitted::MustEnter(at)) => scratch.entered[at] = Some(Entered::ANEW),
                Err(Uncommitted::Refused(error)) => return Err(error),
                Ok(version) => return Ok(version),
            }
        }
        Err(retry.into())
    }

    /// Adds the keys that seem new without a look into their buckets to the trees of ordered tables.
    fn enter_new(&self, scratch: &mut Scratch, writes: &[Write<'_>]) -> Result<(), WriteError> {
        for (at, write) in writes.iter().enumerate() {
            let is_new = || {
                let found = write
                    .table
                    .index
                    .find(&self.pin, write.hash, |location| self.object_of(location, write.key));
                found.is_none()
            };
            let is_stored = write.value.is_some() && !scratch.superseded[at] && write.table.ordered.is_some();
            if is_stored
                && (scratch.entered[at] == Some(Entered::ANEW) || (scratch.entered[at].is_none() && is_new()))
            {
                let entered = self.enter(write.table, write.key);
                scratch.entered[at] =
                    Some(entered.map_err(|Busy| WriteError::Retry { after_us: RETRY_AFTER_US })?);
            }
        }
        Ok(())
    }

    fn publish_entered(
        &self,
        scratch: &mut Scratch,
        (reads, ranges): (&[ReadCheck<'_>], &[RangeCheck<'_>]),
        writes: &[Write<'_>],
    ) -> Result<u64, Uncommitted> {
        let most = reads.len() + writes.len();
        scratch.make_room(most, ranges.len(), writes.len());
        let Scratch { staged, superseded, locks, inserts, growths, order, entering, entered, walked, .. } =
            scratch;
        let place = |at: usize| match reads.get(at) {
            Some(read) => (read.table, read.hash),
            None => (writes[at - reads.len()].table, writes[at - reads.len()].hash),
        };
        let set = LockSet::lock(&self.pin, locks, most, place);
        let mut set = set.map_err(|Busy| WriteError::Retry { after_us: RETRY_AFTER_US })?;
        if set.is_incomplete() {
            return Err(WriteError::TableRetired.into());
        }
        self.check_reads(&set, reads)?;
        // Finds the version above all present ones, and makes room for new objects.
        let mut version = 0;
        inserts.resize(set.len(), 0);
        let live = |at: usize| !superseded[at];
        for (at, write) in writes.iter().enumerate().filter(|&(at, _)| live(at)) {
            let (lock, bucket) = set.bucket_mut(reads.len() + at);
            let found = bucket.find(write.hash, |location| self.object_of(location, write.key));
            version = version.max(match &found {
                Some((_, object)) => write.table.version_behind(object.version()) - 1,
                None => write.table.version_of_new() - 1,
            });
            if write.table.quota().is_limited() {
                let old_bytes = found.as_ref().map_or(0, |(_, object)| object.log_bytes() as u64);
                let tree_bytes = if found.is_none() { write.table.bytes_in_tree(write.key) } else { 0 };
                let stored = staged[at].as_ref().filter(|_| write.value.is_some());
                let new_bytes = stored.map_or(0, |staged| u64::from(staged.bytes()) + tree_bytes);
                note_growth(growths, writes, at, (new_bytes, old_bytes));
            }
            if write.value.is_none() {
                self.refuse_removal(write, found.is_some())?;
            } else if found.is_none() {
                if !self.has_entered(write.table, write.key, entered[at]) {
                    return Err(Uncommitted::MustEnter(at));
                }
                inserts[lock] += 1;
                entering.push(at as u32);
                bucket.make_room(inserts[lock], Purpose::Insert).map_err(WriteError::from)?;
            }
        }
        version += 1;
        if version > VERSION_MAX {
            return Err(WriteError::Overflow.into());
        }
        hold_against_quotas(growths, writes)?;
        let writing = writes.iter().find_map(|write| self.begin_durable(write.table));
        self.seal_all(&set, reads.len(), writes, staged, version);
        if writes.len() > 1 || !ranges.is_empty() {
            (0..writes.len()).for_each(|at| set.bucket_mut(reads.len() + at).1.begin_commit());
        }
        self.check_ranges((reads, ranges), writes, (entering, order), walked)?;
        if let Some(writing) = &writing {
            self.advance_all(writing, writes, version);
        }
        self.publish_all(&mut set, reads.len(), writes, (staged, superseded), version);
        Ok(version)
    }

    /// Moves the core's position behind a sealed commit, and notes its removals.
    fn advance_all(&self, writing: &Writing<'_>, writes: &[Write<'_>], version: u64) {
        self.seal_completion(version, None);
        #[cfg(weakened)]
        if crate::weakened::by("group") {
            self.advance_by_halves(writing);
        }
        let wait = writes.iter().map(|write| self.wait_of(write.table)).max().unwrap_or_default();
        let cut = self.advance(writing, wait);
        let removals = writes.iter().filter(|write| write.value.is_none());
        removals.for_each(|write| self.note_removed(write.hash, cut));
    }

    /// Refuses the removal of a key from a table whose objects still arrive unless, for an absent key, its hash has
    /// arrived (its object may be in transit) or, for a present key, the removal is noted. The note is harmless if the
    /// commit is refused later.
    #[inline]
    fn refuse_removal(&self, write: &Write<'_>, exists: bool) -> Result<(), WriteError> {
        if !write.table.is_arrival() {
            return Ok(());
        }
        if !exists {
            return self.refuse_unknown(write.table, write.hash, write.key);
        }
        if write.table.lets_go(write.key) {
            Ok(())
        } else {
            Err(WriteError::Retry { after_us: RETRY_AFTER_US })
        }
    }

    /// Checks that the keys still have the versions that were read.
    fn check_reads(&self, set: &LockSet<'_, '_>, reads: &[ReadCheck<'_>]) -> Result<(), CommitError> {
        let is_changed = |(at, read): (usize, &ReadCheck<'_>)| {
            let found = set.bucket(at).find(read.hash, |location| self.object_of(location, read.key));
            self.visible_version(found.as_ref().map(|(_, object)| object)) != read.version
        };
        let changed = reads.iter().enumerate().position(is_changed);
        changed.map_or(Ok(()), |read| Err(CommitError::Conflict { read }))
    }

    /// Seals all that was staged; `first` is the place of the first write in the set.
    fn seal_all(
        &self,
        set: &LockSet<'_, '_>,
        first: usize,
        writes: &[Write<'_>],
        staged: &[Option<Staged>],
        version: u64,
    ) {
        for (at, (write, staged)) in writes.iter().zip(staged).enumerate() {
            let Some(staged) = staged else { continue };
            let replaced = || {
                let found = set.bucket(first + at).find(write.hash, |at| self.with_location(at, write.key));
                found.map(|(_, (location, _))| location)
            };
            let log = &self.core.store.log;
            match write.value {
                Some(_) if !write.table.is_durable() => log.seal(staged, version, 0),
                Some(_) => log.seal(staged, version, self.predecessor(staged.location, replaced())),
                // The tombstone of an absent key stays unsealed, and means nothing.
                None => replaced().iter().for_each(|&at| log.seal(staged, version, log.sequence_at(at))),
            }
        }
    }

    /// Publishes all writes; `first` is the place of the first one in the set.
    fn publish_all(
        &self,
        set: &mut LockSet<'_, '_>,
        first: usize,
        writes: &[Write<'_>],
        (staged, superseded): (&[Option<Staged>], &[bool]),
        version: u64,
    ) {
        for (at, write) in writes.iter().enumerate() {
            if let Some(staged) = staged[at].as_ref().filter(|_| write.value.is_some()) {
                write.table.count_version(self.core.index, version);
                self.publish_one(set, first + at, write, staged);
            }
        }
        // Removals come last, because they may free an overflow bucket in which room was made.
        for (at, write) in writes.iter().enumerate() {
            if write.value.is_none() && !superseded[at] {
                let removed = self.remove_one(set, first + at, write, version);
                if let Some(staged) = staged[at].as_ref().filter(|_| !removed) {
                    self.core.store.log.bury(self.core.index, staged.location, staged.bytes());
                }
            }
        }
    }

    fn publish_one(&self, set: &mut LockSet<'_, '_>, at: usize, write: &Write<'_>, staged: &Staged) {
        let (_, bucket) = set.bucket_mut(at);
        let bytes = u64::from(staged.bytes());
        let found = bucket.find(write.hash, |location| self.with_location(location, write.key));
        let expired_before = found.as_ref().is_some_and(|(_, (_, object))| object.expires());
        let changed = match found {
            Some((place, (location, object))) => {
                let changed = bucket.replace(place, write.hash, staged.location);
                let old_bytes = object.log_bytes();
                debug_assert!(
                    object.version() < self.core.store.log.object(staged.location, &self.pin).version(),
                    "a commit has a version above those that it replaces"
                );
                self.core.store.log.bury(self.core.index, location, old_bytes as u32);
                self.count_replaced(write.table, bucket, (place, staged.location), bytes, old_bytes as u64);
                changed
            }
            None => bucket.insert(write.hash, staged.location).expect("room was made"),
        };
        write.table.note_write(write.hash, changed);
        let expires = staged.expires_ms != NEVER_MS;
        write.table.count_expiring(self.core.index, expired_before, expires);
    }

    /// Removes the object of a key. Returns whether there was one.
    fn remove_one(&self, set: &mut LockSet<'_, '_>, at: usize, write: &Write<'_>, version: u64) -> bool {
        let (_, bucket) = set.bucket_mut(at);
        let found = bucket.find(write.hash, |location| self.with_location(location, write.key));
        let Some((place, (location, object))) = found else { return false };
        debug_assert!(object.version() < version, "a commit has a version above those that it removes");
        write.table.remember_end(version);
        let (mark, changed) = bucket.remove(place);
        write.table.note_write(write.hash, changed);
        self.bury(write.table, location, &object, mark);
        true
    }
}

/// Adds the bytes that one write stores and frees to the growth of all writes under its quota.
#[cold]
fn note_growth(
    growths: &mut Vec<(usize, u64, u64)>,
    writes: &[Write<'_>],
    at: usize,
    (new_bytes, old_bytes): (u64, u64),
) {
    let quota = writes[at].table.quota();
    let known = growths.iter_mut().find(|(first, ..)| std::ptr::eq(writes[*first].table.quota(), quota));
    match known {
        Some((_, new, old)) => (*new, *old) = (*new + new_bytes, *old + old_bytes),
        None => growths.push((at, new_bytes, old_bytes)),
    }
}

fn hold_against_quotas(growths: &[(usize, u64, u64)], writes: &[Write<'_>]) -> Result<(), WriteError> {
    let admitted = |&(at, new, old): &(usize, u64, u64)| writes[at].table.quota().admits(new, old);
    if growths.iter().all(admitted) { Ok(()) } else { Err(WriteError::OverQuota) }
}

impl Scratch {
    /// Empties what a commit fills under its locks, and reserves room for it.
    fn make_room(&mut self, keys: usize, ranges: usize, writes: usize) {
        self.inserts.clear();
        self.inserts.reserve(keys);
        self.growths.clear();
        self.growths.reserve(writes);
        self.entering.clear();
        self.entering.reserve(writes);
        self.walked.clear();
        self.walked.reserve(ranges);
    }

    /// Marks the writes that a later write of the same key supersedes.
    fn find_superseded(&mut self, writes: &[Write<'_>]) {
        self.superseded.clear();
        self.superseded.resize(writes.len(), false);
        self.order.clear();
        self.order.extend(0..writes.len() as u32);
        // Keys of one hash are easily made: those of one object lie beside each other, however many there are.
        let object = |at: u32| {
            let Write { table, hash, key, .. } = &writes[at as usize];
            (*hash, std::ptr::from_ref(*table).addr(), *key)
        };
        self.order.sort_unstable_by(|&one, &other| (object(one), one).cmp(&(object(other), other)));
        for pair in self.order.windows(2) {
            self.superseded[pair[0] as usize] = object(pair[0]) == object(pair[1]);
        }
    }
}
