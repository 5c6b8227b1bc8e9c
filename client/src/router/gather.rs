//! Requests that ask several servers: in parts, whose replies make one, or both servers of a migration.
//!
//! ```text
//!   multi-get   keys by their servers            values back in the order of the keys
//!   scan        hashes by their servers          objects by their keys, up to where every server has come
//!   get         both servers of a migration      the reply that counts
//! ```
//! A part is an ordinary request: it may be refused, redirected, or gathered itself. If one part fails, the request
//! fails. [`crate::both_sides`] decides which servers a get asks and which reply counts.

use wire::limits::{ENUMERATE_OBJECTS_MAX, MULTI_GET_KEYS_MAX, SCAN_SEAL_BYTES};
use wire::reply::{Entry, Listed, Listing, Objects, Scanned};
use wire::{Completion, Journey, KeyRange, Keys, Request, Status};
use xxhash_rust::xxh3::xxh3_64;

use super::maps::TableMap;
use super::server::Reach;
use super::{ROUTERS_TAGS, Router, Waiting};
use crate::both_sides::{MOVES_MAX, Outcome, Read, ReadSource, Side, Verdict};
use crate::owned_request::OwnedRequest;
use crate::session_state::SessionStatistics;

/// Tag bit of parts; tags of map requests lack it.
pub(super) const PART: u64 = 1 << 61;
/// Position of the gather's index in such a tag. The bits below hold the part.
const PART_BITS: u32 = 16;
/// Tag bit of reads of both sides. Tags of maps and parts lack it. Below it are the read's index and, in the lowest
/// bit, the side.
pub(super) const BOTH: u64 = 1 << 60;
/// Objects requested beyond a server's share, because hashes are distributed unevenly.
const OBJECTS_BESIDES: usize = 8;
/// Bytes requested beyond the share.
const BYTES_BESIDES: usize = 1_024;

/// A request whose parts are outstanding.
pub(super) struct Gather {
    request: OwnedRequest,
    parts: Vec<Part>,
    left: usize,
    failure: Option<Outcome>,
}

struct Part {
    /// For a multi-get: the indices of its keys, in order.
    keys: Vec<u16>,
    answer: Vec<u8>,
}

/// The outstanding reads of both sides.
#[derive(Default)]
pub(super) struct Boths {
    reads: Vec<Option<Both>>,
    free: Vec<usize>,
    /// Reads that ask only the target from now on.
    pub(super) alone: Vec<Waiting>,
}

struct Both {
    request: OwnedRequest,
    table: u32,
    read: Read,
}

impl Both {
    /// Returns the read as an ordinary get.
    fn alone(&mut self) -> Waiting {
        let OwnedRequest { tag, journey, code, ref mut body } = self.request;
        let journey = Journey { moves: journey.moves.max(MOVES_MAX), ..journey };
        let request = OwnedRequest { tag, journey, code, body: std::mem::take(body) };
        Waiting { request, asked: 0, refusal: None }
    }
}

impl Gather {
    /// Splits a request into parts by a map. The tag of a part is its index.
    pub(super) fn begin(
        (tag, journey): (u64, Journey),
        request: &Request<'_>,
        map: &TableMap,
    ) -> (Gather, Vec<OwnedRequest>) {
        let (mut parts, mut requests) = (Vec::new(), Vec::new());
        let mut add = |keys, request: Request<'_>| {
            let journey = Journey { moves: 0, ..journey };
            requests.push(OwnedRequest::new(parts.len() as u64, journey, &request));
            parts.push(Part { keys, answer: Vec::new() });
        };
        match *request {
            Request::MultiGet { table, keys } => {
                for (_, indices) in by_server(keys, map) {
                    let all: Vec<&[u8]> = keys.collect();
                    let own: Vec<&[u8]> = indices.iter().map(|&index| all[usize::from(index)]).collect();
                    add(indices, Request::MultiGet { table, keys: Keys::from_slices(&own) });
                }
            }
            Request::Scan { table, range, cursor, keys_only, objects_max, bytes_max } => {
                let (first, last) = range.hashes.unwrap_or((0, u64::MAX));
                let pieces = map.pieces(first, last);
                let share = |all: usize, besides: usize| all.min(all * 5 / (4 * pieces.len()) + besides);
                let objects_max = share(objects_max.into(), OBJECTS_BESIDES) as u16;
                let bytes_max = share(bytes_max as usize, BYTES_BESIDES) as u32;
                for (hashes, _) in &pieces {
                    let range = KeyRange { hashes: Some(*hashes), ..range };
                    let scan = Request::Scan { table, range, cursor, keys_only, objects_max, bytes_max };
                    add(Vec::new(), scan);
                }
            }
            _ => unreachable!("no other request goes in parts"),
        }
        let left = parts.len();
        let request = OwnedRequest::new(tag, journey, request);
        (Gather { request, parts, left, failure: None }, requests)
    }

    /// Stores the reply to a part. Returns whether it was the last one.
    pub(super) fn take(&mut self, part: usize, outcome: Outcome) -> bool {
        self.left -= 1;
        match outcome {
            Ok((Status::Ok, answer)) => self.parts[part].answer = answer,
            failure => {
                self.failure.get_or_insert(failure);
            }
        }
        self.left == 0
    }

    /// Assembles the reply from all parts.
    pub(super) fn outcome(self) -> Outcome {
        if let Some(failure) = self.failure {
            return failure;
        }
        let combined = match self.request.decode() {
            Ok(Request::MultiGet { keys, .. }) => join(keys.len(), &self.parts),
            Ok(Request::Scan { table, range, keys_only: _, objects_max, bytes_max, .. }) => {
                merge(table, &range, (objects_max.into(), bytes_max as usize), &self.parts)
            }
            _ => None,
        };
        // The replies are invalid: a server uses another encoding.
        Ok(combined.map_or((Status::Internal, Vec::new()), |body| (Status::Ok, body)))
    }
}

impl Router {
    /// Queues the parts of a request for their servers.
    pub(super) fn send_parts(&mut self, gather: Gather, parts: Vec<OwnedRequest>) {
        let free = self.gathers.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.gathers.push(None);
            self.gathers.len() - 1
        });
        self.gathers[index] = Some(gather);
        for mut request in parts {
            request.tag |= ROUTERS_TAGS | PART | (index as u64) << PART_BITS;
            self.wait(Waiting { request, asked: 0, refusal: None });
        }
    }

    /// Processes the outcome of a part. Completes its request after the last one.
    pub(super) fn take_part(
        &mut self,
        tag: u64,
        outcome: Outcome,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let tag = tag & !(ROUTERS_TAGS | PART);
        let (index, part) = ((tag >> PART_BITS) as usize, tag as usize & ((1 << PART_BITS) - 1));
        let Some(Some(gather)) = self.gathers.get_mut(index) else { return };
        if gather.take(part, outcome)
            && let Some(gather) = self.gathers[index].take()
        {
            self.finish(gather.request.tag, gather.outcome(), complete);
        }
    }

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
        let target = map.server_of(map.position(key));
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
        let request = OwnedRequest::new(tag, journey, request);
        self.boths.reads[at] = Some(Both { request, table, read });
        true
    }

    /// Processes a server's reply to a read. Completes the read if possible, and drops it when both have replied.
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
        let tag = both.request.tag;
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

    /// Sends reads to the target alone if their source is late.
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

/// Groups the indices of keys by server.
fn by_server(keys: Keys<'_>, map: &TableMap) -> Vec<(usize, Vec<u16>)> {
    let mut all: Vec<(usize, Vec<u16>)> = Vec::new();
    for (index, key) in (0..MULTI_GET_KEYS_MAX as u16).zip(keys) {
        let server = map.server_of(map.position(key));
        match all.iter_mut().find(|(other, _)| *other == server) {
            Some((_, indices)) => indices.push(index),
            None => all.push((server, vec![index])),
        }
    }
    all
}

/// Assembles the reply to a multi-get, in the order of the keys.
fn join(count: usize, parts: &[Part]) -> Option<Vec<u8>> {
    let mut entries: Vec<Option<Entry<'_>>> = vec![None; count];
    for part in parts {
        let objects = Objects::decode(&part.answer).ok()?;
        if objects.len() != part.keys.len() {
            return None;
        }
        for (&index, entry) in part.keys.iter().zip(objects) {
            entries[usize::from(index)] = Some(entry);
        }
    }
    let value_bytes = entries.iter().flatten().map(|entry| entry.value.len()).sum();
    let mut body = vec![0; Objects::body_bytes(count, value_bytes)];
    let mut rest = Objects::encode_count(&mut body, count);
    for entry in entries {
        rest = Objects::encode_entry(rest, &entry?)?;
    }
    Some(body)
}

/// Assembles the reply to a scan. It ends where the first part ends.
fn merge(
    table: u32,
    range: &KeyRange<'_>,
    (objects_max, bytes_max): (usize, usize),
    parts: &[Part],
) -> Option<Vec<u8>> {
    let listings: Vec<Listing<'_>> =
        parts.iter().map(|part| Scanned::decode(&part.answer).ok()).collect::<Option<_>>()?;
    let is_before = |one: &[u8], other: &[u8]| if range.reverse { one > other } else { one < other };
    let mut end: Option<&[u8]> = None;
    for cursor in listings.iter().filter_map(Listing::cursor) {
        let (_, last) = cursor.split_first_chunk::<SCAN_SEAL_BYTES>()?;
        if end.is_none_or(|end| is_before(last, end)) {
            end = Some(last);
        }
    }
    let mut objects: Vec<Listed<'_>> = listings.into_iter().flatten().collect();
    objects.retain(|listed| end.is_none_or(|end| !is_before(end, listed.key)));
    objects.sort_unstable_by(
        |one, other| {
            if range.reverse { other.key.cmp(one.key) } else { one.key.cmp(other.key) }
        },
    );
    let (mut count, mut bytes) = (0, 0);
    for listed in &objects {
        let is_full = count == objects_max.min(ENUMERATE_OBJECTS_MAX) || bytes >= bytes_max;
        if is_full {
            break;
        }
        count += 1;
        bytes += listed.key.len() + listed.value.len();
    }
    if count < objects.len() {
        end = objects[..count].last().map(|listed| listed.key);
    }
    let objects_bytes = objects[..count].iter().map(Listed::bytes).sum();
    let seal = range.seal(table, xxh3_64);
    let cursor = end.map_or([&[][..], &[]], |last| [&seal[..], last]);
    let mut body = vec![0; Scanned::body_bytes(cursor[0].len() + cursor[1].len(), objects_bytes)];
    Scanned::encode(&mut body, cursor, count, objects[..count].iter().copied());
    Some(body)
}
