//! Numbers drawn by Zipf's law, for tests of skewed writing: rank r with a probability of about r^-theta.
//!
//! Uses the approximation of Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD '94), as in
//! YCSB. Ranks are scattered over the numbers, so that hot objects do not lie together in the log.

/// A generator of such numbers; see the head of this file.
pub(super) struct Zipf {
    count: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Creates a generator of numbers below `count`. Costs a pass over all of them.
    pub(super) fn new(count: u64, theta: f64) -> Zipf {
        let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let (zeta_two, zeta) = (zeta(2), zeta(count));
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta);
        Zipf { count, theta, zeta, eta }
    }

    pub(super) fn next(&self, random: &mut fastrand::Rng) -> u64 {
        let uniform = random.f64();
        let scaled = uniform * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            let power = (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
            ((self.count as f64 * power) as u64).min(self.count - 1)
        };
        // Multiplying by a prime above every count permutes the numbers.
        (u128::from(rank) * 0xffff_fffb % u128::from(self.count)) as u64
    }
}
