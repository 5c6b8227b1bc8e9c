//! Which parts of tables the log names: outside a cluster whole tables, by the numbers of their rows; in a cluster what was recorded
//! when each part was made, as far as this server may still own it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster::metadata::{Catalog, MetadataError, PartRow, ServerRun};
use disk::settle_file;
use store::{Core, Cursor, HashRange, Store, Table, TableKind, TableOptions};
use wire::TenantId;

use crate::config::Config;
use crate::durability::NumberedTables;
use crate::tablet::{DurableParts, Range, subtract, unite};
use crate::tenant::account::Accounts;

/// Name of the records of parts in the data directory of a server in a cluster.
const PARTS_FILE: &str = "parts.redb";

/// A part that the log names.
#[derive(Debug)]
pub struct NamedPart {
    tenant: TenantId,
    table: u32,
    is_ordered: bool,
    is_tagged: bool,
    made_for: HashRange,
    /// What it does not keep.
    left: Vec<Range>,
}

/// Opens the records of parts, if the server is in a cluster.
///
/// # Errors
/// A text, if they cannot be opened, or the log belongs to a server in a cluster and this one is in none, or the other
/// way round.
pub fn open(config: &Config, log: &Path, run: Option<ServerRun>) -> Result<Option<DurableParts>, String> {
    let path = config.data_directory.join(PARTS_FILE);
    match (run, path.exists(), log.exists()) {
        (None, true, _) => Err(format!(
            "the data directory is of a server in a cluster, as {} shows: start with the cluster's --metadata, or with another --data",
            path.display()
        )),
        (Some(_), false, true) => Err(format!(
            "{} was written outside a cluster: start with another data directory, and copy the objects with `splinter \
             archive create` there and `splinter archive restore` here",
            log.display()
        )),
        (None, false, _) => Ok(None),
        (Some(_), _, _) => {
            settle_file(&path).map_err(|error| error.to_string())?;
            DurableParts::open(&path).map(Some).map_err(|error| error.to_string())
        }
    }
}

/// Returns the parts that the log names, by their numbers.
///
/// # Errors
/// If what the parts keep cannot be recorded.
pub fn named(
    catalog: &Catalog,
    in_cluster: Option<(&DurableParts, ServerRun)>,
) -> Result<BTreeMap<u32, NamedPart>, MetadataError> {
    let durable = || catalog.tables.iter().filter(|row| row.durability().is_on_disk());
    let Some((parts, own)) = in_cluster else {
        let whole = |row: &cluster::metadata::TableRow| NamedPart {
            tenant: row.tenant,
            table: row.id,
            is_ordered: row.options.ordered,
            is_tagged: row.options.tagged,
            made_for: HashRange::ALL,
            left: Vec::new(),
        };
        return Ok(durable().map(|row| (row.part.unwrap_or(row.id), whole(row))).collect());
    };
    let table_of = |part: &PartRow| durable().find(|row| (row.tenant, row.id) == (part.tenant, part.table));
    let allowed = |part: &PartRow| table_of(part).map_or_else(Vec::new, |row| may_own(catalog, row.id, own));
    let mut named = BTreeMap::new();
    for part in parts.narrow(allowed)? {
        let Some(row) = table_of(&part) else { continue };
        let Some(made_for) = HashRange::new(part.made_for.0, part.made_for.1) else { continue };
        let (tenant, table, is_ordered, is_tagged) =
            (row.tenant, row.id, row.options.ordered, row.options.tagged);
        let left = subtract(&[part.made_for], &part.kept);
        debug_assert!(!is_tagged || left.is_empty(), "a tablet of a tagged table leaves as a whole");
        named.insert(part.id, NamedPart { tenant, table, is_ordered, is_tagged, made_for, left });
    }
    Ok(named)
}

/// Returns the hashes of a table that a server owns, or may own once a migration is over.
fn may_own(catalog: &Catalog, table: u32, own: ServerRun) -> Vec<Range> {
    let bounds = |hashes: HashRange| (hashes.first(), hashes.last());
    let owned = catalog.tablets.iter().filter(|row| row.table == table);
    let owned: Vec<Range> = owned.flat_map(|row| row.owned_by(own.server)).map(bounds).collect();
    let moving = catalog.migrations.iter().filter(|row| {
        let is_own = [row.source, row.target].iter().any(|run| run.server == own.server);
        row.table == table && !row.is_over() && is_own
    });
    moving.fold(owned, |owned, row| unite(&owned, &[bounds(row.hashes)]))
}

impl NamedPart {
    /// Makes the part, or returns the one that was made.
    pub fn make(&self, store: &Arc<Store>, accounts: &Accounts, number: u32) -> Arc<Table> {
        let kind = if self.is_ordered { TableKind::Ordered } else { TableKind::Hash };
        let range = self.made_for;
        let (hashes, positions) = if self.is_tagged { (HashRange::ALL, Some(range)) } else { (range, None) };
        let options = TableOptions { kind, durable: true, hashes, positions, ..TableOptions::default() };
        store.table_with(number, options, accounts.of(self.tenant).quota(store.cores()))
    }
}

/// Parts, each with hashes that it does not keep.
pub type Left = Vec<(Arc<Table>, Vec<Range>)>;

/// Notes the parts for their tables, and returns what they do not keep.
pub fn take(durable: &DurableParts, named: BTreeMap<u32, NamedPart>, tables: &NumberedTables) -> Left {
    let take = |(number, NamedPart { table, left, .. }): (u32, NamedPart)| {
        let part = &tables[&number];
        durable.note_recovered(table, Arc::clone(part));
        (Arc::clone(part), left)
    };
    named.into_iter().map(take).collect()
}

/// Removes what parts do not keep, until it is to stop. A part that was retired is left as it is.
pub fn discard(left: &Left, core: &Core, stopping: &AtomicBool) {
    for (part, &(first, last)) in
        left.iter().flat_map(|(part, left)| left.iter().map(move |range| (part, range)))
    {
        let mut from = Cursor::before(first);
        while let Ok(Some(next)) = core.pin().discard(part, from, last) {
            if stopping.load(Ordering::Relaxed) {
                return;
            }
            from = next;
        }
    }
}
