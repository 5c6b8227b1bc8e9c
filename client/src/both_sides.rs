//! A read that asks both servers of a migration: the requests and the verdict.
//!
//! ```text
//!             ┌─▶ target   known ──────────────────────────────▶ that
//!   get ──────┤            not arrived ─┐  of one migration
//!             └─▶ source   frozen ──────┴──────────────────────▶ what was frozen
//!                          gone, silent, or says no more ──────▶ the target alone, by an ordinary get that waits
//! ```
//! The reply of the key's owner decides alone, whichever server that is. A frozen object decides if the owner, at any
//! time of this read, had received nothing newer and the object had not arrived; both replies must concern the same
//! migration. See "Reads of both sides" in docs/formats.md. This file has no I/O and no clock: sessions use it for
//! routing, and so do the clients of simulated clusters.

mod moving;

use wire::reply::{Arrived, Left, StaleRead};
use wire::{CompletionError, Status};

pub use self::moving::{Moving, ReadSource, follow};

/// Number of attempts after which a request goes to one server only.
pub const MOVES_MAX: u16 = 2;

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
    /// Updates the state of the migration from a reply.
    fn learn(&mut self, (now_us, hash): (u64, u64), (side, said): (Side, &Said), arrived: &[(u64, u64)]) {
        if !arrived.is_empty() {
            self.note_arrived(arrived.iter().copied());
        }
        match (side, said) {
            (Side::Target, Said::Known(..)) => self.note_known(hash),
            (Side::Source, Said::NotOwned) => self.end(),
            (Side::Source, Said::Untold | Said::Other(_)) => self.rest(now_us),
            _ => {}
        }
    }
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
    /// Begins a read of a key with this hash, which this migration moves. `asks_source`: false if it could not be sent
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

    use super::{Moving, Outcome, Read, Side, Verdict};

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
