//! Memory of what tenants send and get over streams, bounded for the server and shared among tenants.
//!
//! ```text
//!   length of a record ─▶ room for it? ─┬─ yes: read, served, given back
//!                                       └─ no: waits, unread, until others have ended; closed if that takes too long
//!   data request ─▶ room for the longest ─┬─ yes: executed; what the answer does not need is given back, the rest when
//!                   answer it may have?   │       the peer has taken it
//!                                         └─ no: waits in the same way, not executed; held off if that takes too long
//! ```
//! A record can be as long as a package, an answer as long as a value, a tenant has hundreds of streams, and one that
//! stalls is kept for half a minute. So the bytes that a length announces are counted before they are read, those of an
//! answer before it is made. Records and answers have a budget each, so that neither waits for the other. A tenant may
//! have half of what the others leave of it, as of the memory of invocations: there is always room for the next one.
//! Short ones are not counted, nor are an operator's.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use super::{ConnectionPermit, StreamRole};
use crate::limits::{ANSWERS_BYTES_MAX, RECORDS_BYTES_MAX, UNCOUNTED_RECORD_BYTES};
use crate::tenant::TenantId;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// Records, to the server.
    In,
    /// Answers, to peers.
    Out,
}

/// What records and answers take now.
#[derive(Debug)]
pub(super) struct RecordMemory {
    read: Budget,
    answered: Budget,
}

/// Bytes that tenants share.
#[derive(Debug)]
struct Budget {
    most: usize,
    /// Of tenants that have any.
    of_tenants: HashMap<TenantId, usize>,
    all: usize,
}

/// The room of one record or answer, until it is dropped.
pub struct RecordRoom<'p> {
    /// Whose it is and how much, if it is counted.
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

    /// Takes room of a tenant; false when it has none now.
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
    /// Room for a record of so many bytes, for which it waits at most `patience`; `None` when there is none.
    #[must_use]
    pub fn room_for(&self, record_bytes: usize, patience: Duration) -> Option<RecordRoom<'_>> {
        self.room(Direction::In, record_bytes, patience)
    }

    /// Room for an answer of at most so many bytes, likewise.
    #[must_use]
    pub fn room_for_answer(&self, answer_bytes: usize, patience: Duration) -> Option<RecordRoom<'_>> {
        self.room(Direction::Out, answer_bytes, patience)
    }

    fn room(&self, way: Direction, bytes: usize, patience: Duration) -> Option<RecordRoom<'_>> {
        if bytes <= UNCOUNTED_RECORD_BYTES {
            return Some(RecordRoom { counted: None, way });
        }
        let state = self.streams.lock();
        let Some(StreamRole::Tenant(tenant)) = state.held.get(&self.number).map(|held| held.standing) else {
            return Some(RecordRoom { counted: None, way });
        };
        let mut has_room = false;
        let waited = self.streams.room.wait_timeout_while(state, patience, |state| {
            has_room = state.records.of(way).take(tenant, bytes);
            !has_room && !state.is_over
        });
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        // Made only then: what is made is given back.
        has_room.then(|| RecordRoom { counted: Some((self, tenant, bytes)), way })
    }
}

impl RecordRoom<'_> {
    /// Gives back what is more than so many bytes.
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
    use super::Budget;
    use crate::limits::RECORDS_BYTES_MAX;
    use crate::tenant::TenantId;

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
