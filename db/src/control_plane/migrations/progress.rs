//! Progress of a migration, counted by its thread and read by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use cluster::migration::MigrationWait;

use crate::tablet::Moving;

/// A figure of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Approximate number of objects at the source at the beginning.
    ObjectsExpected,
    /// Bytes of the log that a recovery has had read.
    LogBytes,
    /// Bytes of the log that it will have had read.
    LogBytesExpected,
    /// Objects sent or stored.
    Objects,
    /// Bytes of objects sent or received, heads included.
    Bytes,
    /// Pulls requested or answered.
    Pulls,
    /// Priority pulls requested or answered.
    PriorityPulls,
    /// Objects that arrived too late: this server has a newer version.
    Late,
    /// Objects whose bytes had changed since they were written; they are lost.
    Damaged,
    /// Microseconds in which nobody served the hashes, as the target measured.
    PauseUs,
    /// Clients' reads of this side in addition to those at the owner.
    SecondReads,
    /// Bytes of messages for such reads at this side, and for reporting its progress.
    SecondReadBytes,
    /// Time at which the bulk began, in microseconds of the server's clock.
    BeganUs,
    /// Time at which it was done.
    EndedUs,
}

const FIGURES: usize = Figure::EndedUs as usize + 1;

/// Totals of all migrations of which a server was the source, or the target.
#[derive(Debug, Default)]
pub struct Totals {
    figures: [AtomicU64; FIGURES],
}

impl Totals {
    /// Returns the sum of a figure since the server was started.
    #[must_use]
    pub fn get(&self, figure: Figure) -> u64 {
        self.figures[figure as usize].load(Ordering::Relaxed)
    }
}

/// The progress of one migration.
#[derive(Debug)]
pub struct Progress {
    figures: [AtomicU64; FIGURES],
    /// A [`MigrationWait`].
    awaited: AtomicU8,
    totals: Arc<Totals>,
}

impl Progress {
    /// Creates the progress of a migration that has moved nothing.
    #[must_use]
    pub fn new(totals: &Arc<Totals>) -> Self {
        Self {
            figures: Default::default(),
            awaited: AtomicU8::new(MigrationWait::Nothing as u8),
            totals: Arc::clone(totals),
        }
    }

    /// Returns what the migration waits for before it continues.
    #[must_use]
    pub fn awaited(&self) -> MigrationWait {
        let waits = [MigrationWait::Slot, MigrationWait::Peer, MigrationWait::Records, MigrationWait::Disk];
        let code = self.awaited.load(Ordering::Relaxed);
        waits.into_iter().find(|wait| *wait as u8 == code).unwrap_or(MigrationWait::Nothing)
    }

    pub(crate) fn await_for(&self, awaited: MigrationWait) {
        self.awaited.store(awaited as u8, Ordering::Relaxed);
    }

    /// Returns the current value of a figure.
    #[must_use]
    pub fn get(&self, figure: Figure) -> u64 {
        self.figures[figure as usize].load(Ordering::Relaxed)
    }

    /// Adds to a figure. Only the migration's thread calls this.
    pub(crate) fn add(&self, figure: Figure, count: u64) {
        self.set(figure, self.get(figure) + count);
        self.totals.figures[figure as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Adds the workers' counts of reads at a second server.
    pub(crate) fn take_spent(&self, moving: &Moving) {
        let (reads, bytes) = moving.spent();
        self.add(Figure::SecondReads, reads - self.get(Figure::SecondReads));
        self.add(Figure::SecondReadBytes, bytes.saturating_sub(self.get(Figure::SecondReadBytes)));
    }

    pub(crate) fn set(&self, figure: Figure, value: u64) {
        self.figures[figure as usize].store(value, Ordering::Relaxed);
    }

    /// Returns the bytes per second since the bulk began.
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
