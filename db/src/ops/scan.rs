//! A scan of an ordered table, in bounded steps.
//!
//! The position after a step travels to the client and back as a cursor: the key examined last, after a seal of table
//! and range. A cursor with another seal is refused. Steps are reads: they are not recorded.
//!
//! Tablets are ranges of hashes, not of keys: for a table with several tablets, a client requests the keys of each hash
//! range separately and merges the results. A step covers one part, so hashes in several parts are refused with the
//! last hash of the first part, and the client requests them one part at a time.

use std::ops::{ControlFlow, RangeInclusive};

use store::{KeyRange, Object, PageLimits, Pinned, Table};
use wire::Status;
use wire::limits::SCAN_SEAL_BYTES;

use crate::limits::SCAN_KEYS_EXAMINED_MAX;
use crate::tablet::TableEntry;

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
