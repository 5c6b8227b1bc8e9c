//! Which scans are asked for, of both sides, and in which order records are loaded.

use client::{KeyRange, Request};
use fastrand::Rng;
use wire::limits::ENUMERATE_BYTES_MAX;

use super::ScanSettings;
use crate::dataset::Dataset;
use crate::workload::{Expected, Source};

/// A prime larger than any number of records.
const STRIDE: u64 = 2_654_435_761;

/// The record that is loaded as the `turn`th of so many: each once, and neighbours far from each other.
pub(super) fn shuffled(turn: u64, records: u64) -> u64 {
    turn * STRIDE % records
}

/// Draws scans.
pub(super) struct Scans {
    table: u32,
    records: usize,
    data: Dataset,
    random: Rng,
}

impl Scans {
    /// The scans of a run; both sides get the same.
    pub(super) fn new(table: u32, settings: &ScanSettings, data: Dataset, run: usize) -> Self {
        let random = Rng::with_seed(settings.seed + run as u64);
        Self { table, records: settings.records, data, random }
    }

    /// Draws the first key of a scan, behind which there are enough; its index.
    pub(super) fn draw(&mut self) -> (u64, &[u8]) {
        let first = self.random.u64(0..=self.data.keys() - self.records as u64);
        (first, self.data.key(first))
    }

    /// Records of a scan.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    /// Bytes of a record.
    pub(super) fn record_bytes(&self) -> usize {
        self.data.key_bytes() + self.data.value_bytes()
    }
}

impl Source for Scans {
    fn next<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        let (table, count) = (self.table, self.records);
        // No more than are asked for, so that a page ends there.
        let bytes_max = (count * self.record_bytes()).min(ENUMERATE_BYTES_MAX) as u32;
        let (first, from) = self.draw();
        let range = KeyRange { from, ..KeyRange::default() };
        let request = Request::Scan {
            table,
            range,
            cursor: &[],
            keys_only: false,
            objects_max: count as u16,
            bytes_max,
        };
        send(&request, Expected::Ordered(first, count))
    }

    fn objects(&self) -> u64 {
        self.records as u64
    }
}

#[cfg(test)]
mod tests {
    use super::shuffled;

    #[test]
    fn each_record_is_loaded_once() {
        for records in [1, 2, 1_000, 4_096, 9_999] {
            let mut loaded: Vec<u64> = (0..records).map(|turn| shuffled(turn, records)).collect();
            loaded.sort_unstable();
            assert!(loaded.into_iter().eq(0..records));
        }
    }
}
