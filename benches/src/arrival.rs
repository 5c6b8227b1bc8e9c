//! When the next request is due: as soon as one is answered (closed loop), or by a clock that does not
//! care about answers (open loop).
//!
//! An open loop draws exponential gaps, so requests arrive as a Poisson process of the given rate.
//! Latency is counted from the instant at which a request was due, also when the generator or a full
//! session sends it later: a server that stalls is charged for everybody who had to wait.

use fastrand::Rng;

/// The schedule of an open loop; times are nanoseconds since the start of the run.
#[derive(Clone, Debug)]
pub struct Arrivals {
    gap_ns: f64,
    due_ns: f64,
}

impl Arrivals {
    /// Arrivals at `rate` requests a second on average, from `start_ns` on.
    pub fn new(rate: f64, start_ns: u64) -> Result<Self, String> {
        if !(rate > 0.0 && rate.is_finite()) {
            return Err(format!("a rate is a positive number of requests a second, not {rate}"));
        }
        Ok(Self { gap_ns: 1e9 / rate, due_ns: start_ns as f64 })
    }

    /// When the next request is due.
    pub fn due_ns(&self) -> u64 {
        self.due_ns as u64
    }

    /// Moves on to the request after the next one.
    pub fn advance(&mut self, random: &mut Rng) {
        // 1 - f64() lies in (0, 1], so that the logarithm is finite.
        self.due_ns -= self.gap_ns * (1.0 - random.f64()).ln();
    }
}

#[cfg(test)]
mod tests {
    use super::Arrivals;
    use fastrand::Rng;

    #[test]
    fn arrivals_keep_the_rate_and_vary_like_a_poisson_process() {
        let mut random = Rng::with_seed(3);
        let mut arrivals = Arrivals::new(100_000.0, 0).unwrap();
        let mut gaps = Vec::new();
        for _ in 0..100_000 {
            let before = arrivals.due_ns();
            arrivals.advance(&mut random);
            gaps.push((arrivals.due_ns() - before) as f64);
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 10_000.0).abs() < 200.0, "mean gap {mean} ns");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "an exponential gap deviates by its mean");
    }

    #[test]
    fn a_rate_of_zero_is_refused() {
        assert!(Arrivals::new(0.0, 0).is_err());
        assert!(Arrivals::new(f64::NAN, 0).is_err());
    }
}
