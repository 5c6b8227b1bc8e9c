//! Hashing of keys that are numbers which the program assigns itself.

use std::hash::{BuildHasherDefault, Hasher};

/// A hasher for keys that are numbers assigned by the server, or addresses: one multiplication. Nobody outside chooses
/// them, so hash flooding is impossible.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

/// Builds [`NumberHasher`].
pub type NumberHash = BuildHasherDefault<NumberHasher>;

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        // The map takes its tag from the high bits and its position from the low ones.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
