//! Frames of replicas: parts of other servers' logs, in the order in which they came.
//!
//! ```text
//!   frame:   header 64 │ fragment │ fragment │ ...                     fragment:   header 64 │ bytes
//!
//!   header:   0  checksum u32 of the rest             fragment:   0  checksum u32 of the rest of the header, behind the
//!             4  magic u32                                           checksum of the header before
//!             8  number u64   of the replica                      4  checksum u32 of the bytes
//!            16  log u64                                          8  cut u64
//!            24  owner u32                                       16  before u64
//!            28  segment u32, or all ones for digests            24  settled u64
//!            32  index u32    of the frame, from 0               32  clock u64
//!            36  salt u32                                        40  writes u32     44  digest u32
//!            40  class u8                                        48  at u32         52  length u32
//!            41  kind u8: 0 a segment, 1 digests                 56  end u32        60  zero u32
//! ```
//! Fragments are added behind each other, and the block that they begin in is written again with the same bytes before
//! them: a torn write leaves whatever was stable. The checksums of the headers are a chain that begins with the frame's, so
//! that what lay in the frame before, or behind a torn fragment, is never taken for a fragment of now.

use crate::SECTOR_BYTES;

/// Bytes of a frame before its first fragment.
pub const REPLICA_HEADER_BYTES: usize = 64;

/// Bytes of a fragment before its bytes of the log.
pub const FRAGMENT_HEADER_BYTES: usize = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"SREP");

const _: () = assert!(REPLICA_HEADER_BYTES <= SECTOR_BYTES, "a header is written whole or not at all");

/// The header of a frame of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaHeader {
    /// The replica: later ones of a file have higher numbers.
    pub number: u64,
    /// The log that it is of.
    pub log: u64,
    /// The server that writes the log.
    pub owner: u32,
    /// The segment; `None` for the log's digests.
    pub segment: Option<u32>,
    /// See [`crate::Trailer::class`].
    pub class: u8,
    /// The place of the frame in the replica.
    pub index: u32,
    /// A random number.
    pub salt: u32,
}

impl ReplicaHeader {
    /// Returns the bytes, and the checksum with which the chain of the fragments begins.
    #[must_use]
    pub fn encode(&self) -> ([u8; REPLICA_HEADER_BYTES], u32) {
        let mut bytes = [0; REPLICA_HEADER_BYTES];
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.log.to_le_bytes());
        let segment = self.segment.unwrap_or(u32::MAX);
        let words = [(4, MAGIC), (24, self.owner), (28, segment), (32, self.index), (36, self.salt)];
        for (at, word) in words {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        (bytes[40], bytes[41]) = (self.class, self.segment.is_none().into());
        let checksum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        (bytes, checksum)
    }

    /// Reads the header at the beginning of a frame, and the checksum with which the chain begins; `None` if there is none,
    /// or a damaged one.
    #[must_use]
    pub fn decode(frame: &[u8]) -> Option<(Self, u32)> {
        let bytes = frame.get(..REPLICA_HEADER_BYTES)?;
        let checksum = word(bytes, 0);
        if word(bytes, 4) != MAGIC || checksum != crc32c::crc32c(&bytes[4..]) {
            return None;
        }
        let header = Self {
            number: long(bytes, 8),
            log: long(bytes, 16),
            owner: word(bytes, 24),
            segment: (bytes[41] == 0).then(|| word(bytes, 28)),
            class: bytes[40],
            index: word(bytes, 32),
            salt: word(bytes, 36),
        };
        Some((header, checksum))
    }
}

/// Bytes that one cut wrote to a segment, or some of them; of a digest, its bytes or some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The number of the cut; of bytes of several cuts, that of the last one, which is settled; of a digest, its own.
    pub cut: u64,
    /// The number of the cut before it that wrote anything.
    pub before: u64,
    /// The number of the latest cut that was settled by then: all replicas had it and what comes before it.
    pub settled: u64,
    /// The store's clock at that time, in milliseconds.
    pub clock_ms: u64,
    /// Segments that the cut writes to.
    pub writes: u32,
    /// The number of the latest digest that was sent before the cut, without which it does not count.
    pub digest: u32,
    /// Where in the segment the bytes begin.
    pub at: u32,
    /// Bytes of the segment that the cut includes, at least `at` and these.
    pub end: u32,
}

impl Fragment {
    /// Adds a fragment with these bytes behind others, whose chain ends with this checksum; returns its new end.
    ///
    /// # Panics
    /// If it has no bytes, or they reach beyond its end.
    #[must_use]
    pub fn encode(&self, bytes: &[u8], chain: u32, into: &mut Vec<u8>) -> u32 {
        let length = u32::try_from(bytes.len()).expect("a segment is shorter");
        assert!(length > 0 && length <= self.end.saturating_sub(self.at), "{length} bytes of {self:?}");
        let start = into.len();
        into.resize(start + FRAGMENT_HEADER_BYTES, 0);
        let header = &mut into[start..];
        let longs = [(8, self.cut), (16, self.before), (24, self.settled), (32, self.clock_ms)];
        for (at, long) in longs {
            header[at..at + 8].copy_from_slice(&long.to_le_bytes());
        }
        let words = [
            (4, crc32c::crc32c(bytes)),
            (40, self.writes),
            (44, self.digest),
            (48, self.at),
            (52, length),
            (56, self.end),
        ];
        for (at, word) in words {
            header[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let chain = crc32c::crc32c_append(chain, &header[4..]);
        header[..4].copy_from_slice(&chain.to_le_bytes());
        into.extend_from_slice(bytes);
        chain
    }

    /// Reads the fragment behind others, whose chain ends with this checksum; returns it with its bytes and the new end of
    /// the chain. `None` if none was written there, or it is damaged.
    #[must_use]
    pub fn decode(behind: &[u8], chain: u32) -> Option<(Self, &[u8], u32)> {
        let (header, rest) = behind.split_at_checked(FRAGMENT_HEADER_BYTES)?;
        let (checksum, length) = (word(header, 0), word(header, 52));
        let bytes = rest.get(..length as usize)?;
        let fragment = Self {
            cut: long(header, 8),
            before: long(header, 16),
            settled: long(header, 24),
            clock_ms: long(header, 32),
            writes: word(header, 40),
            digest: word(header, 44),
            at: word(header, 48),
            end: word(header, 56),
        };
        let is_sound = checksum == crc32c::crc32c_append(chain, &header[4..])
            && (1..=fragment.end.saturating_sub(fragment.at)).contains(&length)
            && word(header, 4) == crc32c::crc32c(bytes);
        is_sound.then_some((fragment, bytes, checksum))
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::{FRAGMENT_HEADER_BYTES, Fragment, REPLICA_HEADER_BYTES, ReplicaHeader};

    const HEADER: ReplicaHeader =
        ReplicaHeader { number: 1 << 40, log: 9, owner: 3, segment: Some(7), class: 2, index: 5, salt: 77 };
    const FRAGMENT: Fragment = Fragment {
        cut: 9,
        before: 8,
        settled: 7,
        clock_ms: 1 << 41,
        writes: 3,
        digest: 6,
        at: 100,
        end: 400,
    };

    /// A frame with two fragments, and where each ends.
    fn frame() -> (Vec<u8>, [usize; 2]) {
        let (head, chain) = HEADER.encode();
        let mut frame = head.to_vec();
        let chain = FRAGMENT.encode(&[1; 50], chain, &mut frame);
        let first = frame.len();
        let _ = Fragment { at: 150, ..FRAGMENT }.encode(&[2; 250], chain, &mut frame);
        let second = frame.len();
        frame.resize(frame.len() + 500, 0);
        (frame, [first, second])
    }

    /// Returns the fragments that a frame has, with their bytes.
    fn fragments(frame: &[u8]) -> Vec<(Fragment, Vec<u8>)> {
        let (_, mut chain) = ReplicaHeader::decode(frame).expect("a header");
        let (mut at, mut found) = (REPLICA_HEADER_BYTES, Vec::new());
        while let Some((fragment, bytes, next)) = Fragment::decode(&frame[at..], chain) {
            (at, chain) = (at + FRAGMENT_HEADER_BYTES + bytes.len(), next);
            found.push((fragment, bytes.to_vec()));
        }
        found
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let (frame, _) = frame();
        assert_eq!(ReplicaHeader::decode(&frame).map(|(header, _)| header), Some(HEADER));
        let expected = vec![(FRAGMENT, vec![1; 50]), (Fragment { at: 150, ..FRAGMENT }, vec![2; 250])];
        assert_eq!(fragments(&frame), expected);
        let digest = ReplicaHeader { segment: None, ..HEADER };
        assert_eq!(ReplicaHeader::decode(&digest.encode().0).map(|(header, _)| header), Some(digest));
    }

    #[test]
    fn each_flipped_bit_is_noticed() {
        let (whole, [first, second]) = frame();
        for bit in 0..second * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if bit / 8 < REPLICA_HEADER_BYTES {
                assert_eq!(ReplicaHeader::decode(&damaged), None, "bit {bit}");
            } else {
                assert_eq!(fragments(&damaged).len(), usize::from(bit / 8 >= first), "bit {bit}");
            }
        }
        assert_eq!(ReplicaHeader::decode(&[0; 64]), None);
        assert_eq!(ReplicaHeader::decode(&whole[..63]), None);
        assert_eq!(fragments(&whole[..second - 1]).len(), 1);
    }

    #[test]
    fn what_lay_behind_a_fragment_before_is_none_of_its_successors() {
        let (old, [first, _]) = frame();
        let (head, chain) = HEADER.encode();
        let mut new = head.to_vec();
        // As long as the one that was there, and with another content.
        let _ = Fragment { cut: 10, ..FRAGMENT }.encode(&[1; 50], chain, &mut new);
        new.extend_from_slice(&old[first..]);
        assert_eq!(fragments(&new).len(), 1);
        let other = ReplicaHeader { salt: 78, ..HEADER };
        let mut reused = other.encode().0.to_vec();
        reused.extend_from_slice(&old[REPLICA_HEADER_BYTES..]);
        assert_eq!(fragments(&reused).len(), 0);
    }
}
