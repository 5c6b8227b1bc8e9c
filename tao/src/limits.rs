//! The limits of the graph layer, each with its unit and reason.
//!
//! They bound the work of one call: a write rewrites at most one list head and two chunks per direction, a read copies
//! at most [`ASSOC_LIMIT_MAX`] entries.

/// Data of one association, bytes. A chunk is rewritten per insertion, so large data belongs in an object.
pub const ASSOC_DATA_BYTES_MAX: usize = 4_096;

/// Data of one object, bytes; its record must stay below the store's limit of a value.
pub const OBJECT_DATA_BYTES_MAX: usize = 256 << 10;

/// Maximum entries returned by one list read, after the ATC'13 paper (section 3.4).
pub const ASSOC_LIMIT_MAX: u32 = 6_000;

/// Maximum ids of one `assoc_get`.
pub const ASSOC_IDS_MAX: usize = 1_024;

/// Entries inside a head record; a longer list moves into chunks.
pub const INLINE_ENTRIES_MAX: usize = 48;

/// Bytes of entries inside a head record.
pub const INLINE_BYTES_MAX: usize = 8 << 10;

/// Entries at which a chunked list that has shrunk to one chunk moves back into its head. Well below
/// [`INLINE_ENTRIES_MAX`], so that a list near the limit does not change its form with every write.
pub const INLINE_ENTRIES_AGAIN: usize = 24;

/// Bytes below which a shrunken list moves back into its head.
pub const INLINE_BYTES_AGAIN: usize = 4 << 10;

/// Entries of one chunk. With little data (8 bytes per entry) a full chunk, like a full inline head, still fits a
/// datagram, for reads from outside; and an insertion rewrites it.
pub const CHUNK_ENTRIES_MAX: usize = 52;

/// Bytes of one chunk, exceeded by at most one entry.
pub const CHUNK_BYTES_MAX: usize = 16 << 10;

/// Entries in two neighbouring chunks together at which they are merged.
pub const CHUNK_ENTRIES_MERGE: usize = 30;

/// Chunks of one list: the directory stays within one value (24 bytes a chunk).
pub const CHUNKS_MAX: usize = 40_000;

/// Chunks read with one multi-get.
pub const CHUNKS_AT_ONCE: usize = 16;

/// Heads read with one multi-get by a question over many nodes.
pub const HEADS_AT_ONCE: usize = 64;

/// Friends whose lists one question visits.
pub const FRIENDS_MAX: usize = 6_000;

/// Edges that one friends-of-friends question visits.
pub const EDGES_VISITED_MAX: u32 = 1 << 20;

/// Slots of a tally, 16 bytes each: an invocation has a megabyte for this, the friends (8 bytes each) and their heads
/// (16 bytes each).
pub const TALLY_SLOTS_MAX: usize = 1 << 15;

const _: () = assert!(TALLY_SLOTS_MAX.is_power_of_two());
const _: () = assert!(TALLY_SLOTS_MAX * 16 + FRIENDS_MAX * 24 < 1 << 20);
const _: () = assert!(FRIENDS_MAX < TALLY_SLOTS_MAX / 2);
const _: () = assert!(INLINE_ENTRIES_AGAIN < INLINE_ENTRIES_MAX);
const _: () = assert!(INLINE_BYTES_AGAIN < INLINE_BYTES_MAX);
const _: () = assert!(INLINE_ENTRIES_MAX < CHUNK_ENTRIES_MAX);
const _: () = assert!(INLINE_BYTES_MAX + ASSOC_DATA_BYTES_MAX < CHUNK_BYTES_MAX);
const _: () = assert!(CHUNK_ENTRIES_MERGE < CHUNK_ENTRIES_MAX);
