//! The parts of tables that a log names, by which an entry of it is known to be of a tablet.

use cluster::metadata::{MigrationRow, PartRow};
use store::SegmentEntry;

/// The parts of a log, the latest first.
#[derive(Debug, Default)]
pub struct LogParts(Vec<PartRow>);

/// The table of an entry, and the hash of its key.
#[derive(Clone, Copy, Debug)]
pub struct TablePosition {
    table: u32,
    hash: u64,
}

impl LogParts {
    /// Takes the records of a log's parts.
    #[must_use]
    pub fn new(mut rows: Vec<PartRow>) -> Self {
        rows.sort_by_key(|part| std::cmp::Reverse(part.id));
        Self(rows)
    }

    /// Returns the place of an entry; `None` if its part is not recorded.
    #[must_use]
    pub fn place_of(&self, entry: &SegmentEntry<'_>) -> Option<TablePosition> {
        let table = self.0.iter().find(|part| part.id == entry.table)?.table;
        Some(TablePosition { table, hash: store::hash(entry.key) })
    }

    /// Returns whether an entry at this place is of the hashes of a migration, and no later part of the log has its key.
    #[must_use]
    pub fn is_of(
        &self,
        TablePosition { table, hash }: TablePosition,
        entry: &SegmentEntry<'_>,
        row: &MigrationRow,
    ) -> bool {
        let position = wire::position(entry.key, hash, row.is_tagged, store::hash);
        let has_it =
            |part: &&PartRow| part.table == table && (part.made_for.0..=part.made_for.1).contains(&position);
        row.table == table
            && row.hashes.contains(position)
            && self.0.iter().find(has_it).is_some_and(|latest| latest.id == entry.table)
    }

    /// As [`LogParts::is_of`], for any entry.
    #[must_use]
    pub fn has(&self, entry: &SegmentEntry<'_>, row: &MigrationRow) -> bool {
        self.place_of(entry).is_some_and(|place| self.is_of(place, entry, row))
    }
}
