//! How the servers of a cluster share a tenant's limits that hold for all of them together.
//!
//! Each server tells the others now and then what a tenant uses there ([`UsageRow`](crate::metadata::UsageRow)), and computes its
//! own share from the same reports as they do. So the shares of one set of reports never exceed the limit together; while
//! reports change, by what comes in that time.

/// What a tenant uses at one server, or at all of them: bytes, or requests per second.
pub type Amount = u64;

/// What is the same for all servers that share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The limit.
    pub limit: u64,
    /// What is used at all servers.
    pub used: Amount,
    /// How many servers use something, and how many use nothing.
    pub servers: (u64, u64),
}

/// The weight of a server that uses something, in the division of what nobody uses; one that does not has 1.
const USER_WEIGHT: u64 = 8;
/// The part of a limit that is divided among all, whatever they use: one of so many.
const BASE_DIVISOR: u64 = 8;

impl Shared {
    /// Returns what is shared of these uses, one for each server.
    #[must_use]
    pub fn of(limit: u64, uses: &[Amount]) -> Self {
        let users = uses.iter().filter(|used| **used > 0).count() as u64;
        let used = uses.iter().fold(0, |sum: u64, used| sum.saturating_add(*used));
        Self { limit, used, servers: (users, (uses.len() as u64).saturating_sub(users)) }
    }

    /// Returns the part of `amount` for a server that uses so much.
    fn part(&self, amount: u64, own: Amount) -> u64 {
        let (users, others) = self.servers;
        let all = users * USER_WEIGHT + others;
        let weight = if own > 0 { USER_WEIGHT } else { 1 };
        of(amount, weight, all)
    }

    /// Returns a server's share of a rate: what it is asked for, and a part of what nobody is asked for; if all are asked for more
    /// than there is, in proportion.
    #[must_use]
    pub fn rate(&self, own: Amount) -> u64 {
        if self.used <= self.limit {
            return (own + self.part(self.limit - self.used, own)).max(1);
        }
        let base = self.limit / BASE_DIVISOR;
        (self.part(base, own) + of(self.limit - base, own, self.used)).max(1)
    }

    /// Returns a server's share of a quota: what is there, and a part of what is free.
    #[must_use]
    pub fn quota(&self, own: Amount) -> u64 {
        own.saturating_add(self.part(self.limit.saturating_sub(self.used), own))
    }
}

/// Returns `amount * share / all`.
fn of(amount: u64, share: u64, all: u64) -> u64 {
    (u128::from(amount) * u128::from(share) / u128::from(all.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::Shared;

    #[test]
    fn shares_of_the_same_reports_never_exceed_the_limit_and_use_nearly_all_of_it() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2_000 {
            let limit = 1 << random.u64(10..40);
            let servers = random.usize(1..40);
            let most = random.u64(1..3) * limit / servers as u64;
            let uses: Vec<u64> =
                (0..servers).map(|_| if random.bool() { 0 } else { random.u64(0..=most) }).collect();
            let shared = Shared::of(limit, &uses);
            let sum = |share: &dyn Fn(u64) -> u64| uses.iter().map(|own| share(*own)).sum::<u64>();
            let rates = sum(&|own| shared.rate(own));
            // Nobody is refused everything, and parts are rounded down.
            let rounding = 2 * servers as u64;
            assert!(rates <= limit + rounding && rates + rounding >= limit, "{rates} of {limit}: {uses:?}");
            let quotas = sum(&|own| shared.quota(own));
            let most = limit.max(shared.used);
            assert!(quotas <= most && quotas + rounding >= most, "{quotas} of {limit}: {uses:?}");
        }
    }

    #[test]
    fn who_is_asked_for_much_has_much() {
        let shared = Shared::of(1_000, &[0, 800, 100]);
        assert!(shared.rate(800) > 800 && shared.rate(100) > 100 && shared.rate(0) < 20);
        let short = Shared::of(1_000, &[0, 8_000, 1_000]);
        assert!(short.rate(8_000) > 700 && (90..200).contains(&short.rate(1_000)) && short.rate(0) > 0);
        let full = Shared::of(1_000, &[900, 300, 0]);
        assert_eq!([900, 300, 0].map(|own| full.quota(own)), [900, 300, 0], "nobody may grow");
        assert_eq!(Shared::of(1_000, &[700]).quota(700), 1_000);
    }
}
