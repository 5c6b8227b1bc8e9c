//! Checksums of objects: crc32c, computed by the processor's instruction.
//!
//! Most parts of an object are short, and most begin at an unaligned address. The crate that uses the processor's
//! instruction proceeds byte by byte up to the first aligned word, which is a third of the work for a value of a
//! hundred bytes. This file reads words unaligned, and the remainder in halves. It leaves long parts, which that
//! crate computes in three streams, and processors without the instruction to the crate. `object.rs` calls it for
//! every write and for every object that the cleaner moves.

/// Parts of at least this many bytes are computed in three streams.
const LONG_BYTES: usize = 1024;

/// Returns the checksum of data with `checksum` (0 for none) followed by `bytes`.
#[inline]
pub(crate) fn append(checksum: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes.len() < LONG_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the check above shows that the processor has the instructions.
        return unsafe { append_short(checksum, bytes) };
    }
    crc32c::crc32c_append(checksum, bytes)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
#[inline]
fn append_short(checksum: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};
    let (words, mut rest) = bytes.as_chunks::<8>();
    let wide =
        words.iter().fold(u64::from(!checksum), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    let mut sum = wide as u32;
    if let Some((half, behind)) = rest.split_first_chunk::<4>() {
        (sum, rest) = (_mm_crc32_u32(sum, u32::from_le_bytes(*half)), behind);
    }
    if let Some((quarter, behind)) = rest.split_first_chunk::<2>() {
        (sum, rest) = (_mm_crc32_u16(sum, u16::from_le_bytes(*quarter)), behind);
    }
    if let Some(&byte) = rest.first() {
        sum = _mm_crc32_u8(sum, byte);
    }
    !sum
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use super::{LONG_BYTES, append};

    #[test]
    fn it_is_crc32c_at_every_length_and_place() {
        let mut random = fastrand::Rng::with_seed(crate::tests::seed("it_is_crc32c_at_every_length"));
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(LONG_BYTES + 64).collect();
        assert_eq!(append(0, b"123456789"), 0xe306_9283, "the check value of the polynomial");
        for length in (0..64).chain(LONG_BYTES - 9..LONG_BYTES + 9) {
            for start in 0..9 {
                let part = &bytes[start..start + length];
                assert_eq!(append(0, part), crc32c::crc32c(part), "{length} bytes from {start}");
                assert_eq!(append(start as u32, part), crc32c::crc32c_append(start as u32, part));
            }
        }
    }
}
