//! Reads that ask both servers of a migration, and the choice between the two replies.
//!
//! ```text
//!             ┌─▶ target   known ──────────────────────────────▶ that
//!   get ──────┤            not arrived ─┐  of one migration
//!             └─▶ source   frozen ──────┴──────────────────────▶ what was frozen
//!                          gone, silent, or has no more ───────▶ the target alone, by an ordinary get that waits
//! ```
//! The reply of the key's owner decides alone, whichever server that is. A frozen object decides if the owner, at any
//! time of this read, had received nothing newer and the object had not arrived; both replies must concern the same
//! migration. See "Reads of both sides" in docs/formats.md.
//!
//! The target reports the arrived hashes as ranges. For some hashes outside them, which were written at the target or
//! pulled early, the client remembers that the target has them. None of this has to be right: a read that asks too
//! few servers waits, one that asks too many costs bytes. This file has no I/O and no clock: sessions use it for
//! routing, and so do the clients of simulated clusters.

use wire::reply::{Arrived, Left, StaleRead};
use wire::{CompletionError, Status};

/// Number of attempts after which a request goes to one server only.
pub const MOVES_MAX: u8 = 2;
/// Number of remembered hashes that the target knows. A power of two.
const KNOWN_HASHES: usize = 2_048;
/// Time for which a source that tells nothing, or has not replied, is not asked.
const QUIET_US: u64 = 20_000;
/// Interval between requests for a new map once the migration seems over.
const OVER_US: u64 = 100_000;

/// The outcome of a request.
pub type Outcome = Result<(Status, Vec<u8>), CompletionError>;

/// One of the two servers of a migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The server that owns the key from now on.
    Target,
    /// The server that owned it.
    Source,
}

/// The decision about a read.
#[derive(PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The read has this answer.
    Answer(Outcome),
    /// The read must ask only the target.
    Alone,
    /// A reply is missing, or the read has been answered.
    Open,
}

/// A decoded reply.
#[derive(Debug)]
enum Said {
    /// The owner knows the object: status and body of a get.
    Known(Status, Vec<u8>),
    /// The owner lacks the object, because of this migration.
    NotArrived(u32),
    /// The object as this migration found it.
    Frozen(u32, Status, Vec<u8>),
    /// The server reports nothing more.
    Untold,
    /// The server does not own the key.
    NotOwned,
    /// Any other outcome.
    Other(Outcome),
}

/// The servers that a read asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadSource {
    /// Only the owner.
    Alone,
    /// Only the owner. The client also needs a new map, which should no longer list this migration.
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
    /// Some hashes that the target has. Each is at its position modulo the size; 0 for none.
    known: Box<[u64]>,
    quiet_until_us: u64,
    /// The source has nothing more to tell. The next map will omit this migration.
    is_over: bool,
    /// Time of the next request for that map.
    map_due_us: u64,
}

impl Said {
    fn of(outcome: Outcome) -> Said {
        let (status, body) = match outcome {
            Ok(answer) => answer,
            failure => return Said::Other(failure),
        };
        let behind = || Arrived::split(&body).map(|(_, rest)| rest.to_vec());
        match status {
            Status::Ok | Status::NotFound => {
                behind().map_or(Said::NotOwned, |rest| Said::Known(status, rest))
            }
            Status::NotArrived => match behind().map(<[u8; 4]>::try_from) {
                Ok(Ok(migration)) => Said::NotArrived(u32::from_le_bytes(migration)),
                _ => Said::NotOwned,
            },
            Status::Frozen => match StaleRead::decode(&body) {
                Ok(StaleRead { migration, left: Left::Object(_) }) => {
                    Said::Frozen(migration, Status::Ok, body[StaleRead::HEAD_BYTES..].to_vec())
                }
                Ok(StaleRead { migration, left: Left::Absent }) => {
                    Said::Frozen(migration, Status::NotFound, Vec::new())
                }
                Ok(StaleRead { left: Left::Untold, .. }) => Said::Untold,
                Err(_) => Said::NotOwned,
            },
            // The session ended during the request.
            Status::NotOwned | Status::BadToken => Said::NotOwned,
            status => Said::Other(Ok((status, body))),
        }
    }
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

    /// Returns the servers to ask for a hash. `owner` is its server by the map, `moves` the number of attempts so far.
    pub fn source(&mut self, now_us: u64, hash: u64, (owner, moves): (usize, u8)) -> ReadSource {
        if self.wants_map(now_us) {
            return ReadSource::AloneAndMap;
        }
        let asks_both = moves < MOVES_MAX && self.source != owner && self.is_open(now_us, hash);
        if asks_both { ReadSource::Both } else { ReadSource::Alone }
    }

    /// Returns whether both servers are to be asked for a hash.
    fn is_open(&self, now_us: u64, hash: u64) -> bool {
        let has_arrived = || self.arrived.iter().any(|&(first, last)| (first..=last).contains(&hash));
        !self.is_over && now_us >= self.quiet_until_us && !self.knows(hash) && !has_arrived()
    }

    fn knows(&self, hash: u64) -> bool {
        !self.known.is_empty() && hash != 0 && self.known[hash as usize % KNOWN_HASHES] == hash
    }

    /// Notes that the target knows a hash.
    fn note_known(&mut self, hash: u64) {
        if self.known.is_empty() {
            self.known = vec![0; KNOWN_HASHES].into();
        }
        self.known[hash as usize % KNOWN_HASHES] = hash;
    }

    /// Notes the hashes that have arrived, as the target reported them.
    fn note_arrived(&mut self, ranges: impl Iterator<Item = (u64, u64)>) {
        let within = |(first, last): (u64, u64)| (first.max(self.first), last.min(self.last));
        self.arrived = ranges.map(within).filter(|(first, last)| first <= last).collect();
        let width = |&(first, last): &(u64, u64)| u128::from(last - first) + 1;
        let arrived: u128 = self.arrived.iter().map(width).sum();
        self.is_over |= arrived >= width(&(self.first, self.last));
    }

    /// Stops asking the source for a while.
    fn rest(&mut self, now_us: u64) {
        self.quiet_until_us = now_us + QUIET_US;
    }

    /// Returns whether to request a map now, without this migration.
    fn wants_map(&mut self, now_us: u64) -> bool {
        let is_due = self.is_over && now_us >= self.map_due_us;
        if is_due {
            self.map_due_us = now_us + OVER_US;
        }
        is_due
    }

    /// Updates the state of the migration from a reply.
    fn learn(&mut self, (now_us, hash): (u64, u64), (side, said): (Side, &Said), arrived: &[(u64, u64)]) {
        if !arrived.is_empty() {
            self.note_arrived(arrived.iter().copied());
        }
        match (side, said) {
            (Side::Target, Said::Known(..)) => self.note_known(hash),
            (Side::Source, Said::NotOwned) => self.is_over = true,
            (Side::Source, Said::Untold | Said::Other(_)) => self.rest(now_us),
            _ => {}
        }
    }
}

/// Replaces the migrations by those of a new map. Keeps the state of those that continue.
pub fn follow(known: &mut Vec<Moving>, now: impl Iterator<Item = Moving>) {
    let mut before = std::mem::take(known);
    known.extend(now.map(|it| {
        let same = before.iter().position(|other| other.migration == it.migration);
        same.map(|at| before.swap_remove(at)).unwrap_or(it)
    }));
}

/// An outstanding read at both servers.
#[derive(Debug)]
pub struct Read {
    migration: u32,
    hash: u64,
    /// Replies of target and source.
    said: [Option<Said>; 2],
    /// Time of the target's reply.
    since_us: u64,
    /// The caller has an answer, or asks only the target.
    is_over: bool,
}

impl Read {
    /// Begins a read of a hash that this migration moves. `asks_source`: false if it could not be sent
    /// to the source.
    #[must_use]
    pub fn new(migration: u32, hash: u64, asks_source: bool) -> Read {
        let said = [None, (!asks_source).then_some(Said::Untold)];
        Read { migration, hash, said, since_us: u64::MAX, is_over: false }
    }

    /// Processes a server's reply, and updates the known migration from it.
    pub fn hear(&mut self, now_us: u64, side: Side, outcome: Outcome, known: &mut [Moving]) -> Verdict {
        let arrived = match &outcome {
            Ok((Status::Ok | Status::NotFound | Status::NotArrived, body)) if side == Side::Target => {
                Arrived::split(body).map(|(arrived, _)| arrived.ranges().collect()).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let said = Said::of(outcome);
        if let Some(moving) = known.iter_mut().find(|it| it.migration == self.migration) {
            moving.learn((now_us, self.hash), (side, &said), &arrived);
        }
        if side == Side::Target {
            self.since_us = now_us;
        }
        self.said[side as usize] = Some(said);
        let verdict = if self.is_over { Verdict::Open } else { self.judge() };
        self.is_over |= verdict != Verdict::Open;
        verdict
    }

    fn judge(&mut self) -> Verdict {
        for said in &mut self.said {
            if let Some(Said::Known(status, body)) = said {
                return Verdict::Answer(Ok((*status, std::mem::take(body))));
            }
        }
        let [target, source] = &mut self.said;
        match (target, source) {
            (Some(Said::NotArrived(one)), Some(Said::Frozen(other, status, body)))
            | (Some(Said::Frozen(other, status, body)), Some(Said::NotArrived(one)))
                if one == other =>
            {
                Verdict::Answer(Ok((*status, std::mem::take(body))))
            }
            // The target's own error decides, or its failure to reply.
            (Some(Said::Other(outcome)), _) => Verdict::Answer(outcome.clone()),
            (Some(_), Some(_)) => Verdict::Alone,
            _ => Verdict::Open,
        }
    }

    /// Returns whether the source is later than this after the target's reply. Then the target is to be asked alone,
    /// and the source is not asked for a while.
    pub fn hurry(&mut self, (now_us, patience_us): (u64, u64), known: &mut [Moving]) -> bool {
        let is_late = !self.is_over && self.since_us.saturating_add(patience_us) <= now_us;
        if is_late {
            self.is_over = true;
            known.iter_mut().filter(|it| it.migration == self.migration).for_each(|it| it.rest(now_us));
        }
        is_late
    }

    /// Returns whether both servers have replied.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.said.iter().all(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use wire::reply::{Left, Object, StaleRead};
    use wire::{CompletionError, Status};

    use super::{Moving, Outcome, QUIET_US, Read, Side, Verdict};

    /// Returns the reply of a target that has not received the key of a migration.
    fn not_arrived(migration: u8) -> Outcome {
        Ok((Status::NotArrived, vec![0, migration, 0, 0, 0]))
    }

    fn frozen(migration: u32, left: Left<'_>) -> Outcome {
        let frozen = StaleRead { migration, left };
        let mut body = vec![0; frozen.body_bytes()];
        frozen.encode(&mut body);
        Ok((Status::Frozen, body))
    }

    fn verdicts(first: (Side, Outcome), second: (Side, Outcome)) -> [Verdict; 2] {
        let mut read = Read::new(7, 100, true);
        [first, second].map(|(side, outcome)| read.hear(1, side, outcome, &mut []))
    }

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

    #[test]
    fn what_the_target_knows_holds_whatever_was_frozen() {
        let object = Object { version: 3, ttl_ms: None, value: b"old" };
        let known = || (Side::Target, Ok((Status::NotFound, vec![0])));
        let old = || (Side::Source, frozen(7, Left::Object(object)));
        let answer = || Verdict::Answer(Ok((Status::NotFound, Vec::new())));
        assert_eq!(verdicts(known(), old()), [answer(), Verdict::Open]);
        assert_eq!(verdicts(old(), known()), [Verdict::Open, answer()]);
    }

    #[test]
    fn what_was_frozen_holds_where_the_target_has_nothing_by_the_same_migration() {
        let absent = |migration| (Side::Source, frozen(migration, Left::Absent));
        let answer = Verdict::Answer(Ok((Status::NotFound, Vec::new())));
        assert_eq!(verdicts((Side::Target, not_arrived(7)), absent(7)), [Verdict::Open, answer]);
        assert_eq!(verdicts((Side::Target, not_arrived(8)), absent(7)), [Verdict::Open, Verdict::Alone]);
    }

    #[test]
    fn the_target_is_asked_alone_where_the_source_says_nothing_more_or_nothing_in_time() {
        let untold = (Side::Source, frozen(7, Left::Untold));
        assert_eq!(verdicts((Side::Target, not_arrived(7)), untold), [Verdict::Open, Verdict::Alone]);
        let (mut read, mut known) = (Read::new(7, 100, true), [Moving::new(7, (0, 199), 0)]);
        assert_eq!(read.hear(1, Side::Target, not_arrived(7), &mut known), Verdict::Open);
        assert!(!read.hurry((5, 5), &mut known) && known[0].is_open(5, 100));
        assert!(read.hurry((6, 5), &mut known) && !read.has_all());
        assert!(!known[0].is_open(6, 100));
        // A later reply only updates the known state of the migration.
        let late = read.hear(9, Side::Source, Ok((Status::NotOwned, Vec::new())), &mut known);
        assert!(late == Verdict::Open && read.has_all());
    }

    #[test]
    fn a_target_that_fails_ends_the_read() {
        let lost = || (Side::Target, Err(CompletionError::TimedOut));
        let answer = Verdict::Answer(Err(CompletionError::TimedOut));
        assert_eq!(verdicts(lost(), (Side::Source, frozen(7, Left::Absent))), [answer, Verdict::Open]);
    }
}
