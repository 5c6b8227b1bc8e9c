//! The pulls of a target: per partition one in flight while the previous one is replayed.
//!
//! A pull starts where the previous one ended, so it is sent when that position is known, and the source keeps no
//! state. The number of a pull identifies late and duplicate replies. A byte allowance paces the pulls.

use crate::limits::{MIGRATION_RETRY_US, PULL_BYTES};
use crate::migration::message::{Message, PullCursor};

/// Received objects that are not replayed yet, with the position up to which they go.
#[derive(Debug)]
pub(super) struct PulledObjects {
    pub(super) next: Option<PullCursor>,
    pub(super) objects: Vec<u8>,
}

#[derive(Debug)]
struct Part {
    first: u64,
    last: u64,
    number: u32,
    from: Option<PullCursor>,
    /// The time of the next retransmission.
    asked_due_us: Option<u64>,
    /// Objects waiting for the replay of the previous ones.
    held: Option<PulledObjects>,
    /// The end position of the objects being replayed.
    replaying: Option<Option<PullCursor>>,
    /// Whether the last pull was received.
    is_gathered: bool,
    /// Hashes below this one have arrived.
    arrived: u64,
}

impl Part {
    fn is_done(&self) -> bool {
        self.is_gathered && self.held.is_none() && self.replaying.is_none()
    }

    /// Returns whether a pull can end there: it makes progress and stays within the partition.
    fn can_end(&self, next: Option<PullCursor>) -> bool {
        next.is_none_or(|next| (self.first..=self.last).contains(&next.hash) && Some(next) > self.from)
    }
}

/// The pulls of one target.
#[derive(Debug)]
pub(super) struct Pulls {
    parts: Vec<Part>,
    /// Bytes that may be requested.
    allowance_bytes: i64,
}

impl Pulls {
    /// Creates the pulls of partitions with these first and last hashes.
    pub(super) fn new(partitions: &[(u64, u64)]) -> Pulls {
        let part = |&(first, last): &(u64, u64)| {
            let (from, asked_due_us, held, replaying) = (None, None, None, None);
            Part {
                first,
                last,
                number: 0,
                from,
                asked_due_us,
                held,
                replaying,
                is_gathered: false,
                arrived: first,
            }
        };
        Pulls { parts: partitions.iter().map(part).collect(), allowance_bytes: 0 }
    }

    /// Adds `bytes` to the allowance; an unused rest is kept up to one round.
    pub(super) fn allow(&mut self, bytes: u64) {
        let most = (self.parts.len() * PULL_BYTES) as i64 + bytes as i64;
        self.allowance_bytes = (self.allowance_bytes + bytes as i64).min(most);
    }

    /// Sends the messages that are due now.
    pub(super) fn poll(&mut self, now_us: u64, mut send: impl FnMut(Message)) {
        for (partition, part) in self.parts.iter_mut().enumerate() {
            let is_new = part.asked_due_us.is_none() && part.held.is_none() && !part.is_gathered;
            if is_new && self.allowance_bytes > 0 {
                self.allowance_bytes -= PULL_BYTES as i64;
                part.asked_due_us = Some(now_us);
            }
            if part.asked_due_us.is_some_and(|due_us| due_us <= now_us) {
                part.asked_due_us = Some(now_us + MIGRATION_RETRY_US);
                send(Message::Pull { partition: partition as u8, number: part.number, from: part.from });
            }
        }
    }

    /// Takes a received pull; returns the objects to replay now if it is the expected one.
    pub(super) fn pulled(
        &mut self,
        partition: u8,
        number: u32,
        held: PulledObjects,
    ) -> Option<PulledObjects> {
        let part = self.parts.get_mut(usize::from(partition))?;
        if part.asked_due_us.is_none() || part.number != number || !part.can_end(held.next) {
            return None;
        }
        debug_assert!(part.held.is_none() && !part.is_gathered, "only one pull is ahead of the replay");
        self.allowance_bytes -= held.objects.len() as i64 - PULL_BYTES as i64;
        part.asked_due_us = None;
        part.number = part.number.wrapping_add(1);
        part.is_gathered = held.next.is_none();
        part.from = held.next;
        if part.replaying.is_some() {
            part.held = Some(held);
            return None;
        }
        part.replaying = Some(held.next);
        Some(held)
    }

    /// Notes the end of a partition's replay; returns the next objects to replay.
    pub(super) fn replayed(&mut self, partition: u8) -> Option<PulledObjects> {
        let part = self.parts.get_mut(usize::from(partition))?;
        let done = part.replaying.take()?;
        let before = part.arrived;
        part.arrived = done.map_or(part.arrived, |done| {
            if done.second == u64::MAX { done.hash.saturating_add(1) } else { done.hash }
        });
        debug_assert!(before <= part.arrived, "what has arrived stays");
        let held = part.held.take()?;
        part.replaying = Some(held.next);
        Some(held)
    }

    /// Returns whether all objects of a hash have arrived.
    pub(super) fn has_arrived(&self, hash: u64) -> bool {
        let part = self.parts.iter().find(|part| (part.first..=part.last).contains(&hash));
        part.is_none_or(|part| part.is_done() || hash < part.arrived)
    }

    /// Returns whether everything has arrived.
    pub(super) fn are_done(&self) -> bool {
        debug_assert!(
            self.parts.iter().all(|part| part.held.is_none() || part.replaying.is_some()),
            "objects wait only for those before them"
        );
        self.parts.iter().all(Part::is_done)
    }
}
