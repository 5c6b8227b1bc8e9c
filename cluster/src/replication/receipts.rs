//! What backups have received and need not have on their disks.

use super::{BackupId, Item, Replica, Replication, Tickets};
use crate::weakened;

/// A cut whose receipt is awaited.
#[derive(Debug)]
pub(super) struct Unreceived {
    cut: u64,
    /// Of all that was written until then.
    pub(super) tickets: Tickets,
    /// Items that were fresh then.
    fresh: Vec<Item>,
}

impl Replication {
    /// Awaits the receipt of all that was written so far, as of a cut with this number: a greater one than those before.
    pub fn await_receipt(&mut self, cut: u64) {
        let fresh = self.fresh.keys().copied().collect();
        self.unreceived.push_back(Unreceived { cut, tickets: self.written.clone(), fresh });
    }

    /// Returns the number of cuts whose receipt is awaited.
    #[must_use]
    pub fn unreceived(&self) -> usize {
        self.unreceived.len()
    }

    /// Returns the latest cut that is received now by as many backups as are promised, if it was not returned before.
    pub fn take_received(&mut self) -> Option<u64> {
        let mut latest = None;
        while let Some(Unreceived { cut, tickets, fresh }) = self.unreceived.front() {
            let has_received = |(id, ticket): (&BackupId, &u64)| self.links[id].received >= *ticket;
            let has_all = tickets.iter().all(has_received) || weakened::by("receipt");
            // Each item is at as many as are promised: what is stable of it or, of a fresh one, what was received.
            if !has_all || self.having_received(fresh).min(self.lowest()) < self.promised() {
                break;
            }
            latest = Some(*cut);
            self.unreceived.pop_front();
        }
        latest
    }

    /// Returns the fewest backups that count and have received what they were sent of one of these items, of those that are fresh.
    pub(super) fn having_received<'i>(&self, items: impl IntoIterator<Item = &'i Item>) -> usize {
        let counts = |replica: &&Replica| {
            let received = self.links[&replica.at].received;
            self.record.backups.contains(&replica.at) && replica.since.is_some_and(|since| received >= since)
        };
        let fresh = items.into_iter().filter(|item| self.fresh.contains_key(item));
        fresh.map(|item| self.items[item].all.iter().filter(counts).count()).min().unwrap_or(usize::MAX)
    }

    /// Notes that a backup has received all up to this ticket.
    pub fn received(&mut self, id: BackupId, ticket: u64) {
        if let Some(link) = self.links.get_mut(&id) {
            link.received = link.received.max(ticket.min(link.sent));
        }
    }
}
