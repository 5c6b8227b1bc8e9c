//! The bounds of this server's migrations: slots, each with a core of the store, and the pace of their pulls.
//!
//! [`SlotAdmission`] decides the order of admission. A slot is free again when its [`SlotClaim`] is dropped, which the
//! migration's thread does last: by then nobody uses the core.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cluster::metadata::Side;
use cluster::migration::SlotAdmission;

use super::inbox::{InboxSender, Notice};
use crate::limits::{MIGRATIONS_AT_ONCE, PULL_LOOK_US, PULL_RATE_MAX, PULL_RATE_MIN, PULL_RATE_STEP};
use crate::sync::lock;

/// The slots of both sides.
pub(crate) struct MigrationSlots {
    sides: [Mutex<SideQueue>; 2],
    /// False until the server has all of its objects: until then nobody is admitted.
    is_open: AtomicBool,
}

struct SideQueue {
    admission: SlotAdmission,
    /// Inboxes of the migrations that wait.
    notices: BTreeMap<u32, InboxSender>,
}

impl MigrationSlots {
    /// Creates the slots with the cores of the store after those of `workers` workers.
    pub(crate) fn behind(workers: usize) -> Self {
        let sides = [0, MIGRATIONS_AT_ONCE].map(|first| {
            let cores = (workers + first..).take(MIGRATIONS_AT_ONCE);
            Mutex::new(SideQueue { admission: SlotAdmission::new(cores), notices: BTreeMap::new() })
        });
        Self { sides, is_open: AtomicBool::new(false) }
    }

    /// Admits those that wait, and later ones.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
        self.sides.iter().for_each(|side| self.admit(&mut lock(side)));
    }

    fn admit(&self, queue: &mut SideQueue) {
        if self.is_open.load(Ordering::SeqCst) {
            queue.admit();
        }
    }

    /// Returns the number of migrations of that side that get a slot before this one; `None` if it does not wait for
    /// one.
    pub(crate) fn ahead_of(&self, side: Side, migration: u32) -> Option<usize> {
        lock(&self.sides[side as usize]).admission.ahead_of(migration)
    }
}

impl SideQueue {
    fn admit(&mut self) {
        while let Some((migration, core)) = self.admission.admit() {
            if let Some(notices) = self.notices.remove(&migration) {
                notices.send(Notice::Admitted(core));
            }
        }
    }
}

/// A migration's claim to a slot of a side.
pub(crate) struct SlotClaim {
    slots: Arc<MigrationSlots>,
    side: Side,
    migration: u32,
}

impl SlotClaim {
    /// Creates a claim that has no slot and does not wait for one.
    pub(crate) fn new(slots: Arc<MigrationSlots>, side: Side, migration: u32) -> Self {
        Self { slots, side, migration }
    }

    /// Queues for a slot; a message announces it.
    pub(crate) fn take(&self, notices: &InboxSender) {
        let mut queue = lock(&self.slots.sides[self.side as usize]);
        queue.notices.insert(self.migration, notices.clone());
        queue.admission.ask(self.migration);
        self.slots.admit(&mut queue);
        if let Some(ahead) = queue.admission.ahead_of(self.migration) {
            let (migration, side) = (self.migration, self.side);
            tracing::info!(migration, ?side, ahead, "a migration waits for a slot");
        }
    }
}

impl Drop for SlotClaim {
    fn drop(&mut self) {
        let mut queue = lock(&self.slots.sides[self.side as usize]);
        queue.notices.remove(&self.migration);
        queue.admission.leave(self.migration);
        self.slots.admit(&mut queue);
    }
}

/// The rate of a migration's pulls: lower while workers are loaded, higher while they are not.
///
/// The rate falls by a tenth at each look that finds a worker loaded, and grows by a step at each other look, so that
/// it stays where workers are seldom loaded. A minimum lets every migration finish.
#[derive(Debug)]
pub(crate) struct PullPace {
    rate: u64,
    looked_us: u64,
    allowed_us: u64,
}

impl PullPace {
    /// Creates a pace at the minimum rate.
    pub(crate) fn from(now_us: u64) -> Self {
        Self { rate: PULL_RATE_MIN, looked_us: now_us, allowed_us: now_us }
    }

    /// Returns the bytes that may be pulled for the elapsed time. Looks at the workers periodically.
    pub(crate) fn allowance(&mut self, now_us: u64, is_loaded: impl FnOnce() -> bool) -> u64 {
        if now_us.saturating_sub(self.looked_us) >= PULL_LOOK_US {
            self.looked_us = now_us;
            self.rate = match is_loaded() {
                true => (self.rate - self.rate / 10).max(PULL_RATE_MIN),
                false => (self.rate + PULL_RATE_STEP).min(PULL_RATE_MAX),
            };
        }
        let passed_us = now_us.saturating_sub(self.allowed_us);
        self.allowed_us = now_us;
        // A thread that slept long may catch up only for a limited time.
        self.rate * passed_us.min(10 * PULL_LOOK_US) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::metadata::Side;

    use super::{MigrationSlots, PullPace, SlotClaim};
    use crate::control_plane::migrations::inbox::{Inbox, Notice};
    use crate::limits::{PULL_LOOK_US, PULL_RATE_MAX, PULL_RATE_MIN};

    #[test]
    fn nobody_is_admitted_before_the_slots_open() {
        let slots = Arc::new(MigrationSlots::behind(4));
        let claims = [(Side::Source, 1), (Side::Target, 2), (Side::Source, 3)].map(|(side, migration)| {
            (SlotClaim::new(Arc::clone(&slots), side, migration), Inbox::new().expect("an inbox"))
        });
        let [(first, _), ..] = &claims;
        for (claim, (inbox, notices)) in &claims {
            claim.take(notices);
            assert!(inbox.take().is_none());
        }
        assert_eq!((first.migration, slots.ahead_of(Side::Source, 3)), (1, Some(1)));
        drop(claims.into_iter().next());
        let claim = SlotClaim::new(Arc::clone(&slots), Side::Source, 5);
        let (inbox, notices) = Inbox::new().expect("an inbox");
        claim.take(&notices);
        assert!(inbox.take().is_none(), "one that left makes no room either");
        slots.open();
        assert!(matches!(inbox.take(), Some(Notice::Admitted(4 | 5))));
        let later = SlotClaim::new(Arc::clone(&slots), Side::Target, 6);
        let (inbox, notices) = Inbox::new().expect("an inbox");
        later.take(&notices);
        assert!(matches!(inbox.take(), Some(Notice::Admitted(_))));
    }

    #[test]
    fn it_goes_faster_as_long_as_no_worker_is_loaded_and_never_stands_still() {
        let mut pace = PullPace::from(0);
        let mut now_us = 0;
        let mut look = |is_loaded| {
            now_us += PULL_LOOK_US;
            pace.allowance(now_us, || is_loaded) * 1_000_000 / PULL_LOOK_US
        };
        let first = look(false);
        assert!(first > PULL_RATE_MIN);
        let fastest = (0..1_000).map(|_| look(false)).last();
        assert!(fastest.is_some_and(|rate| rate.abs_diff(PULL_RATE_MAX) < 1 << 20), "{fastest:?}");
        let slowest = (0..1_000).map(|_| look(true)).last();
        assert!(slowest.is_some_and(|rate| rate.abs_diff(PULL_RATE_MIN) < 1 << 20), "{slowest:?}");
    }
}
