//! The versions that a table gives: above all that its keys have had, and those of keys that are gone.

use super::Table;
use crate::sync::{AtomicU64, Ordering};

impl Table {
    /// Returns the version for a new key; called by the owner of its bucket.
    #[inline]
    pub(crate) fn version_of_new(&self) -> u64 {
        self.version_high_water.load(Ordering::Acquire) + 1
    }

    /// Returns the version of an object that replaces one of this version.
    #[inline]
    pub(crate) fn version_behind(&self, version: u64) -> u64 {
        version.max(self.version_floor.load(Ordering::Relaxed)) + 1
    }

    /// Makes all later writes get versions above `version`; call it while there are no writers.
    ///
    /// For a table whose tablet is or was on another server, so that versions identify the objects written here
    /// since.
    pub fn begin_above(&self, version: u64) {
        raise(&self.version_high_water, version);
        self.version_floor.fetch_max(version, Ordering::Relaxed);
    }

    /// Counts a version that a key got by a write of `core`.
    #[inline]
    pub(crate) fn count_version(&self, core: usize, version: u64) {
        let newest = &self.shards[core].newest_version;
        if newest.load(Ordering::Relaxed) < version {
            newest.store(version, Ordering::Relaxed);
        }
    }

    /// Returns the highest version of any object so far, when no write is under way.
    pub fn newest_version(&self) -> u64 {
        let written = self.shards.iter().map(|shard| shard.newest_version.load(Ordering::Relaxed)).max();
        written.unwrap_or(0).max(self.version_high_water.load(Ordering::Acquire))
    }

    /// Takes in that a key ended with this version: no new key gets it or a lower one.
    #[inline]
    pub(crate) fn remember_end(&self, version: u64) {
        raise(&self.version_high_water, version);
        raise(&self.ended_high_water, version);
    }

    /// Returns the version for an object that comes back with this one, and whose key is absent: a higher one if an entry of
    /// the log may end it. Called by the owner of its bucket.
    pub(crate) fn version_of_restored(&self, version: u64) -> u64 {
        let may_have_ended = version <= self.ended_high_water.load(Ordering::Acquire);
        if may_have_ended { self.version_of_new() } else { version }
    }
}

#[inline]
fn raise(high_water: &AtomicU64, version: u64) {
    if high_water.load(Ordering::Relaxed) < version {
        high_water.fetch_max(version, Ordering::AcqRel);
    }
}
