//! Where a client of the simulated cluster makes its requests: at the server that its map names, and where that has hashes on the
//! move for reads of both sides at the other one too. Whom such reads ask, and what holds of the answers, is decided by the
//! client library (`client/src/both_sides.rs`).

use std::collections::BTreeMap;
use std::ops::AddAssign;

use client::both_sides::{self, Moving, Read, ReadSource, Side, Verdict};
use fastrand::Rng;
use tests::history::Action;
use tests::serializability::Fate;
use wire::{CompletionError, Keys, Request, Status, TabletMap};

use super::answers::to_wire;
use super::{Caller, Link, MAP_TAG, Stage, Wish};

/// Set in tags of reads of both sides, but those of maps; below stands the attempt, and which side in the lowest bit.
pub const BOTH: u64 = 1 << 62;

/// What became of reads of both sides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    pub both: u64,
    /// Answered with what was frozen.
    pub frozen: u64,
    /// Answered by an owner.
    pub known: u64,
    /// Made again at the target alone.
    pub alone: u64,
}

impl AddAssign for Reads {
    fn add_assign(&mut self, other: Reads) {
        self.both += other.both;
        self.frozen += other.frozen;
        self.known += other.known;
        self.alone += other.alone;
    }
}

/// What a client knows of hashes on the move, and its reads of both sides.
#[derive(Default)]
pub struct Sides {
    known: Vec<Moving>,
    /// By attempt, until both have said something.
    reads: BTreeMap<u64, Read>,
    pub counts: Reads,
    /// Of this operation: it is made at one server.
    is_alone: bool,
    /// Of this operation: how often it was refused.
    moves: u8,
    /// Wants a session for nothing but the answer of the source.
    opens_source: bool,
    /// For how long the source is waited for.
    pub patience_us: u64,
    /// On purpose: what was frozen is believed, whatever the target says.
    pub is_credulous: bool,
    /// The map is to be asked for again.
    pub is_stale: bool,
}

impl Sides {
    pub fn new(patience_us: u64) -> Sides {
        Sides { patience_us, ..Sides::default() }
    }

    /// Begins an operation.
    pub fn begin(&mut self) {
        (self.is_alone, self.moves, self.opens_source) = (false, 0, false);
    }

    /// The operation was refused.
    pub fn move_on(&mut self) {
        self.moves = self.moves.saturating_add(1);
    }

    /// No session was to be had: whether the operation can do without it.
    pub fn can_do_without(&mut self) -> bool {
        self.is_alone |= self.opens_source;
        std::mem::take(&mut self.opens_source)
    }

    pub fn follow(&mut self, map: &TabletMap) {
        let moving = map.moving().iter().map(|it| {
            let source = map.servers()[usize::from(it.source)].number;
            Moving::new(it.migration, (it.first, it.last), source as usize)
        });
        both_sides::follow(&mut self.known, moving);
    }
}

impl Caller {
    /// Takes what one server has said to a read of both sides.
    pub fn take_said(
        &mut self,
        now_us: u64,
        tag: u64,
        (status, body): (Result<Status, CompletionError>, Vec<u8>),
        wishes: &mut Vec<Wish>,
    ) {
        let (attempt, side) = ((tag & !BOTH) >> 1, if tag & 1 == 0 { Side::Target } else { Side::Source });
        let Sides { known, reads, counts, is_credulous, .. } = &mut self.sides;
        let Some(read) = reads.get_mut(&attempt) else { return };
        let was_frozen = matches!(status, Ok(Status::Frozen | Status::NotArrived));
        let migration = body.get(..4).map(|number| [&[0], number].concat());
        let mut verdict = read.hear(now_us, side, status.map(|status| (status, body)), known);
        if let (true, Ok(Status::Frozen), Some(body), Verdict::Open) =
            (*is_credulous, status, migration, &verdict)
        {
            verdict = read.hear(now_us, Side::Target, Ok((Status::NotArrived, body)), known);
        }
        if read.has_all() {
            reads.remove(&attempt);
        }
        if attempt != self.attempt || !matches!(self.stage, Stage::Asked) {
            return;
        }
        match verdict {
            Verdict::Open => {}
            Verdict::Alone => self.ask_alone(),
            Verdict::Answer(answer) => {
                *(if was_frozen { &mut counts.frozen } else { &mut counts.known }) += 1;
                let (status, body) = match answer {
                    Ok((status, body)) => (Ok(status), body),
                    Err(error) => (Err(error), Vec::new()),
                };
                self.answered(now_us, status, &body, wishes);
            }
        }
    }

    fn ask_alone(&mut self) {
        self.sides.counts.alone += 1;
        self.sides.is_alone = true;
        self.stage = Stage::Lost;
    }

    /// Lets a read ask the target alone for which the source has taken too long.
    pub fn hurry(&mut self, now_us: u64, wishes: &mut Vec<Wish>) {
        let Sides { known, reads, patience_us, .. } = &mut self.sides;
        let mut late = Vec::new();
        for (&attempt, read) in reads.iter_mut() {
            late.extend(read.hurry((now_us, *patience_us), known).then_some(attempt));
        }
        if matches!(self.stage, Stage::Asked) && reads.contains_key(&self.attempt) {
            if late.contains(&self.attempt) {
                self.ask_alone();
            } else {
                wishes.push(Wish::Wake(now_us + 1_000));
            }
        }
    }

    /// Finds the server, and asks it.
    pub fn route(&mut self, now_us: u64, random: &mut Rng, wishes: &mut Vec<Wish>) {
        let Some((_, key)) = self.operation.clone() else { return };
        if now_us >= self.due_us {
            return self.give_up(now_us, wishes);
        }
        // What was asked there was given up.
        self.links.retain(|_, link| !link.is_broken);
        if self.sides.is_stale && random.u8(0..4) > 0 {
            (self.map, self.sides.is_stale) = (None, false);
        }
        let Some(map) = &self.map else { return self.ask_for_map(now_us, random, wishes) };
        let server_of = |key: &[u8]| map.servers()[map.server_of(store::hash(key))].number;
        let server = server_of(&key);
        if self.is_committing() && self.beside.iter().any(|(_, key)| server_of(key) != server) {
            return self.end_transaction(now_us, Fate::Aborted, wishes);
        }
        self.beside.retain(|(_, key)| server_of(key) == server);
        if !self.links.contains_key(&server) {
            self.stage = Stage::Opening;
            return wishes.push(Wish::Open(server));
        }
        self.attempt += 1;
        let asked = match self.ask_transaction(now_us, server) {
            Some(asked) => asked,
            None => self.ask_both(now_us, server, &key, wishes) || self.ask(now_us, server, &key),
        };
        if !matches!(self.stage, Stage::Opening) {
            self.stage = if asked { Stage::Asked } else { Stage::Resting(now_us + 10_000) };
        }
    }

    fn ask_for_map(&mut self, now_us: u64, random: &mut Rng, wishes: &mut Vec<Wish>) {
        let servers: Vec<u32> = self.links.keys().copied().collect();
        let Some(&server) = random.choice(&servers) else {
            self.stage = Stage::Opening;
            return wishes.push(Wish::Open(u32::MAX));
        };
        let link = self.links.get_mut(&server).expect("it is there");
        self.stage = match link.requester.submit(now_us, MAP_TAG, &Request::Tablets { table: self.table }) {
            Ok(_) => Stage::Asking(server),
            Err(_) => Stage::Resting(now_us + 10_000),
        };
    }

    /// Sends a get to both servers, where that is of use: whether it did, or waits for a session to do it.
    fn ask_both(&mut self, now_us: u64, server: u32, key: &[u8], wishes: &mut Vec<Wish>) -> bool {
        let is_get = self.operation.as_ref().is_some_and(|(operation, _)| operation.action == Action::Get);
        let (hash, sides) = (store::hash(key), &mut self.sides);
        if !is_get || !self.beside.is_empty() || sides.is_alone {
            return false;
        }
        let Some(moving) = sides.known.iter_mut().find(|moving| moving.has(hash)) else { return false };
        let (source, migration) = (moving.source as u32, moving.migration);
        match moving.source(now_us, hash, (server as usize, sides.moves)) {
            ReadSource::Both => {}
            ReadSource::Alone => return false,
            ReadSource::AloneAndMap => {
                sides.is_stale = true;
                return false;
            }
        }
        if !self.links.contains_key(&source) {
            sides.opens_source = true;
            self.stage = Stage::Opening;
            wishes.push(Wish::Open(source));
            return true;
        }
        let (table, tag) = (self.table, BOTH | self.attempt << 1);
        let mut ask = |server: u32, side: Side| {
            let Link { requester, .. } = self.links.get_mut(&server).expect("it is there");
            requester.submit(now_us, tag | side as u64, &Request::GetNow { table, key }).is_ok()
        };
        if !ask(server, Side::Target) {
            return false;
        }
        sides.reads.insert(self.attempt, Read::new(migration, hash, ask(source, Side::Source)));
        sides.counts.both += 1;
        true
    }

    /// Makes the request at a server: whether that has room for it.
    fn ask(&mut self, now_us: u64, server: u32, key: &[u8]) -> bool {
        let (operation, _) = self.operation.as_ref().expect("there is one");
        let keys: Vec<&[u8]> = [key].into_iter().chain(self.beside.iter().map(|it| &it.1[..])).collect();
        let (number, table) =
            (if let Action::Put(value, _) = operation.action { value } else { 0 }, self.table);
        let value = &number.to_le_bytes()[..];
        let request = match operation.action {
            Action::Get if keys.len() > 1 => Request::MultiGet { table, keys: Keys::from_slices(&keys) },
            Action::Get => Request::Get { table, key },
            Action::Put(_, condition) => {
                let condition = to_wire(condition);
                match self.ttl_ms {
                    Some(ttl_ms) => Request::PutFor { table, key, value, condition, ttl_ms },
                    None => Request::Put { table, key, value, condition },
                }
            }
            Action::Delete(condition) => Request::Delete { table, key, condition: to_wire(condition) },
            Action::Add(delta) => Request::Increment { table, key, delta },
            Action::Lose | Action::Expire(_) => unreachable!("no client asks for that"),
        };
        let link = self.links.get_mut(&server).expect("it is there");
        link.requester.submit(now_us, self.attempt, &request).is_ok()
    }
}
