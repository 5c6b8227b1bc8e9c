//! Reads that ask both servers between which their key is on the move, and take what holds.
//!
//! ```text
//!             ┌─▶ target   known ──────────────────────────────▶ that
//!   get ──────┤            not arrived ─┐  of one migration
//!             └─▶ source   frozen ──────┴──────────────────────▶ what was frozen
//!                          gone, silent, or says no more ──────▶ the target alone, by an ordinary get that waits
//! ```
//! What one says that owns the key holds by itself, whichever it is. What was frozen holds where the owner, at any time of
//! this read, has not been given anything newer, and nothing had arrived: both of the same migration. See "Reads of both
//! sides" in docs/formats.md.

use wire::reply::{Arrived, Frozen, Left};
use wire::{Completion, Journey, Request, Status, opcode};
use xxhash_rust::xxh3::xxh3_64;

use super::gather::Outcome;
use super::moving::Moving;
use super::server::Reach;
use super::{ROUTERS_TAGS, Router, Waiting};
use crate::SessionStatistics;

/// Set in tags of such reads, not in those of maps or parts; below stands the read, and which side in the lowest bit.
pub(super) const BOTH: u64 = 1 << 60;
const TARGET: usize = 0;
const SOURCE: usize = 1;
/// Requests that have come round so often go to one server alone.
const MOVES_MAX: u16 = 2;

/// Reads on their way.
#[derive(Default)]
pub(super) struct Boths {
    reads: Vec<Option<Both>>,
    free: Vec<usize>,
    /// Those that are to ask the target alone from now on.
    pub(super) alone: Vec<Waiting>,
}

/// See the file's head.
struct Both {
    tag: u64,
    journey: Journey,
    table: u32,
    hash: u64,
    body: Vec<u8>,
    migration: u32,
    /// What target and source have said.
    said: [Option<Said>; 2],
    /// When the target has said something.
    since_us: u64,
    /// The caller has an answer, or asks the target alone.
    is_over: bool,
}

/// What a server says.
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
            Status::Frozen => match Frozen::decode(&body) {
                Ok(Frozen { migration, left: Left::Object(_) }) => {
                    Said::Frozen(migration, Status::Ok, body[Frozen::HEAD_BYTES..].to_vec())
                }
                Ok(Frozen { migration, left: Left::Absent }) => {
                    Said::Frozen(migration, Status::NotFound, Vec::new())
                }
                Ok(Frozen { left: Left::Untold, .. }) => Said::Untold,
                Err(_) => Said::NotOwned,
            },
            // The session ended under it.
            Status::NotOwned | Status::BadToken => Said::NotOwned,
            status => Said::Other(Ok((status, body))),
        }
    }
}

/// What becomes of a read.
enum Verdict {
    /// It is answered so.
    Answer(Outcome),
    /// The target is to be asked alone.
    Alone,
    /// One has still to say something.
    Open,
}

impl Moving {
    /// Takes from an answer what it tells of the rest.
    fn learn(
        &mut self,
        (now_us, hash): (u64, u64),
        (is_target, said): (bool, &Said),
        arrived: Vec<(u64, u64)>,
    ) {
        if !arrived.is_empty() {
            self.note_arrived(arrived.into_iter());
        }
        match (is_target, said) {
            (true, Said::Known(..)) => self.note_known(hash),
            (false, Said::NotOwned) => self.end(),
            (false, Said::Untold | Said::Other(_)) => self.rest(now_us),
            _ => {}
        }
    }
}

impl Both {
    /// The same as an ordinary get.
    fn alone(&mut self) -> Waiting {
        let journey = Journey { moves: self.journey.moves.max(MOVES_MAX), ..self.journey };
        let (code, body) = (opcode::GET, std::mem::take(&mut self.body));
        Waiting { tag: self.tag, journey, code, body, asked: 0, refusal: None }
    }

    fn judge(&mut self) -> Verdict {
        for at in [TARGET, SOURCE] {
            if let Some(Said::Known(status, body)) = &mut self.said[at] {
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
}

impl Router {
    /// Sends a get to both servers, where that is of use: whether it did.
    pub(super) fn ask_both(
        &mut self,
        now_us: u64,
        (tag, journey): (u64, Journey),
        request: &Request<'_>,
        index: usize,
        statistics: &mut SessionStatistics,
    ) -> bool {
        let Request::Get { table, key } = *request else { return false };
        let (hash, map) = (xxh3_64(key), &mut self.maps[index]);
        let target = map.server_of(hash);
        let Some(moving) = map.moving.iter_mut().find(|moving| moving.has(hash)) else { return false };
        let (source, migration) = (moving.source, moving.migration);
        if moving.wants_map(now_us) {
            self.want(now_us, index, None);
            return false;
        }
        if journey.moves >= MOVES_MAX || source == target || !moving.is_open(now_us, hash) {
            return false;
        }
        if [target, source].map(|server| self.reach(now_us, server)) != [Reach::Open; 2] {
            return false;
        }
        let at = self.boths.free.pop().unwrap_or_else(|| {
            self.boths.reads.push(None);
            self.boths.reads.len() - 1
        });
        let own_tag = ROUTERS_TAGS | BOTH | (at as u64) << 1;
        let now = Request::GetNow { table, key };
        let mut ask = |server: usize, side: usize| {
            let exchange = self.servers[server].exchange.as_mut();
            exchange.is_some_and(|exchange| {
                exchange.submit(journey, own_tag | side as u64, &now, statistics).is_ok()
            })
        };
        if !ask(target, TARGET) {
            self.boths.free.push(at);
            return false;
        }
        let said = [None, (!ask(source, SOURCE)).then_some(Said::Untold)];
        let mut body = vec![0; request.body_bytes()];
        request.encode(&mut body);
        let (since_us, is_over) = (u64::MAX, false);
        self.boths.reads[at] =
            Some(Both { tag, journey, table, hash, body, migration, said, since_us, is_over });
        true
    }

    /// Takes what one of the servers has said to a read.
    pub(super) fn take_said(
        &mut self,
        now_us: u64,
        tag: u64,
        outcome: Outcome,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let tag = tag & !(ROUTERS_TAGS | BOTH);
        let (at, side) = ((tag >> 1) as usize, (tag & 1) as usize);
        let Some(Some(both)) = self.boths.reads.get_mut(at) else { return };
        let (table, hash, migration) = (both.table, both.hash, both.migration);
        let arrived = match &outcome {
            Ok((Status::Ok | Status::NotFound | Status::NotArrived, body)) if side == TARGET => {
                Arrived::split(body).ok().map(|(arrived, _)| arrived.ranges().collect::<Vec<_>>())
            }
            _ => None,
        };
        let said = Said::of(outcome.clone());
        let index = self.index_of(table);
        if let Some(moving) = self.maps[index].moving.iter_mut().find(|it| it.migration == migration) {
            moving.learn((now_us, hash), (side == TARGET, &said), arrived.unwrap_or_default());
        }
        let Some(Some(both)) = self.boths.reads.get_mut(at) else { return };
        if side == TARGET {
            both.since_us = now_us;
        }
        both.said[side] = Some(said);
        self.go_on(at, complete);
    }

    /// Answers a read if it can be, and forgets it when both have said something.
    fn go_on(&mut self, at: usize, complete: &mut impl FnMut(Completion<'_>)) {
        let Some(both) = self.boths.reads[at].as_mut() else { return };
        let has_all = both.said.iter().all(Option::is_some);
        let verdict = if both.is_over { Verdict::Open } else { both.judge() };
        both.is_over |= !matches!(verdict, Verdict::Open);
        let tag = both.tag;
        if let Verdict::Alone = verdict {
            let waiting = both.alone();
            self.boths.alone.push(waiting);
        }
        if has_all {
            self.boths.reads[at] = None;
            self.boths.free.push(at);
        }
        if let Verdict::Answer(outcome) = verdict {
            self.finish(tag, outcome, complete);
        }
    }

    /// Lets reads ask the target alone for which the source has taken too long.
    pub(super) fn hurry_boths(&mut self, now_us: u64) {
        let Router { boths, maps, source_patience_us, .. } = self;
        for both in boths.reads.iter_mut().flatten() {
            let is_late = both.since_us.saturating_add(*source_patience_us) <= now_us;
            if is_late && !both.is_over {
                both.is_over = true;
                boths.alone.push(both.alone());
                let moving = maps.iter_mut().flat_map(|map| &mut map.moving);
                moving.filter(|it| it.migration == both.migration).for_each(|it| it.rest(now_us));
            }
        }
    }

    /// Whether reads are on their way to two servers.
    pub(super) fn asks_both(&self) -> bool {
        self.boths.reads.len() > self.boths.free.len()
    }
}
