//! The slots of this server for migrations, each with a core of the store, and the mail of whoever waits for one.
//!
//! Who is admitted when is [`Admission`]'s. A slot is free again when its [`Claim`] is dropped, which the thread of the
//! migration does last: by then nobody uses the core.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::mail::{Mail, Post};
use crate::cluster::metadata::Side;
use crate::cluster::migration::Admission;
use crate::limits::MIGRATIONS_AT_ONCE;
use crate::sync::lock;

/// See the file's head.
pub(super) struct Slots([Mutex<Queue>; 2]);

struct Queue {
    admission: Admission,
    /// Of the migrations that wait.
    posts: BTreeMap<u32, Post>,
}

impl Slots {
    /// With the cores of the store behind those of so many workers.
    pub(super) fn behind(workers: usize) -> Self {
        Self([0, MIGRATIONS_AT_ONCE].map(|first| {
            let cores = (workers + first..).take(MIGRATIONS_AT_ONCE);
            Mutex::new(Queue { admission: Admission::new(cores), posts: BTreeMap::new() })
        }))
    }

    /// How many migrations get a slot of that side before this one; `None` when it does not wait for one.
    pub(super) fn ahead_of(&self, side: Side, migration: u32) -> Option<usize> {
        lock(&self.0[side as usize]).admission.ahead_of(migration)
    }
}

impl Queue {
    fn admit(&mut self) {
        while let Some((migration, core)) = self.admission.admit() {
            if let Some(post) = self.posts.remove(&migration) {
                post.send(Mail::Admitted(core));
            }
        }
    }
}

/// What a migration may have of the slots of a side.
pub(super) struct Claim {
    slots: Arc<Slots>,
    side: Side,
    migration: u32,
}

impl Claim {
    /// Without a slot, and not waiting for one.
    pub(super) fn new(slots: Arc<Slots>, side: Side, migration: u32) -> Self {
        Self { slots, side, migration }
    }

    /// Waits for a slot from here on: mail says when there is one.
    pub(super) fn take(&self, post: &Post) {
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

impl Drop for Claim {
    fn drop(&mut self) {
        let mut queue = lock(&self.slots.0[self.side as usize]);
        queue.posts.remove(&self.migration);
        queue.admission.leave(self.migration);
        queue.admit();
    }
}
