//! Steps of a histogram of times: a fixed number per doubling, so that each step covers a narrow range.

use crate::limits::{TIME_CYCLES_MAX, TIME_STEPS_PER_DOUBLING};

const STEP_BITS: u32 = TIME_STEPS_PER_DOUBLING.trailing_zeros();
/// The number of steps.
pub(super) const STEPS: usize =
    ((TIME_CYCLES_MAX.trailing_zeros() - STEP_BITS + 1) as usize) * TIME_STEPS_PER_DOUBLING;

/// Returns the step of a number of cycles.
#[inline]
pub(super) fn step_of(cycles: u64) -> usize {
    let cycles = cycles.min(TIME_CYCLES_MAX - 1);
    let shift = (u64::BITS - 1 - (cycles | (TIME_STEPS_PER_DOUBLING as u64)).leading_zeros()) - STEP_BITS;
    (shift as usize) * TIME_STEPS_PER_DOUBLING + (cycles >> shift) as usize
}

/// Returns the middle of a step, in cycles.
pub(super) fn middle_of(step: usize) -> u64 {
    let shift = (step / TIME_STEPS_PER_DOUBLING).saturating_sub(1);
    let first = (step - shift * TIME_STEPS_PER_DOUBLING) as u64;
    (first << shift) + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::{STEPS, middle_of, step_of};

    #[test]
    fn steps_grow_with_the_time_and_lie_close() {
        let mut last = 0;
        for cycles in 0..100_000 {
            let step = step_of(cycles);
            assert!(step == last || step == last + 1, "{cycles}");
            last = step;
        }
        for bits in 4..36 {
            for part in 16..32_u64 {
                let cycles = (part << bits) >> 4;
                let middle = middle_of(step_of(cycles));
                assert!(middle.abs_diff(cycles) * 16 <= cycles, "{middle} stands for {cycles}");
            }
        }
        assert_eq!(step_of(u64::MAX), STEPS - 1);
    }
}
