//! Derives from the records of tablets and migrations what one server must change of one table. It does no I/O and
//! makes no parts; see [`super::Control::alter`] for the execution.
//!
//! The hashes of a migration with this server are left to the migration's threads, which make the cuts, from its first
//! record to the end of this side. The hashes of a migration that knew this server before its restart belong to nobody
//! here until the migration is over, since the other side may have the objects. All others follow the tablets'
//! records. Hashes are positions here: of a tagged table those of its keys, and each of its tablets has a part.

use std::sync::Arc;

use cluster::metadata::{MemberRow, MigrationRow, ServerRun, Side, TabletsRow};
use cluster::migration::{MigrationMode, MigrationPhase};
use store::{HashRange, Table};
use wire::{ServerPlace, TabletMap};

use crate::tablet::{Parts, Range, overlap, subtract, unite};

/// The changes due on this server.
#[derive(Clone, Debug, Default)]
pub struct Due {
    /// Hashes to give up.
    pub leave: Vec<Range>,
    /// Hashes to take over.
    pub take: Vec<Range>,
    /// Hashes of `take` without a part: nothing is known of any object there.
    pub missing: Vec<HashRange>,
    /// Parts to drop.
    pub go: Vec<Arc<Table>>,
}

/// Returns the hashes that a part keeps; `None` if that is everything.
pub type KeptBy<'k> = dyn Fn(&Table) -> Option<Vec<Range>> + 'k;

/// Returns the changes due on a table that has these parts, for its tablets and migrations. `kept` returns what a part
/// keeps, if that is not everything: see [`crate::tablet::DurableParts`]. The caller leaves out
/// migrations with this server as the source that have not begun here: the server must own the hashes before it gives
/// them away.
#[must_use]
pub fn due<'r>(
    (parts, kept): (&Parts, &KeptBy<'_>),
    tablets: &TabletsRow,
    migrations: impl Iterator<Item = &'r MigrationRow>,
    own: ServerRun,
) -> Due {
    let (mut left_alone, mut closed) = (Vec::new(), Vec::new());
    for row in migrations {
        let hashes = [bounds(row.hashes)];
        match row.side_of(own) {
            Some(Side::Source) if !row.is_source_done => left_alone = unite(&left_alone, &hashes),
            Some(Side::Target) if !row.is_target_done => left_alone = unite(&left_alone, &hashes),
            Some(_) => {}
            None if row.is_over() => {}
            None if [row.source, row.target].iter().any(|run| run.server == own.server) => {
                closed = unite(&closed, &hashes);
            }
            None => {}
        }
    }
    let recorded: Vec<Range> = tablets.owned_by(own.server).into_iter().map(bounds).collect();
    let wanted = subtract(&subtract(&recorded, &closed), &left_alone);
    let owned = parts.owned();
    let now = subtract(&owned, &left_alone);
    let (leave, take) = (subtract(&now, &wanted), subtract(&wanted, &now));
    let kept_by = |part: &Arc<Table>| kept(part).unwrap_or_else(|| vec![bounds(part.positions())]);
    let held: Vec<Range> = parts.held().iter().flat_map(kept_by).collect();
    // Edges of tablets and of parts are multiples of the narrowest range.
    let missing = subtract(&take, &held).into_iter();
    let missing = missing.filter_map(|(first, last)| HashRange::new(first, last)).collect();
    // What is closed may return to this server.
    let needed = unite(&unite(&unite(&subtract(&owned, &leave), &take), &left_alone), &closed);
    let is_idle = |part: &&Arc<Table>| !overlap(&[bounds(part.positions())], &needed);
    let go = parts.held().iter().filter(is_idle).cloned().collect();
    Due { leave, take, missing, go }
}

/// Returns the map for clients: a table's tablets with their owners, and migrations that run or are about to.
#[must_use]
pub fn map_of<'r>(
    tablets: &TabletsRow,
    migrations: impl Iterator<Item = &'r MigrationRow>,
    members: &[MemberRow],
    version: u64,
) -> Option<TabletMap> {
    let mut servers: Vec<ServerPlace> = Vec::new();
    let mut index_of = |number: u32| {
        let known = servers.iter().position(|place| place.number == number);
        let index = known.unwrap_or_else(|| {
            let member = members.iter().find(|member| member.run.server == number);
            let address = member.map(|member| member.tcp.to_string()).unwrap_or_default();
            servers.push(ServerPlace { number, address });
            servers.len() - 1
        });
        u16::try_from(index).ok()
    };
    let mut entries: Vec<wire::Tablet> = Vec::new();
    for tablet in &tablets.tablets {
        let (last, server) = (tablet.hashes.last(), index_of(tablet.server)?);
        // In a tagged table each has a part of its own.
        entries.pop_if(|before| before.server == server && !tablets.is_tagged);
        entries.push(wire::Tablet { last, server });
    }
    let mut moving = Vec::new();
    for row in migrations.filter(|row| row.table == tablets.table && !row.is_over()) {
        // Listed before it owns anything, so that clients have sessions with it by then.
        index_of(row.target.server)?;
        // A read may ask both servers, or nobody until the hashes are recovered.
        if !matches!(
            (row.mode, row.phase),
            (MigrationMode::Cooperative, MigrationPhase::Moving)
                | (MigrationMode::Recovery, MigrationPhase::Preparing)
        ) {
            continue;
        }
        let (first, last) = bounds(row.hashes);
        moving.push(wire::Moving { migration: row.id, first, last, source: index_of(row.source.server)? });
    }
    let map = TabletMap::new(version, servers, entries).and_then(|map| map.with_moving(moving)).ok()?;
    Some(if tablets.is_tagged { map.tagged() } else { map })
}

fn bounds(hashes: HashRange) -> Range {
    (hashes.first(), hashes.last())
}

#[cfg(test)]
mod tests;
