//! Hashes on the move between two servers, as far as a client knows: of which of them a read may ask both.
//!
//! What has arrived the target tells in ranges; what is known there beside, since it was written there or was pulled ahead, is
//! remembered for some hashes. Nothing of this has to be right: who asks too few waits, who asks too many costs bytes.

use super::MOVES_MAX;

/// Hashes that are remembered to be known at the target. A power of two.
const KNOWN_HASHES: usize = 2_048;
/// The source is not asked for so long after it has said that it tells nothing more, or has not said anything.
const QUIET_US: u64 = 20_000;
/// After that time it is asked again where hashes are that have all arrived.
const OVER_US: u64 = 100_000;

/// Whom a read asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadSource {
    /// Its owner alone.
    Alone,
    /// Its owner alone, and there is to be a map that does not have this migration any more.
    AloneAndMap,
    /// Both.
    Both,
}

/// See the file's head.
#[derive(Debug)]
pub struct Moving {
    /// Its number.
    pub migration: u32,
    first: u64,
    last: u64,
    /// The server that they come from.
    pub source: usize,
    /// What has arrived at the target, in ranges.
    arrived: Vec<(u64, u64)>,
    /// Some hashes that are known at the target, each at its place; 0 for nothing.
    known: Box<[u64]>,
    quiet_until_us: u64,
    /// Nothing is to be asked of the source any more; the next map will say so.
    is_over: bool,
    /// When the map is to be asked for that says so.
    map_due_us: u64,
}

impl Moving {
    /// One of which nothing has arrived.
    #[must_use]
    pub fn new(migration: u32, (first, last): (u64, u64), source: usize) -> Moving {
        Moving {
            migration,
            first,
            last,
            source,
            arrived: Vec::new(),
            known: Box::default(),
            quiet_until_us: 0,
            is_over: false,
            map_due_us: 0,
        }
    }

    /// Whether it moves a hash.
    #[must_use]
    pub fn has(&self, hash: u64) -> bool {
        (self.first..=self.last).contains(&hash)
    }

    /// Whom to ask for a hash which is that server's by the map, in a request that has come round so often.
    pub fn way(&mut self, now_us: u64, hash: u64, (owner, moves): (usize, u16)) -> ReadSource {
        if self.wants_map(now_us) {
            return ReadSource::AloneAndMap;
        }
        let asks_both = moves < MOVES_MAX && self.source != owner && self.is_open(now_us, hash);
        if asks_both { ReadSource::Both } else { ReadSource::Alone }
    }

    /// Whether both servers are to be asked for a hash.
    pub(super) fn is_open(&self, now_us: u64, hash: u64) -> bool {
        let has_arrived = || self.arrived.iter().any(|&(first, last)| (first..=last).contains(&hash));
        !self.is_over && now_us >= self.quiet_until_us && !self.knows(hash) && !has_arrived()
    }

    fn knows(&self, hash: u64) -> bool {
        !self.known.is_empty() && hash != 0 && self.known[hash as usize % KNOWN_HASHES] == hash
    }

    /// The target knows a hash.
    pub(super) fn note_known(&mut self, hash: u64) {
        if self.known.is_empty() {
            self.known = vec![0; KNOWN_HASHES].into();
        }
        self.known[hash as usize % KNOWN_HASHES] = hash;
    }

    /// The target has told what has arrived.
    pub(super) fn note_arrived(&mut self, ranges: impl Iterator<Item = (u64, u64)>) {
        let within = |(first, last): (u64, u64)| (first.max(self.first), last.min(self.last));
        self.arrived = ranges.map(within).filter(|(first, last)| first <= last).collect();
        let width = |&(first, last): &(u64, u64)| u128::from(last - first) + 1;
        let arrived: u128 = self.arrived.iter().map(width).sum();
        self.is_over |= arrived >= width(&(self.first, self.last));
    }

    /// The source has nothing of it any more.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// The source is left alone for a while.
    pub(super) fn rest(&mut self, now_us: u64) {
        self.quiet_until_us = now_us + QUIET_US;
    }

    /// Whether the map is to be asked for, since it should not have it any more.
    fn wants_map(&mut self, now_us: u64) -> bool {
        let is_due = self.is_over && now_us >= self.map_due_us;
        if is_due {
            self.map_due_us = now_us + OVER_US;
        }
        is_due
    }
}

/// Takes over what a map says is on the move; what is known of a migration that goes on is kept.
pub fn follow(known: &mut Vec<Moving>, now: impl Iterator<Item = Moving>) {
    let mut before = std::mem::take(known);
    known.extend(now.map(|it| {
        let same = before.iter().position(|other| other.migration == it.migration);
        same.map(|at| before.swap_remove(at)).unwrap_or(it)
    }));
}

#[cfg(test)]
mod tests {
    use super::{Moving, QUIET_US};

    #[test]
    fn both_are_asked_for_what_may_not_have_arrived() {
        let mut moving = Moving::new(1, (100, 199), 0);
        let open = |moving: &Moving| [100, 150, 199].map(|hash| moving.is_open(0, hash));
        assert_eq!(open(&moving), [true; 3]);
        moving.note_known(150);
        moving.note_arrived([(0, 119), (190, 195)].into_iter());
        assert_eq!(open(&moving), [false, false, true]);
        assert!(!moving.wants_map(0));
        moving.rest(0);
        assert_eq!([0, QUIET_US].map(|now_us| moving.is_open(now_us, 199)), [false, true]);
        moving.note_arrived([(0, 159), (160, u64::MAX)].into_iter());
        assert_eq!(open(&moving), [false; 3]);
        assert_eq!([0, 0].map(|now_us| moving.wants_map(now_us)), [true, false]);
    }
}
