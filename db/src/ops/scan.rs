//! A scan of an ordered table, a bounded step at a time.
//!
//! Where a step ended travels to the client and back as a cursor: the key that was looked at last, behind a seal of
//! table and range. What does not fit them is refused. Steps are reads: they are not remembered.
//!
//! Tablets are ranges of hashes, not of keys: of a table that is cut a client asks for the keys of each range of hashes by
//! itself, and puts together what comes. A step goes through one part, so what lies in several is refused, with the last
//! hash of the first one; the client asks for them one by one.

use std::ops::{ControlFlow, RangeInclusive};

use store::{KeyRange, Object, PageLimits, Pinned, Table};
use wire::Status;
use wire::limits::SCAN_SEAL_BYTES;

use crate::limits::SCAN_KEYS_EXAMINED_MAX;
use crate::tablet::TableEntry;

/// How far a step came.
#[derive(Clone, Copy, Debug)]
pub struct ScanStep<'p> {
    /// Objects found.
    pub count: usize,
    /// Bytes of their keys and of what is wanted of their values.
    pub bytes: usize,
    /// Behind the seal, the key that was looked at last; `None` at the end.
    pub last: Option<&'p [u8]>,
}

/// The seal of cursors of a range.
#[must_use]
pub fn seal(entry: &TableEntry, range: &wire::KeyRange<'_>) -> [u8; SCAN_SEAL_BYTES] {
    range.seal(entry.id, store::hash)
}

/// Why there is no step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScanRefusal {
    /// For this reason.
    For(Status),
    /// The hashes lie in several parts, the first of which ends with this one.
    SeveralParts(u64),
}

/// Fills the front of `found`, which has room for as many as there may be, with objects of the range behind the cursor,
/// in order.
///
/// # Errors
/// `CursorInvalid`, `NotOrdered`; `Retry` where objects have still to arrive; `NotOwned` where hashes are named, `SeveralTablets` where not; or several parts.
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

/// The part that has all keys of a range, and their hashes.
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
