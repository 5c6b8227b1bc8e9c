//! How the servers of a cluster share a tenant's limits that hold for all of them together.
//!
//! Each server tells the others now and then what a tenant uses there ([`UsageRow`](crate::metadata::UsageRow)), and computes its
//! own share from the same reports as they do. So the shares of one set of reports never exceed the limit together. While reports
//! change, servers compute from different ones: so a smaller share is put in force at once, and a larger one a look later ([`next`]).

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

/// Returns the share that a server puts in force: a smaller one at once; a larger one as far as the look before came to it as well,
/// since others may not have put their smaller ones in force yet. `before` is what that look came to; `None` if there was none.
#[must_use]
pub fn next(in_force: u64, computed: u64, before: Option<u64>) -> u64 {
    computed.min(in_force.max(before.unwrap_or(0)))
}

/// Returns `amount * share / all`.
fn of(amount: u64, share: u64, all: u64) -> u64 {
    (u128::from(amount) * u128::from(share) / u128::from(all.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::{Shared, next};

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
    fn a_share_shrinks_at_once_and_grows_as_far_as_two_looks_say() {
        assert_eq!(next(500, 300, Some(800)), 300);
        assert_eq!(next(300, 700, None), 300, "the first look");
        assert_eq!(next(300, 700, Some(200)), 300);
        assert_eq!(next(300, 700, Some(600)), 600);
        assert_eq!(next(300, 700, Some(900)), 700);
    }

    /// Each server looks once in a second, in an order of its own, while what is used moves from one to another.
    #[test]
    fn shares_that_grow_a_look_later_do_not_exceed_a_limit_when_its_use_moves() {
        const LIMIT: u64 = 1_000;
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let servers = random.usize(2..8);
            let mut uses = vec![0; servers];
            uses[0] = 900;
            let share = |uses: &[u64], own: usize| Shared::of(LIMIT, uses).rate(uses[own]);
            let mut in_force: Vec<u64> = (0..servers).map(|own| share(&uses, own)).collect();
            let mut before: Vec<Option<u64>> = in_force.iter().copied().map(Some).collect();
            let mut order: Vec<usize> = (0..servers).collect();
            random.shuffle(&mut order);
            (uses[0], uses[1]) = (0, 900);
            for second in 0..2 {
                for &own in &order {
                    let computed = share(&uses, own);
                    in_force[own] = next(in_force[own], computed, before[own].replace(computed));
                    let sum: u64 = in_force.iter().sum();
                    assert!(sum <= LIMIT + servers as u64, "{sum} in second {second}: {in_force:?}");
                }
            }
            assert_eq!(in_force, (0..servers).map(|own| share(&uses, own)).collect::<Vec<_>>());
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
