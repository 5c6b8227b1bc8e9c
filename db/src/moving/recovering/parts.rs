//! What a thread recovers: the migrations, and the parts into which their hashes come, with room for as much as a sample of the log
//! lets expect.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use cluster::metadata::{Metadata, MigrationRow};
use cluster::migration::MigrationPhase;
use store::SegmentEntries;

use super::holders::Holders;
use super::{Halt, RecoveredTablet, Recovering};
use crate::control_plane::migrations::{Figure, Progress, RecoveryShare};
use crate::durability::replicas::gathered::Gathered;

/// A migration, its progress, and who waits for its end.
pub(super) type Share = (MigrationRow, Arc<Progress>, Option<Sender<MigrationPhase>>);

/// What is wanted of a segment, and how many bytes that has; nothing if no segment is sound.
#[derive(Default)]
pub(super) struct Sample {
    pub(super) sequence: u32,
    of_bytes: u32,
    pub(super) part: Vec<u8>,
}

impl Recovering {
    /// Returns what this thread is to recover, its own migration first, then those that others have left to it.
    pub(super) fn all_shares(&self) -> Vec<Share> {
        let own = (self.context.row.clone(), Arc::clone(&self.context.progress), None);
        let of = |share: RecoveryShare| (share.row, share.progress, Some(share.ended));
        std::iter::once(own).chain(self.take_shares().into_iter().map(of)).collect()
    }

    /// Reads what is wanted of the largest segment, by which the number of objects is estimated.
    pub(super) fn sample(&mut self, holders: &mut Holders, found: &Gathered) -> Result<Sample, Halt> {
        let largest = found.segments.iter().max_by_key(|(_, bytes)| **bytes);
        let Some((&sequence, &of_bytes)) = largest else { return Ok(Sample::default()) };
        let mut part = Vec::new();
        let read = holders.read((sequence, of_bytes), |bytes| {
            part = bytes.to_vec();
            true
        });
        read.map_err(|_| Halt::Failed)?;
        Ok(Sample { sequence, of_bytes, part })
    }

    /// Makes a part for each share, with an index for what the log of so many bytes has of it, as the sample tells.
    pub(super) fn make_parts(
        &mut self,
        shares: Vec<Share>,
        sample: &Sample,
        log_bytes: u64,
    ) -> Result<(), Halt> {
        // Above all versions that the other server has given.
        let above = self.insist(Metadata::reserve_versions)?;
        for (row, progress, ended) in shares {
            let control = &self.context.control;
            // The table of another one may be gone: then its thread knows.
            let Some(entry) = control.table_of(row.table) else { continue };
            let entries =
                SegmentEntries::new(sample.sequence, &sample.part, 0).into_iter().flatten().flatten();
            let own = entries.filter(|entry| entry.object.is_some() && self.log_parts.has(entry, &row));
            let expected = own.count() as u128 * u128::from(log_bytes) / u128::from(sample.of_bytes.max(1));
            let part = control.make_part(&entry, (row.hashes, None), expected as u64).map_err(|refusal| {
                tracing::error!(migration = row.id, %refusal, "cannot record a part");
                Halt::Failed
            })?;
            part.begin_above(above);
            progress.set(Figure::BeganUs, self.context.progress.get(Figure::BeganUs));
            self.tablets.push((RecoveredTablet::new(row, part, progress), ended));
        }
        Ok(())
    }
}
