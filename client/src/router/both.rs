//! Reads that ask both servers of a migration: sending, replies, and clean-up.
//!
//! [`crate::both_sides`] decides which servers they ask and which reply counts.

use wire::{Completion, Journey, Request, opcode};
use xxhash_rust::xxh3::xxh3_64;

use super::gather::Outcome;
use super::server::Reach;
use super::{ROUTERS_TAGS, Router, Waiting};
use crate::SessionStatistics;
use crate::both_sides::{MOVES_MAX, Read, ReadSource, Side, Verdict};

/// Tag bit of such reads, absent in tags of maps and parts; below it the read's index, and the side in the lowest bit.
pub(super) const BOTH: u64 = 1 << 60;

/// The outstanding reads of both sides.
#[derive(Default)]
pub(super) struct Boths {
    reads: Vec<Option<Both>>,
    free: Vec<usize>,
    /// Reads that ask only the target from now on.
    pub(super) alone: Vec<Waiting>,
}

struct Both {
    tag: u64,
    journey: Journey,
    table: u32,
    body: Vec<u8>,
    read: Read,
}

impl Both {
    /// Returns the read as an ordinary get.
    fn alone(&mut self) -> Waiting {
        let journey = Journey { moves: self.journey.moves.max(MOVES_MAX), ..self.journey };
        let (code, body) = (opcode::GET, std::mem::take(&mut self.body));
        Waiting { tag: self.tag, journey, code, body, asked: 0, refusal: None }
    }
}

impl Router {
    /// Sends a get to both servers if useful; returns whether it did.
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
        match moving.source(now_us, hash, (target, journey.moves)) {
            ReadSource::Both => {}
            ReadSource::Alone => return false,
            ReadSource::AloneAndMap => {
                self.want(now_us, index, None);
                return false;
            }
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
        let mut ask = |server: usize, side: Side| {
            let state = self.servers[server].state.as_mut();
            state.is_some_and(|state| state.submit(journey, own_tag | side as u64, &now, statistics).is_ok())
        };
        if !ask(target, Side::Target) {
            self.boths.free.push(at);
            return false;
        }
        let read = Read::new(migration, hash, ask(source, Side::Source));
        let mut body = vec![0; request.body_bytes()];
        request.encode(&mut body);
        self.boths.reads[at] = Some(Both { tag, journey, table, body, read });
        true
    }

    /// Processes a server's reply to a read: completes the read if possible, and drops it when both have replied.
    pub(super) fn take_said(
        &mut self,
        now_us: u64,
        tag: u64,
        outcome: Outcome,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let tag = tag & !(ROUTERS_TAGS | BOTH);
        let (at, side) = ((tag >> 1) as usize, if tag & 1 == 0 { Side::Target } else { Side::Source });
        let Some(Some(Both { table, .. })) = self.boths.reads.get(at) else { return };
        let index = self.index_of(*table);
        let Router { boths, maps, .. } = self;
        let Some(Some(both)) = boths.reads.get_mut(at) else { return };
        let verdict = both.read.hear(now_us, side, outcome, &mut maps[index].moving);
        let tag = both.tag;
        if verdict == Verdict::Alone {
            boths.alone.push(both.alone());
        }
        if both.read.has_all() {
            boths.reads[at] = None;
            boths.free.push(at);
        }
        if let Verdict::Answer(outcome) = verdict {
            self.finish(tag, outcome, complete);
        }
    }

    /// Sends reads to the target alone if their source has taken too long.
    pub(super) fn hurry_boths(&mut self, now_us: u64) {
        let Router { boths, maps, source_patience_us, .. } = self;
        for both in boths.reads.iter_mut().flatten() {
            let map = maps.iter_mut().find(|map| map.table == both.table);
            if both.read.hurry((now_us, *source_patience_us), map.map_or(&mut [], |map| &mut map.moving[..]))
            {
                boths.alone.push(both.alone());
            }
        }
    }

    /// Returns whether reads of two servers are outstanding.
    pub(super) fn asks_both(&self) -> bool {
        self.boths.reads.len() > self.boths.free.len()
    }
}
