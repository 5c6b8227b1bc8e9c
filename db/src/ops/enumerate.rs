//! Operations on a whole table in bounded steps: enumeration, verification.
//!
//! The position after a step travels to the client and back as a cursor, which is sealed with the table's number in the
//! cluster: a cursor of another table is refused. Steps are reads: they are not recorded, and a repeated request
//! repeats the step. They follow the order of the hashes. A step ends at the end of a range that this server owns, and
//! the owner of the next hash makes the next step, wherever the tablet was when the cursor was made. In a part with
//! arriving objects, a step goes as far as the part has arrived without a gap.

use store::{Checked, Cursor, Listed, Page, PageLimits, Pinned, Table};
use wire::Status;
use wire::limits::ENUMERATE_OBJECTS_MAX;

use crate::tablet::TableEntry;

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
