//! A scan of an ordered table, a bounded step at a time.
//!
//! Where a step ended travels to the client and back as a cursor: the key that was looked at last, behind a seal of
//! table and range. What does not fit them is refused. Steps are reads: they are not remembered. A table of which this
//! server does not have all, in one part, is refused: its tablets are ranges of hashes, not of keys.

use std::ops::ControlFlow;

use store::{KeyRange, Object, PageLimits, Pinned};
use wire::Status;

use crate::limits::SCAN_KEYS_EXAMINED_MAX;
use crate::tablet::TableEntry;

/// How far a step came.
#[derive(Clone, Copy, Debug)]
pub struct Step<'p> {
    /// Objects found.
    pub count: usize,
    /// Bytes of their keys and of what is wanted of their values.
    pub bytes: usize,
    /// Behind the seal, the key that was looked at last; `None` at the end.
    pub last: Option<&'p [u8]>,
}

/// What binds a cursor to its table and range.
pub const SEAL_BYTES: usize = 8;

/// The seal of cursors of a range.
#[must_use]
pub fn seal(entry: &TableEntry, range: &wire::KeyRange<'_>) -> [u8; SEAL_BYTES] {
    let flags = u64::from(range.reverse) | u64::from(range.to.is_some()) << 1 | u64::from(entry.id) << 32;
    let bounds = [range.from, range.to.unwrap_or_default(), range.prefix].map(store::hash);
    let words = [flags, bounds[0], bounds[1], bounds[2]];
    let bytes: [u8; 32] = std::array::from_fn(|at| words[at / 8].to_le_bytes()[at % 8]);
    store::hash(&bytes).to_le_bytes()
}

/// Fills the front of `found`, which has room for as many as there may be, with objects of the range behind the cursor,
/// in order.
///
/// # Errors
/// `CursorInvalid`, `NotOrdered`, `SeveralTablets`.
pub fn scan<'p>(
    pin: &'p Pinned<'_>,
    entry: &'p TableEntry,
    range: &wire::KeyRange<'_>,
    cursor: &[u8],
    limits: PageLimits,
    found: &mut [Option<Object<'p>>],
) -> Result<Step<'p>, Status> {
    let part = entry.parts.only().ok_or(Status::SeveralTablets)?;
    let wire::KeyRange { from, to, prefix, reverse } = *range;
    let whole = KeyRange { from, to, prefix, after: None, reverse };
    let after = match cursor.split_first_chunk::<SEAL_BYTES>() {
        None if cursor.is_empty() => None,
        Some((sealed, key)) if *sealed == seal(entry, range) && whole.contains(key) => Some(key),
        _ => return Err(Status::CursorInvalid),
    };
    let (mut step, mut last, mut examined) = (Step { count: 0, bytes: 0, last: None }, None, 0);
    let visit = |key: &'p [u8], _, object: Option<Object<'p>>| {
        let is_full = step.count == limits.objects || step.bytes >= limits.bytes;
        if is_full || examined == SCAN_KEYS_EXAMINED_MAX {
            step.last = last;
            return ControlFlow::Break(());
        }
        examined += 1;
        last = Some(key);
        if let Some(object) = object {
            step.bytes += key.len() + if limits.keys_only { 0 } else { object.value().len() };
            found[step.count] = Some(object);
            step.count += 1;
        }
        ControlFlow::Continue(())
    };
    let range = KeyRange { after, ..whole };
    pin.scan(part, range, limits.objects, visit).map_err(|_| Status::NotOrdered)?;
    Ok(step)
}
