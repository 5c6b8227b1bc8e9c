//! Computations that need more stack than there is, in a way that no optimiser takes away.

use core::hint::black_box;

/// Calls itself, with `at_each_depth` on the way down, and never returns.
#[inline(never)]
#[expect(unconditional_recursion, reason = "what it is for")]
pub fn deeper(depth: u64, at_each_depth: &mut impl FnMut() -> u64) -> u64 {
    let frame = black_box([depth ^ at_each_depth(); 16]);
    let below = deeper(depth + 1, at_each_depth);
    below.wrapping_add(frame[(below % 16) as usize])
}

/// Works in a frame of so many bytes.
#[inline(never)]
pub fn frame_of<const BYTES: usize>(seed: &[u8]) -> u64 {
    let mut frame = [0u8; BYTES];
    for (at, byte) in frame.iter_mut().step_by(97).enumerate() {
        *byte = seed.len() as u8 ^ at as u8;
    }
    black_box(&frame).iter().map(|byte| u64::from(*byte)).sum()
}

#[cfg(test)]
mod tests {
    use super::frame_of;

    #[test]
    fn a_frame_that_fits_is_computed_with() {
        assert_eq!(frame_of::<1000>(b""), (0..11).sum());
    }
}
