//! Numbers drawn by Zipf's law, for tests of skewed writing: rank r with a probability of about r^-theta.
//!
//! The approximation of Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD '94), as YCSB
//! has it. Ranks are scattered over the numbers, so that what is hot does not lie together in the log.

/// See the file's head.
pub(super) struct Zipf {
    count: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Numbers below `count`. Cost: a pass over as many.
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
        // A prime above every count here: a permutation of the numbers.
        (u128::from(rank) * 0xffff_fffb % u128::from(self.count)) as u64
    }
}
