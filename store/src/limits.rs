//! Every limit of the store, with its unit and its reason.
//!
//! What a tenant can meet is public (`KEY_BYTES_MAX`, `VALUE_BYTES_MAX`, `COMMIT_OPERATIONS_MAX`); the others
//! bound one step of background work, so that a worker that calls [`crate::Core::step`] is back in microseconds.

/// Longest key in bytes: its length is stored in 16 bits.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Longest value in bytes: its length is stored in 21 bits.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Bytes of an object whose lengths were damaged, at most: so many stand behind the log, never written, so that whoever
/// looks at one reads nothing else.
pub const LENGTHS_BYTES_MAX: usize = (1 << 16) + (1 << 21) + 64;
/// Largest version: it is stored in 54 bits. Half of them are 28 years of ten million writes a second to one key; the other
/// half is for servers that begin above the versions of their earlier starts.
pub const VERSION_MAX: u64 = (1 << 54) - 1;
/// Reads plus writes of one commit: bounds how long its buckets stay locked.
pub const COMMIT_OPERATIONS_MAX: usize = 4096;

/// Bytes of a window, which is a full segment, where the configuration does not say otherwise.
pub const SEGMENT_BYTES_DEFAULT: usize = 8 << 20;
/// Smallest segment in bytes (tests use small ones to make the cleaner work).
pub const SEGMENT_BYTES_MIN: usize = 4096;
/// Largest segment in bytes: offsets in a segment are 32-bit.
pub const SEGMENT_BYTES_MAX: usize = 64 << 20;
/// Seglets of a window, the units in which its memory is taken: 256 KiB each where a window has 8 MiB.
pub const SEGLETS_PER_WINDOW_MAX: u32 = 32;
/// Smallest seglet in bytes, where windows are small: many objects fit, so that little is lost at a segment's end.
pub const SEGLET_BYTES_MIN: usize = 1024;
/// Windows that only an evacuation may take, which gives one back for it: so a full store can always clean.
pub const RESERVE_WINDOWS: u32 = 1;
/// Part of a window (a divisor) that only the cleaner may take besides, so that it need not evacuate all the time.
pub const RESERVE_DIVISOR: u64 = 2;
/// Smallest number of windows besides one for each core: the reserve, and one to clean while another is written.
pub const WINDOWS_MIN: usize = 4;

/// How often a worker looks for a bucket, or a leaf of an ordered table, that another thread has, with so many pauses in between:
/// some 5 to 30 us, a hundred times as long as a bucket is held by who keeps its core. Then the write is to come again.
pub const WAITS_MAX: u32 = 16;
/// Pauses of the processor between two looks, at most, as a power of two; there are fewer at first.
pub const SPINS_MAX_LOG: u32 = 6;

/// Overflow buckets behind one bucket before an insert is refused: a lookup reads at most this many lines.
pub const CHAIN_BUCKETS_MAX: usize = 8;
/// Overflow buckets a mover may chain, since it must not fail where inserts were admitted.
pub const CHAIN_BUCKETS_HARD_MAX: usize = 64;
/// Buckets of a new table: 256 bytes, since most tables of a thousand tenants are small.
pub const BUCKETS_INITIAL: u64 = 4;
/// Buckets ahead at which who gathers objects asks for them: some twenty, as many as memory answers at a time.
pub const GATHER_BUCKETS_AHEAD: u64 = 4;
/// Bytes of an object that are asked for then, at most: what lies behind them the processor asks for by itself.
pub const GATHER_AHEAD_BYTES_MAX: usize = 512;
/// Share (a divisor) of the store's memory that the index of a table may take for objects that are merely expected.
pub const EXPECTED_INDEX_DIVISOR: u64 = 8;
/// Share (a divisor) of the objects that are expected for which there is room beyond them: how many come is an estimate by the
/// width of their hashes, and an index that grows for the last few of them is read and written as a whole.
pub const EXPECTED_ROOM_DIVISOR: u64 = 16;
/// Removed keys that are noted while a table arrives: 22 MiB of notes. With more, a key that has not arrived cannot be removed until
/// it has, and a table of which all has arrived cannot go back.
pub const REMOVED_NOTED_MAX: usize = 3 << 18;
/// Objects that are copied again when one of them was written to, about: a mark costs a bit.
pub const TOUCHED_OBJECTS_PER_CHUNK: u64 = 8;
/// Chunks of a table that is copied while in use, at least: a small table may become a large one meanwhile.
pub const TOUCHED_CHUNKS_MIN: u64 = 1 << 12;
/// At most: half a megabyte of marks.
pub const TOUCHED_CHUNKS_MAX: u64 = 1 << 22;
/// Objects that one step removes from a table of which a part is elsewhere now.
pub const DISCARDED_PER_STEP: usize = 64;
/// Hashes that may be wanted ahead of their partitions and not taken yet: two of the largest multi-gets. A power of two.
pub const WANTED_HASHES_MAX: usize = 2048;
/// Places in which hashes are remembered that are wanted: so many that few share one. A power of two.
pub const RECENT_WANTS: usize = 4 * WANTED_HASHES_MAX;
/// Hashes that were pulled ahead and are remembered at least: four of the largest multi-gets that come side by side.
pub const PULLED_HASHES_KEPT: u64 = 2 * WANTED_HASHES_MAX as u64;
/// Slots for them, half empty.
pub const PULLED_SLOTS: usize = 2 * PULLED_HASHES_KEPT as usize;
/// Places in which hashes are remembered that reads have missed: 32 KiB for each part that arrives and is asked.
pub const MISSED_HASHES_KEPT: usize = 4096;
/// Hashes of the narrowest range that a table can have: more than the largest index has buckets.
pub const HASH_RANGE_WIDTH_MIN: u64 = 1 << 32;
/// Mean objects per bucket at which the index grows, as a fraction: at 5.2 of 7 one bucket in six overflows.
pub const LOAD_NUMERATOR: u64 = 26;
/// See [`LOAD_NUMERATOR`].
pub const LOAD_DENOMINATOR: u64 = 5;
/// The index grows by a quarter: the emptiest it gets is 4.16 objects per bucket, 16 bytes per object.
pub const GROWTH_DIVISOR: u64 = 4;
/// The index grows at most by this factor at once, where inserts have run ahead of it.
pub const GROWTH_FACTOR_MAX: u64 = 8;
/// The index shrinks when it holds less than this share of what it may hold, in percent.
pub const SHRINK_LOAD_PERCENT: u64 = 40;
/// What a shrunk index has room for, in percent of what it holds: half as many more before it grows again, and two
/// fifths less before it shrinks again, so that it does neither to and fro.
pub const SHRINK_ROOM_PERCENT: u64 = 150;
/// The index shrinks at most by this factor at once: crafted keys then fit the chains that a mover may make.
pub const SHRINK_FACTOR_MAX: u64 = 4;
/// An index shrinks after so many inserts and removals since it was found too large, as a divisor of its buckets: it may
/// just have grown for a commit that is about to come again, and what growing cost is paid for by then.
pub const SHRINK_PATIENCE_DIVISOR: u64 = 2;
/// An index of so many buckets does not shrink: 4 KiB.
pub const SHRINK_BUCKETS_MIN: u64 = 64;
/// Buckets that an insert moves while the index grows: growth then ends long before it is due again.
pub const GROWTH_BUCKETS_PER_INSERT: u64 = 2;
/// Buckets before an entry is moved at which its key is asked for: memory then answers while others are moved.
pub const GROWTH_BUCKETS_AHEAD: u64 = 8;
/// Bytes of a key that are asked for then: with the head, what mostly lies in one or two lines.
pub const GROWTH_KEY_BYTES: usize = 43;
/// Buckets that a background step moves.
pub const GROWTH_BUCKETS_PER_STEP: u64 = 32;
/// Buckets in which a background step looks for what has expired.
pub const EXPIRY_BUCKETS_PER_STEP: u32 = 32;
/// Tables of which a background step looks whether removing what has expired is due.
pub const EXPIRY_TABLES_PER_STEP: usize = 16;
/// Least time between two walks through a table for what has expired, in milliseconds: what a walk finds pays for it.
pub const EXPIRY_REST_MS_MIN: u64 = 100;
/// Most time between two walks, in milliseconds: a walk takes long where the cores are busy, too.
pub const EXPIRY_REST_MS_MAX: u64 = 10_000;
/// A table rests this many times as long as a walk through it took, so that walks take a tenth of a core at most.
pub const EXPIRY_REST_FACTOR: u64 = 9;
/// Buckets that one step of an enumeration or a verification reads: some 600 objects, 50 us where none is in the caches.
pub const WALK_BUCKETS_PER_STEP: usize = 128;
/// Bytes of objects that one step of a verification checks.
pub const VERIFY_BYTES_PER_STEP: u64 = 256 << 10;
/// Corrupted objects that one step of a verification reports.
pub const VERIFY_CORRUPTED_PER_STEP: usize = 512;
/// Inserts and removals of one core in one table between two looks at the table's load.
pub const CHANGES_PER_LOAD_CHECK: u64 = 16;

/// Least budget of a table that evicts, in bytes: some objects must fit for one to be worth more than another.
pub const CACHE_BUDGET_BYTES_MIN: u64 = 4096;
/// Share (a divisor) of the budget from which objects leave the small queue rather than the main one (SOSP'23 §4.2).
pub const CACHE_SMALL_DIVISOR: u64 = 10;
/// Objects that a write looks at to make room for itself: about 25 us where none is in the caches.
pub const CACHE_SCANS_PER_WRITE: u32 = 256;
/// Objects spared one after the other from which on a use more does not help the next: after four times as many one leaves
/// in any case.
pub const CACHE_PATIENCE: u32 = 32;
/// Places ahead in a queue at which an object is asked for; its bucket at twice as many.
pub const CACHE_AHEAD: usize = 8;
/// By this share (a divisor) of its budget a table may pass it while another core is evicting, and ...
pub const CACHE_SLACK_DIVISOR: u64 = 16;
/// ... by so many bytes at most: what a core writes in the microseconds that the other one takes.
pub const CACHE_SLACK_BYTES_MAX: u64 = 256 << 10;
/// New objects of a core from which on it puts them into the queues, if it has not had to evict before.
pub const CACHE_ARRIVALS_PER_LOOK: u64 = 64;
/// Hashes that are then looked at where most lead to nothing: four times as many as can have come.
pub const CACHE_SWEEP_PER_LOOK: u64 = 4 * CACHE_ARRIVALS_PER_LOOK;
/// Hashes that lead to nothing and may stand in the queues besides as many as there are objects.
pub const CACHE_STALE_FEW: u64 = 1024;
/// Hashes of a piece of a queue: 2 KiB.
pub const CACHE_CHUNK_HASHES: usize = 256;
/// Pieces of a queue that a background step frees.
pub const CACHE_CHUNKS_PER_STEP: usize = 64;
/// Least sets of sixteen ghosts: 1 KiB.
pub const CACHE_GHOST_SETS_MIN: usize = 16;
/// Most: a gibibyte.
pub const CACHE_GHOST_SETS_MAX: usize = 1 << 24;

/// Keys of a leaf of an ordered table, beyond which it is split: copying one with 30-byte keys takes a tenth of a
/// microsecond, and a scan finds dozens of keys side by side.
pub const ORDERED_KEYS_MAX: usize = if cfg!(loom_model) { 2 } else { 64 };
/// Bytes of its keys beyond which a leaf is split, if it has two.
pub const ORDERED_LEAF_BYTES_MAX: usize = 4096;
/// A leaf with fewer keys is joined with a neighbour.
pub const ORDERED_KEYS_FEW: usize = if cfg!(loom_model) { 0 } else { 8 };
/// Children of a branch, beyond which it is split.
pub const ORDERED_CHILDREN_MAX: usize = 64;
/// A branch with no more children is joined with a neighbour if both have at most half of [`ORDERED_CHILDREN_MAX`].
pub const ORDERED_CHILDREN_FEW: usize = 16;
/// Bytes of the keys between its children beyond which a branch is split, if it has four: keys may be long.
pub const ORDERED_BRANCH_BYTES_MAX: usize = 32 << 10;
/// Branches on the way to a leaf: what was split has half of [`ORDERED_CHILDREN_MAX`], or two of the longest keys.
pub const ORDERED_DEPTH_MAX: usize = 24;
/// How often a key is made to enter or leave a tree, where others change its leaf or remove the key at the same time.
pub const LEAVE_TRIES: usize = 8;
/// Nodes that have left trees before a core hands them to the reclaimer.
pub const ORDERED_GARBAGE_NODES_MAX: usize = 64;
/// Bytes of such nodes.
pub const ORDERED_GARBAGE_BYTES_MAX: u64 = 128 << 10;

/// Bytes of segments that a cleaning step examines on behalf of nobody: about 5 us.
pub const CLEAN_BYTES_PER_STEP: usize = 16 << 10;
/// Most that it examines for what its core has written since: about 100 us, as long as writing as much takes at 80 %.
pub const CLEAN_BYTES_PER_STEP_MAX: usize = 256 << 10;
/// A segment with less garbage than this share (a divisor of its bytes) is not worth copying: 3 %.
pub const CLEAN_GARBAGE_DIVISOR: u64 = 32;
/// Segments that are chosen together, so that the look at all of them is made once for several.
pub const CLEAN_SOURCES_MAX: usize = 8;
/// Segments that are weighed and kept for the choices that follow, if they are not the best.
pub const CLEAN_CANDIDATES_MAX: usize = 32;
/// Seglets of the log at which a choice looks: some 8 us; 64 GB have 262,144. With what was kept, the best of so many are
/// nearly as good as the best of all.
pub const CLEAN_SEGLETS_PER_LOOK: u32 = 1024;
/// Segments are chosen until they bring this part of a window (a divisor): more would be worse ones.
pub const CLEAN_GAIN_DIVISOR: u64 = 4;
/// Classes of survivors by age, each with a segment of its own.
pub const SURVIVOR_CLASSES: usize = 3;
/// Survivors take runs of this share (a divisor) of a window, so that what a class leaves open is little.
pub const SURVIVOR_RUN_DIVISOR: u32 = 4;
/// Objects as large as the one at hand for which a head takes room if it can: what is left at the end of a run is on
/// average half an object.
pub const RUN_OBJECTS: u32 = 8;
/// Free seglets for which the cleaner works, above what writers must leave: this share (a divisor) of all, and ...
pub const FREE_WANTED_DIVISOR: u64 = 128;
/// ... this share of a window for each core.
pub const FREE_WANTED_PER_CORE_DIVISOR: u64 = 4;
/// A head takes this share (a divisor) of the seglets that writers may take, so that it leaves some to other cores.
pub const HEAD_SHARE_DIVISOR: u64 = 4;
/// What a refused writer is told to wait, in microseconds: a few cleaning steps.
pub const RETRY_AFTER_US: u32 = 200;

// Of two bits of uses the last can be forgotten within one write's looks.
const _: () = assert!(4 * CACHE_PATIENCE < CACHE_SCANS_PER_WRITE);
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(VALUE_BYTES_MAX < 1 << 21);
const _: () = assert!(SEGMENT_BYTES_MIN.is_power_of_two() && SEGMENT_BYTES_DEFAULT.is_power_of_two());
const _: () = assert!(CLEAN_SOURCES_MAX <= CLEAN_CANDIDATES_MAX);
const _: () = assert!(CHAIN_BUCKETS_MAX < CHAIN_BUCKETS_HARD_MAX);
const _: () = assert!(2 * ORDERED_CHILDREN_FEW <= ORDERED_CHILDREN_MAX / 2);
const _: () = assert!(2 * ORDERED_KEYS_FEW <= ORDERED_KEYS_MAX / 2);
const _: () = assert!(SHRINK_LOAD_PERCENT * SHRINK_ROOM_PERCENT <= 60 * 100);
// As many full chains as a bucket of the smaller index can get, with the two at its borders.
const _: () =
    assert!((SHRINK_FACTOR_MAX as usize + 2) * (CHAIN_BUCKETS_MAX + 1) <= CHAIN_BUCKETS_HARD_MAX + 1);
const _: () = assert!(SHRINK_BUCKETS_MIN >= SHRINK_FACTOR_MAX * BUCKETS_INITIAL);
const _: () = assert!(GROWTH_BUCKETS_PER_INSERT * LOAD_NUMERATOR > GROWTH_DIVISOR * LOAD_DENOMINATOR);
