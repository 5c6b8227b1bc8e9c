//! The digest of a log: which segments a replay finds, as of one moment.
//!
//! Two copies lie at the beginning of the disk, written in turn, so that one is always whole; the higher number counts.
//! A segment counts if the digest names it, or if its number is above all that the digest knew: so opening a segment
//! writes nothing here. The digest is written when segments are freed, when survivors begin to move, and at a start.
//!
//! ```text
//!    0  magic 8 B │ format u32 │ checksum u32 of all behind it │ length u32 │ number u32
//!   24  cut u64 │ clock u64 │ last sequence u32 │ survivors: sequence u32, bytes u32 for each class
//!       segments u32, for each: sequence u32, bytes u32 (all ones: as far as its blocks say), class u32
//!       emptied u32, for each: sequence u32
//!       left out, in groups u32, for each: members u32, for each: sequence u32; sources u32, for each: sequence u32
//!       start u64
//! ```
//! Digests of earlier releases end before the start, which then is 0; their readers do not look at it.
//! Format 2, which is read as well, has a group for each that is left out, without the number of its members: as many
//! segments times as many sources might have had no room.

use crate::SURVIVOR_CLASSES;

/// The version of the format of digests and blocks.
pub const LOG_FORMAT: u32 = 3;
/// The one before, which differs in the digest alone.
const LOG_FORMAT_BEFORE: u32 = 2;
const MAGIC: [u8; 8] = *b"SPLNLOG\0";
const HEAD_BYTES: usize = 24;
const CHECKSUM_AT: usize = 12;
/// Bytes of a segment of a digest.
pub const DIGEST_SEGMENT_BYTES: usize = 12;
/// Bytes of a segment whose blocks say how far it counts.
pub const OPEN_ENDED: u32 = u32::MAX;

/// A segment of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestSegment {
    /// Its number.
    pub sequence: u32,
    /// The bytes that count, or [`OPEN_ENDED`].
    pub bytes: u32,
    /// See [`crate::Trailer::class`].
    pub class: u8,
}

/// The digest of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Grows from digest to digest.
    pub number: u32,
    /// The number of the latest stable cut.
    pub cut: u64,
    /// The store's clock, in milliseconds.
    pub clock_ms: u64,
    /// The highest sequence number that was known.
    pub last: u32,
    /// Up to where segments of survivors count: sequence and bytes, for each class.
    pub survivors: [(u32, u32); SURVIVOR_CLASSES],
    /// The segments.
    pub segments: Vec<DigestSegment>,
    /// Segments whose objects are moving to those of survivors.
    pub emptied: Vec<u32>,
    /// Segments of survivors that do not count, wholly or in part, with those that their objects came from.
    pub left_out: Vec<(u32, Vec<u32>)>,
    /// The number of the start that wrote it, which the metadata has, too.
    pub start: u64,
}

/// The reason why bytes are no digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestError {
    /// Nothing was written there, or it is damaged.
    Damaged,
    /// It is of another format.
    Format(u32),
}

impl Digest {
    /// Returns the bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.segments.len() * DIGEST_SEGMENT_BYTES + 256);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&LOG_FORMAT.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        let mut word = |word: u32| bytes.extend_from_slice(&word.to_le_bytes());
        word(self.number);
        for long in [self.cut, self.clock_ms] {
            word(long as u32);
            word((long >> 32) as u32);
        }
        word(self.last);
        for (sequence, end) in self.survivors {
            word(sequence);
            word(end);
        }
        word(self.segments.len() as u32);
        for segment in &self.segments {
            word(segment.sequence);
            word(segment.bytes);
            word(segment.class.into());
        }
        word(self.emptied.len() as u32);
        self.emptied.iter().for_each(|sequence| word(*sequence));
        let groups = || self.left_out.chunk_by(|(_, one), (_, other)| one == other);
        word(groups().count() as u32);
        for group in groups() {
            word(group.len() as u32);
            group.iter().for_each(|(sequence, _)| word(*sequence));
            let sources = &group[0].1;
            word(sources.len() as u32);
            sources.iter().for_each(|source| word(*source));
        }
        word(self.start as u32);
        word((self.start >> 32) as u32);
        let length = bytes.len() as u32;
        bytes[CHECKSUM_AT + 4..CHECKSUM_AT + 8].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[CHECKSUM_AT + 4..]);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns how long the digest at the beginning of `bytes` says that it is, which only [`Digest::decode`] checks.
    #[must_use]
    pub fn stated_bytes(bytes: &[u8]) -> Option<usize> {
        let length = bytes.get(CHECKSUM_AT + 4..CHECKSUM_AT + 8)?;
        Some(u32::from_le_bytes(length.try_into().ok()?) as usize)
    }

    /// Reads a digest at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`DigestError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DigestError> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if !bytes.starts_with(&MAGIC) {
            return Err(DigestError::Damaged);
        }
        // Before the checksum: another format may have it elsewhere.
        let format = word(8).ok_or(DigestError::Damaged)?;
        if ![LOG_FORMAT, LOG_FORMAT_BEFORE].contains(&format) {
            return Err(DigestError::Format(format));
        }
        let length = Self::stated_bytes(bytes).unwrap_or(0);
        if length < HEAD_BYTES {
            return Err(DigestError::Damaged);
        }
        let covered = bytes.get(CHECKSUM_AT + 4..length).ok_or(DigestError::Damaged)?;
        if word(CHECKSUM_AT) != Some(crc32c::crc32c(covered)) {
            return Err(DigestError::Damaged);
        }
        Words(&bytes[HEAD_BYTES - 4..length]).digest(format).ok_or(DigestError::Damaged)
    }
}

/// The words that are left to read.
struct Words<'b>(&'b [u8]);

impl Words<'_> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }

    fn long(&mut self) -> Option<u64> {
        let (low, high) = (self.word()?, self.word()?);
        Some(u64::from(low) | u64::from(high) << 32)
    }

    /// Reads a count, and as many items of at least so many bytes.
    fn list<T>(&mut self, bytes_min: usize, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.word()? as usize;
        if count > self.0.len() / bytes_min {
            return None;
        }
        (0..count).map(|_| item(self)).collect()
    }

    /// Reads segments that are left out, with their common sources.
    fn group(&mut self) -> Option<Vec<(u32, Vec<u32>)>> {
        let (members, sources) = (self.list(4, Self::word)?, self.list(4, Self::word)?);
        Some(members.into_iter().map(|sequence| (sequence, sources.clone())).collect())
    }

    fn digest(&mut self, format: u32) -> Option<Digest> {
        let (number, cut, clock_ms, last) = (self.word()?, self.long()?, self.long()?, self.word()?);
        let mut survivors = [(0, 0); SURVIVOR_CLASSES];
        for class in &mut survivors {
            *class = (self.word()?, self.word()?);
        }
        let segments = self.list(DIGEST_SEGMENT_BYTES, |words| {
            let (sequence, bytes, class) = (words.word()?, words.word()?, words.word()?);
            Some(DigestSegment { sequence, bytes, class: u8::try_from(class).ok()? })
        })?;
        let emptied = self.list(4, Self::word)?;
        let left_out = match format {
            LOG_FORMAT_BEFORE => self.list(8, |words| Some((words.word()?, words.list(4, Self::word)?)))?,
            _ => self.list(8, Self::group)?.concat(),
        };
        let start = self.long().unwrap_or(0);
        Some(Digest { number, cut, clock_ms, last, survivors, segments, emptied, left_out, start })
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECKSUM_AT, Digest, DigestError, DigestSegment, LOG_FORMAT, OPEN_ENDED};

    fn digest() -> Digest {
        Digest {
            number: 3,
            cut: 1 << 33,
            clock_ms: 5,
            last: 90,
            survivors: [(1, 2), (3, 4), (5, 6)],
            segments: vec![
                DigestSegment { sequence: 4, bytes: 100, class: 0 },
                DigestSegment { sequence: 9, bytes: OPEN_ENDED, class: 2 },
            ],
            emptied: vec![4],
            left_out: vec![(7, vec![4, 5]), (8, vec![4, 5]), (9, vec![])],
            start: 1 << 40,
        }
    }

    #[test]
    fn a_digest_is_read_as_it_was_written() {
        let mut bytes = digest().encode();
        bytes.extend_from_slice(&[7; 100]);
        assert_eq!(Digest::decode(&bytes), Ok(digest()));
    }

    #[test]
    fn digests_of_earlier_releases_are_read() {
        let digest = Digest { left_out: vec![(7, vec![4, 5])], start: 0, ..digest() };
        let mut bytes = digest.encode();
        bytes.truncate(bytes.len() - 8);
        seal(&mut bytes);
        assert_eq!(Digest::decode(&bytes), Ok(digest.clone()), "without a start");
        // The number of the members of its only group.
        let at = bytes.len() - 5 * 4;
        assert_eq!(bytes.drain(at..at + 4).collect::<Vec<_>>(), [1, 0, 0, 0]);
        bytes[8] -= 1;
        seal(&mut bytes);
        assert_eq!(Digest::decode(&bytes), Ok(digest), "of the format before");
    }

    fn seal(bytes: &mut [u8]) {
        let length = bytes.len() as u32;
        bytes[CHECKSUM_AT + 4..CHECKSUM_AT + 8].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[CHECKSUM_AT + 4..]);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    #[test]
    fn segments_with_common_sources_take_a_word_each() {
        let sources: Vec<u32> = (0..440).collect();
        let left_out = (1000..1600).map(|sequence| (sequence, sources.clone())).collect();
        let digest = Digest { left_out, ..digest() };
        let bytes = digest.encode();
        assert!(bytes.len() < 6_000, "{} bytes", bytes.len());
        assert_eq!(Digest::decode(&bytes), Ok(digest));
    }

    #[test]
    fn damage_and_other_formats_are_refused() {
        let whole = digest().encode();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert!(Digest::decode(&bytes).is_err(), "byte {at}");
            assert_eq!(Digest::decode(&whole[..at]), Err(DigestError::Damaged));
        }
        for length in 0..64_u32 {
            let mut short = whole.clone();
            short[CHECKSUM_AT + 4..CHECKSUM_AT + 8].copy_from_slice(&length.to_le_bytes());
            let covered = short.get(CHECKSUM_AT + 4..length as usize).unwrap_or(&[]);
            let checksum = crc32c::crc32c(covered).to_le_bytes();
            short[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum);
            assert!(Digest::decode(&short).is_err(), "{length} bytes");
        }
        let mut other = whole;
        other[8] += 1;
        assert_eq!(Digest::decode(&other), Err(DigestError::Format(LOG_FORMAT + 1)));
        assert_eq!(Digest::decode(&[0; 64]), Err(DigestError::Damaged));
    }
}
