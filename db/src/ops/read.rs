//! Read-only operations: get and multi-get; scan of a range, enumeration and verification of a table in bounded steps.
//!
//! Their results point into the store and stay valid under the pin; the caller copies them once, into the outgoing
//! frame. Prefetching takes two steps over a whole batch, first the buckets and then their objects, so that the misses
//! of many requests overlap. The caller has found the part of the table that holds the key.
//!
//! The position after a step of a scan or an enumeration travels to the client and back as a sealed cursor; one of
//! another table or range is refused. Steps are reads: they are not recorded, and a repeated request repeats the step.
//!
//! An enumeration follows the order of the hashes. A step ends at the end of a range that this server owns, and the
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
    // In this order: what is known then is found.
    pin.knows(part, hash, key).then(|| pin.get(part, hash, key))
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
        entry.parts.find(hash).filter(|part| !pin.knows(part, hash, key)).map(|part| (part, hash))
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
            let part = entry.parts.find(hash).ok_or(Status::NotOwned)?;
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

/// Bytes of an encoded cursor: hash, second hash, seal; u64 each, little-endian.
pub const CURSOR_BYTES: usize = 24;

/// The buffer for the objects of a step.
pub type StepObjects<'p> = [Option<Listed<'p>>; ENUMERATE_OBJECTS_MAX];

/// An encoded cursor; empty at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct CursorBytes {
    bytes: [u8; CURSOR_BYTES],
    is_end: bool,
}

impl CursorBytes {
    /// Creates the cursor after a step through a range that ends with the hash `last`.
    fn of(next: Option<Cursor>, last: u64, entry: &TableEntry) -> Self {
        let (hash, second) = match next.and_then(|cursor| cursor.hashes()) {
            Some(hashes) => hashes,
            None if last == u64::MAX => return Self { bytes: [0; CURSOR_BYTES], is_end: true },
            None => (last, u64::MAX),
        };
        let mut bytes = [0; CURSOR_BYTES];
        bytes[..8].copy_from_slice(&hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&second.to_le_bytes());
        let seal = seal_of(&bytes[..16], entry);
        bytes[16..].copy_from_slice(&seal);
        Self { bytes, is_end: false }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        if self.is_end { &[] } else { &self.bytes }
    }
}

/// Returns the seal of a table's cursors. It is not a secret: a forged one only enumerates the client's own table from
/// another position.
fn seal_of(place: &[u8], entry: &TableEntry) -> [u8; 8] {
    let mut sealed = [0; 20];
    sealed[..16].copy_from_slice(place);
    sealed[16..].copy_from_slice(&entry.id.to_le_bytes());
    store::hash(&sealed).to_le_bytes()
}

/// Returns the range of a step if this server owns it: its part, the cursor, and the range's last hash.
fn piece<'t>(entry: &'t TableEntry, cursor: &[u8]) -> Result<(&'t Table, Cursor, u64), Status> {
    let from = match <&[u8; CURSOR_BYTES]>::try_from(cursor) {
        Err(_) if cursor.is_empty() => Cursor::START,
        Ok(bytes) if bytes[16..] == seal_of(&bytes[..16], entry) => {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
            Cursor::behind(word(0), word(8))
        }
        _ => return Err(Status::CursorInvalid),
    };
    let next_hash = match from.hashes() {
        None => 0,
        Some((hash, u64::MAX)) => hash.checked_add(1).ok_or(Status::CursorInvalid)?,
        Some((hash, _)) => hash,
    };
    let (part, last) = entry.parts.piece(next_hash).ok_or(Status::NotOwned)?;
    let last = part.arrived_from(next_hash).ok_or(Status::Retry)?.min(last);
    Ok((part, from.until(last), last))
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
    let (part, from, last) = piece(entry, cursor)?;
    let page = pin.enumerate(part, from, limits, found).map_err(|_| Status::UnknownTable)?;
    Ok((page, CursorBytes::of(page.next, last, entry)))
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
    let (part, from, last) = piece(entry, cursor)?;
    let checked = pin.verify(part, from, |hash| corrupted.push(hash));
    let checked = checked.map_err(|_| Status::UnknownTable)?;
    Ok((checked, CursorBytes::of(checked.next, last, entry)))
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
/// `CursorInvalid`; `NotOrdered`; `Retry` if objects are in transit; `NotOwned` if the request names hashes,
/// `SeveralTablets` otherwise; or several parts.
pub fn scan<'p>(
    pin: &'p Pinned<'_>,
    entry: &'p TableEntry,
    range: &wire::KeyRange<'_>,
    cursor: &[u8],
    limits: PageLimits,
    found: &mut [Option<Object<'p>>],
) -> Result<ScanStep<'p>, ScanRefusal> {
    let (part, hashes) = part_of(entry, range)?;
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
        if let Some(object) = object.filter(|_| hashes.contains(&hash)) {
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

/// Returns the part that holds all keys of a range, and their hashes.
fn part_of<'e>(
    entry: &'e TableEntry,
    range: &wire::KeyRange<'_>,
) -> Result<(&'e Table, RangeInclusive<u64>), ScanRefusal> {
    let (first, last) = range.hashes.unwrap_or((0, u64::MAX));
    match entry.parts.piece(first) {
        Some((part, end)) if end >= last => match part.arrived_from(first) {
            Some(arrived) if arrived >= last => Ok((part, first..=last)),
            _ => Err(ScanRefusal::For(Status::Retry)),
        },
        Some((_, end)) if range.hashes.is_some() => Err(ScanRefusal::SeveralParts(end)),
        None if range.hashes.is_some() => Err(ScanRefusal::For(Status::NotOwned)),
        _ => Err(ScanRefusal::For(Status::SeveralTablets)),
    }
}
