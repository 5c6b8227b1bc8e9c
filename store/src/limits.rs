//! Every limit of the store, with its unit and its reason.
//!
//! The limits that a tenant can meet are public (`KEY_BYTES_MAX`, `VALUE_BYTES_MAX`, `COMMIT_OPERATIONS_MAX`); the
//! others bound one step of background work, so that a worker that calls [`crate::Core::step`] returns in
//! microseconds.

/// Longest key in bytes: its length is stored in 16 bits.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Longest value in bytes: its length is stored in 21 bits.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of an object whose lengths were damaged. As many unwritten bytes follow the log, so that a reader of
/// such an object reads nothing else.
pub const LENGTHS_BYTES_MAX: usize = (1 << 16) + (1 << 21) + 64;
/// Largest version: it is stored in 54 bits. Half of them last 28 years of ten million writes per second to one key;
/// the other half is for servers that begin above the versions of their earlier starts.
pub const VERSION_MAX: u64 = (1 << 54) - 1;
/// Reads plus writes of one commit: bounds how long its buckets stay locked.
pub const COMMIT_OPERATIONS_MAX: usize = 4096;

/// Default bytes of a window, which is a full segment.
pub const SEGMENT_BYTES_DEFAULT: usize = 8 << 20;
/// Smallest segment in bytes (tests use small ones to exercise the cleaner).
pub const SEGMENT_BYTES_MIN: usize = 4096;
/// Largest segment in bytes: offsets in a segment are 32-bit.
pub const SEGMENT_BYTES_MAX: usize = 64 << 20;
/// Seglets per window, the units in which its memory is taken: 256 KiB each in a window of 8 MiB.
pub const SEGLETS_PER_WINDOW_MAX: u32 = 32;
/// Smallest seglet in bytes, for small windows: many objects fit, so that little is lost at a segment's end.
pub const SEGLET_BYTES_MIN: usize = 1024;
/// Windows reserved for evacuation, which gives one back for each, so a full store can always clean.
pub const RESERVE_WINDOWS: u32 = 1;
/// Additional part of a window (a divisor) reserved for the cleaner, so that it need not evacuate all the time.
pub const RESERVE_DIVISOR: u64 = 2;
/// Minimum number of windows besides one per core: the reserve, and one to clean while another is written.
pub const WINDOWS_MIN: usize = 4;

/// Maximum tries of a worker to get a bucket, or a leaf of an ordered table, that another thread holds. With the
/// pauses in between this is some 5 to 30 us, a hundred times as long as a running thread holds a bucket. Then the
/// write must be retried.
pub const WAITS_MAX: u32 = 16;
/// Maximum processor pauses between two tries, as a power of two; the first intervals have fewer.
pub const SPINS_MAX_LOG: u32 = 6;

/// Sleep, in microseconds, of the thread that makes cuts while it waits for a writer that does not run: a write takes a few.
pub const WAIT_ASLEEP_US: u64 = 20;

/// Overflow buckets of one bucket before an insert is refused: a lookup reads at most this many lines.
pub const CHAIN_BUCKETS_MAX: usize = 8;
/// Overflow buckets that a mover may chain, since it must not fail after inserts were admitted.
pub const CHAIN_BUCKETS_HARD_MAX: usize = 64;
/// Buckets of a new table: 256 bytes, since most of a thousand tenants' tables are small.
pub const BUCKETS_INITIAL: u64 = 4;
/// Prefetch distance of gathering, in buckets: some twenty objects, as many as memory delivers at a time.
pub const GATHER_BUCKETS_AHEAD: u64 = 4;
/// Maximum bytes prefetched per object while gathering; the processor prefetches the rest automatically.
pub const GATHER_AHEAD_BYTES_MAX: usize = 512;
/// Share (a divisor) of the store's memory for a table's index that is sized for expected objects.
pub const EXPECTED_INDEX_DIVISOR: u64 = 8;
/// Share (a divisor) of the expected objects by which the index has more room. The number of objects is an estimate
/// by the width of their hashes, and an index that grows for the last few is read and written as a whole.
pub const EXPECTED_ROOM_DIVISOR: u64 = 16;
/// Maximum removed keys noted while a table arrives: 22 MiB of notes. Beyond it, a key that has not arrived cannot be
/// removed until it has, and a table that has arrived completely cannot go back.
pub const REMOVED_NOTED_MAX: usize = 3 << 18;
/// Approximate number of objects that are copied again when one of them was written: a mark costs a bit.
pub const TOUCHED_OBJECTS_PER_CHUNK: u64 = 8;
/// Minimum chunks of a table that is copied while in use: a small table may grow meanwhile.
pub const TOUCHED_CHUNKS_MIN: u64 = 1 << 12;
/// Maximum chunks: half a megabyte of marks.
pub const TOUCHED_CHUNKS_MAX: u64 = 1 << 22;
/// Objects that one step removes from a table of which a part has moved away.
pub const DISCARDED_PER_STEP: usize = 64;
/// Maximum hashes waiting to be pulled ahead of their partitions: two of the largest multi-gets. A power of two.
pub const WANTED_HASHES_MAX: usize = 2048;
/// Places that remember requested hashes: enough that few hashes share one. A power of two.
pub const RECENT_WANTS: usize = 4 * WANTED_HASHES_MAX;
/// Minimum number of remembered hashes that were pulled ahead: four of the largest concurrent multi-gets.
pub const PULLED_HASHES_KEPT: u64 = 2 * WANTED_HASHES_MAX as u64;
/// Slots for [`PULLED_HASHES_KEPT`] hashes, half empty.
pub const PULLED_SLOTS: usize = 2 * PULLED_HASHES_KEPT as usize;
/// Places that remember hashes missed by reads: 32 KiB for each arriving part that gets requests.
pub const MISSED_HASHES_KEPT: usize = 4096;
/// Minimum number of hashes of a table's range: more than the largest index has buckets.
pub const HASH_RANGE_WIDTH_MIN: u64 = 1 << 32;
/// Mean objects per bucket at which the index grows, as a fraction: at 5.2 of 7 one bucket in six overflows.
pub const LOAD_NUMERATOR: u64 = 26;
/// See [`LOAD_NUMERATOR`].
pub const LOAD_DENOMINATOR: u64 = 5;
/// Growth of the index: a quarter. Its minimum load is 4.16 objects per bucket, 16 bytes per object.
pub const GROWTH_DIVISOR: u64 = 4;
/// Maximum growth factor of the index at once, if inserts have overtaken its growth.
pub const GROWTH_FACTOR_MAX: u64 = 8;
/// Load, in percent of the maximum load, below which the index shrinks.
pub const SHRINK_LOAD_PERCENT: u64 = 40;
/// Room of a shrunk index, in percent of its entries: half as many more before it grows again, and two fifths fewer
/// before it shrinks again, so that it does not oscillate.
pub const SHRINK_ROOM_PERCENT: u64 = 150;
/// Maximum factor by which the index shrinks at once: crafted keys then fit the chains that a mover may make.
pub const SHRINK_FACTOR_MAX: u64 = 4;
/// Removals before an index found too large shrinks, as a divisor of its buckets. It may just have grown for a commit that
/// is about to be retried, or have been made for objects that are about to come.
pub const SHRINK_PATIENCE_DIVISOR: u64 = 2;
/// Indexes of at most this many buckets never shrink (4 KiB).
pub const SHRINK_BUCKETS_MIN: u64 = 64;
/// Buckets that an insert moves while the index grows: growth then ends long before it is due again.
pub const GROWTH_BUCKETS_PER_INSERT: u64 = 2;
/// Prefetch distance of keys during growth, in buckets: memory delivers while others are moved.
pub const GROWTH_BUCKETS_AHEAD: u64 = 8;
/// Bytes of a key prefetched during growth: with the header they mostly lie in one or two lines.
pub const GROWTH_KEY_BYTES: usize = 43;
/// Buckets that a background step moves.
pub const GROWTH_BUCKETS_PER_STEP: u64 = 32;
/// Buckets that a background step searches for expired objects.
pub const EXPIRY_BUCKETS_PER_STEP: u32 = 32;
/// Tables that a background step checks for a due removal of expired objects.
pub const EXPIRY_TABLES_PER_STEP: usize = 16;
/// Minimum time between two expiry walks through a table, in milliseconds: the memory found pays for the walk.
pub const EXPIRY_REST_MS_MIN: u64 = 100;
/// Maximum time between two walks, in milliseconds: a walk takes long if the cores are busy, too.
pub const EXPIRY_REST_MS_MAX: u64 = 10_000;
/// A table rests this many times as long as its walk took, so that walks take at most a tenth of a core.
pub const EXPIRY_REST_FACTOR: u64 = 9;
/// Buckets that a background step of a rewriting looks through.
pub const REWRITE_BUCKETS_PER_STEP: u32 = 32;
/// Bytes of objects that it copies before it ends: some 20 us.
pub const REWRITE_BYTES_PER_STEP: u64 = 64 << 10;
/// Bytes before the disk from which on a rewriting waits for it, so that writers find frames and room beside it.
pub const REWRITE_AHEAD_BYTES: u64 = 4 << 20;
/// Buckets per step of an enumeration or a verification: some 600 objects, 50 us if none is cached.
pub const WALK_BUCKETS_PER_STEP: usize = 128;
/// Bytes of objects that one step of a verification checks.
pub const VERIFY_BYTES_PER_STEP: u64 = 256 << 10;
/// Corrupted objects that one step of a verification reports.
pub const VERIFY_CORRUPTED_PER_STEP: usize = 512;
/// Inserts and removals of one core in one table between two looks at the table's load.
pub const CHANGES_PER_LOAD_CHECK: u64 = 16;

/// Minimum budget of a table that evicts, in bytes: it must hold several objects to choose between them.
pub const CACHE_BUDGET_BYTES_MIN: u64 = 4096;
/// Share (a divisor) of the budget above which objects leave the small queue first (SOSP'23 §4.2).
pub const CACHE_SMALL_DIVISOR: u64 = 10;
/// Objects that a write looks at to make room: about 25 us if none is cached.
pub const CACHE_SCANS_PER_WRITE: u32 = 256;
/// Consecutively spared objects after which one more use no longer protects the next; after four times as many one
/// leaves in any case.
pub const CACHE_PATIENCE: u32 = 32;
/// Prefetch distance of objects in a queue, in places; that of buckets is twice as large.
pub const CACHE_AHEAD: usize = 8;
/// Share (a divisor) of its budget by which a table may exceed it while another core evicts, up to ...
pub const CACHE_SLACK_DIVISOR: u64 = 16;
/// ... this many bytes, the amount that a core writes in the microseconds of the other core's eviction.
pub const CACHE_SLACK_BYTES_MAX: u64 = 256 << 10;
/// New objects of a core after which it queues them, if it has not had to evict before.
pub const CACHE_ARRIVALS_PER_LOOK: u64 = 64;
/// Hashes examined at that time if most are stale: four times as many as can have come.
pub const CACHE_SWEEP_PER_LOOK: u64 = 4 * CACHE_ARRIVALS_PER_LOOK;
/// Stale hashes allowed in the queues in addition to as many as there are objects.
pub const CACHE_STALE_FEW: u64 = 1024;
/// Hashes per chunk of a queue: 2 KiB.
pub const CACHE_CHUNK_HASHES: usize = 256;
/// Chunks of a queue that a background step frees.
pub const CACHE_CHUNKS_PER_STEP: usize = 64;
/// Minimum sets of sixteen ghosts: 1 KiB.
pub const CACHE_GHOST_SETS_MIN: usize = 16;
/// Maximum sets of ghosts: a gibibyte.
pub const CACHE_GHOST_SETS_MAX: usize = 1 << 24;

/// Maximum keys of a leaf of an ordered table; a larger leaf is split. Copying a leaf with 30-byte keys takes a tenth
/// of a microsecond, and a scan finds dozens of keys side by side.
pub const ORDERED_KEYS_MAX: usize = if cfg!(loom_model) { 2 } else { 64 };
/// Maximum bytes of a leaf's keys; a larger leaf is split if it has two.
pub const ORDERED_LEAF_BYTES_MAX: usize = 4096;
/// Keys below which a leaf is joined with a neighbour.
pub const ORDERED_KEYS_FEW: usize = if cfg!(loom_model) { 0 } else { 8 };
/// Maximum children of a branch; a larger branch is split.
pub const ORDERED_CHILDREN_MAX: usize = 64;
/// Children up to which a branch is joined with a neighbour, if both have at most half of [`ORDERED_CHILDREN_MAX`].
pub const ORDERED_CHILDREN_FEW: usize = 16;
/// Maximum bytes of the keys between a branch's children; a larger branch is split if it has four. Keys may be long.
pub const ORDERED_BRANCH_BYTES_MAX: usize = 32 << 10;
/// Maximum branches on the way to a leaf: a split branch has half of [`ORDERED_CHILDREN_MAX`], or two of the longest
/// keys.
pub const ORDERED_DEPTH_MAX: usize = 24;
/// Tries to make a key enter or leave a tree while others change its leaf or remove the key.
pub const LEAVE_TRIES: usize = 8;
/// Attempts of a commit to find all its ranges unchanged between two walks while others change their leaves. Readers of its writes
/// wait meanwhile.
pub const RANGE_WALKS_MAX: usize = 4;
/// Nodes removed from trees after which a core hands them to the reclaimer.
pub const ORDERED_GARBAGE_NODES_MAX: usize = 64;
/// Bytes of such nodes.
pub const ORDERED_GARBAGE_BYTES_MAX: u64 = 128 << 10;

/// Bytes of segments that a cleaning step examines without debts: about 5 us.
pub const CLEAN_BYTES_PER_STEP: usize = 16 << 10;
/// Maximum bytes that a cleaning step examines to pay for its core's writes: about 100 us, as long as writing as much
/// takes at 80 %.
pub const CLEAN_BYTES_PER_STEP_MAX: usize = 256 << 10;
/// Minimum garbage of a segment worth copying, as a share (a divisor) of its bytes: 3 %.
pub const CLEAN_GARBAGE_DIVISOR: u64 = 32;
/// Segments chosen together, so that one look at all of them serves several.
pub const CLEAN_SOURCES_MAX: usize = 8;
/// Weighed segments that are kept for later choices if they are not the best.
pub const CLEAN_CANDIDATES_MAX: usize = 32;
/// Seglets of the log that a choice looks at: some 8 us; 64 GB have 262,144. With the kept candidates, the best of
/// these are nearly as good as the best of all.
pub const CLEAN_SEGLETS_PER_LOOK: u32 = 1024;
/// Places that remember the hashes of keys removed from durable tables: at a million removals a second, and 0.2 ms
/// until one is stable, one absence in twenty waits for a removal of another key. 32 KiB.
pub const REMOVED_PLACES: usize = if cfg!(loom_model) { 2 } else { 4096 };
/// Completion records of a client that may be asked for: the distance between its oldest unanswered request and its
/// newest one is below it.
pub const COMPLETIONS_PER_CLIENT: u64 = 1024;

/// Clients of which it is noted, while a log is divided, which of their records are old: some 20 MB.
pub const CLIENTS_NOTED_MAX: usize = 1 << 20;
/// Bytes of completion records that a recovery keeps of clients that probably ask no more: their sessions may have ended, which
/// the log does not say.
pub const OLD_COMPLETIONS_BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 64 << 20 };
/// Part of a window (a divisor) that the chosen segments must bring: more would be worse ones.
pub const CLEAN_GAIN_DIVISOR: u64 = 4;
/// Classes of survivors by age, each with a segment of its own.
pub const SURVIVOR_CLASSES: usize = 3;
/// Share (a divisor) of a window that a run of survivors takes, so that a class leaves little open.
pub const SURVIVOR_RUN_DIVISOR: u32 = 4;
/// Room that a head takes if it can, in objects as large as the one at hand: on average half an object is lost at the
/// end of a run.
pub const RUN_OBJECTS: u32 = 8;
/// Free seglets that the cleaner aims for above the writers' reserve: this share (a divisor) of all, and ...
pub const FREE_WANTED_DIVISOR: u64 = 128;
/// ... this share of a window for each core.
pub const FREE_WANTED_PER_CORE_DIVISOR: u64 = 4;
/// Share (a divisor) of the seglets open to writers that a head takes, so that it leaves some to other cores.
pub const HEAD_SHARE_DIVISOR: u64 = 4;
/// Frames of the disk that a full window takes.
pub const FRAMES_PER_WINDOW: u32 = 8;
/// Recommended delay of a refused writer, in microseconds: a few cleaning steps.
pub const RETRY_AFTER_US: u32 = 200;

// One write looks at enough objects to evict one even if all have the most uses that two bits can count.
const _: () = assert!(4 * CACHE_PATIENCE < CACHE_SCANS_PER_WRITE);
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(VALUE_BYTES_MAX < 1 << 21);
const _: () = assert!(SEGMENT_BYTES_MIN.is_power_of_two() && SEGMENT_BYTES_DEFAULT.is_power_of_two());
const _: () = assert!(CLEAN_SOURCES_MAX <= CLEAN_CANDIDATES_MAX);
const _: () = assert!(CHAIN_BUCKETS_MAX < CHAIN_BUCKETS_HARD_MAX);
const _: () = assert!(2 * ORDERED_CHILDREN_FEW <= ORDERED_CHILDREN_MAX / 2);
const _: () = assert!(2 * ORDERED_KEYS_FEW <= ORDERED_KEYS_MAX / 2);
const _: () = assert!(SHRINK_LOAD_PERCENT * SHRINK_ROOM_PERCENT <= 60 * 100);
// The maximum full chains that a bucket of the smaller index receives, the two at its borders included.
const _: () =
    assert!((SHRINK_FACTOR_MAX as usize + 2) * (CHAIN_BUCKETS_MAX + 1) <= CHAIN_BUCKETS_HARD_MAX + 1);
const _: () = assert!(SHRINK_BUCKETS_MIN >= SHRINK_FACTOR_MAX * BUCKETS_INITIAL);
const _: () = assert!(GROWTH_BUCKETS_PER_INSERT * LOAD_NUMERATOR > GROWTH_DIVISOR * LOAD_DENOMINATOR);
