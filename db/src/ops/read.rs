//! Read-only operations: get and multi-get.
//!
//! Their results point into the store and stay valid under the pin; the caller copies them once, into the outgoing
//! frame. Prefetching takes two steps over a whole batch, first the buckets and then their objects, so that the misses
//! of many requests overlap. The caller has found the part of the table that holds the key.

use store::{Object, Pinned, Table};
use wire::{Keys, Status};

use crate::limits::CHUNK_REQUESTS;
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
