//! A part of a reply that does not fit a frame.
//!
//! ```text
//! stamp u32 | bytes of the whole answer u32 | index u16 | count u16 | the piece
//! ```
//! All parts but the last have the same length. The stamp distinguishes the parts of one execution from those of
//! another: a read that executes twice may have different results. A client that misses a part requests the whole
//! again.

use crate::limits::{REPLY_PARTS_BYTES_MAX, REPLY_PARTS_MAX};
use crate::status::Status;

/// A part of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part<'a> {
    /// Stamp of the execution.
    pub stamp: u32,
    /// Bytes of the whole reply.
    pub whole_bytes: u32,
    /// Index of the part, from 0.
    pub index: u16,
    /// Number of parts, at least two.
    pub count: u16,
    /// The bytes of the part.
    pub bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// Bytes before the part's content.
    pub const HEAD_BYTES: usize = 12;

    /// Splits a reply into parts of at most `piece_bytes`, which must be fewer than its bytes.
    ///
    /// # Panics
    /// If that makes fewer than two parts or more than [`REPLY_PARTS_MAX`], or the reply is too long for parts.
    pub fn split(stamp: u32, whole: &'a [u8], piece_bytes: usize) -> impl Iterator<Item = Part<'a>> {
        let count = whole.len().div_ceil(piece_bytes);
        assert!((2..=REPLY_PARTS_MAX).contains(&count) && whole.len() <= REPLY_PARTS_BYTES_MAX);
        let (whole_bytes, count) = (whole.len() as u32, count as u16);
        let pieces = whole.chunks(piece_bytes).enumerate();
        pieces.map(move |(index, bytes)| Part { stamp, whole_bytes, index: index as u16, count, bytes })
    }

    /// Returns the length of the encoded body.
    #[inline]
    pub const fn body_bytes(&self) -> usize {
        Self::HEAD_BYTES + self.bytes.len()
    }

    /// Writes the body; copies the part once.
    ///
    /// # Panics
    /// Unless `body` has exactly [`Part::body_bytes`].
    #[inline]
    pub fn encode(&self, body: &mut [u8]) {
        let (head, place) = body.split_at_mut(Self::HEAD_BYTES);
        head[..4].copy_from_slice(&self.stamp.to_le_bytes());
        head[4..8].copy_from_slice(&self.whole_bytes.to_le_bytes());
        head[8..10].copy_from_slice(&self.index.to_le_bytes());
        head[10..].copy_from_slice(&self.count.to_le_bytes());
        place.copy_from_slice(self.bytes);
    }

    /// Reads the body. The place of the returned part is within a reply of the stated length.
    ///
    /// # Errors
    /// [`Status::Malformed`].
    #[inline]
    pub fn decode(body: &'a [u8]) -> Result<Part<'a>, Status> {
        let (head, bytes) = body.split_first_chunk::<{ Part::HEAD_BYTES }>().ok_or(Status::Malformed)?;
        let part = Part {
            stamp: u32::from_le_bytes([head[0], head[1], head[2], head[3]]),
            whole_bytes: u32::from_le_bytes([head[4], head[5], head[6], head[7]]),
            index: u16::from_le_bytes([head[8], head[9]]),
            count: u16::from_le_bytes([head[10], head[11]]),
            bytes,
        };
        let is_counted = (2..=REPLY_PARTS_MAX).contains(&usize::from(part.count)) && part.index < part.count;
        if !is_counted || bytes.is_empty() || part.whole_bytes as usize > REPLY_PARTS_BYTES_MAX {
            return Err(Status::Malformed);
        }
        part.place().map(|_| part).ok_or(Status::Malformed)
    }

    /// Returns the offset of the part in the whole reply; `None` if the numbers and lengths are inconsistent.
    fn place(&self) -> Option<usize> {
        let (whole, before_last) = (self.whole_bytes as usize, usize::from(self.count) - 1);
        let is_last = usize::from(self.index) == before_last;
        let last_at = if is_last {
            whole.checked_sub(self.bytes.len()).filter(|at| at % before_last == 0)?
        } else {
            before_last * self.bytes.len()
        };
        let piece_bytes = last_at / before_last;
        let last_bytes = whole.checked_sub(last_at)?;
        let is_whole = (1..=piece_bytes).contains(&last_bytes);
        is_whole.then(|| usize::from(self.index) * piece_bytes)
    }

    /// Returns the offset of the part in the whole reply.
    #[inline]
    pub fn first(&self) -> usize {
        self.place().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Part;
    use crate::limits::{REPLY_PARTS_BYTES_MAX, REPLY_PARTS_MAX};

    #[test]
    fn pieces_come_together_to_the_whole() {
        let all: Vec<u8> = (0..REPLY_PARTS_BYTES_MAX).map(|at| (at % 251) as u8).collect();
        for (bytes, piece_bytes) in [(2, 1), (3, 2), (1_413, 1_412), (2_824, 1_412), (all.len(), 1_392)] {
            let (whole, mut built) = (&all[..bytes], vec![0; bytes]);
            let mut pieces = 0;
            for part in Part::split(7, whole, piece_bytes) {
                let mut body = vec![0; part.body_bytes()];
                part.encode(&mut body);
                assert_eq!(Part::decode(&body), Ok(part));
                built[part.first()..][..part.bytes.len()].copy_from_slice(part.bytes);
                pieces += 1;
            }
            assert_eq!((built.as_slice(), pieces), (whole, bytes.div_ceil(piece_bytes)));
        }
    }

    #[test]
    fn pieces_that_do_not_go_together_are_none() {
        let refused = |whole_bytes: u32, index: u16, count: u16, bytes: usize| {
            let mut body = vec![0; Part::HEAD_BYTES + bytes];
            Part { stamp: 1, whole_bytes, index, count, bytes: &vec![1; bytes] }.encode(&mut body);
            Part::decode(&body).is_err()
        };
        assert!(!refused(25, 0, 3, 10) && !refused(25, 2, 3, 5) && !refused(30, 2, 3, 10));
        assert!(refused(20, 0, 3, 10), "the last has nothing");
        assert!(refused(31, 0, 3, 10), "the last has more than the others");
        assert!(refused(25, 2, 3, 4) && refused(25, 2, 3, 11) && refused(25, 2, 3, 26));
        assert!(refused(25, 3, 3, 5) && refused(10, 0, 1, 10) && refused(10, 0, 0, 10));
        assert!(refused(25, 0, 3, 0) && refused(0, 0, 2, 0));
        assert!(refused(REPLY_PARTS_BYTES_MAX as u32 + 1, 1, 2, 1));
        assert!(refused(REPLY_PARTS_MAX as u32 + 1, 0, REPLY_PARTS_MAX as u16 + 1, 1));
        assert!(Part::decode(&[0; Part::HEAD_BYTES - 1]).is_err());
    }
}
