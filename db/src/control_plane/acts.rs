//! Administrative acts on their way into the audit log: acts that cannot be recorded now are recorded later, in order.
//!
//! While the metadata does not answer, acts wait in memory, at most [`AUDIT_WAITING_MAX`] and of one tenant
//! [`AUDIT_WAITING_PER_TENANT_MAX`]; housekeeping records them once it answers. Acts beyond these limits, and acts
//! that still wait when the server ends, are missing in the audit log, and the server's own log reports them. An act
//! whose recording was interrupted may be recorded twice.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::metadata::{Metadata, MetadataError};
use cluster::records::RecordsError;
use control::Actor;
use wire::{Status, TenantId};

use crate::limits::{AUDIT_WAITING_MAX, AUDIT_WAITING_PER_TENANT_MAX};

/// An act that has ended.
#[derive(Clone, Debug)]
pub struct Act {
    /// The affected tenant, if there is one.
    pub tenant: Option<TenantId>,
    /// Time of its end, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Its author.
    pub actor: Actor,
    /// Its description.
    pub text: String,
    /// Its outcome.
    pub outcome: Status,
}

/// The queue of acts that wait for the audit log.
#[derive(Debug, Default)]
pub struct Acts {
    waiting: Mutex<VecDeque<Act>>,
}

impl Acts {
    /// Records an act, at once unless the metadata does not answer or other acts wait.
    pub fn record(&self, metadata: &Metadata, act: Act) {
        if self.waiting().is_empty() {
            match write(metadata, &act) {
                Ok(()) => return,
                Err(error) if is_passing(&error) => {
                    tracing::warn!(%error, act = act.text, "cannot record an act now, retrying later");
                }
                Err(error) => return lose(&act, &error.to_string()),
            }
        }
        let mut waiting = self.waiting();
        let own = waiting.iter().filter(|other| other.tenant == act.tenant).count();
        if waiting.len() >= AUDIT_WAITING_MAX || own >= AUDIT_WAITING_PER_TENANT_MAX {
            lose(&act, "too many acts are waiting to be recorded");
        } else {
            waiting.push_back(act);
        }
    }

    /// Records the waiting acts while the metadata answers. Only one thread may call this.
    pub fn catch_up(&self, metadata: &Metadata) {
        // The lock is not held during the call to the metadata. Others only add acts after this one.
        while let Some(act) = { self.waiting().front().cloned() } {
            match write(metadata, &act) {
                Ok(()) => tracing::info!(act = act.text, "recorded a delayed act"),
                Err(error) if is_passing(&error) => return,
                Err(error) => lose(&act, &error.to_string()),
            }
            self.waiting().pop_front();
        }
    }

    /// Logs the acts that still wait when the server ends.
    pub fn give_up(&self) {
        self.waiting().drain(..).for_each(|act| lose(&act, "the server is stopping"));
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Act>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(metadata: &Metadata, act: &Act) -> Result<(), MetadataError> {
    let Act { tenant, at_ms, actor, text, outcome } = act.clone();
    metadata.audit_append(tenant, at_ms, actor, text, outcome as u8).map(|_| ())
}

/// Returns true if the same act may be stored later.
fn is_passing(error: &MetadataError) -> bool {
    use RecordsError::{Storage, StorageFull, Unavailable, Uncertain};
    matches!(
        error,
        MetadataError::Conflict
            | MetadataError::Records(Unavailable(_) | Uncertain(_) | StorageFull | Storage(_))
    )
}

fn lose(act: &Act, why: &str) {
    tracing::error!(why, act = act.text, "an act is missing from the audit log");
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use cluster::metadata::Metadata;
    use control::Actor;
    use redb::backends::InMemoryBackend;
    use redb::{Builder, StorageBackend};
    use wire::{Status, TenantId};

    use super::{Act, Acts};
    use crate::limits::{AUDIT_WAITING_MAX, AUDIT_WAITING_PER_TENANT_MAX};

    /// A disk that keeps what it has over every opening, and is full at times.
    #[derive(Debug, Clone)]
    struct Disk(Arc<InMemoryBackend>, Arc<AtomicBool>);

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, out)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.0.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            match self.1.load(Ordering::Relaxed) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => self.0.write(offset, data),
            }
        }
    }

    fn metadata() -> (Metadata, Arc<AtomicBool>) {
        let disk = Disk(Arc::new(InMemoryBackend::new()), Arc::default());
        let is_full = Arc::clone(&disk.1);
        let opener = move || Builder::new().create_with_backend(disk.clone());
        (Metadata::open_with(Box::new(opener)).expect("memory"), is_full)
    }

    fn act(tenant: u32, number: usize) -> Act {
        let (tenant, at_ms) = (Some(TenantId(tenant)), number as u64);
        Act { tenant, at_ms, actor: Actor::Server, text: format!("act {number}"), outcome: Status::Ok }
    }

    fn recorded(metadata: &Metadata, tenant: u32) -> Vec<String> {
        let acts = metadata.audit_read(Some(TenantId(tenant)), 0, usize::MAX).expect("records answer");
        acts.into_iter().map(|act| act.act).collect()
    }

    #[test]
    fn acts_wait_in_order_while_they_cannot_be_stored() {
        let ((metadata, is_full), acts) = (metadata(), Acts::default());
        acts.record(&metadata, act(1, 0));
        is_full.store(true, Ordering::Relaxed);
        (1..4).for_each(|number| acts.record(&metadata, act(1, number)));
        acts.catch_up(&metadata);
        is_full.store(false, Ordering::Relaxed);
        assert_eq!(recorded(&metadata, 1), ["act 0"]);
        acts.record(&metadata, act(1, 4));
        acts.catch_up(&metadata);
        acts.record(&metadata, act(1, 5));
        assert_eq!(recorded(&metadata, 1), ["act 0", "act 1", "act 2", "act 3", "act 4", "act 5"]);
    }

    #[test]
    fn a_tenant_takes_no_more_room_than_its_own_while_acts_wait() {
        let ((metadata, is_full), acts) = (metadata(), Acts::default());
        is_full.store(true, Ordering::Relaxed);
        let one_too_many = AUDIT_WAITING_PER_TENANT_MAX + 1;
        (0..one_too_many).for_each(|number| acts.record(&metadata, act(1, number)));
        acts.record(&metadata, act(2, 0));
        for tenant in 3..3 + (AUDIT_WAITING_MAX / AUDIT_WAITING_PER_TENANT_MAX) as u32 {
            (0..one_too_many).for_each(|number| acts.record(&metadata, act(tenant, number)));
        }
        acts.record(&metadata, act(2, 1));
        assert_eq!(acts.waiting().len(), AUDIT_WAITING_MAX);
        is_full.store(false, Ordering::Relaxed);
        acts.catch_up(&metadata);
        assert_eq!((recorded(&metadata, 1).len(), recorded(&metadata, 2).len()), (one_too_many - 1, 1));
    }
}
