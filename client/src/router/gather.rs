//! Requests that go to several servers in parts, and the assembly of one reply.
//!
//! ```text
//!   multi-get   keys by their servers            values back in the order of the keys
//!   scan        hashes by their servers          objects by their keys, up to where every server has come
//! ```
//! A part is an ordinary request: it may be refused, redirected, or gathered itself. If one part fails, the request
//! fails.

use wire::limits::{ENUMERATE_OBJECTS_MAX, MULTI_GET_KEYS_MAX, SCAN_SEAL_BYTES};
use wire::reply::{Entry, Listed, Listing, Objects, Scanned};
use wire::{CompletionError, Journey, KeyRange, Keys, Request, Status};
use xxhash_rust::xxh3::xxh3_64;

use super::maps::TableMap;

/// Objects requested of a server beyond its share, because hashes are distributed unevenly.
const OBJECTS_BESIDES: usize = 8;
/// Bytes requested beyond the share.
const BYTES_BESIDES: usize = 1_024;

/// A request whose parts are outstanding.
pub(super) struct Gather {
    pub(super) tag: u64,
    pub(super) journey: Journey,
    /// The original request.
    code: u8,
    body: Vec<u8>,
    parts: Vec<Part>,
    left: usize,
    failure: Option<Result<(Status, Vec<u8>), CompletionError>>,
}

struct Part {
    /// For a multi-get: the indices of its keys, in order.
    keys: Vec<u16>,
    answer: Vec<u8>,
}

/// A part, encoded as a request.
pub(super) struct PartRequest {
    pub(super) code: u8,
    pub(super) body: Vec<u8>,
}

pub(super) use crate::both_sides::Outcome;

impl Gather {
    /// Splits a request into parts by a map.
    pub(super) fn begin(
        (tag, journey): (u64, Journey),
        request: &Request<'_>,
        map: &TableMap,
    ) -> (Gather, Vec<PartRequest>) {
        let mut body = vec![0; request.body_bytes()];
        request.encode(&mut body);
        let (mut parts, mut requests) = (Vec::new(), Vec::new());
        let mut add = |keys, request: Request<'_>| {
            let mut body = vec![0; request.body_bytes()];
            request.encode(&mut body);
            parts.push(Part { keys, answer: Vec::new() });
            requests.push(PartRequest { code: request.opcode(), body });
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
        (Gather { tag, journey, code: request.opcode(), body, parts, left, failure: None }, requests)
    }

    /// Stores the reply to a part; returns whether it was the last one.
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
        let combined = match Request::decode(self.code, &self.body) {
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

/// Groups the indices of keys by server.
fn by_server(keys: Keys<'_>, map: &TableMap) -> Vec<(usize, Vec<u16>)> {
    let mut all: Vec<(usize, Vec<u16>)> = Vec::new();
    for (index, key) in (0..MULTI_GET_KEYS_MAX as u16).zip(keys) {
        let server = map.server_of(xxh3_64(key));
        match all.iter_mut().find(|(other, _)| *other == server) {
            Some((_, indices)) => indices.push(index),
            None => all.push((server, vec![index])),
        }
    }
    all
}

/// Assembles the reply to a multi-get, with the objects in the order of the keys.
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

/// Assembles the reply to a scan: the objects of all parts up to the end of the part that got least far.
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
