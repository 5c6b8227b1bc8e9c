//! Memory budgets of records and answers on streams: bounded for the server, shared among tenants.
//!
//! ```text
//!   length of a record ─▶ room for it? ─┬─ yes: read, served, room released
//!                                       └─ no: waits, unread, until others have ended; too long: stream closed
//!   data request ─▶ room for the longest ─┬─ yes: executed; unused room is released at once, the rest when
//!                   possible answer?      │       the peer has read the answer
//!                                         └─ no: waits in the same way, not executed; too long: `Throttled`
//! ```
//! A record can be as long as a package, an answer as long as a value; a tenant has hundreds of streams, and a stalled
//! one stays open for half a minute. Therefore a record's announced bytes are counted before they are read, those of
//! an answer before it is produced. Records and answers have separate budgets, so that neither waits for the other. A
//! tenant may use half of the bytes that the others leave, as with the memory of invocations: there is always room for
//! the next tenant. Short records and answers are not counted, nor are an operator's.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use wire::TenantId;

use super::{ConnectionPermit, StreamRole};
use crate::limits::{ANSWERS_BYTES_MAX, RECORDS_BYTES_MAX, UNCOUNTED_RECORD_BYTES};

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// Records, to the server.
    In,
    /// Answers, to peers.
    Out,
}

/// Memory that records and answers take now.
#[derive(Debug)]
pub(super) struct RecordMemory {
    read: Budget,
    answered: Budget,
}

/// A byte budget shared by tenants.
#[derive(Debug)]
struct Budget {
    most: usize,
    /// Bytes of tenants that use any.
    of_tenants: HashMap<TenantId, usize>,
    all: usize,
}

/// Memory reserved for one record or answer, released on drop.
pub struct RecordRoom<'p> {
    /// The permit, tenant and bytes, if they are counted.
    counted: Option<(&'p ConnectionPermit, TenantId, usize)>,
    way: Direction,
}

impl Default for RecordMemory {
    fn default() -> Self {
        Self { read: Budget::new(RECORDS_BYTES_MAX), answered: Budget::new(ANSWERS_BYTES_MAX) }
    }
}

impl RecordMemory {
    fn of(&mut self, way: Direction) -> &mut Budget {
        match way {
            Direction::In => &mut self.read,
            Direction::Out => &mut self.answered,
        }
    }
}

impl Budget {
    fn new(most: usize) -> Self {
        Self { most, of_tenants: HashMap::new(), all: 0 }
    }

    /// Reserves bytes for a tenant; returns false if its share has no room now.
    fn take(&mut self, tenant: TenantId, bytes: usize) -> bool {
        let own = self.of_tenants.get(&tenant).copied().unwrap_or(0);
        let share = (self.most - (self.all - own)) / 2;
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

impl ConnectionPermit {
    /// Reserves memory for a record, waiting at most `patience`; `None` if there is none.
    #[must_use]
    pub fn room_for(&self, record_bytes: usize, patience: Duration) -> Option<RecordRoom<'_>> {
        self.room(Direction::In, record_bytes, patience)
    }

    /// Reserves memory for an answer of at most this size, waiting at most `patience`; `None` if there is none.
    #[must_use]
    pub fn room_for_answer(&self, answer_bytes: usize, patience: Duration) -> Option<RecordRoom<'_>> {
        self.room(Direction::Out, answer_bytes, patience)
    }

    fn room(&self, way: Direction, bytes: usize, patience: Duration) -> Option<RecordRoom<'_>> {
        if bytes <= UNCOUNTED_RECORD_BYTES {
            return Some(RecordRoom { counted: None, way });
        }
        let state = self.streams.lock();
        let Some(StreamRole::Tenant(tenant)) = state.held.get(&self.number).map(|held| held.role) else {
            return Some(RecordRoom { counted: None, way });
        };
        let mut has_room = false;
        let waited = self.streams.room.wait_timeout_while(state, patience, |state| {
            has_room = state.records.of(way).take(tenant, bytes);
            !has_room && !state.is_over
        });
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        // Allocates only after admission, because drop returns the budget.
        has_room.then(|| RecordRoom { counted: Some((self, tenant, bytes)), way })
    }
}

impl RecordRoom<'_> {
    /// Releases the bytes beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let bytes = if bytes <= UNCOUNTED_RECORD_BYTES { 0 } else { bytes };
        if let Some((_, _, counted)) = &mut self.counted
            && bytes < *counted
        {
            let free = *counted - bytes;
            *counted = bytes;
            self.give_back(free);
        }
    }

    fn give_back(&self, bytes: usize) {
        if let Some((place, tenant, _)) = self.counted {
            place.streams.lock().records.of(self.way).give_back(tenant, bytes);
            place.streams.room.notify_all();
        }
    }
}

impl Drop for RecordRoom<'_> {
    fn drop(&mut self) {
        if let Some((_, _, bytes)) = self.counted
            && bytes > 0
        {
            self.give_back(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::TenantId;

    use super::Budget;
    use crate::limits::RECORDS_BYTES_MAX;

    #[test]
    fn whatever_tenants_send_the_next_one_has_room_and_all_is_given_back() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut budget, mut taken) = (Budget::new(RECORDS_BYTES_MAX), Vec::new());
        for _ in 0..10_000 {
            let (tenant, bytes) = (TenantId(random.u32(0..7)), random.usize(1..RECORDS_BYTES_MAX / 8));
            if random.bool() && !taken.is_empty() {
                let (tenant, bytes) = taken.swap_remove(random.usize(0..taken.len()));
                budget.give_back(tenant, bytes);
            } else if budget.take(tenant, bytes) {
                taken.push((tenant, bytes));
            }
            assert_eq!(budget.all, taken.iter().map(|(_, bytes)| bytes).sum::<usize>());
            let newcomer = TenantId(100);
            assert!(budget.all < RECORDS_BYTES_MAX && budget.take(newcomer, 1), "{}", budget.all);
            budget.give_back(newcomer, 1);
        }
        for (tenant, bytes) in taken {
            budget.give_back(tenant, bytes);
        }
        assert!(budget.all == 0 && budget.of_tenants.is_empty());
    }
}
