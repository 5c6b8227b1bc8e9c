//! Operations on a whole table, a bounded step at a time: enumeration, verification.
//!
//! Where a step ended travels to the client and back as a cursor, which the table has sealed; one that it has not is
//! refused. Steps are reads: they are not remembered, and one that is asked for twice is made twice. A table of which this
//! server does not have all, in one part, is refused.

use store::{CURSOR_BYTES, Checked, Cursor, Listed, Page, PageLimits, Pinned, Table};
use wire::Status;
use wire::limits::ENUMERATE_OBJECTS_MAX;

use crate::tablet::TableEntry;

/// Room for the objects of a step.
pub type Found<'p> = [Option<Listed<'p>>; ENUMERATE_OBJECTS_MAX];

/// A cursor as it travels; empty at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct CursorBytes {
    bytes: [u8; CURSOR_BYTES],
    is_end: bool,
}

impl CursorBytes {
    fn of(next: Option<Cursor>, part: &Table) -> Self {
        match next {
            Some(cursor) => Self { bytes: cursor.encode(part), is_end: false },
            None => Self { bytes: [0; CURSOR_BYTES], is_end: true },
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        if self.is_end { &[] } else { &self.bytes }
    }
}

/// Fills the front of `found` with objects behind the cursor.
///
/// # Errors
/// `CursorInvalid`, `SeveralTablets`, or `UnknownTable` for a table that goes.
pub fn enumerate<'p>(
    pin: &'p Pinned<'_>,
    entry: &TableEntry,
    cursor: &[u8],
    limits: PageLimits,
    found: &mut Found<'p>,
) -> Result<(Page, CursorBytes), Status> {
    let part = entry.parts.only().ok_or(Status::SeveralTablets)?;
    let from = Cursor::decode(part, cursor).map_err(|_| Status::CursorInvalid)?;
    let page = pin.enumerate(part, from, limits, found).map_err(|_| Status::UnknownTable)?;
    Ok((page, CursorBytes::of(page.next, part)))
}

/// Checks objects behind the cursor; notes the hashes of the keys of corrupted ones.
///
/// # Errors
/// As [`enumerate`].
pub fn verify(
    pin: &Pinned<'_>,
    entry: &TableEntry,
    cursor: &[u8],
    corrupted: &mut Vec<u64>,
) -> Result<(Checked, CursorBytes), Status> {
    let part = entry.parts.only().ok_or(Status::SeveralTablets)?;
    let from = Cursor::decode(part, cursor).map_err(|_| Status::CursorInvalid)?;
    let checked = pin.verify(part, from, |hash| corrupted.push(hash));
    let checked = checked.map_err(|_| Status::UnknownTable)?;
    Ok((checked, CursorBytes::of(checked.next, part)))
}
