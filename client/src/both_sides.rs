//! A read that asks both servers between which its key is on the move: whom to ask, and what holds of what they say.
//!
//! ```text
//!             ┌─▶ target   known ──────────────────────────────▶ that
//!   get ──────┤            not arrived ─┐  of one migration
//!             └─▶ source   frozen ──────┴──────────────────────▶ what was frozen
//!                          gone, silent, or says no more ──────▶ the target alone, by an ordinary get that waits
//! ```
//! What one says that owns the key holds by itself, whichever it is. What was frozen holds where the owner, at any time of
//! this read, has not been given anything newer, and nothing had arrived: both of the same migration. See "Reads of both
//! sides" in docs/formats.md. There is no I/O here and no clock: sessions route by it, and so do the clients of simulated
//! clusters.

mod moving;

use wire::reply::{Arrived, Left, StaleRead};
use wire::{CompletionError, Status};

pub use self::moving::{Moving, ReadSource, follow};

/// Requests that have come round so often go to one server alone.
pub const MOVES_MAX: u16 = 2;

/// What a request came to.
pub type Outcome = Result<(Status, Vec<u8>), CompletionError>;

/// Which of the two servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that has the key from now on.
    Target,
    /// The one that had it.
    Source,
}

/// What becomes of a read.
#[derive(PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is answered so.
    Answer(Outcome),
    /// The target is to be asked alone.
    Alone,
    /// One has still to say something, or it has been answered.
    Open,
}

/// What a server says.
#[derive(Debug)]
enum Said {
    /// What an owner knows: the status of a get, and its body.
    Known(Status, Vec<u8>),
    /// An owner does not know, because of this migration.
    NotArrived(u32),
    /// What it was when this migration took it.
    Frozen(u32, Status, Vec<u8>),
    /// It tells nothing more.
    Untold,
    /// It is not its own.
    NotOwned,
    /// Anything else.
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
            // The session ended under it.
            Status::NotOwned | Status::BadToken => Said::NotOwned,
            status => Said::Other(Ok((status, body))),
        }
    }
}

impl Moving {
    /// Takes from an answer what it tells of the rest.
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

/// A read on its way to both.
#[derive(Debug)]
pub struct Read {
    migration: u32,
    hash: u64,
    /// What target and source have said.
    said: [Option<Said>; 2],
    /// When the target has said something.
    since_us: u64,
    /// The caller has an answer, or asks the target alone.
    is_over: bool,
}

impl Read {
    /// Of a key with this hash, which this migration moves. `asks_source`: false where it could not be sent there.
    #[must_use]
    pub fn new(migration: u32, hash: u64, asks_source: bool) -> Read {
        let said = [None, (!asks_source).then_some(Said::Untold)];
        Read { migration, hash, said, since_us: u64::MAX, is_over: false }
    }

    /// Takes what one of them has said, and notes what it tells of the migration among those that are known.
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
            // Nobody knows more of it than the target: an error of its own, or none at all.
            (Some(Said::Other(outcome)), _) => Verdict::Answer(outcome.clone()),
            (Some(_), Some(_)) => Verdict::Alone,
            _ => Verdict::Open,
        }
    }

    /// Whether the source has taken longer than that since the target has said something: then that is to be asked alone, and the
    /// source is left alone for a while.
    pub fn hurry(&mut self, (now_us, patience_us): (u64, u64), known: &mut [Moving]) -> bool {
        let is_late = !self.is_over && self.since_us.saturating_add(patience_us) <= now_us;
        if is_late {
            self.is_over = true;
            known.iter_mut().filter(|it| it.migration == self.migration).for_each(|it| it.rest(now_us));
        }
        is_late
    }

    /// Whether both have said something: there is nothing more to hear.
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

    /// What a target says that knows nothing of the key, by a migration.
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
        // What comes later changes nothing but what is known.
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
