//! What this server has promised others: not to give the replicas of their logs to anybody who recovers them, for some time.
//!
//! A server that etcd does not answer serves on while all others promise not to find it gone ([`Presence::not_gone_for`]). One that
//! etcd answers and that was not asked, since it came later, may find it gone nevertheless; but it recovers nothing without a
//! backup, and each of these has promised.
//!
//! [`Presence::not_gone_for`]: cluster::presence::Presence::not_gone_for

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cluster::limits::PROMISE_MS_MAX;

use crate::limits::RECOVERY_WANTED_MS;
use crate::sync::lock;

/// Promises given to other servers.
#[derive(Debug)]
pub struct PromisesGiven {
    /// The time before which an earlier process may have promised anything.
    forgotten_until: Instant,
    servers: Mutex<BTreeMap<u32, PromiseState>>,
}

/// The promise to a server, and when its log was last wanted.
#[derive(Clone, Copy, Debug, Default)]
struct PromiseState {
    promised_until: Option<Instant>,
    /// The time at which somebody last wanted to recover its log.
    wanted: Option<Instant>,
}

impl PromisesGiven {
    /// Creates the state of a server that has just started: an earlier process may have promised.
    #[must_use]
    pub fn at_start(now: Instant) -> Self {
        Self { forgotten_until: now + Duration::from_millis(PROMISE_MS_MAX), servers: Mutex::default() }
    }

    /// Promises this to a server; returns false if somebody has begun to recover its log.
    pub fn promise(&self, server: u32, now: Instant, time: Duration) -> bool {
        let mut servers = lock(&self.servers);
        let state = servers.entry(server).or_default();
        let wanted_for = state.wanted.map(|wanted| now.saturating_duration_since(wanted));
        if wanted_for.is_some_and(|wanted_for| wanted_for < Duration::from_millis(RECOVERY_WANTED_MS)) {
            return false;
        }
        state.promised_until = state.promised_until.max(Some(now + time));
        true
    }

    /// Returns whether the log of a server may be given to somebody who recovers it. From now on nothing is promised to that server
    /// for a while.
    pub fn may_give(&self, server: u32, now: Instant) -> bool {
        let mut servers = lock(&self.servers);
        let state = servers.entry(server).or_default();
        state.wanted = Some(now);
        now >= self.forgotten_until && state.promised_until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use cluster::limits::PROMISE_MS_MAX;

    use super::PromisesGiven;
    use crate::limits::RECOVERY_WANTED_MS;

    #[test]
    fn no_log_is_given_while_its_owner_has_a_promise_and_none_is_made_once_it_is_wanted() {
        let start = Instant::now();
        let (promised, time) = (PromisesGiven::at_start(start), Duration::from_millis(PROMISE_MS_MAX));
        let moment = Duration::from_millis(1);
        assert!(!promised.may_give(1, start), "an earlier process may have promised");
        assert!(promised.may_give(1, start + time));
        let now = start + time;
        assert!(promised.promise(2, now, time) && promised.promise(2, now, moment));
        assert!(!promised.may_give(2, now + time - moment), "the longer promise holds");
        assert!(!promised.promise(2, now + time - moment, time), "it is wanted");
        assert!(promised.may_give(2, now + time) && promised.may_give(3, now));
        let later = now + time + Duration::from_millis(RECOVERY_WANTED_MS);
        assert!(promised.promise(2, later, time) && !promised.may_give(2, later));
    }
}
