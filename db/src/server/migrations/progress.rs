//! How far a migration is, for who looks at it: counted by its thread, read by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::cluster::migration::MigrationWait;
use crate::tablet::Moving;

/// A figure of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Objects that there were at the source when it began, about.
    ObjectsExpected,
    /// Objects that were sent or stored.
    Objects,
    /// Bytes of objects that were sent or taken, heads included.
    Bytes,
    /// Pulls that were asked for or answered.
    Pulls,
    /// The same of priority pulls.
    PriorityPulls,
    /// Objects that came too late to be of use: what is here is newer.
    Late,
    /// Objects whose bytes were not those that were written; they are lost.
    Damaged,
    /// Microseconds in which nobody served the hashes, as the target saw it.
    PauseUs,
    /// Reads of this side that clients made beside those at the owner.
    SecondReads,
    /// Bytes of messages that such reads cost at this side, and of telling how far it is.
    SecondReadBytes,
    /// When the bulk of it began, in microseconds of the server's clock.
    BeganUs,
    /// When it was done.
    EndedUs,
}

const FIGURES: usize = Figure::EndedUs as usize + 1;

/// What all migrations of a server came to that it was the source of, or the target.
#[derive(Debug, Default)]
pub struct Totals {
    figures: [AtomicU64; FIGURES],
}

impl Totals {
    /// The sum of a figure since the server was started.
    #[must_use]
    pub fn get(&self, figure: Figure) -> u64 {
        self.figures[figure as usize].load(Ordering::Relaxed)
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct Progress {
    figures: [AtomicU64; FIGURES],
    /// 0 for nothing, else one more than an [`MigrationWait`].
    awaited: AtomicU8,
    totals: Arc<Totals>,
}

impl Progress {
    /// Nothing has moved yet.
    pub(super) fn new(totals: &Arc<Totals>) -> Self {
        Self { figures: Default::default(), awaited: AtomicU8::new(0), totals: Arc::clone(totals) }
    }

    /// What the migration waits for before it goes on.
    #[must_use]
    pub fn awaited(&self) -> Option<MigrationWait> {
        let all = [MigrationWait::Slot, MigrationWait::Peer, MigrationWait::Records];
        let code = self.awaited.load(Ordering::Relaxed);
        all.into_iter().find(|awaited| *awaited as u8 + 1 == code)
    }

    pub(super) fn await_for(&self, awaited: Option<MigrationWait>) {
        self.awaited.store(awaited.map_or(0, |awaited| awaited as u8 + 1), Ordering::Relaxed);
    }

    /// A figure as it is now.
    #[must_use]
    pub fn get(&self, figure: Figure) -> u64 {
        self.figures[figure as usize].load(Ordering::Relaxed)
    }

    /// Counts. Only the migration's thread does.
    pub(super) fn add(&self, figure: Figure, count: u64) {
        self.set(figure, self.get(figure) + count);
        self.totals.figures[figure as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Takes over what workers have counted of reads at a second server.
    pub(super) fn take_spent(&self, moving: &Moving) {
        let (reads, bytes) = moving.spent();
        self.add(Figure::SecondReads, reads - self.get(Figure::SecondReads));
        self.add(Figure::SecondReadBytes, bytes.saturating_sub(self.get(Figure::SecondReadBytes)));
    }

    pub(super) fn set(&self, figure: Figure, value: u64) {
        self.figures[figure as usize].store(value, Ordering::Relaxed);
    }

    /// Bytes in a second since the bulk of it began.
    #[must_use]
    pub fn bytes_per_second(&self, now_us: u64) -> u64 {
        let (began, ended) = (self.get(Figure::BeganUs), self.get(Figure::EndedUs));
        let until = if ended == 0 { now_us } else { ended };
        match until.checked_sub(began) {
            Some(us) if began > 0 && us > 0 => {
                (u128::from(self.get(Figure::Bytes)) * 1_000_000 / u128::from(us)) as u64
            }
            _ => 0,
        }
    }
}
