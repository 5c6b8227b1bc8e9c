//! A core: one worker thread's part of the store, with its log head, its epoch slot, its scratch memory. A pinned core:
//! the object through which all reads and writes go.
//!
//! A core is `Send`, since a worker may be replaced, but not `Sync`: two threads never share one. What a pinned core
//! finds is borrowed from it, so the compiler ensures that no reference outlives the pin. Its reads are in `read.rs`,
//! its writes in `write.rs`, its commits in `commit.rs`; this file has their common parts.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::completion::RequestId;
use crate::cut::{AwaitedCuts, Wait, Writing};
use crate::epoch::{EpochPin, HeldPin, LocalEpoch};
use crate::error::WriteError;
use crate::hash_range::Position;
use crate::index::growth::{Growth, NoMemory};
use crate::index::{Location, Stamp};
use crate::limits::{GROWTH_KEY_BYTES, RETRY_AFTER_US};
use crate::lock_set::LockMemory;
use crate::log::{Head, Role, Staged};
use crate::object::Object;
use crate::ordered::{Entered, Leaves, NodeGarbage};
use crate::store::Store;
use crate::sync::Ordering;
use crate::table::{SYNCED, Table, WRITTEN};
use crate::weakened;

/// A worker's access to a store.
pub struct Core {
    pub(crate) store: Arc<Store>,
    pub(crate) index: usize,
    pub(crate) local: LocalEpoch,
    pub(crate) head: RefCell<Head>,
    /// The head for objects of durable tables.
    pub(crate) durable_head: RefCell<Head>,
    /// The request to which writes belong, and what a commit records as its reply.
    pub(crate) request: Cell<Option<RequestId>>,
    pub(crate) reply: RefCell<Vec<u8>>,
    /// The completion record of the write in progress.
    pub(crate) completion: Cell<Option<Staged>>,
    /// See [`Core::take_seen`].
    pub(crate) seen: Cell<AwaitedCuts>,
    /// The least promise of tables about which that notes anything, and the least for which it notes what is to be stable: see
    /// [`Core::ask_for_disk`].
    pub(crate) notes_from: Cell<u8>,
    pub(crate) stable_from: Cell<u8>,
    pub(crate) scratch: RefCell<Scratch>,
    /// Nodes retired by this core's edits of ordered tables.
    pub(crate) garbage: RefCell<NodeGarbage>,
    /// The kind of background work to try next.
    pub(crate) turn: Cell<u32>,
    /// Bytes written for which no cleaning has been done.
    pub(crate) owed: Cell<u64>,
}

/// A pin of a core. See [`Core::pin`].
pub struct Pinned<'c> {
    pub(crate) core: &'c Core,
    pub(crate) pin: EpochPin<'c>,
}

/// Memory that a core's commits, snapshots and walks reuse, so that they allocate nothing once the core has executed one
/// of the same size. The core merely keeps it for them.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) stamps: Vec<Option<Stamp>>,
    pub(crate) locks: LockMemory,
    pub(crate) staged: Vec<Option<Staged>>,
    /// Writes by hash, to find those of one key.
    pub(crate) order: Vec<u32>,
    pub(crate) superseded: Vec<bool>,
    /// Writes of keys that are new.
    pub(crate) entering: Vec<u32>,
    /// Proofs that writes of a commit have entered their keys into the trees of their tables.
    pub(crate) entered: Vec<Option<Entered>>,
    /// The leaves of each range of a commit.
    pub(crate) walked: Vec<Leaves>,
    /// Inserts into each locked bucket.
    pub(crate) inserts: Vec<usize>,
    /// Tags and locations of a bucket.
    pub(crate) entries: Vec<(u16, Location)>,
    /// The same in the order of an enumeration.
    pub(crate) placed: Vec<Placed>,
    /// Arriving objects: hash and checksum of the content, of sound ones.
    pub(crate) arriving: Vec<Option<(u64, u32)>>,
    /// For each quota with a limit: the first write under it, bytes that all of them write, bytes that they free.
    pub(crate) growths: Vec<(usize, u64, u64)>,
}

/// An entry of a bucket with its place; a corrupted entry comes last and has no location.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) position: Position,
    pub(crate) location: Option<Location>,
    /// The hash of its key, if known.
    pub(crate) hash: u64,
}

impl Core {
    pub(crate) fn new(store: Arc<Store>, index: usize) -> Core {
        let local = LocalEpoch::new(Arc::clone(&store.epochs), index);
        let (head, scratch, garbage) = Default::default();
        let durable_head = RefCell::new(Head::new(Role::Writer(index)));
        let (seen, turn, owed) = Default::default();
        let (request, reply, completion) = Default::default();
        Core {
            store,
            index,
            local,
            head,
            durable_head,
            request,
            reply,
            completion,
            seen,
            notes_from: Cell::new(SYNCED),
            stable_from: Cell::new(SYNCED),
            scratch,
            garbage,
            turn,
            owed,
        }
    }

    /// Returns the first cuts that include whatever this core has read, found absent or written since the last call, and
    /// forgets it: in synced tables ([`Table::set_synced`]), or in all durable ones after [`Core::ask_for_disk`], what is to be
    /// stable, and in the others what is to be received, if anybody receives the log ([`Store::await_receipts`]).
    #[inline]
    pub fn take_seen(&self) -> AwaitedCuts {
        self.seen.take()
    }

    /// Makes [`Core::take_seen`] include what the core does in all durable tables from now on as what is to be stable, or
    /// that in synced ones only. Each request that reads or writes begins with it. Cost: two stores.
    #[inline]
    pub fn ask_for_disk(&self, asks: bool) {
        let awaits = self.store.log.durable.as_ref().is_some_and(|durable| durable.awaits_receipts());
        self.notes_from.set(if asks || awaits { WRITTEN } else { SYNCED });
        self.stable_from.set(if asks { WRITTEN } else { SYNCED });
    }

    /// Returns whether the request in progress asks: see [`Core::ask_for_disk`].
    #[must_use]
    pub fn asks_for_disk(&self) -> bool {
        self.stable_from.get() == WRITTEN
    }

    /// Makes the next call of [`Core::take_seen`] return at least these.
    #[inline]
    pub fn see(&self, cuts: AwaitedCuts) {
        self.seen.set(self.seen.get().and(cuts));
    }

    /// Returns the log head for objects of a table.
    #[inline]
    pub(crate) fn head_of(&self, table: &Table) -> &RefCell<Head> {
        if table.is_durable() { &self.durable_head } else { &self.head }
    }

    /// Returns the bytes that were appended since the last call.
    pub(crate) fn take_appended(&self) -> u64 {
        let log = &self.store.log;
        let mut bytes = log.take_appended(&mut self.head.borrow_mut());
        if log.durable.is_some() {
            bytes += log.take_appended(&mut self.durable_head.borrow_mut());
        }
        bytes
    }

    /// Pins the core: objects found under the pin stay valid until it is dropped.
    ///
    /// Pins nest. A pin takes a few nanoseconds; it holds back memory that others replace meanwhile, so pin per
    /// batch, not for long.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        Pinned { core: self, pin: self.local.pin() }
    }

    /// Returns the core's index.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Ends a held pin. Panics if it belongs to another core.
    pub fn release(&self, held: HeldPin) {
        self.local.release(held);
    }

    /// Returns the number of pins held by yielded invocations.
    pub fn held_pins(&self) -> u64 {
        self.local.held_count()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.take_appended();
        self.store.log.close(self.head.get_mut());
        let head = self.durable_head.get_mut();
        if let Some(durable) = self.store.log.durable.as_ref().filter(|_| head.is_open()) {
            durable.cuts.reach(self.index, self.store.log.position(head));
            self.store.log.close(head);
        }
        self.garbage.get_mut().hand_over(&self.store.reclaimer);
        self.store.give_core_back(self.index);
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Core {{ index: {} }}", self.index)
    }
}

impl Pinned<'_> {
    /// Keeps this pin's epoch beyond the pin, for an invocation that yields: the objects it found stay valid until
    /// [`Core::release`].
    pub fn hold(&self) -> HeldPin {
        self.pin.hold()
    }

    /// Begins a write to a durable table.
    #[inline]
    pub(crate) fn begin_durable(&self, table: &Table) -> Option<Writing<'_>> {
        let durable = self.core.store.log.durable.as_ref().filter(|_| table.is_durable())?;
        Some(durable.cuts.begin(self.core.index))
    }

    /// Moves the core's position behind what it has appended, all of which is sealed and nothing of it published.
    /// Returns the number of the first cut that includes it.
    #[inline]
    pub(crate) fn advance(&self, writing: &Writing<'_>, wait: Wait) -> u64 {
        let log = &self.core.store.log;
        let position = log.position(&self.core.durable_head.borrow());
        let cut = log.durable.as_ref().map_or(0, |durable| durable.cuts.advance(writing, position));
        if !weakened::by("answer") {
            self.core.see(wait.until(cut));
        }
        cut
    }

    /// Lets a cut fall into the middle of a commit.
    #[cfg(weakened)]
    pub(crate) fn advance_by_halves(&self, writing: &Writing<'_>) {
        let log = &self.core.store.log;
        let mut position = log.position(&self.core.durable_head.borrow());
        position.bytes -= 40;
        if let Some(durable) = &log.durable {
            durable.cuts.advance(writing, position);
        }
        std::thread::yield_now();
    }

    /// Returns what the request in progress waits for of what it does in a table.
    #[inline(always)]
    pub(crate) fn wait_of(&self, table: &Table) -> Wait {
        let promise = table.promise();
        if promise < self.core.notes_from.get() {
            Wait::Nothing
        } else if promise >= self.core.stable_from.get() {
            Wait::Stable
        } else {
            Wait::Received
        }
    }

    /// Returns whether the request in progress waits for what it does in a table.
    #[inline(always)]
    pub(crate) fn is_noted(&self, table: &Table) -> bool {
        table.promise() >= self.core.notes_from.get()
    }

    /// Notes what a read of a table has found for a key with this hash, if it [`Pinned::is_noted`].
    #[inline]
    pub(crate) fn note_seen(&self, table: &Table, hash: u64, found: Option<&Object<'_>>) {
        let log = &self.core.store.log;
        let Some(durable) = &log.durable else { return };
        let wait = durable.wait_with_clock(self.wait_of(table));
        match found {
            Some(object) => {
                if !log.has(wait, log.location_of(object)) {
                    self.core.see(wait.until(durable.cuts.next()));
                }
                if self.is_expired(object)
                    && let Some(cut) = durable.note_expiry(object.expires_ms())
                {
                    self.core.see(Wait::Stable.until(cut));
                }
            }
            None => {
                let removed = durable.removed(hash);
                if removed > durable.reached(wait) {
                    self.core.see(wait.until(removed));
                }
            }
        }
    }

    /// Notes that whatever a table holds now may be shown, if the request in progress waits for what it does there.
    pub fn note_shown(&self, table: &Table) {
        if self.is_noted(table) {
            self.note_seen_of(table);
        }
    }

    /// Notes that whatever a table holds now may be shown: for scans and counts of one that [`Pinned::is_noted`].
    pub(crate) fn note_seen_of(&self, table: &Table) {
        let Some(durable) = &self.core.store.log.durable else { return };
        let wait = durable.wait_with_clock(self.wait_of(table));
        self.core.see(wait.until(durable.next_beyond(wait)));
    }

    /// Notes that whatever durable tables hold now may be shown, and is to be stable.
    pub fn note_seen_all(&self) {
        self.core.see(Wait::Stable.until(self.core.store.unstable_cut()));
    }

    /// Returns the number of the segment with an entry that one at `at` ends; 0 if both are in one segment or `found` is
    /// not on the disk: then no replay finds it without the other.
    #[inline]
    pub(crate) fn predecessor(&self, at: Location, found: Option<Location>) -> u32 {
        let log = &self.core.store.log;
        let sequence = found.map_or(0, |found| log.sequence_at(found));
        if sequence == 0 || sequence == log.sequence_at(at) { 0 } else { sequence }
    }

    #[inline(always)]
    pub(crate) fn assert_own(&self, table: &Table) {
        table.assert_of(self.core.store.log_address());
    }

    /// Returns the object at `location` if its key is `key`.
    #[inline(always)]
    pub(crate) fn object_of<'p>(&'p self, location: Location, key: &[u8]) -> Option<Object<'p>> {
        let object = self.core.store.log.object(location, &self.pin);
        (object.key() == key).then_some(object)
    }

    /// Returns the object at `location`, with the location, if its key is `key`.
    #[inline]
    pub(crate) fn with_location<'p>(
        &'p self,
        location: Location,
        key: &[u8],
    ) -> Option<(Location, Object<'p>)> {
        self.object_of(location, key).map(|object| (location, object))
    }

    /// Returns whether the object has expired for all readers.
    #[inline(always)]
    pub(crate) fn is_expired(&self, object: &Object<'_>) -> bool {
        object.expires() && object.expires_ms() <= self.core.store.now_ms()
    }

    /// Returns the version that readers see for `object`: 0 if there is none or it has expired.
    #[inline]
    pub(crate) fn visible_version(&self, object: Option<&Object<'_>>) -> u64 {
        object.filter(|object| !self.is_expired(object)).map_or(0, Object::version)
    }

    /// Starts the growth of a table's index if it is due with `more` objects. Returns whether this call did.
    pub(crate) fn start_growth(&self, table: &Table, more: u64) -> Result<bool, NoMemory> {
        table.index.start_growth(&self.pin, table.objects() + more, self.core.store.config.huge_pages)
    }

    /// Starts the shrinking of a table's index if it is due after so many more removals. Returns whether this call
    /// did.
    pub(crate) fn start_shrinking(&self, table: &Table, removals: u64) -> bool {
        let objects = table.objects();
        table.is_complete()
            && table.index.is_due_to_shrink(&self.pin, objects, removals)
            && !table.is_retired()
            && table.index.start_shrinking(&self.pin, objects, self.core.store.config.huge_pages)
    }

    /// Moves a few buckets of a table whose index grows or shrinks.
    pub(crate) fn grow(&self, table: &Table, buckets: u64) -> Growth {
        let store = &self.core.store;
        let hash_of = |location| {
            let object = store.log.object_within(location, &self.pin);
            object.map_or(0, |object| crate::hash(object.key()))
        };
        let prefetch = |location| store.log.prefetch_key(location, GROWTH_KEY_BYTES);
        table.index.grow(&self.pin, buckets, &store.reclaimer, hash_of, prefetch)
    }

    /// Returns the error for a writer of `bytes` to `table` that can take no segment.
    #[cold]
    pub(crate) fn no_room(&self, table: &Table, bytes: usize) -> WriteError {
        let durable = self.core.store.log.durable.as_ref().filter(|_| table.is_durable());
        if durable.is_some_and(|durable| durable.lacks_frames()) {
            return WriteError::Retry { after_us: RETRY_AFTER_US };
        }
        let error = self.no_memory(bytes);
        let gives_way = error == WriteError::OutOfMemory && self.give_way(table, bytes);
        if gives_way { WriteError::Retry { after_us: RETRY_AFTER_US } } else { error }
    }

    /// Returns the error for a removal from `table` that can take no segment. It comes again while the cleaner has
    /// anything in hand, also an evacuation, for which it has all that is kept.
    #[cold]
    pub(crate) fn no_room_to_remove(&self, table: &Table, bytes: usize) -> WriteError {
        let in_hand = self.core.store.cleaning.in_hand.load(Ordering::Relaxed);
        match self.no_room(table, bytes) {
            WriteError::OutOfMemory if in_hand => WriteError::Retry { after_us: RETRY_AFTER_US },
            error => error,
        }
    }

    /// Returns the error for a writer of `bytes` without a segment: retry if cleaning will bring one.
    #[cold]
    pub(crate) fn no_memory(&self, bytes: usize) -> WriteError {
        let store = &self.core.store;
        store.cleaning.refusals.fetch_add(1, Ordering::Relaxed);
        if store.cleaning_brings(bytes) || store.expects_expiry() {
            WriteError::Retry { after_us: RETRY_AFTER_US }
        } else {
            WriteError::OutOfMemory
        }
    }
}

impl std::fmt::Debug for Pinned<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Pinned {{ core: {} }}", self.core.index)
    }
}
