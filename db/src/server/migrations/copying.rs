//! The source's part of a pre-copy: pieces for its state machine, and their pace.

use cluster::limits::{COPIED_SPANS_MAX, PULL_BYTES};
use cluster::migration::{Gathered, PullCursor, PullSpan};

use super::context::MigrationContext;
use super::pace::PullPace;
use super::progress::Figure;
use super::running::ExitReason;
use crate::limits::PULL_RATE_MAX;
use crate::server::change::Change;
use crate::tablet::{Copier, Spot};

/// The source's driver of a pre-copy.
#[derive(Default)]
pub(super) struct CopyDriver {
    copier: Option<(Copier, PullPace)>,
}

impl CopyDriver {
    /// Starts the copy. When it returns, every writer marks the places to which it writes.
    pub(super) fn begin(&mut self, ground: &MigrationContext) -> Result<(), ExitReason> {
        let control = &ground.control;
        let entry = control.table_of(ground.row.table).ok_or(ExitReason::Gone)?;
        let hashes = ground.bounds();
        let within = |((first, last), part)| {
            let bounds: (u64, u64) = (hashes.0.max(first), hashes.1.min(last));
            (bounds.0 <= bounds.1).then_some((bounds, part))
        };
        let pieces: Vec<_> = entry.parts.pieces().into_iter().filter_map(within).collect();
        let objects = pieces.iter().map(|(_, part)| part.objects()).sum();
        ground.progress.set(Figure::ObjectsExpected, objects);
        ground.progress.set(Figure::BeganUs, ground.now_us());
        self.copier = Some((Copier::new(pieces), PullPace::from(ground.now_us())));
        // A change without effect, which every worker acknowledges.
        let passed = control.tell(&Change::TableCreated(entry));
        passed.map_err(|refusal| {
            tracing::warn!(migration = ground.row.id, %refusal, "workers did not acknowledge a copy");
            ExitReason::Gone
        })
    }

    /// Returns the next piece of a round.
    pub(super) fn gather(&mut self, ground: &MigrationContext, round: u32) -> Gathered {
        let Some((copier, _)) = &mut self.copier else {
            return Gathered { spans: Vec::new(), objects: Vec::new(), left_bytes: Some(0) };
        };
        let copy = copier.next(ground.core(), round, (PULL_BYTES, COPIED_SPANS_MAX));
        let place = |(hash, second): Spot| PullCursor { hash, second };
        let span = |&(first, last): &(Spot, Spot)| PullSpan { first: place(first), last: place(last) };
        ground.progress.add(Figure::Pulls, 1);
        ground.progress.add(Figure::Bytes, copy.objects.len() as u64);
        Gathered {
            spans: copy.spans.iter().map(span).collect(),
            objects: copy.objects,
            left_bytes: copy.is_end.then(|| copier.left_bytes()),
        }
    }

    /// Returns the bytes that may be copied for the elapsed time: the maximum during the cut, when everybody waits.
    pub(super) fn allowance(&mut self, ground: &MigrationContext, is_cut: bool) -> u64 {
        let now_us = ground.now_us();
        match &mut self.copier {
            Some((_, pace)) if !is_cut => pace.allowance(now_us, || ground.is_loaded(now_us)),
            _ => PULL_RATE_MAX,
        }
    }
}
