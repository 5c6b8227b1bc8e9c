//! The client's knowledge of a migration: which reads may ask both servers.
//!
//! The target reports the arrived hashes as ranges. For some hashes outside them, which were written at the target or
//! pulled early, the client remembers that the target knows them. None of this has to be right: a read that asks too
//! few servers waits, one that asks too many costs bytes.

use super::MOVES_MAX;

/// Number of remembered hashes that the target knows. A power of two.
const KNOWN_HASHES: usize = 2_048;
/// Time without asking the source after it has declined to tell more, or has not replied.
const QUIET_US: u64 = 20_000;
/// Interval between requests for a new map once the migration seems over.
const OVER_US: u64 = 100_000;

/// The servers that a read asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadSource {
    /// Only the owner.
    Alone,
    /// Only the owner; and a new map is needed, which should no longer list this migration.
    AloneAndMap,
    /// Both servers.
    Both,
}

/// A migration, and what the client knows of its progress.
#[derive(Debug)]
pub struct Moving {
    /// Number of the migration.
    pub migration: u32,
    first: u64,
    last: u64,
    /// The server that the hashes come from.
    pub source: usize,
    /// Hashes that have arrived at the target, as ranges.
    arrived: Vec<(u64, u64)>,
    /// Some hashes that the target knows, each at its position modulo the size; 0 for none.
    known: Box<[u64]>,
    quiet_until_us: u64,
    /// The source has nothing more to tell; the next map will omit this migration.
    is_over: bool,
    /// Time of the next request for that map.
    map_due_us: u64,
}

impl Moving {
    /// Returns a migration of which nothing has arrived.
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

    /// Returns whether the migration moves this hash.
    #[must_use]
    pub fn has(&self, hash: u64) -> bool {
        (self.first..=self.last).contains(&hash)
    }

    /// Returns the servers to ask for a hash; `owner` is its server by the map, `moves` the number of attempts so far.
    pub fn source(&mut self, now_us: u64, hash: u64, (owner, moves): (usize, u16)) -> ReadSource {
        if self.wants_map(now_us) {
            return ReadSource::AloneAndMap;
        }
        let asks_both = moves < MOVES_MAX && self.source != owner && self.is_open(now_us, hash);
        if asks_both { ReadSource::Both } else { ReadSource::Alone }
    }

    /// Returns whether both servers are to be asked for a hash.
    pub(super) fn is_open(&self, now_us: u64, hash: u64) -> bool {
        let has_arrived = || self.arrived.iter().any(|&(first, last)| (first..=last).contains(&hash));
        !self.is_over && now_us >= self.quiet_until_us && !self.knows(hash) && !has_arrived()
    }

    fn knows(&self, hash: u64) -> bool {
        !self.known.is_empty() && hash != 0 && self.known[hash as usize % KNOWN_HASHES] == hash
    }

    /// Notes that the target knows a hash.
    pub(super) fn note_known(&mut self, hash: u64) {
        if self.known.is_empty() {
            self.known = vec![0; KNOWN_HASHES].into();
        }
        self.known[hash as usize % KNOWN_HASHES] = hash;
    }

    /// Notes the hashes that have arrived, as the target reported them.
    pub(super) fn note_arrived(&mut self, ranges: impl Iterator<Item = (u64, u64)>) {
        let within = |(first, last): (u64, u64)| (first.max(self.first), last.min(self.last));
        self.arrived = ranges.map(within).filter(|(first, last)| first <= last).collect();
        let width = |&(first, last): &(u64, u64)| u128::from(last - first) + 1;
        let arrived: u128 = self.arrived.iter().map(width).sum();
        self.is_over |= arrived >= width(&(self.first, self.last));
    }

    /// Notes that the source has nothing left of the migration.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// Stops asking the source for a while.
    pub(super) fn rest(&mut self, now_us: u64) {
        self.quiet_until_us = now_us + QUIET_US;
    }

    /// Returns whether to request a map now, because it should no longer list the migration.
    fn wants_map(&mut self, now_us: u64) -> bool {
        let is_due = self.is_over && now_us >= self.map_due_us;
        if is_due {
            self.map_due_us = now_us + OVER_US;
        }
        is_due
    }
}

/// Replaces the migrations by those of a new map; keeps the knowledge of those that continue.
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
