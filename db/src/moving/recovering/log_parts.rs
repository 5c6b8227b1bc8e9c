//! The parts of tables that a log names, by which an entry of it is known to be of a tablet.

use std::collections::BTreeMap;

use cluster::metadata::{MigrationRow, PartRow};
use cluster::replication::fetch::WantedHashes;
use store::SegmentEntry;

use crate::tablet::{Range, subtract, unite};

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

    /// Returns what of the log is of the hashes of these migrations: the entries of which [`LogParts::is_of`] is true.
    #[must_use]
    pub fn wanted<'r>(&self, rows: impl Iterator<Item = &'r MigrationRow> + Clone) -> Vec<WantedHashes> {
        let mut later: BTreeMap<u32, Vec<Range>> = BTreeMap::new();
        let mut wanted = Vec::new();
        for PartRow { id, table, made_for, .. } in &self.0 {
            let later = later.entry(*table).or_default();
            let latest = subtract(&[*made_for], later);
            *later = unite(later, &[*made_for]);
            for row in rows.clone().filter(|row| row.table == *table) {
                let both = |&(first, last): &Range| {
                    let (first, last) = (first.max(row.hashes.first()), last.min(row.hashes.last()));
                    let is_tagged = row.is_tagged;
                    (first <= last).then_some(WantedHashes { part: *id, is_tagged, first, last })
                };
                wanted.extend(latest.iter().filter_map(both));
            }
        }
        wanted
    }

    /// As [`LogParts::is_of`], for any entry.
    #[must_use]
    pub fn has(&self, entry: &SegmentEntry<'_>, row: &MigrationRow) -> bool {
        self.place_of(entry).is_some_and(|place| self.is_of(place, entry, row))
    }
}

#[cfg(test)]
mod tests {
    use cluster::metadata::{MigrationRow, PartRow, ServerRun};
    use cluster::migration::{MigrationMode, MigrationPhase};
    use fastrand::Rng;
    use store::{HashRange, NEVER_MS, SegmentEntry};
    use wire::TenantId;

    use super::LogParts;

    /// Tables, of which the second one is tagged.
    const TABLES: [u32; 2] = [1, 2];

    fn range(random: &mut Rng) -> HashRange {
        let whole = random.u8(0..4) == 0;
        let mut drawn = || HashRange::new(random.u64(..), random.u64(..));
        if whole { HashRange::ALL } else { std::iter::repeat_with(&mut drawn).flatten().next().expect("one") }
    }

    fn migration(random: &mut Rng, id: u32) -> MigrationRow {
        let run = |server| ServerRun { server, start: 1 };
        let table = *random.choice(&TABLES).expect("some");
        MigrationRow {
            id,
            tenant: TenantId(1),
            table,
            hashes: range(random),
            source: run(1),
            target: run(2),
            mode: MigrationMode::Recovery,
            phase: MigrationPhase::Preparing,
            is_durable: true,
            is_tagged: table == TABLES[1],
            begun_ms: 0,
            is_aborted: false,
            is_source_done: false,
            is_target_done: false,
        }
    }

    #[test]
    fn what_is_wanted_of_a_log_is_what_its_latest_parts_have_of_the_hashes() {
        for seed in 0..300 {
            let mut random = Rng::with_seed(seed);
            let part = |random: &mut Rng, id: u32| {
                let made_for = range(random);
                let (table, kept) = (*random.choice(&TABLES).expect("some"), Vec::new());
                PartRow {
                    id,
                    tenant: TenantId(1),
                    table,
                    made_for: (made_for.first(), made_for.last()),
                    kept,
                }
            };
            let parts: Vec<PartRow> = (1..random.u32(2..8)).map(|id| part(&mut random, id)).collect();
            let rows: Vec<MigrationRow> =
                (1..random.u32(1..4)).map(|id| migration(&mut random, id)).collect();
            let log_parts = LogParts::new(parts);
            let wanted = log_parts.wanted(rows.iter());
            for key in (0..200).map(|key| format!("{key} of {{{}}}", key % 50)) {
                let table = random.u32(0..9);
                let (version, expires_ms, object) = (1, NEVER_MS, None);
                let entry = SegmentEntry { table, key: key.as_bytes(), version, expires_ms, object };
                let is_wanted = wanted.iter().any(|hashes| {
                    let position =
                        wire::position(entry.key, store::hash(entry.key), hashes.is_tagged, store::hash);
                    hashes.part == table && (hashes.first..=hashes.last).contains(&position)
                });
                let is_of_one = rows.iter().any(|row| log_parts.has(&entry, row));
                assert_eq!(is_wanted, is_of_one, "seed {seed}: {key} in part {table}");
            }
        }
    }
}
