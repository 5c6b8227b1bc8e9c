//! The key range of a scan.

use crate::limits::{KEY_BYTES_MAX, SCAN_SEAL_BYTES};
use crate::status::Status;

/// The range and direction of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyRange<'a> {
    /// The lower bound, included.
    pub from: &'a [u8],
    /// The upper bound, excluded; `None` for no bound.
    pub to: Option<&'a [u8]>,
    /// The prefix that all keys of the range have.
    pub prefix: &'a [u8],
    /// Whether the scan goes from the largest key to the smallest.
    pub reverse: bool,
    /// The first and last hash of the keys, both included; for a table of several tablets, since each server is asked
    /// for its own.
    pub hashes: Option<(u64, u64)>,
}

const SCAN_HEAD_BYTES: usize = 16;
const HAS_TO: u8 = 1;
const REVERSE: u8 = 2;
const KEYS_ONLY: u8 = 4;
const HAS_HASHES: u8 = 8;
/// Bytes of the first and the last hash.
const HASHES_BYTES: usize = 16;

/// A scan without its table and cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ScanHead<'a> {
    pub(super) range: KeyRange<'a>,
    pub(super) keys_only: bool,
    pub(super) objects_max: u16,
    pub(super) bytes_max: u32,
}

impl<'a> KeyRange<'a> {
    /// Returns the seal with which cursors of this range begin, before the last key that was examined. `table` is the
    /// table's id, `hash` the protocol's hash function. Hashes are not part of it: a cursor is valid for the whole
    /// range.
    #[must_use]
    pub fn seal(&self, table: u32, hash: impl Fn(&[u8]) -> u64) -> [u8; SCAN_SEAL_BYTES] {
        let flags = u64::from(self.reverse) | u64::from(self.to.is_some()) << 1 | u64::from(table) << 32;
        let [from, to, prefix] = [self.from, self.to.unwrap_or_default(), self.prefix].map(&hash);
        let words = [flags, from, to, prefix];
        let bytes: [u8; 32] = core::array::from_fn(|at| words[at / 8].to_le_bytes()[at % 8]);
        hash(&bytes).to_le_bytes()
    }

    /// Checks that its bounds are keys, and its hashes a range.
    pub(super) fn check(&self) -> Result<(), Status> {
        if self.hashes.is_some_and(|(first, last)| first > last) {
            return Err(Status::OutOfRange);
        }
        let bounds = [self.from, self.to.unwrap_or_default(), self.prefix];
        match bounds.iter().all(|bound| bound.len() <= KEY_BYTES_MAX) {
            true => Ok(()),
            false => Err(Status::KeyTooLarge),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let hashes_bytes = if self.hashes.is_some() { HASHES_BYTES } else { 0 };
        hashes_bytes + self.from.len() + self.to.map_or(0, <[u8]>::len) + self.prefix.len()
    }
}

impl<'a> ScanHead<'a> {
    /// Bytes before the bounds.
    pub(super) const BYTES: usize = SCAN_HEAD_BYTES;

    /// Writes it with its bounds; returns the rest of `body`.
    pub(super) fn encode<'b>(&self, body: &'b mut [u8]) -> &'b mut [u8] {
        let KeyRange { from, to, prefix, reverse, hashes } = self.range;
        let (head, mut rest) = body.split_at_mut(Self::BYTES);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        head[0..4].copy_from_slice(&self.bytes_max.to_le_bytes());
        head[4..6].copy_from_slice(&self.objects_max.to_le_bytes());
        head[6] = flag(to.is_some(), HAS_TO)
            | flag(reverse, REVERSE)
            | flag(self.keys_only, KEYS_ONLY)
            | flag(hashes.is_some(), HAS_HASHES);
        head[7] = 0;
        head[14..16].copy_from_slice(&[0; 2]);
        if let Some((first, last)) = hashes {
            let (place, behind) = rest.split_at_mut(HASHES_BYTES);
            place[..8].copy_from_slice(&first.to_le_bytes());
            place[8..].copy_from_slice(&last.to_le_bytes());
            rest = behind;
        }
        for (at, bound) in [from, to.unwrap_or_default(), prefix].into_iter().enumerate() {
            head[8 + 2 * at..][..2].copy_from_slice(&(bound.len() as u16).to_le_bytes());
            let (place, behind) = rest.split_at_mut(bound.len());
            place.copy_from_slice(bound);
            rest = behind;
        }
        rest
    }

    /// Reads it with its bounds; returns the rest too.
    pub(super) fn decode(body: &'a [u8]) -> Result<(ScanHead<'a>, &'a [u8]), Status> {
        let (head, mut rest) = body.split_first_chunk::<SCAN_HEAD_BYTES>().ok_or(Status::Malformed)?;
        let flags = head[6];
        if flags & !(HAS_TO | REVERSE | KEYS_ONLY | HAS_HASHES) != 0 || head[7] | head[14] | head[15] != 0 {
            return Err(Status::Malformed);
        }
        let mut hashes = None;
        if flags & HAS_HASHES != 0 {
            let (first, behind) = rest.split_first_chunk().ok_or(Status::Malformed)?;
            let (last, behind) = behind.split_first_chunk().ok_or(Status::Malformed)?;
            hashes = Some((u64::from_le_bytes(*first), u64::from_le_bytes(*last)));
            rest = behind;
        }
        let mut bounds = [&[][..]; 3];
        for (at, bound) in bounds.iter_mut().enumerate() {
            let bytes = u16::from_le_bytes([head[8 + 2 * at], head[9 + 2 * at]]) as usize;
            (*bound, rest) = rest.split_at_checked(bytes).ok_or(Status::Malformed)?;
        }
        let [from, to, prefix] = bounds;
        if flags & HAS_TO == 0 && !to.is_empty() {
            return Err(Status::Malformed);
        }
        let to = (flags & HAS_TO != 0).then_some(to);
        let range = KeyRange { from, to, prefix, reverse: flags & REVERSE != 0, hashes };
        let bytes_max = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let objects_max = u16::from_le_bytes([head[4], head[5]]);
        Ok((ScanHead { range, keys_only: flags & KEYS_ONLY != 0, objects_max, bytes_max }, rest))
    }
}
