//! Log-structured memory: a segmented log of immutable objects, a hash index per table, epochs, a cleaner.
//!
//! ```text
//!   Table ── Index ──► buckets of 64 bytes ──► 45-bit location ─┐
//!                                                              ▼
//!   Core 0 ── log head ─► [ segment │ segment │ segment │ ... one mapped region ]
//!   Core 1 ── log head ─►      ▲ cleaner moves survivors, epochs decide when a segment is free
//! ```
//!
//! Guarantees: a reader never waits for a plain write and holds plain references while it is pinned; an object never
//! changes once it can be found; every write is atomic, a commit over several objects as well; versions of a key only
//! grow. Not here: tenants, the network, time, disk.
//!
//! Callers: the server's workers, one [`Core`] each; control threads create and retire tables. See docs/formats.md
//! for the bytes.

mod archived;
mod arrival;
mod background;
mod cache;
mod checksum;
mod cleaner;
mod commit;
mod completion;
mod cut;
mod directory;
mod dirty_map;
mod durable;
mod enumerate;
mod epoch;
mod error;
mod eviction;
mod hash_range;
mod increment;
mod index;
mod limits;
mod lock_set;
mod log;
mod memory;
mod number_hash;
mod object;
mod ordered;
mod ordered_table;
mod progress;
mod quota;
mod read;
mod reclaim;
mod recovery;
mod removal;
mod request;
mod rewriting;
mod seglet;
mod segment;
mod store;
mod sync;
mod table;
mod transfer;
mod write;
mod writeback;

#[cfg(all(test, not(loom_model)))]
mod tests;
mod weakened;

pub use crate::archived::{
    DamagedEntry, SegmentEntries, SegmentEntry, divide_segment, entry_hash, entry_key,
};
pub use crate::cache::Eviction;
pub use crate::commit::{RangeCheck, ReadCheck, Write};
pub use crate::completion::{CompletionReply, FoundCompletion, FoundCompletions, NewestRequests, RequestId};
pub use crate::cut::{AwaitedCuts, LogPosition};
pub use crate::durable::{Admission, Opened, Released, SIDE_WRITERS, SegmentPlace};
pub use crate::enumerate::{BadCursor, CURSOR_BYTES, Checked, Cursor, Gone, Listed, Page, PageLimits};
pub use crate::epoch::HeldPin;
pub use crate::error::{CommitError, Condition, StoreError, WriteError};
pub use crate::hash_range::HashRange;
pub use crate::limits::{
    CACHE_BUDGET_BYTES_MIN, COMMIT_OPERATIONS_MAX, FRAMES_PER_WINDOW, HASH_RANGE_WIDTH_MIN, KEY_BYTES_MAX,
    SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, VALUE_BYTES_MAX, VERIFY_CORRUPTED_PER_STEP, VERSION_MAX,
};
pub use crate::log::SEGMENT_HEADER_BYTES;
pub use crate::memory::{prefetch_lines, prefetch_value};
pub use crate::number_hash::{NumberHash, NumberHasher};
pub use crate::object::{NEVER_MS, OBJECT_HEADER_BYTES, Object, entry_bytes};
pub use crate::ordered::KeyRange;
pub use crate::ordered_table::NotOrdered;
pub use crate::progress::RewritingProgress;
pub use crate::quota::Quota;
pub use crate::read::Contended;
pub use crate::recovery::{LogOnDisk, Recovered, Recovery, RecoveryError, RecoveryHandle};
pub use crate::store::cleaning::CleanerStatistics;
pub use crate::store::core::{Core, Pinned};
pub use crate::store::{Config, Statistics, Store};
pub use crate::sync::{AtomicBox, Inbox, Taken};
pub use crate::table::{Table, TableKind, TableOptions};
pub use crate::transfer::{ReplayError, Replayed, within};

/// Returns the hash of a key (xxh3, 64 bits): its high bits choose the bucket, its low 16 bits are the tag.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}
