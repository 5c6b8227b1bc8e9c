//! The servers that count as gone: their objects are lost and their claims void.
//!
//! A restarted server is a new one at once, and one whose process has ended is gone at once. A server without a registration may
//! still be there: after a long outage of etcd all leases have expired, and every server registers again within a moment. So it
//! counts as gone after its registration was missing at every check over [`GONE_AFTER_MS`]; a check that etcd did not answer, or not
//! soon, restarts that time. If etcd answered every check for longer than the life of a lease before, the server has not renewed its
//! own, and [`GONE_IN_SIGHT_MS`] are enough.
//!
//! Since nobody is gone before a check has missed its registration, a server can promise another one not to find it gone for some
//! time ([`Presence::not_gone_for`]). With the promises of all others a server may serve while etcd is away, for however long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::metadata::ServerRun;
use crate::limits::{GONE_AFTER_MS, GONE_IN_SIGHT_MS, IN_SIGHT_MS, PROMISE_MS_MAX};

/// The servers seen as present or gone.
#[derive(Clone, Debug, Default)]
pub struct Presence {
    /// The last start of each server.
    runs: BTreeMap<u32, u32>,
    /// The servers that were registered at a check, and were not found gone since.
    seen: BTreeSet<u32>,
    /// The time since which a server's registration is missing, and whether etcd was in sight before.
    missing: BTreeMap<u32, (Instant, bool)>,
    /// The time since which etcd has answered every check.
    answered_since: Option<Instant>,
    /// Starts whose processes have ended.
    ended: BTreeSet<ServerRun>,
}

impl Presence {
    /// Updates the known starts and registrations.
    pub fn see(&mut self, members: &[ServerRun], registered: &BTreeSet<u32>, now: Instant) {
        self.runs = members.iter().map(|run| (run.server, run.start)).collect();
        self.forget_gone(now);
        self.seen.extend(registered);
        self.missing.retain(|server, _| !registered.contains(server));
        let since = *self.answered_since.get_or_insert(now);
        let is_in_sight = now.saturating_duration_since(since) >= Duration::from_millis(IN_SIGHT_MS);
        for run in members.iter().filter(|run| !registered.contains(&run.server)) {
            self.missing.entry(run.server).or_insert((now, is_in_sight));
        }
    }

    /// Updates the starts whose processes are known to have ended.
    pub fn note_ended(&mut self, ended: BTreeSet<ServerRun>) {
        self.ended = ended;
    }

    /// Forgets the servers that are gone now.
    fn forget_gone(&mut self, now: Instant) {
        let gone: Vec<u32> =
            self.missing.keys().copied().filter(|server| self.is_missed(*server, now)).collect();
        self.seen.retain(|server| !gone.contains(server));
    }

    /// Restarts all absence times, because the registrations are unknown at present.
    pub fn lose_sight(&mut self, now: Instant) {
        self.forget_gone(now);
        self.missing.clear();
        self.answered_since = None;
    }

    /// Returns whether a server is gone; false for an unknown server.
    #[must_use]
    pub fn is_gone(&self, run: ServerRun, now: Instant) -> bool {
        let Some(start) = self.runs.get(&run.server) else { return false };
        *start > run.start || self.is_missed(run.server, now) || self.ended.contains(&run)
    }

    /// Returns whether a server's registration has been missing for so long that it is gone.
    fn is_missed(&self, server: u32, now: Instant) -> bool {
        self.missing.get(&server).is_some_and(|missing| missed_in(*missing, now).is_zero())
    }

    /// Returns for how long from now on a server will not be found gone: zero unless it was registered at a check and not found gone
    /// since. `is_in_sight`: whether the check that runs now may still count as answered in time.
    #[must_use]
    pub fn not_gone_for(&self, run: ServerRun, is_in_sight: bool, now: Instant) -> Duration {
        let is_last = self.runs.get(&run.server) == Some(&run.start) && !self.ended.contains(&run);
        if !is_last || !self.seen.contains(&run.server) {
            return Duration::ZERO;
        }
        let may_be_in_sight = self.answered_since.is_some() && is_in_sight;
        // Else its registration is missing at the next check, and not before.
        let missing = self.missing.get(&run.server).copied().unwrap_or((now, may_be_in_sight));
        missed_in(missing, now).min(Duration::from_millis(PROMISE_MS_MAX))
    }

    /// Returns for how long a server's registration has been missing; `None` if it is there, or nobody has looked.
    #[must_use]
    pub fn missing_for(&self, server: u32, now: Instant) -> Option<Duration> {
        self.missing.get(&server).map(|(since, _)| now.saturating_duration_since(*since))
    }

    /// Returns the servers that are not gone.
    #[must_use]
    pub fn there(&self, now: Instant) -> Vec<ServerRun> {
        let runs = self.runs.iter().map(|(&server, &start)| ServerRun { server, start });
        runs.filter(|run| !self.is_gone(*run, now)).collect()
    }
}

/// Returns the time until a server is gone whose registration has been missing since then.
fn missed_in((since, is_in_sight): (Instant, bool), now: Instant) -> Duration {
    let after = Duration::from_millis(if is_in_sight { GONE_IN_SIGHT_MS } else { GONE_AFTER_MS });
    after.saturating_sub(now.saturating_duration_since(since))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use super::Presence;
    use crate::limits::{GONE_AFTER_MS, GONE_IN_SIGHT_MS, IN_SIGHT_MS, PROMISE_MS_MAX};
    use crate::metadata::ServerRun;

    const ONE: ServerRun = ServerRun { server: 1, start: 1 };
    const OTHER: ServerRun = ServerRun { server: 2, start: 3 };

    #[test]
    fn who_registers_again_in_time_was_never_gone() {
        let (mut presence, now) = (Presence::default(), Instant::now());
        let long = Duration::from_millis(GONE_AFTER_MS);
        let moment = Duration::from_millis(1);
        let both = BTreeSet::from([1, 2]);
        let one = BTreeSet::from([1]);
        assert!(!presence.is_gone(OTHER, now), "nobody has looked");
        presence.see(&[ONE, OTHER], &both, now);
        presence.see(&[ONE, OTHER], &one, now + moment);
        assert!(!presence.is_gone(OTHER, now + long));
        let missing = [1, 2].map(|server| presence.missing_for(server, now + long));
        assert_eq!(missing, [None, Some(long - moment)]);
        presence.see(&[ONE, OTHER], &both, now + long);
        assert!(!presence.is_gone(OTHER, now + 9 * long));
        presence.see(&[ONE, OTHER], &one, now + 2 * long);
        presence.lose_sight(now + 2 * long);
        presence.see(&[ONE, OTHER], &one, now + 3 * long);
        assert!(!presence.is_gone(OTHER, now + 4 * long - moment), "etcd was away as well");
        assert!(presence.is_gone(OTHER, now + 4 * long));
        assert_eq!(presence.there(now + 4 * long), [ONE]);
    }

    #[test]
    fn who_lets_its_lease_end_while_etcd_answers_is_gone_soon() {
        let (mut presence, now) = (Presence::default(), Instant::now());
        let [sight, soon] = [IN_SIGHT_MS, GONE_IN_SIGHT_MS].map(Duration::from_millis);
        presence.see(&[ONE, OTHER], &BTreeSet::from([1, 2]), now);
        presence.see(&[ONE, OTHER], &BTreeSet::from([1]), now + sight);
        assert!(!presence.is_gone(OTHER, now + sight) && presence.is_gone(OTHER, now + sight + soon));
        presence.lose_sight(now + 2 * sight);
        presence.see(&[ONE, OTHER], &BTreeSet::from([1]), now + 2 * sight);
        assert!(!presence.is_gone(OTHER, now + 2 * sight + soon), "etcd was away as well");
    }

    #[test]
    fn nobody_is_found_gone_within_the_time_that_was_promised() {
        let (mut presence, now) = (Presence::default(), Instant::now());
        let [sight, soon, late] = [IN_SIGHT_MS, GONE_IN_SIGHT_MS, GONE_AFTER_MS].map(Duration::from_millis);
        let (most, moment) = (Duration::from_millis(PROMISE_MS_MAX), Duration::from_millis(1));
        let (both, one) = (BTreeSet::from([1, 2]), BTreeSet::from([1]));
        assert_eq!(presence.not_gone_for(OTHER, true, now), Duration::ZERO, "nobody has looked");
        presence.see(&[ONE, OTHER], &one, now);
        assert_eq!(presence.not_gone_for(OTHER, true, now), Duration::ZERO, "it was never there");
        presence.see(&[ONE, OTHER], &both, now);
        for start in [OTHER.start - 1, OTHER.start + 1] {
            let another = ServerRun { start, ..OTHER };
            assert_eq!(presence.not_gone_for(another, true, now), Duration::ZERO);
        }
        // It may be missing at the next check, and is gone as soon after that as was promised.
        let at = now + sight;
        assert_eq!(presence.not_gone_for(OTHER, true, at), soon);
        let mut missing = presence.clone();
        missing.see(&[ONE, OTHER], &one, at);
        let left = missing.not_gone_for(OTHER, true, at + soon / 4);
        assert!(!missing.is_gone(OTHER, at + soon / 4 + left - moment), "{left:?}");
        assert!(missing.is_gone(OTHER, at + soon / 4 + left));
        assert_eq!(missing.not_gone_for(OTHER, true, at + soon), Duration::ZERO);
        // Without etcd it stays as it was: gone, or not gone before etcd has answered for long again.
        let mut gone = missing.clone();
        gone.lose_sight(at + soon);
        assert_eq!(gone.not_gone_for(OTHER, true, at + soon), Duration::ZERO);
        missing.lose_sight(at + soon / 2);
        assert_eq!(missing.not_gone_for(OTHER, true, at + soon), most);
        missing.see(&[ONE, OTHER], &one, at + soon);
        assert!(!missing.is_gone(OTHER, at + soon + late - moment));
        // A check that lasts too long counts as one that etcd did not answer.
        assert_eq!(presence.not_gone_for(OTHER, false, at), most);
        gone.see(&[ONE, OTHER], &both, at + late);
        assert_eq!(gone.not_gone_for(OTHER, true, at + late), soon, "it is there again");
        gone.note_ended(BTreeSet::from([OTHER]));
        assert_eq!(gone.not_gone_for(OTHER, true, at + late), Duration::ZERO, "its process has ended");
    }

    #[test]
    fn who_was_started_again_is_another_one_at_once() {
        let (mut presence, now) = (Presence::default(), Instant::now());
        let again = ServerRun { start: 4, ..OTHER };
        presence.see(&[ONE, again], &BTreeSet::from([1]), now);
        assert!(presence.is_gone(OTHER, now) && !presence.is_gone(again, now));
        assert_eq!(presence.there(now), [ONE, again]);
    }
}
