//! Slots of this server for migrations, each with a core of the store, and the inboxes of migrations that wait for
//! one.
//!
//! [`SlotAdmission`] decides the order of admission. A slot is free again when its [`SlotClaim`] is dropped, which the
//! migration's thread does last: by then nobody uses the core.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cluster::metadata::Side;
use cluster::migration::SlotAdmission;

use super::inbox::{InboxSender, Notice};
use crate::limits::MIGRATIONS_AT_ONCE;
use crate::sync::lock;

/// The slots of both sides.
pub(super) struct MigrationSlots([Mutex<SideQueue>; 2]);

struct SideQueue {
    admission: SlotAdmission,
    /// Inboxes of the migrations that wait.
    posts: BTreeMap<u32, InboxSender>,
}

impl MigrationSlots {
    /// Creates the slots with the cores of the store after those of `workers` workers.
    pub(super) fn behind(workers: usize) -> Self {
        Self([0, MIGRATIONS_AT_ONCE].map(|first| {
            let cores = (workers + first..).take(MIGRATIONS_AT_ONCE);
            Mutex::new(SideQueue { admission: SlotAdmission::new(cores), posts: BTreeMap::new() })
        }))
    }

    /// Returns the number of migrations of that side that get a slot before this one; `None` if it does not wait for
    /// one.
    pub(super) fn ahead_of(&self, side: Side, migration: u32) -> Option<usize> {
        lock(&self.0[side as usize]).admission.ahead_of(migration)
    }
}

impl SideQueue {
    fn admit(&mut self) {
        while let Some((migration, core)) = self.admission.admit() {
            if let Some(post) = self.posts.remove(&migration) {
                post.send(Notice::Admitted(core));
            }
        }
    }
}

/// A migration's claim to a slot of a side.
pub(super) struct SlotClaim {
    slots: Arc<MigrationSlots>,
    side: Side,
    migration: u32,
}

impl SlotClaim {
    /// Creates a claim that has no slot and does not wait for one.
    pub(super) fn new(slots: Arc<MigrationSlots>, side: Side, migration: u32) -> Self {
        Self { slots, side, migration }
    }

    /// Queues for a slot; a message announces it.
    pub(super) fn take(&self, post: &InboxSender) {
        let mut queue = lock(&self.slots.0[self.side as usize]);
        queue.posts.insert(self.migration, post.clone());
        queue.admission.ask(self.migration);
        queue.admit();
        if let Some(ahead) = queue.admission.ahead_of(self.migration) {
            let (migration, side) = (self.migration, self.side);
            tracing::info!(migration, ?side, ahead, "a migration waits for a slot");
        }
    }
}

impl Drop for SlotClaim {
    fn drop(&mut self) {
        let mut queue = lock(&self.slots.0[self.side as usize]);
        queue.posts.remove(&self.migration);
        queue.admission.leave(self.migration);
        queue.admit();
    }
}
