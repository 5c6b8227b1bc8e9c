//! The slots of this server for migrations, each with a core of the store, and the mail of whoever waits for one.
//!
//! Who is admitted when is [`SlotAdmission`]'s. A slot is free again when its [`SlotClaim`] is dropped, which the thread of the
//! migration does last: by then nobody uses the core.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::inbox::{InboxSender, Notice};
use crate::cluster::metadata::Side;
use crate::cluster::migration::SlotAdmission;
use crate::limits::MIGRATIONS_AT_ONCE;
use crate::sync::lock;

/// See the file's head.
pub(super) struct MigrationSlots([Mutex<SideQueue>; 2]);

struct SideQueue {
    admission: SlotAdmission,
    /// Of the migrations that wait.
    posts: BTreeMap<u32, InboxSender>,
}

impl MigrationSlots {
    /// With the cores of the store behind those of so many workers.
    pub(super) fn behind(workers: usize) -> Self {
        Self([0, MIGRATIONS_AT_ONCE].map(|first| {
            let cores = (workers + first..).take(MIGRATIONS_AT_ONCE);
            Mutex::new(SideQueue { admission: SlotAdmission::new(cores), posts: BTreeMap::new() })
        }))
    }

    /// How many migrations get a slot of that side before this one; `None` when it does not wait for one.
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

/// What a migration may have of the slots of a side.
pub(super) struct SlotClaim {
    slots: Arc<MigrationSlots>,
    side: Side,
    migration: u32,
}

impl SlotClaim {
    /// Without a slot, and not waiting for one.
    pub(super) fn new(slots: Arc<MigrationSlots>, side: Side, migration: u32) -> Self {
        Self { slots, side, migration }
    }

    /// Waits for a slot from here on: mail says when there is one.
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
