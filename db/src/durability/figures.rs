//! Figures of a log, for readers on other threads.

use std::sync::atomic::{AtomicU64, Ordering};

use store::{Admission, Store};

/// Figures of a log. The thread that writes it stores them.
#[derive(Debug, Default)]
pub struct LogFigures {
    /// Cuts that were written.
    pub(super) cuts: AtomicU64,
    /// Bytes of segments that were written.
    pub(super) bytes: AtomicU64,
    /// Bytes of blocks that were written, trailers, repeated blocks and digests included.
    pub(super) disk_bytes: AtomicU64,
    /// Frames of segments.
    pub(super) frames_used: AtomicU64,
    /// Frames of segments that the limit of the disk admits.
    pub(super) frames_max: AtomicU64,
    /// Bytes of a frame.
    pub(super) frame_bytes: AtomicU64,
    /// Segments on the disk.
    pub(super) segments: AtomicU64,
    /// Time from the latest cut to its being stable, in microseconds.
    pub(super) cut_us: AtomicU64,
    /// Time from the latest cut that backups have received to their receipts, in microseconds.
    pub(super) receipt_us: AtomicU64,
    /// Servers that are to have the log besides this one, those that have, at least, all that was acknowledged, and those that
    /// are connected.
    pub(super) replicas_wanted: AtomicU64,
    pub(super) replicas: AtomicU64,
    pub(super) backups: AtomicU64,
}

/// A figure with its name and its text for people.
pub struct LogFigure {
    /// The name.
    pub name: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Whether it only grows.
    pub is_total: bool,
    /// The value.
    pub value: u64,
}

impl LogFigures {
    /// Returns the time from the latest cut to its being stable, in microseconds.
    pub(super) fn cut_us(&self) -> u64 {
        self.cut_us.load(Ordering::Relaxed)
    }

    /// Returns the time until backups have received a cut, in microseconds.
    pub(super) fn receipt_us(&self) -> u64 {
        self.receipt_us.load(Ordering::Relaxed)
    }

    /// Returns how many other servers have, at least, all that was acknowledged.
    pub(crate) fn replicas(&self) -> u64 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// Returns the bytes that segments may take on the disk.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.frames_max.load(Ordering::Relaxed) * self.frame_bytes.load(Ordering::Relaxed)
    }

    /// Returns all figures of a store's log.
    #[must_use]
    pub fn list(&self, store: &Store) -> Vec<LogFigure> {
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let frame_bytes = of(&self.frame_bytes);
        let gauge = |name, help, value| LogFigure { name, help, is_total: false, value };
        let total = |name, help, value| LogFigure { name, help, is_total: true, value };
        let admission = store.admission();
        let mut figures = vec![
            gauge(
                "log_used_bytes",
                "Bytes of the disk that segments take.",
                of(&self.frames_used) * frame_bytes,
            ),
            gauge(
                "log_limit_bytes",
                "Bytes of the disk that they may take.",
                of(&self.frames_max) * frame_bytes,
            ),
            gauge("log_segments", "Segments of the log on the disk.", of(&self.segments)),
            gauge("log_behind_bytes", "Bytes of durable tables not yet on the disk.", store.unstable_bytes()),
            gauge("log_cut_us", "Microseconds that the latest cut took to become stable.", of(&self.cut_us)),
            gauge(
                "log_full",
                "1 while writes of durable tables are refused.",
                u64::from(admission > Admission::All),
            ),
            gauge("log_failed", "1 after the disk has failed.", u64::from(admission == Admission::Failed)),
            total("log_cuts", "Cuts that became stable.", of(&self.cuts)),
            total("log_bytes", "Bytes of segments written to the disk.", of(&self.bytes)),
            total("log_disk_bytes", "Bytes of blocks written to the disk.", of(&self.disk_bytes)),
        ];
        if of(&self.replicas_wanted) > 0 {
            figures.extend([
                gauge(
                    "log_replicas",
                    "Other servers that have, at least, all that was acknowledged.",
                    of(&self.replicas),
                ),
                gauge(
                    "log_replicas_wanted",
                    "Replicas of the log that are configured.",
                    of(&self.replicas_wanted),
                ),
                gauge("log_backups", "Other servers that take replicas of the log.", of(&self.backups)),
                gauge(
                    "log_receipt_us",
                    "Microseconds until they had the latest cut in memory.",
                    of(&self.receipt_us),
                ),
            ]);
        }
        figures
    }
}
