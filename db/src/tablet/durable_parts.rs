//! The parts of a cluster's tables that are in this server's log, and which hashes each keeps.
//!
//! ```text
//!   made ── recorded ──► serves ──► hashes leave it: kept by it no longer ──► keeps none: forgotten
//!                         start ──► kept: what this server may still own, and no newer part keeps
//! ```
//! The record ([`PartRow`]) is on the disk before the log may name the part, and before hashes that left may return.
//! What the log has of hashes that a part does not keep is removed when the log has been read. Outside a cluster a table
//! has one part, of its own number, and no record.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use cluster::metadata::{Metadata, MetadataError, PartRow};
use store::Table;
use wire::TenantId;

use super::moving::{Range, overlap, subtract, unite};
use crate::sync::lock;

/// The recorded parts of a server.
pub struct DurableParts {
    records: Metadata,
    rows: Mutex<BTreeMap<u32, PartRow>>,
    /// Parts from the log that no table has taken yet, by their tables' numbers.
    recovered: Mutex<BTreeMap<u32, Vec<Arc<Table>>>>,
}

impl DurableParts {
    /// Opens the records in a file, created if missing.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn open(path: &Path) -> Result<Self, MetadataError> {
        Self::of(Metadata::open(path)?)
    }

    /// Reads the records, which nobody else has.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn of(records: Metadata) -> Result<Self, MetadataError> {
        let rows = records.parts()?.into_iter().map(|row| (row.id, row)).collect();
        Ok(Self { records, rows: Mutex::new(rows), recovered: Mutex::default() })
    }

    /// Returns whether nobody knows what the file says, and everything is refused until the server is started again.
    pub fn has_failed(&self) -> bool {
        self.records.records().has_failed()
    }

    /// Leaves each part the hashes that are `allowed` to its table and that no newer part keeps, and returns the parts
    /// that are left.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn narrow(&self, allowed: impl Fn(&PartRow) -> Vec<Range>) -> Result<Vec<PartRow>, MetadataError> {
        let mut rows = lock(&self.rows);
        let mut newer: BTreeMap<u32, Vec<Range>> = BTreeMap::new();
        let mut changed = Vec::new();
        for row in rows.values_mut().rev() {
            let newer = newer.entry(row.table).or_default();
            let barred = subtract(&row.kept, &allowed(row));
            let kept = subtract(&subtract(&row.kept, &barred), newer);
            *newer = unite(newer, &kept);
            if kept != row.kept {
                row.kept = kept;
                changed.push(row.clone());
            }
        }
        if !changed.is_empty() {
            self.records.parts_keep(&changed)?;
        }
        rows.retain(|_, row| !row.kept.is_empty());
        Ok(rows.values().cloned().collect())
    }

    /// Records a new part of a table, and returns its number.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn add(&self, table: (TenantId, u32), hashes: Range) -> Result<u32, MetadataError> {
        let row = self.records.part_add(table, hashes)?;
        let id = row.id;
        lock(&self.rows).insert(id, row);
        Ok(id)
    }

    /// Returns the record of a part.
    #[must_use]
    pub fn row(&self, part: u32) -> Option<PartRow> {
        lock(&self.rows).get(&part).cloned()
    }

    /// Returns the records of all parts.
    #[must_use]
    pub fn rows(&self) -> Vec<PartRow> {
        lock(&self.rows).values().cloned().collect()
    }

    /// Records that hashes have left a part for good; changes nothing for a part without a record.
    ///
    /// # Errors
    /// When it cannot be stored: then the part keeps them.
    pub fn leave(&self, part: u32, hashes: Range) -> Result<(), MetadataError> {
        let mut rows = lock(&self.rows);
        let Some(row) = rows.get_mut(&part).filter(|row| overlap(&row.kept, &[hashes])) else {
            return Ok(());
        };
        let left = PartRow { kept: subtract(&row.kept, &[hashes]), ..row.clone() };
        self.records.parts_keep(std::slice::from_ref(&left))?;
        *row = left;
        Ok(())
    }

    /// Forgets parts that nobody is served from any more. If that cannot be stored, the next start does it.
    pub fn forget(&self, parts: &[Arc<Table>]) {
        let mut rows = lock(&self.rows);
        let gone = parts.iter().filter_map(|part| rows.remove(&part.id()));
        let gone: Vec<_> = gone.map(|row| PartRow { kept: Vec::new(), ..row }).collect();
        if !gone.is_empty()
            && let Err(error) = self.records.parts_keep(&gone)
        {
            tracing::warn!(%error, "cannot forget parts of tables: the next start does it");
        }
    }

    /// Returns the hashes that a part keeps; `None` without a record.
    #[must_use]
    pub fn kept(&self, part: u32) -> Option<Vec<Range>> {
        lock(&self.rows).get(&part).map(|row| row.kept.clone())
    }

    /// Returns whether parts of a table keep all these hashes.
    #[must_use]
    pub fn keep_all(&self, table: u32, hashes: Range) -> bool {
        let rows = lock(&self.rows);
        let kept = rows.values().filter(|row| row.table == table).map(|row| row.kept.as_slice());
        kept.fold(vec![hashes], |left, kept| subtract(&left, kept)).is_empty()
    }

    /// Notes a part of a table that was read from the log.
    pub fn note_recovered(&self, table: u32, part: Arc<Table>) {
        lock(&self.recovered).entry(table).or_default().push(part);
    }

    /// Returns the parts of a table from the log, once.
    #[must_use]
    pub fn take_recovered(&self, table: u32) -> Vec<Arc<Table>> {
        lock(&self.recovered).remove(&table).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use wire::TenantId;

    use super::DurableParts;

    const TABLE: (TenantId, u32) = (TenantId(3), 7);

    #[test]
    fn a_part_keeps_what_did_not_leave_it_and_what_no_newer_part_keeps() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || DurableParts::open(&directory.path().join("parts.redb")).expect("a file");
        let parts = open();
        let first = parts.add(TABLE, (0, u64::MAX)).expect("room");
        parts.leave(first, (100, 199)).expect("room");
        assert_eq!(parts.kept(first), Some(vec![(0, 99), (200, u64::MAX)]));
        assert!(parts.keep_all(7, (0, 99)) && !parts.keep_all(7, (0, 100)) && !parts.keep_all(8, (0, 1)));
        let second = parts.add(TABLE, (100, 299)).expect("room");
        assert!(second > first && parts.keep_all(7, (0, u64::MAX)));
        drop(parts);

        let parts = open();
        let left = parts.narrow(|_| vec![(50, 149), (250, 399)]).expect("room");
        let kept = |rows: &[cluster::metadata::PartRow]| {
            rows.iter().map(|row| (row.id, row.kept.clone())).collect::<Vec<_>>()
        };
        let expected = [(first, vec![(50, 99), (300, 399)]), (second, vec![(100, 149), (250, 299)])];
        assert_eq!(kept(&left), expected);
        drop(parts);

        let parts = open();
        assert_eq!(parts.narrow(|row| row.kept.clone()).map(|rows| kept(&rows)), Ok(expected.to_vec()));
        let left = parts.narrow(|row| if row.id == first { Vec::new() } else { row.kept.clone() });
        assert_eq!(left.map(|rows| kept(&rows)), Ok(expected[1..].to_vec()));
        assert!(parts.add(TABLE, (0, 9)).expect("room") > second, "no number is used twice");
    }
}
