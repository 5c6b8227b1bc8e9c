//! Cuts that go to backups alone, and count as received when enough of these have them in memory.
//!
//! ```text
//!   send_ahead: cut ── what no backup was sent yet ──► backups ──► received          the disk has it with a later cut
//! ```
//! Answers about written tables wait for that. A cut of the disk is sent in the same way, but for what the backups have already; if
//! that is everything, the disk has it under the number of the cut that was sent last, since both have the same bytes. So whoever
//! recovers the log from backups, and its own server at its next start, mean the same by a number.

use std::sync::atomic::Ordering;
use std::time::Instant;

use store::LogPosition;

use super::LogWriter;
use crate::durability::replicas::sender::{ReplicaSender, SentPart};

/// What became of a cut for backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Now,
    /// It is to be tried again when backups have received more.
    Later,
    /// Only a step of the log makes it possible, if none is under way.
    WithDisk,
}

impl LogWriter {
    /// Returns whether cuts may go to backups alone.
    #[must_use]
    pub fn has_backups(&self) -> bool {
        self.replicas.is_some()
    }

    /// Returns whether the next cut is to go to the disk: so much is ahead of it, or backups wait for it.
    #[must_use]
    pub fn needs_disk(&self) -> bool {
        self.replicas.as_ref().is_some_and(|replicas| replicas.is_far_ahead() || replicas.needs_cuts())
    }

    /// Makes a cut and sends it to backups, without the disk. Takes some microseconds, and a system call for each backup.
    pub fn send_ahead(&mut self) -> Sent {
        match &self.replicas {
            Some(replicas) if !self.is_full && !replicas.is_far_ahead() => {
                if !replicas.may_send() {
                    return Sent::Later;
                }
            }
            _ => return Sent::WithDisk,
        }
        let mut positions = Vec::new();
        let (cut, released) = self.store.cut(&mut positions);
        let clock_ms = self.store.now_ms();
        // A cut that is under way does not include what ended their entries.
        self.released.extend(released.map(|released| (cut, released)));
        self.take_news();
        if self.digest_is_due {
            return Sent::WithDisk;
        }
        let parts = self.unsent(&positions);
        self.add_cut((cut, clock_ms), parts);
        if let Some(replicas) = &mut self.replicas {
            replicas.send(cut);
        }
        self.unreceived.push_back((cut, positions, Instant::now()));
        // There may be nobody to wait for.
        self.note_received();
        Sent::Now
    }

    /// Sends a cut of the disk, and a digest if one was written before it, and settles all. Returns whether it wrote anything that
    /// was not sent before.
    pub(super) fn send_cut(&mut self, (cut, clock_ms): (u64, u64), positions: &[LogPosition]) -> bool {
        if self.replicas.is_none() {
            return true;
        }
        let parts = self.unsent(positions);
        let is_news = !parts.is_empty();
        self.add_cut((cut, clock_ms), parts);
        if let Some(replicas) = &mut self.replicas {
            replicas.settle(Some(cut));
        }
        self.unreceived.push_back((cut, positions.to_vec(), Instant::now()));
        is_news
    }

    /// Returns the number of the last cut with anything that was sent.
    pub(super) fn last_sent(&self) -> u64 {
        self.replicas.as_ref().map_or(0, |replicas| replicas.last_sent())
    }

    /// Returns the places of open segments in the list of those of which backups lack some below a cut, and where that ends.
    fn unsent(&self, positions: &[LogPosition]) -> Vec<(usize, usize)> {
        let ends = self.open.iter().map(|open| open.end_at(positions, &self.store)).enumerate();
        ends.filter(|(place, end)| *end > self.open[*place].sent).collect()
    }

    fn add_cut(&mut self, cut: (u64, u64), parts: Vec<(usize, usize)>) {
        let Some(replicas) = &mut self.replicas else { return };
        let sent = parts.iter().map(|(place, end)| {
            let open = &self.open[*place];
            SentPart {
                sequence: open.opened.sequence,
                class: self.state.segments[&open.opened.sequence].class,
                at: open.sent as u32,
                bytes: self.store.sealed_bytes(open.opened, open.sent..*end),
            }
        });
        replicas.add_cut(cut, &sent.collect::<Vec<_>>());
        parts.into_iter().for_each(|(place, end)| self.open[place].sent = end);
    }

    /// Takes in what has happened to backups, and tells the store what they have received.
    pub(super) fn look_at_backups(&mut self) {
        let Some(mut replicas) = self.replicas.take() else { return };
        replicas.look(self);
        let (connected, having) = replicas.backups();
        self.figures.backups.store(connected as u64, Ordering::Relaxed);
        self.figures.replicas.store(having as u64, Ordering::Relaxed);
        self.store.await_receipts(replicas.awaits_receipts());
        self.replicas = Some(replicas);
        self.note_received();
    }

    fn note_received(&mut self) {
        let Some(received) = self.replicas.as_mut().and_then(ReplicaSender::take_received) else { return };
        while let Some((cut, positions, sent)) = self.unreceived.pop_front_if(|(cut, ..)| *cut <= received) {
            self.store.note_received(cut, &positions);
            self.figures.receipt_us.store(sent.elapsed().as_micros() as u64, Ordering::Relaxed);
        }
    }
}
