//! Operations on a whole table, a bounded step at a time: enumeration, verification.
//!
//! Where a step ended travels to the client and back as a cursor, which is sealed with the table's number in the cluster:
//! one of another table is refused. Steps are reads: they are not remembered, and one that is asked for twice is made
//! twice. They go by the order of the hashes, so a step ends where a piece of what this server owns ends, and the next
//! one is made by whoever owns the hash behind, wherever the tablet was when the cursor was made. Of a part that arrives a
//! step goes as far as it has arrived without a gap.

use store::{Checked, Cursor, Listed, Page, PageLimits, Pinned, Table};
use wire::Status;
use wire::limits::ENUMERATE_OBJECTS_MAX;

use crate::tablet::TableEntry;

/// Bytes of a cursor as it travels: hash, second hash, seal; u64 each, little-endian.
pub const CURSOR_BYTES: usize = 24;

/// Room for the objects of a step.
pub type StepObjects<'p> = [Option<Listed<'p>>; ENUMERATE_OBJECTS_MAX];

/// A cursor as it travels; empty at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct CursorBytes {
    bytes: [u8; CURSOR_BYTES],
    is_end: bool,
}

impl CursorBytes {
    /// Where a step ended that went through a piece to the hash `last`.
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

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        if self.is_end { &[] } else { &self.bytes }
    }
}

/// The seal of cursors of a table. It is no secret: whoever makes one up enumerates his own table from a place of his
/// choice.
fn seal_of(place: &[u8], entry: &TableEntry) -> [u8; 8] {
    let mut sealed = [0; 20];
    sealed[..16].copy_from_slice(place);
    sealed[16..].copy_from_slice(&entry.id.to_le_bytes());
    store::hash(&sealed).to_le_bytes()
}

/// What a step goes through, if it is owned: a part, from the cursor on to the last hash of the piece.
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

/// Fills the front of `found` with objects behind the cursor.
///
/// # Errors
/// `CursorInvalid`, `NotOwned`, `Retry` where objects have still to arrive, `UnknownTable` for a table that goes.
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
    let (part, from, last) = piece(entry, cursor)?;
    let checked = pin.verify(part, from, |hash| corrupted.push(hash));
    let checked = checked.map_err(|_| Status::UnknownTable)?;
    Ok((checked, CursorBytes::of(checked.next, last, entry)))
}
