//! The checksum of the internet protocols (RFC 1071): the one's complement of the one's complement sum of 16-bit words.
//!
//! The sum does not depend on byte order if reading and writing use the same one, so words are taken in the machine's
//! order, four bytes at a time, and carries are folded once at the end. Odd bytes count as if a zero followed, so
//! only the last piece of a sum may be odd.

/// A sum in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// Adds bytes; all pieces but the last must be even in length. The sum of a packet stays far below 64 bits.
    #[inline]
    pub(super) fn with(self, bytes: &[u8]) -> Self {
        let words = bytes.chunks_exact(4);
        let rest = words.remainder();
        let sum: u64 = words
            .map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]])))
            .fold(self.0, u64::wrapping_add);
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Self(sum.wrapping_add(u64::from(u32::from_ne_bytes(last))))
    }

    /// Adds a number.
    #[inline]
    pub(super) fn with_number(self, number: u16) -> Self {
        Self(self.0 + u64::from(number.to_be()))
    }

    /// Returns the sum, as bytes of a packet.
    #[inline]
    pub(super) fn sum_bytes(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (sum as u16).to_ne_bytes()
    }

    /// Returns the checksum, as bytes of a packet.
    #[inline]
    pub(super) fn checksum_bytes(self) -> [u8; 2] {
        self.sum_bytes().map(|byte| !byte)
    }

    /// Returns whether bytes that contain their own checksum are unchanged.
    #[inline]
    pub(super) fn is_right(self) -> bool {
        self.sum_bytes() == [0xff; 2]
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn the_example_of_the_rfc_sums_up() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().with(&bytes).sum_bytes(), [0xdd, 0xf2]);
        assert_eq!(Sum::default().with(&bytes[..4]).with(&bytes[4..]).sum_bytes(), [0xdd, 0xf2]);
    }

    #[test]
    fn a_sum_is_that_of_words_one_by_one() {
        let mut random = fastrand::Rng::with_seed(7);
        for length in 0..300 {
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let words =
                bytes.chunks(2).map(|pair| (u32::from(pair[0]) << 8) + u32::from(*pair.get(1).unwrap_or(&0)));
            let mut expected: u32 = words.sum();
            while expected >> 16 != 0 {
                expected = (expected & 0xffff) + (expected >> 16);
            }
            assert_eq!(
                Sum::default().with(&bytes).sum_bytes(),
                (expected as u16).to_be_bytes(),
                "{length} bytes"
            );
        }
    }
}
