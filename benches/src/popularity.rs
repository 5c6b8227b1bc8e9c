//! Which object is asked for next: all alike, or a few much more often than the rest.
//!
//! The skewed choice is the Zipf generator of YCSB (Gray et al., "Quickly generating billion-record
//! synthetic databases", SIGMOD 1994), scrambled so that popular objects are not neighbours. Setting up
//! costs one pass over all ranks; a choice is a multiplication or one power.

use fastrand::Rng;

/// A distribution over the indexes `0..keys`.
#[derive(Clone, Debug)]
pub enum Popularity {
    /// Every index is as likely.
    Uniform {
        /// Number of indexes.
        keys: u64,
    },
    /// Rank r is chosen in proportion to 1 / r^theta.
    Zipf(Zipf),
}

/// The constants of one Zipf distribution.
#[derive(Clone, Debug)]
pub struct Zipf {
    keys: u64,
    alpha: f64,
    zeta: f64,
    eta: f64,
    second: f64,
}

impl Popularity {
    /// A uniform choice for `theta` 0, else a Zipf choice; `theta` lies in 0..1.
    pub fn new(keys: u64, theta: f64) -> Result<Self, String> {
        if theta == 0.0 {
            return Ok(Self::Uniform { keys });
        }
        if !(0.0..1.0).contains(&theta) {
            return Err(format!("zipf's theta lies between 0 and 1, not {theta}"));
        }
        let zeta: f64 = (1..=keys).map(|rank| (rank as f64).powf(-theta)).sum();
        let second = 0.5_f64.powf(theta);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - theta)) / (1.0 - (1.0 + second) / zeta);
        Ok(Self::Zipf(Zipf { keys, alpha: 1.0 / (1.0 - theta), zeta, eta, second }))
    }

    /// The next index.
    pub fn pick(&self, random: &mut Rng) -> u64 {
        match self {
            Self::Uniform { keys } => random.u64(0..*keys),
            Self::Zipf(zipf) => scramble(zipf.rank(random.f64())) % zipf.keys,
        }
    }
}

impl Zipf {
    fn rank(&self, uniform: f64) -> u64 {
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + self.second {
            return 1;
        }
        let rank = self.keys as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.keys - 1)
    }
}

/// Spreads neighbouring numbers over all 64 bits, one to one (the finalizer of SplitMix64).
pub fn scramble(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Popularity, scramble};
    use fastrand::Rng;

    fn counts(popularity: &Popularity, keys: usize, picks: usize) -> Vec<usize> {
        let mut random = Rng::with_seed(7);
        let mut counts = vec![0; keys];
        for _ in 0..picks {
            counts[popularity.pick(&mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_choices_hit_every_key_about_equally() {
        let counts = counts(&Popularity::new(100, 0.0).unwrap(), 100, 100_000);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_most_popular_key_of_a_zipf_choice_gets_its_share() {
        let keys = 1000;
        let counts = counts(&Popularity::new(keys, 0.99).unwrap(), keys as usize, 200_000);
        let zeta: f64 = (1..=keys).map(|rank| (rank as f64).powf(-0.99)).sum();
        let share = counts[(scramble(0) % keys) as usize] as f64 / 200_000.0;
        assert!((share * zeta - 1.0).abs() < 0.15, "share {share}, expected {}", 1.0 / zeta);
    }

    #[test]
    fn a_theta_beyond_the_formula_is_refused() {
        assert!(Popularity::new(10, 1.0).is_err());
        assert!(Popularity::new(10, -0.1).is_err());
    }
}
