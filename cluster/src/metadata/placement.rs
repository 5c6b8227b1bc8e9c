//! Changes of tablets: placement of new tables, splits and merges, and the tablets of servers that lost their objects.

use std::collections::BTreeMap;

use control::{Durability, TableOptions};
use store::HashRange;
use wire::TenantId;

use super::row::below;
use super::servers::is_gone;
use super::tablets::{Tablet, TabletsRow, find, overlap};
use super::{
    MemberRow, Metadata, MetadataError, MetadataTransaction, MigrationRow, Snapshot, TableRow, TabletError,
    VERSIONS, drained, members, moving, next, replicas, tables,
};
use crate::limits::TABLETS_CHANGED_AT_ONCE;

/// Returns the servers for `count` tablets, each time the one that owns fewest; on a tie the first after `first`.
fn fewest(owned: &mut BTreeMap<u32, usize>, first: u32, count: usize) -> Vec<u32> {
    let mut chosen = Vec::with_capacity(count);
    for _ in 0..count {
        let least = owned.iter_mut().min_by_key(|(server, owned)| (**owned, **server != first, **server));
        if let Some((server, owned)) = least {
            *owned += 1;
            chosen.push(*server);
        }
    }
    chosen
}

/// Leaves of these servers those with a log on their disk.
fn with_disk(
    transaction: &mut MetadataTransaction<'_>,
    owned: &BTreeMap<u32, usize>,
) -> Result<BTreeMap<u32, usize>, MetadataError> {
    let rows = transaction.rows::<MemberRow>("")?;
    let has_disk = |server: u32| rows.iter().any(|row| row.run.server == server && row.has_disk);
    Ok(owned
        .iter()
        .map(|(server, owned)| (*server, *owned))
        .filter(|(server, _)| has_disk(*server))
        .collect())
}

/// Gives tablets of some tables of a server to others; returns their number, and whether some are moving.
fn adopt_some(
    transaction: &mut MetadataTransaction<'_>,
    server: u32,
    owned: &mut BTreeMap<u32, usize>,
    (first, now_ms): (u32, u64),
) -> Result<(usize, bool), MetadataError> {
    let run = members::run_of(transaction, server)?;
    if !is_gone(transaction, run)? {
        return Err(TabletError::IsThere(server).into());
    }
    let has_replicas = replicas::promised(transaction, server)? > 0;
    let (mut given, mut changed, mut left) = (0, 0, false);
    let migrations = transaction.rows::<MigrationRow>("")?;
    for mut row in transaction.rows::<TabletsRow>("")? {
        let moving: Vec<_> = migrations.iter().filter(|migration| migration.table == row.table).collect();
        let is_moving =
            |tablet: &Tablet| moving.iter().any(|migration| overlap(migration.hashes, tablet.hashes));
        let lost = row.tablets.iter_mut().filter(|tablet| tablet.server == server);
        let (moving, lost): (Vec<_>, Vec<_>) = lost.partition(|tablet| is_moving(tablet));
        left |= !moving.is_empty();
        if lost.is_empty() || changed == TABLETS_CHANGED_AT_ONCE {
            continue;
        }
        if row.is_tagged {
            tables::all_know_tags(transaction)?;
        }
        let (_, is_durable) = tables::moving_of(transaction, row.tenant, row.table)?;
        if is_durable && has_replicas {
            // Others recover them.
            left = true;
            continue;
        }
        let mut on_disks = is_durable.then(|| with_disk(transaction, owned)).transpose()?;
        let heirs = fewest(on_disks.as_mut().unwrap_or(owned), first, lost.len());
        if heirs.len() < lost.len() {
            return Err(TabletError::NoDisks.into());
        }
        changed += 1;
        given += lost.len();
        for (tablet, heir) in lost.into_iter().zip(heirs) {
            (tablet.server, tablet.emptied_ms) = (heir, Some(now_ms));
        }
        transaction.store(&row)?;
    }
    if given > 0 {
        // The new owners' versions begin above all that the absent server has assigned.
        next(transaction, VERSIONS, 1)?;
    }
    Ok((given, left))
}

impl Metadata {
    /// Adds a table with `count` tablets, each at the server that owns fewest; on a tie at `asked`. Concurrent
    /// placements by others cause no conflict.
    ///
    /// # Errors
    /// As [`Metadata::table_create_at`].
    pub fn table_create_spread(
        &self,
        tenant: TenantId,
        name: &str,
        options: TableOptions,
        (count, asked): (usize, u32),
    ) -> Result<u32, MetadataError> {
        let Snapshot { there, plans, tablets, .. } = self.snapshot()?;
        let drained = drained(&plans);
        let (drained, there): (Vec<_>, Vec<_>) = there.into_iter().partition(|run| drained.contains(run));
        let mut owned: BTreeMap<u32, usize> = there.iter().map(|run| (run.server, 0)).collect();
        // The requested server is present, though it may not be registered yet.
        if there.is_empty() || drained.iter().all(|run| run.server != asked) {
            owned.entry(asked).or_default();
        }
        for tablet in tablets.iter().flat_map(|row| &row.tablets) {
            owned.entry(tablet.server).and_modify(|owned| *owned += 1);
        }
        if options.durability.is_some_and(Durability::is_on_disk) {
            owned = self.read(|transaction| with_disk(transaction, &owned))?;
        }
        let servers = fewest(&mut owned, asked, count);
        if servers.is_empty() {
            return Err(TabletError::NoDisks.into());
        }
        self.table_create_at(tenant, name, options, &servers)
    }

    /// Places a table at a server if it was not placed.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn table_place(&self, tenant: TenantId, table: u32, server: u32) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let rows = transaction.rows::<TableRow>(&below(tenant))?;
            if let Some(row) = rows.iter().find(|row| row.id == table)
                && find(transaction, tenant, table)?.is_none()
            {
                let numbered = (table, row.options.tagged);
                transaction.store(&TabletsRow::spread(tenant, numbered, &[server])?)?;
            }
            Ok(())
        })
    }

    /// Records that a server has lost the objects of its tablets, except of those that it `has`, by their table's number,
    /// and returns how many.
    ///
    /// # Errors
    /// When it cannot be stored: then it may be recorded for some.
    pub fn tablets_emptied(
        &self,
        server: u32,
        now_ms: u64,
        has: impl Fn(u32, HashRange) -> bool,
    ) -> Result<usize, MetadataError> {
        let lost = |table: u32, tablet: &Tablet| {
            tablet.server == server && tablet.emptied_ms < Some(now_ms) && !has(table, tablet.hashes)
        };
        let mut count = 0;
        loop {
            let noted = self.write(|transaction| {
                let mut noted = 0;
                let rows = transaction.rows::<TabletsRow>("")?;
                let with_lost =
                    rows.into_iter().filter(|row| row.tablets.iter().any(|tablet| lost(row.table, tablet)));
                for mut row in with_lost.take(TABLETS_CHANGED_AT_ONCE) {
                    for tablet in row.tablets.iter_mut().filter(|tablet| lost(row.table, tablet)) {
                        tablet.emptied_ms = Some(now_ms);
                        noted += 1;
                    }
                    transaction.store(&row)?;
                }
                Ok(noted)
            })?;
            count += noted;
            if noted == 0 {
                return Ok(count);
            }
        }
    }

    /// Gives all tablets of an absent server to others, empty, each to the one that owns fewest. Moving hashes stay
    /// until their owner is settled. Returns the number of those tablets, and whether some are left.
    ///
    /// # Errors
    /// `Tablets` when the server is present, or no other one is; or that it cannot be stored: then some may be given.
    pub fn tablets_adopt(&self, server: u32, now_ms: u64) -> Result<(usize, bool), MetadataError> {
        let mut given = 0;
        loop {
            let Snapshot { there, plans, tablets, .. } = self.snapshot()?;
            let drained = drained(&plans);
            let takers = there.iter().filter(|run| !drained.contains(run));
            let mut owned: BTreeMap<u32, usize> = takers.map(|run| (run.server, 0)).collect();
            let first = *owned.keys().next().ok_or(TabletError::NoServer(server))?;
            for tablet in tablets.iter().flat_map(|row| &row.tablets) {
                owned.entry(tablet.server).and_modify(|owned| *owned += 1);
            }
            let adopt = |transaction: &mut MetadataTransaction<'_>| {
                adopt_some(transaction, server, &mut owned.clone(), (first, now_ms))
            };
            let (now, left) = self.write(adopt)?;
            given += now;
            if now == 0 {
                return Ok((given, left));
            }
        }
    }

    /// Makes a hash of a table the first one of a tablet; changes nothing if it already is.
    ///
    /// # Errors
    /// `NotFound` when no such table was placed, `LimitExceeded`, [`TabletError`], or that it cannot be stored.
    pub fn tablet_split(&self, tenant: TenantId, table: u32, at: u64) -> Result<TabletsRow, MetadataError> {
        self.tablets_change(tenant, table, at, |row| row.split(at))
    }

    /// Merges the tablets on both sides of a hash.
    ///
    /// # Errors
    /// `NotFound` when no such table was placed, [`TabletError`], or that it cannot be stored.
    pub fn tablet_merge(&self, tenant: TenantId, table: u32, at: u64) -> Result<TabletsRow, MetadataError> {
        self.tablets_change(tenant, table, at, |row| Ok(row.merge(at)?))
    }

    fn tablets_change(
        &self,
        tenant: TenantId,
        table: u32,
        at: u64,
        change: impl Fn(&mut TabletsRow) -> Result<(), MetadataError>,
    ) -> Result<TabletsRow, MetadataError> {
        self.write(|transaction| moving::change_tablets(transaction, (tenant, table), at, &change))
    }

    /// Returns the tablets of all tables.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn tablets(&self) -> Result<Vec<TabletsRow>, MetadataError> {
        self.read(|transaction| Ok(transaction.rows("")?))
    }
}
