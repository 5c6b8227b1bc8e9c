//! Copies of segments to backups that lack them, a piece at a time.

use cluster::replication::message::ToBackup;
use cluster::replication::{BackupId, Item};
use disk::{DiskError, Fragment};

use super::{ReplicaSender, SentLog, messages};
use crate::limits::REPLICA_PIECE_BYTES;

/// A copy that is being sent.
pub(super) struct Copying {
    pub(super) to: BackupId,
    pub(super) sequence: u32,
    /// Bytes that were sent.
    pub(super) at: u32,
    /// The ticket of the last piece: the next one waits for it.
    pub(super) ticket: Option<u64>,
    pub(super) is_whole: bool,
}

impl ReplicaSender {
    /// Sends a piece of what a backup lacks, if one does and it has acknowledged the piece before.
    ///
    /// # Errors
    /// [`DiskError`]: the item will not be copied.
    pub fn copy(&mut self, log: &mut dyn SentLog) -> Result<(), DiskError> {
        let is_under_way = |copying: &Copying| {
            copying.ticket.is_some_and(|ticket| !self.machine.has_acked(copying.to, ticket))
        };
        if self.copying.as_ref().is_some_and(is_under_way) {
            return Ok(());
        }
        let goes_on = self.copying.take().filter(|copying| !copying.is_whole);
        let Some(Copying { to, sequence, at, .. }) = goes_on.or_else(|| self.begin_copy()) else {
            return Ok(());
        };
        let Some((class, end)) = log.segment(sequence) else { return Ok(()) };
        let bytes = (end - at).min(REPLICA_PIECE_BYTES as u32);
        if bytes > 0 {
            let content = log.read(sequence, at, bytes).inspect_err(|_| self.machine.cannot_copy())?;
            let fragment = Fragment {
                cut: self.settled,
                before: self.settled,
                settled: self.settled,
                clock_ms: self.clock_ms,
                writes: 0,
                digest: self.digest.0,
                at,
                end,
            };
            let sent = messages(Item::Segment(sequence), class, fragment, &content);
            self.send_all(to, &sent);
        }
        let is_whole = at + bytes == end;
        let ticket = if is_whole { self.machine.copied() } else { self.machine.piece_sent() };
        if is_whole && ticket.is_some() {
            self.send_again(to, Item::Segment(sequence));
        }
        if let Some(ticket) = ticket {
            if is_whole && self.sent.contains_key(&Item::Segment(sequence)) {
                // As after a refusal.
                self.send_to(to, &ToBackup::Receive { ticket }.encode());
            }
            self.flush(to, ticket);
            self.copying = Some(Copying { to, sequence, at: at + bytes, ticket: Some(ticket), is_whole });
        }
        Ok(())
    }

    /// Begins with the next copy; one of a digest is sent at once.
    fn begin_copy(&mut self) -> Option<Copying> {
        let (to, item) = self.machine.to_copy()?;
        let Item::Segment(sequence) = item else {
            self.send_all(to, &self.digest.1.clone());
            if let Some(ticket) = self.machine.copied() {
                self.flush(to, ticket);
            }
            return None;
        };
        Some(Copying { to, sequence, at: 0, ticket: None, is_whole: false })
    }
}
