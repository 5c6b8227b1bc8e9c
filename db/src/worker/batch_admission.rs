//! Limits one session's and one tenant's messages in a batch, so that a flood does not delay others.
//!
//! ```text
//!   messages of one session in one batch:   0 ─ served ─ 512 ─ `Retry` ─ 1,024 ─ dropped unread and counted
//!   messages of one tenant beside others:   0 ─ served ─ 2,048 ─ `Retry` ─ 4,096 ─ dropped unread and counted
//! ```
//! A client has no more requests outstanding than its credits, and the requests of a batch are answered when the round
//! ends. So more than its credits in one batch are copies, or the client ignores its credits. A `Retry` costs a
//! fraction of an execution, a drop a fraction of a `Retry`: so a worker empties its port faster than a flood fills
//! it, and requests of others in the port are not lost. A tenant with many sessions is limited only while another
//! tenant has been seen on the worker.
//!
//! The counts are stored in the session and in the tenant's ledger, each stamped with worker and round, so that
//! nothing is looked up or cleared. If two workers serve one session at once they overwrite each other's stamps and
//! serve it slightly more.

use wire::TenantId;

use crate::limits::{CROWDED_US, SESSION_BATCH_MESSAGES, TENANT_BATCH_MESSAGES};
use crate::session::Session;
use crate::tenant::ledger::Page;

/// The admission of a worker's batches.
#[derive(Debug)]
pub struct BatchAdmission {
    /// The worker in the upper 8 bits, the round below.
    stamp: u32,
    latest: TenantId,
    crowded_until_us: u64,
}

const ROUND_BITS: u32 = 24;

/// The numbers of a group's messages that are served and answered, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupShare {
    /// Messages that are served.
    pub served: u64,
    /// Messages that are answered, including the served ones.
    pub answered: u64,
}

impl GroupShare {
    const ALL: Self = Self { served: u64::MAX, answered: u64::MAX };
}

impl BatchAdmission {
    /// Creates the admission of a worker that has seen no tenant.
    #[must_use]
    pub const fn new(worker: usize) -> Self {
        Self { stamp: (worker as u32) << ROUND_BITS, latest: TenantId(u32::MAX), crowded_until_us: 0 }
    }

    /// Begins a batch.
    pub const fn begin(&mut self) {
        let round_mask = (1 << ROUND_BITS) - 1;
        self.stamp = self.stamp & !round_mask | self.stamp.wrapping_add(1) & round_mask;
    }

    /// Returns how many of `messages` of a session are served and answered; `page` is its tenant's.
    #[inline]
    pub fn share(&mut self, session: &Session, page: &Page, messages: u64, now_us: u64) -> GroupShare {
        // A group without messages is work as well.
        let messages = messages.max(1);
        let of_session = session.arrivals.add(self.stamp, messages);
        let of_tenant = page.arrivals.add(self.stamp, messages);
        if session.tenant != self.latest {
            self.meet(session.tenant, now_us);
        }
        if of_session + messages <= SESSION_BATCH_MESSAGES && of_tenant + messages <= TENANT_BATCH_MESSAGES {
            return GroupShare::ALL;
        }
        self.share_of_a_flood(of_session, of_tenant, now_us)
    }

    #[cold]
    fn share_of_a_flood(&self, of_session: u64, of_tenant: u64, now_us: u64) -> GroupShare {
        let of_tenant = if now_us < self.crowded_until_us { of_tenant } else { 0 };
        let left = |times: u64| {
            let of_session = (times * SESSION_BATCH_MESSAGES).saturating_sub(of_session);
            of_session.min((times * TENANT_BATCH_MESSAGES).saturating_sub(of_tenant))
        };
        GroupShare { served: left(1), answered: left(2) }
    }

    #[cold]
    fn meet(&mut self, tenant: TenantId, now_us: u64) {
        if self.latest != TenantId(u32::MAX) {
            self.crowded_until_us = now_us + CROWDED_US;
        }
        self.latest = tenant;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wire::TenantId;

    use super::{BatchAdmission, GroupShare};
    use crate::limits::{CROWDED_US, SESSION_BATCH_MESSAGES, TENANT_BATCH_MESSAGES};
    use crate::session::Session;
    use crate::tenant::account::Account;

    fn sessions(tenant: u32, count: u64) -> Vec<Session> {
        let account = Arc::new(Account::new(TenantId(tenant)));
        (0..count).map(|token| Session::new(token, token, Arc::clone(&account), 0)).collect()
    }

    fn share(admission: &mut BatchAdmission, session: &Session, messages: u64, now_us: u64) -> GroupShare {
        admission.share(session, session.account.ledger.page(3), messages, now_us)
    }

    #[test]
    fn a_session_is_served_twice_its_credits_in_a_batch_and_told_so_beyond_until_it_is_dropped() {
        let (mut admission, session) = (BatchAdmission::new(3), &sessions(1, 1)[0]);
        for _ in 0..3 {
            admission.begin();
            assert_eq!(share(&mut admission, session, SESSION_BATCH_MESSAGES - 10, 0), GroupShare::ALL);
            assert_eq!(share(&mut admission, session, 10, 0), GroupShare::ALL);
            let half = SESSION_BATCH_MESSAGES / 2;
            assert_eq!(share(&mut admission, session, half, 0), GroupShare { served: 0, answered: half * 2 });
            assert_eq!(share(&mut admission, session, 1_000, 0), GroupShare { served: 0, answered: half });
            assert_eq!(share(&mut admission, session, 1, 0), GroupShare { served: 0, answered: 0 });
        }
        admission.begin();
        assert_eq!(share(&mut admission, session, 1_000, 0), GroupShare { served: 512, answered: 1_024 });
    }

    #[test]
    fn a_tenant_alone_fills_a_batch_with_its_sessions_and_beside_others_it_does_not() {
        let (mut admission, many) = (BatchAdmission::new(3), sessions(1, 20));
        let served = |admission: &mut BatchAdmission, now_us| {
            admission.begin();
            let shares = many.iter().map(|session| share(admission, session, 256, now_us).served.min(256));
            shares.sum::<u64>()
        };
        assert_eq!(served(&mut admission, 5), 20 * 256);
        let other = &sessions(2, 1)[0];
        assert_eq!(share(&mut admission, other, 1, 6), GroupShare::ALL);
        assert_eq!(served(&mut admission, 7), TENANT_BATCH_MESSAGES);
        assert_eq!(share(&mut admission, other, 1, 8), GroupShare::ALL, "the other one is not held up");
        assert_eq!(served(&mut admission, 9), TENANT_BATCH_MESSAGES);
        assert_eq!(served(&mut admission, 9 + CROWDED_US), 20 * 256);
    }

    #[test]
    fn a_count_of_another_round_or_worker_is_not_taken_for_this_one() {
        let session = &sessions(1, 1)[0];
        let (mut admission, mut other) = (BatchAdmission::new(3), BatchAdmission::new(4));
        admission.begin();
        other.begin();
        assert_eq!(share(&mut admission, session, 500, 0), GroupShare::ALL);
        assert_eq!(share(&mut other, session, 500, 0), GroupShare::ALL);
        for _ in 0..1 << 24 {
            admission.begin();
        }
        assert_eq!(admission.stamp >> 24, 3);
    }
}
