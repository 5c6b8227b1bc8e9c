//! Memory of the records that tenants send over streams, bounded for the server and shared among tenants.
//!
//! ```text
//!   length of a record ─▶ room for it? ─┬─ yes: read, served, given back
//!                                       └─ no: waits, unread, until others have ended; closed if that takes too long
//! ```
//! A record can be as long as a package, a tenant has hundreds of streams, and one that stalls is kept for half a
//! minute. So the bytes that a length announces are counted before they are read. A tenant may have half of what the
//! others leave, as of the memory of invocations: there is always room for the next one. Short records are not counted,
//! nor are an operator's.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use super::{Place, Standing};
use crate::limits::{RECORDS_BYTES_MAX, UNCOUNTED_RECORD_BYTES};
use crate::tenant::TenantId;

/// What records take now.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Of tenants that have any.
    of_tenants: HashMap<TenantId, usize>,
    all: usize,
}

/// The room of one record, until it is dropped.
pub struct RecordRoom<'p> {
    /// Whose it is and how much, if it is counted.
    counted: Option<(&'p Place, TenantId, usize)>,
}

impl Records {
    /// Takes room for a record of a tenant; false when it has none now.
    fn take(&mut self, tenant: TenantId, bytes: usize) -> bool {
        let own = self.of_tenants.get(&tenant).copied().unwrap_or(0);
        let share = (RECORDS_BYTES_MAX - (self.all - own)) / 2;
        if own + bytes > share {
            return false;
        }
        self.of_tenants.insert(tenant, own + bytes);
        self.all += bytes;
        true
    }

    fn give_back(&mut self, tenant: TenantId, bytes: usize) {
        self.all -= bytes;
        if let Some(own) = self.of_tenants.get_mut(&tenant) {
            *own -= bytes;
            if *own == 0 {
                self.of_tenants.remove(&tenant);
            }
        }
    }
}

impl Place {
    /// Room for a record of so many bytes, for which it waits at most `patience`; `None` when there is none.
    #[must_use]
    pub fn room_for(&self, record_bytes: usize, patience: Duration) -> Option<RecordRoom<'_>> {
        if record_bytes <= UNCOUNTED_RECORD_BYTES {
            return Some(RecordRoom { counted: None });
        }
        let state = self.streams.lock();
        let Some((_, Standing::Tenant(tenant))) = state.held.get(&self.number) else {
            return Some(RecordRoom { counted: None });
        };
        let (tenant, mut has_room) = (*tenant, false);
        let waited = self.streams.room.wait_timeout_while(state, patience, |state| {
            has_room = state.records.take(tenant, record_bytes);
            !has_room && !state.is_over
        });
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        // Made only then: what is made is given back.
        has_room.then(|| RecordRoom { counted: Some((self, tenant, record_bytes)) })
    }
}

impl Drop for RecordRoom<'_> {
    fn drop(&mut self) {
        if let Some((place, tenant, bytes)) = self.counted {
            place.streams.lock().records.give_back(tenant, bytes);
            place.streams.room.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Records;
    use crate::limits::RECORDS_BYTES_MAX;
    use crate::tenant::TenantId;

    #[test]
    fn whatever_tenants_send_the_next_one_has_room_and_all_is_given_back() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut records, mut taken) = (Records::default(), Vec::new());
        for _ in 0..10_000 {
            let (tenant, bytes) = (TenantId(random.u32(0..7)), random.usize(1..RECORDS_BYTES_MAX / 8));
            if random.bool() && !taken.is_empty() {
                let (tenant, bytes) = taken.swap_remove(random.usize(0..taken.len()));
                records.give_back(tenant, bytes);
            } else if records.take(tenant, bytes) {
                taken.push((tenant, bytes));
            }
            assert_eq!(records.all, taken.iter().map(|(_, bytes)| bytes).sum::<usize>());
            let newcomer = TenantId(100);
            assert!(records.all < RECORDS_BYTES_MAX && records.take(newcomer, 1), "{}", records.all);
            records.give_back(newcomer, 1);
        }
        for (tenant, bytes) in taken {
            records.give_back(tenant, bytes);
        }
        assert!(records.all == 0 && records.of_tenants.is_empty());
    }
}
