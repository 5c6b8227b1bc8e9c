//! Read-only operations: get and multi-get; scan of a range, enumeration and verification of a table in bounded steps.
//!
//! Their results point into the store and stay valid under the pin; the caller copies them once, into the outgoing
//! frame. Prefetching takes two steps over a whole batch, first the buckets and then their objects, so that the misses
//! of many requests overlap. The caller has found the part of the table that holds the key.
//!
//! The position after a step of a scan or an enumeration travels to the client and back as a sealed cursor; one of
//! another table or range is refused. Steps are reads: they are not recorded, and a repeated request repeats the step.
//!
//! An enumeration follows the order of the hashes, in a tagged table that of the tablets and in each that of the hashes.
//! A step ends at the end of a range that this server owns, and the
//! owner of the next hash makes the next step, wherever the tablet was when the cursor was made. In a part with arriving
//! objects, a step goes as far as the part has arrived without a gap. A scan follows the order of the keys, while
//! tablets are ranges of hashes: for a table with several tablets, a client requests the keys of each hash range
//! separately and merges the results. A step covers one part, so hashes in several parts are refused with the last hash
//! of the first part, and the client requests them one part at a time.

use std::ops::{ControlFlow, RangeInclusive};

use store::{Checked, Cursor, KeyRange, Listed, Object, Page, PageLimits, Pinned, Table};
use wire::limits::{ENUMERATE_OBJECTS_MAX, SCAN_SEAL_BYTES};
use wire::{Keys, Status};

use crate::limits::{CHUNK_REQUESTS, SCAN_KEYS_EXAMINED_MAX};
use crate::tablet::TableEntry;

/// Reads one object.
#[inline]
#[must_use]
pub fn get<'p>(pin: &'p Pinned<'_>, part: &Table, hash: u64, key: &[u8]) -> Option<Object<'p>> {
    pin.get(part, hash, key)
}

/// Reads one object of a part with arriving objects: `None` while it is unknown whether the object exists.
#[must_use]
pub fn get_arriving<'p>(
    pin: &'p Pinned<'_>,
    part: &Table,
    hash: u64,
    key: &[u8],
) -> Option<Option<Object<'p>>> {
    pin.get_if_known(part, hash, key)
}

/// Prefetches the table, before the first step if requests use many tables.
#[inline]
pub fn prefetch_table(entry: &TableEntry) {
    if let Some(part) = entry.parts.likely() {
        part.prefetch();
    }
}

/// Prefetches the head of a table's index; expects the table in the cache.
#[inline]
pub fn prefetch_index(pin: &Pinned<'_>, entry: &TableEntry) {
    if let Some(part) = entry.parts.likely() {
        pin.prefetch_index(part);
    }
}

/// First step: prefetches the bucket of a key.
#[inline]
pub fn prefetch_bucket(pin: &Pinned<'_>, part: &Table, hash: u64) {
    pin.prefetch_bucket(part, hash);
}

/// Second step: prefetches the object of a key, whose bucket should be in the cache by now.
#[inline]
pub fn prefetch_object(pin: &Pinned<'_>, part: &Table, hash: u64) {
    pin.prefetch_object(part, hash);
}

/// Returns the parts and hashes of keys whose objects may still be in transit.
#[must_use]
pub fn lacking<'t, 'k>(
    pin: &Pinned<'_>,
    entry: &'t TableEntry,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Vec<(&'t Table, u64)> {
    let place = |key| {
        let hash = store::hash(key);
        entry.parts.find(key, hash).filter(|part| !pin.knows(part, hash, key)).map(|part| (part, hash))
    };
    let mut places: Vec<_> = keys.filter_map(place).collect();
    places.sort_unstable_by_key(|&(part, hash)| (part.id(), hash));
    places.dedup_by_key(|&mut (part, hash)| (part.id(), hash));
    places
}

/// Reads many objects of one table into `found`, with one entry per key in their order; returns the sum of the value
/// bytes.
///
/// # Errors
/// [`Status::ReplyTooLarge`] as soon as the values exceed `value_bytes_max`; [`Status::NotOwned`] if another server
/// owns one of the keys; [`Status::Retry`] if one has not arrived.
pub fn get_many<'p>(
    pin: &'p Pinned<'_>,
    entry: &TableEntry,
    mut keys: Keys<'_>,
    value_bytes_max: usize,
    found: &mut [Option<Object<'p>>],
) -> Result<usize, Status> {
    let mut value_bytes = 0;
    let mut done = 0;
    while !keys.is_empty() {
        let mut chunk: [Option<(&Table, u64, &[u8])>; CHUNK_REQUESTS] = [None; CHUNK_REQUESTS];
        let mut filled = 0;
        for (place, key) in chunk.iter_mut().zip(keys.by_ref().take(CHUNK_REQUESTS)) {
            let hash = store::hash(key);
            let part = entry.parts.find(key, hash).ok_or(Status::NotOwned)?;
            prefetch_bucket(pin, part, hash);
            *place = Some((part, hash, key));
            filled += 1;
        }
        let chunk = &chunk[..filled];
        for &(part, hash, _) in chunk.iter().flatten() {
            prefetch_object(pin, part, hash);
        }
        for &(part, hash, key) in chunk.iter().flatten() {
            found[done] = match get(pin, part, hash, key) {
                None if part.is_arrival() => get_arriving(pin, part, hash, key).ok_or(Status::Retry)?,
                found => found,
            };
            value_bytes += found[done].as_ref().map_or(0, |object| object.value().len());
            done += 1;
        }
        if value_bytes > value_bytes_max {
            return Err(Status::ReplyTooLarge);
        }
    }
    Ok(value_bytes)
}

/// Maximum of the bytes of an encoded cursor. u64 each, little-endian: the first position of a tablet, if the table is
/// tagged; then hash and second hash, but not at the begin of such a tablet; then the seal.
pub const CURSOR_BYTES: usize = 32;

/// The buffer for the objects of a step.
pub type StepObjects<'p> = [Option<Listed<'p>>; ENUMERATE_OBJECTS_MAX];

/// An encoded cursor; empty at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct CursorBytes {
    bytes: [u8; CURSOR_BYTES],
    count: usize,
}

/// What a step of an enumeration goes through.
struct EnumerationStep<'t> {
    part: &'t Table,
    from: Cursor,
    /// The first position of the tablet, if the table is tagged.
    tablet: Option<u64>,
    /// The last hash up to which everything has arrived.
    arrived: u64,
    /// The last position.
    last: u64,
}

impl CursorBytes {
    /// Creates the cursor after a step.
    fn of(next: Option<Cursor>, step: &EnumerationStep<'_>, entry: &TableEntry) -> Self {
        let words = match (next.and_then(|cursor| cursor.hashes()), step.tablet) {
            (Some((hash, second)), None) => vec![hash, second],
            (Some((hash, second)), Some(tablet)) => vec![tablet, hash, second],
            (None, Some(tablet)) if step.arrived < u64::MAX => vec![tablet, step.arrived, u64::MAX],
            (None, _) if step.last == u64::MAX => return Self::default(),
            (None, None) => vec![step.last, u64::MAX],
            (None, Some(_)) => vec![step.last + 1],
        };
        let mut cursor = Self::default();
        let places: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for byte in places.iter().copied().chain(seal_of(&places, entry)) {
            cursor.bytes[cursor.count] = byte;
            cursor.count += 1;
        }
        cursor
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}

/// Returns the seal of a table's cursors. It is not a secret: a forged one only enumerates the client's own table from
/// another position.
fn seal_of(places: &[u8], entry: &TableEntry) -> [u8; 8] {
    store::hash(&[places, &entry.id.to_le_bytes()].concat()).to_le_bytes()
}

/// Returns what the step after a cursor goes through, if this server owns it.
fn step<'t>(entry: &'t TableEntry, cursor: &[u8]) -> Result<EnumerationStep<'t>, Status> {
    let (places, seal) = cursor.split_at(cursor.len().saturating_sub(size_of::<u64>()));
    if !cursor.is_empty() && seal != seal_of(places, entry) {
        return Err(Status::CursorInvalid);
    }
    let words = places.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>();
    if entry.parts.is_tagged() {
        let (position, from) = match words[..] {
            [] => (0, Cursor::START),
            [position] => (position, Cursor::START),
            [position, hash, second] => (position, Cursor::behind(hash, second)),
            _ => return Err(Status::CursorInvalid),
        };
        let (part, last) = entry.parts.piece(position).ok_or(Status::NotOwned)?;
        let tablet = Some(part.positions().first());
        let arrived = part.arrived_from(next_hash(from).unwrap_or(u64::MAX)).ok_or(Status::Retry)?;
        return Ok(EnumerationStep { part, from: from.until(arrived), tablet, arrived, last });
    }
    let from = match words[..] {
        [] => Cursor::START,
        [hash, second] => Cursor::behind(hash, second),
        _ => return Err(Status::CursorInvalid),
    };
    let next_hash = next_hash(from).ok_or(Status::CursorInvalid)?;
    let (part, last) = entry.parts.piece(next_hash).ok_or(Status::NotOwned)?;
    let arrived = part.arrived_from(next_hash).ok_or(Status::Retry)?;
    let last = arrived.min(last);
    Ok(EnumerationStep { part, from: from.until(last), tablet: None, arrived, last })
}

/// Returns the hash at which a cursor continues; `None` behind all.
fn next_hash(from: Cursor) -> Option<u64> {
    match from.hashes() {
        None => Some(0),
        Some((hash, u64::MAX)) => hash.checked_add(1),
        Some((hash, _)) => Some(hash),
    }
}

/// Fills the front of `found` with objects after the cursor.
///
/// # Errors
/// `CursorInvalid`; `NotOwned`; `Retry` if objects are in transit; `UnknownTable` for a table that is being removed.
pub fn enumerate<'p>(
    pin: &'p Pinned<'_>,
    entry: &TableEntry,
    cursor: &[u8],
    limits: PageLimits,
    found: &mut StepObjects<'p>,
) -> Result<(Page, CursorBytes), Status> {
    let step = step(entry, cursor)?;
    let page = pin.enumerate(step.part, step.from, limits, found).map_err(|_| Status::UnknownTable)?;
    Ok((page, CursorBytes::of(page.next, &step, entry)))
}

/// Checks objects after the cursor; collects the key hashes of corrupted ones.
///
/// # Errors
/// As [`enumerate`].
pub fn verify(
    pin: &Pinned<'_>,
    entry: &TableEntry,
    cursor: &[u8],
    corrupted: &mut Vec<u64>,
) -> Result<(Checked, CursorBytes), Status> {
    let step = step(entry, cursor)?;
    let checked = pin.verify(step.part, step.from, |hash| corrupted.push(hash));
    let checked = checked.map_err(|_| Status::UnknownTable)?;
    Ok((checked, CursorBytes::of(checked.next, &step, entry)))
}

/// The progress of a scan step.
#[derive(Clone, Copy, Debug)]
pub struct ScanStep<'p> {
    /// Objects found.
    pub count: usize,
    /// Bytes of their keys and of the requested parts of their values.
    pub bytes: usize,
    /// The key examined last, for the cursor after the seal; `None` at the end.
    pub last: Option<&'p [u8]>,
}

/// Returns the seal of a range's cursors.
#[must_use]
pub fn seal(entry: &TableEntry, range: &wire::KeyRange<'_>) -> [u8; SCAN_SEAL_BYTES] {
    range.seal(entry.id, store::hash)
}

/// The reason why a step was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScanRefusal {
    /// Refused with this status.
    For(Status),
    /// The hashes lie in several parts; the first part ends with this hash.
    SeveralParts(u64),
}

/// Fills the front of `found`, which has room for the maximum, with objects of the range after the cursor, in order.
///
/// # Errors
/// `CursorInvalid`; `NotOrdered`; `Retry` if objects are in transit; `NotOwned` if the request names hashes or the tag of
/// a tagged table, `SeveralTablets` otherwise; or several parts.
pub fn scan<'p>(
    pin: &'p Pinned<'_>,
    entry: &'p TableEntry,
    range: &wire::KeyRange<'_>,
    cursor: &[u8],
    limits: PageLimits,
    found: &mut [Option<Object<'p>>],
) -> Result<ScanStep<'p>, ScanRefusal> {
    let (part, positions) = part_of(entry, range)?;
    let wire::KeyRange { from, to, prefix, reverse, .. } = *range;
    let whole = KeyRange { from, to, prefix, after: None, reverse };
    let after = match cursor.split_first_chunk::<SCAN_SEAL_BYTES>() {
        None if cursor.is_empty() => None,
        Some((sealed, key)) if *sealed == seal(entry, range) && whole.contains(key) => Some(key),
        _ => return Err(ScanRefusal::For(Status::CursorInvalid)),
    };
    let (mut step, mut last, mut examined) = (ScanStep { count: 0, bytes: 0, last: None }, None, 0);
    let visit = |key: &'p [u8], hash, object: Option<Object<'p>>| {
        let is_full = step.count == limits.objects || step.bytes >= limits.bytes;
        if is_full || examined == SCAN_KEYS_EXAMINED_MAX {
            step.last = last;
            return ControlFlow::Break(());
        }
        examined += 1;
        last = Some(key);
        if let Some(object) = object.filter(|_| positions.contains(&entry.parts.position(key, hash))) {
            step.bytes += key.len() + if limits.keys_only { 0 } else { object.value().len() };
            found[step.count] = Some(object);
            step.count += 1;
        }
        ControlFlow::Continue(())
    };
    let range = KeyRange { after, ..whole };
    pin.scan(part, range, limits.objects, visit).map_err(|_| ScanRefusal::For(Status::NotOrdered))?;
    Ok(step)
}

/// Returns the part that holds all keys of a range, and their positions.
fn part_of<'e>(
    entry: &'e TableEntry,
    range: &wire::KeyRange<'_>,
) -> Result<(&'e Table, RangeInclusive<u64>), ScanRefusal> {
    let named = range.hashes.or_else(|| entry.parts.tagged_positions(range.prefix));
    let (first, last) = named.unwrap_or((0, u64::MAX));
    match entry.parts.piece(first) {
        Some((part, end)) if end >= last => {
            let is_there = part.is_complete()
                || !entry.parts.is_tagged()
                    && part.arrived_from(first).is_some_and(|arrived| arrived >= last);
            if is_there { Ok((part, first..=last)) } else { Err(ScanRefusal::For(Status::Retry)) }
        }
        Some((_, end)) if named.is_some() => Err(ScanRefusal::SeveralParts(end)),
        None if named.is_some() => Err(ScanRefusal::For(Status::NotOwned)),
        _ => Err(ScanRefusal::For(Status::SeveralTablets)),
    }
}
