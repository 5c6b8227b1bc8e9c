//! Records of recoveries: which log of a server that is gone others rebuild tablets from, and up to where it counts.
//!
//! One is made with the first migration that recovers a tablet ([`MigrationMode::Recovery`]), and goes when its server starts
//! again from its own disk. From then until that the log's record of replicas does not change: who still writes the log gets no
//! more backups than it had, and these take nothing of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use store::HashRange;
use wire::TenantId;

use super::encoding::padded;
use super::migrations::{self, MigrationRow, Side};
use super::moving;
use super::row::{Row, number};
use super::servers::is_gone;
use super::{
    DecidedCut, Metadata, MetadataError, MetadataTransaction, OwnLogEnd, OwnLogExtent, PartRow, ReplicasRow,
    TabletError, TabletsRow, VERSIONS, members, next, replicas, tables, tablets,
};
use crate::limits::{LOG_PARTS_CHANGED_AT_ONCE, RETURN_MS, STOPPED_MS};
use crate::migration::{MigrationMode, MigrationPhase};
use crate::records::RecordsError;
use crate::replication::ReplicasRecord;
use crate::secret::random_bytes;

/// A recovery of tablets from the replicas of a server's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryRow {
    /// The server that is gone.
    #[serde(skip)]
    pub server: u32,
    /// The record of its log's replicas: nothing of a later start of the log counts.
    pub replicas: ReplicasRow,
    /// Up to where it counts, once that is decided.
    pub decided: Option<DecidedCut>,
    /// Whether a tablet was recovered as of that: it cannot be decided anew.
    #[serde(default)]
    pub is_in_use: bool,
}

impl Row for RecoveryRow {
    const PREFIX: &'static str = "recoveries/";

    fn key(&self) -> String {
        padded(self.server)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[server] = parts else { return None };
        let server = number(server)?;
        Some(Self { server, replicas: ReplicasRow { server, ..self.replicas }, ..self })
    }
}

/// A part that a server's log names, for those who recover it. As [`PartRow`], but for what the part keeps: of two parts the
/// one with the higher number has the hashes for which both were made.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct LogPartRow {
    #[serde(skip)]
    server: u32,
    #[serde(skip)]
    id: u32,
    tenant: u32,
    table: u32,
    made_for: (u64, u64),
}

impl LogPartRow {
    fn of(server: u32, part: &PartRow) -> Self {
        let PartRow { id, tenant, table, made_for, .. } = part;
        Self { server, id: *id, tenant: tenant.0, table: *table, made_for: *made_for }
    }
}

impl Row for LogPartRow {
    const PREFIX: &'static str = "log-parts/";

    fn key(&self) -> String {
        below(self.server) + &padded(self.id)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[server, id] = parts else { return None };
        Some(Self { server: number(server)?, id: number(id)?, ..self })
    }
}

fn below(server: u32) -> String {
    format!("{}/", padded(server))
}

/// Returns the recovery of a server's log.
pub(super) fn find(
    transaction: &mut MetadataTransaction<'_>,
    server: u32,
) -> Result<Option<RecoveryRow>, RecordsError> {
    transaction.row::<RecoveryRow>(&padded(server))
}

/// Ends the recovery of a server's log: it is written again.
pub(super) fn end(transaction: &mut MetadataTransaction<'_>, server: u32) {
    transaction.remove_row::<RecoveryRow>(&padded(server));
}

/// Begins to recover hashes of a table at a server, unless their owner is there; if the table is in memory, makes that server their
/// owner, without objects.
pub(super) fn begin(
    transaction: &mut MetadataTransaction<'_>,
    (tenant, table): (TenantId, u32),
    hashes: HashRange,
    target: u32,
    now_ms: u64,
) -> Result<(), MetadataError> {
    let mut row = tablets::find(transaction, tenant, table)?.ok_or(MetadataError::NotFound)?;
    let own = |tablet: &&tablets::Tablet| {
        tablet.hashes.first() <= hashes.first() && hashes.last() <= tablet.hashes.last()
    };
    let own = row.tablets.iter().find(own);
    let Some((source, of_source)) = own.map(|tablet| (tablet.server, tablet.hashes)) else { return Ok(()) };
    let run = members::run_of(transaction, source)?;
    let (_, is_durable) = tables::moving_of(transaction, tenant, table)?;
    // One without replicas serves what it owns without a lease.
    if !is_gone(transaction, run)? || replicas::promised(transaction, source)? == 0 {
        return Ok(());
    }
    if !is_durable {
        let lost = row.tablets.iter_mut().filter(|tablet| tablet.server == source && tablet.hashes == hashes);
        lost.for_each(|tablet| (tablet.server, tablet.emptied_ms) = (target, Some(now_ms)));
        // The new owner's versions begin above all that the absent server has assigned.
        next(transaction, VERSIONS, 1)?;
        return Ok(transaction.store(&row)?);
    }
    if find(transaction, source)?.is_none() {
        let replicas = replicas::find(transaction, source)?.ok_or(MetadataError::NotFound)?;
        if now_ms < replicas.returns_until_ms {
            return Ok(());
        }
        transaction.store(&RecoveryRow { server: source, replicas, decided: None, is_in_use: false })?;
    }
    let mut begin = |hashes: HashRange| {
        moving::begin(transaction, (tenant, table), hashes, target, Some(MigrationMode::Recovery), now_ms)
    };
    let begun = match begin(hashes) {
        // The table has as many tablets as it may.
        Err(MetadataError::LimitExceeded) if hashes != of_source => begin(of_source),
        begun => begun,
    };
    match begun {
        Ok(_) | Err(MetadataError::Tablets(TabletError::OnTheMove(_) | TabletError::OwnedAlready(_))) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

impl Metadata {
    /// Ends the recovery of a server's log, which returns with it, unless others recover more than it has; returns up to where
    /// the log counts. For some time nobody begins to recover it again.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn owner_returns(
        &self,
        server: u32,
        own: OwnLogEnd,
        now_ms: u64,
    ) -> Result<OwnLogExtent, MetadataError> {
        self.write(|transaction| {
            let Some(row) = replicas::find(transaction, server)? else { return Ok(OwnLogExtent::Whole) };
            let decided = find(transaction, server)?.and_then(|recovery| recovery.decided);
            let counts = match decided {
                // A later start than that of which the backups know has acknowledged nothing.
                Some(decided) => decided.of_own(own).unwrap_or(OwnLogExtent::Behind),
                // The start that followed the earlier recovery may have written nothing yet.
                None => row.decided.and_then(|earlier| earlier.of_own(own)).unwrap_or(OwnLogExtent::Whole),
            };
            if counts != OwnLogExtent::Behind {
                end(transaction, server);
                let returns_until_ms = now_ms + RETURN_MS;
                transaction.store(&ReplicasRow {
                    decided: decided.or(row.decided),
                    returns_until_ms,
                    ..row
                })?;
            }
            Ok(counts)
        })
    }

    /// Notes that a server is stopped with all of its log on its disk: for some time nobody begins to recover it.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn owner_stops(&self, server: u32, now_ms: u64) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let Some(row) = replicas::find(transaction, server)? else { return Ok(()) };
            if find(transaction, server)?.is_none() {
                let returns_until_ms = now_ms + STOPPED_MS;
                transaction.store(&ReplicasRow { returns_until_ms, ..row })?;
            }
            Ok(())
        })
    }

    /// Gives up the replicas of an absent server's log: what nobody has recovered of it is lost. Recoveries end by themselves.
    ///
    /// # Errors
    /// `Tablets` when the server is present; or that it cannot be stored.
    pub fn replicas_give_up(&self, server: u32) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let run = members::run_of(transaction, server)?;
            if !is_gone(transaction, run)? {
                return Err(TabletError::IsThere(server).into());
            }
            end(transaction, server);
            if let Some(row) = replicas::find(transaction, server)? {
                transaction.store(&ReplicasRow { backups: Vec::new(), replicas: 0, ..row })?;
            }
            Ok(())
        })
    }

    /// Notes that a start of a server's log writes its record from now on, and returns it. A log that `is_new` has no replicas.
    ///
    /// # Errors
    /// `Conflict` when others have begun to recover the log since [`Metadata::owner_returns`]; or that it cannot be stored.
    pub fn replicas_begin(
        &self,
        server: u32,
        start: u64,
        is_new: bool,
    ) -> Result<ReplicasRow, MetadataError> {
        self.write(|transaction| {
            if !is_new && find(transaction, server)?.is_some() {
                return Err(MetadataError::Conflict);
            }
            end(transaction, server);
            let row = match replicas::find(transaction, server)?.filter(|_| !is_new) {
                Some(row) => ReplicasRow { start: row.start.max(start), ..row },
                None => {
                    let drawn = random_bytes().map_err(|error| RecordsError::Storage(error.to_string()))?;
                    let log = u64::from_le_bytes(drawn);
                    let (backups, replicas, decided, returns_until_ms) = Default::default();
                    ReplicasRow { server, log, start, backups, replicas, decided, returns_until_ms }
                }
            };
            transaction.store(&row)?;
            Ok(row)
        })
    }

    /// Replaces the record of a server's replicas, and returns what it is then; `None` if a later start of its log has begun, or
    /// others recover it.
    ///
    /// # Errors
    /// When it cannot be stored: then it may be in force.
    pub fn replicas_record(
        &self,
        server: u32,
        start: u64,
        record: &ReplicasRecord,
    ) -> Result<Option<ReplicasRecord>, MetadataError> {
        self.write(|transaction| {
            let own = replicas::find(transaction, server)?.filter(|row| row.start == start);
            let is_recovered = find(transaction, server)?.is_some();
            let Some(row) = own.filter(|_| !is_recovered) else { return Ok(None) };
            let backups = record.backups.iter().map(|id| (id.server, id.file)).collect();
            // By now it is registered, or will be in a moment.
            let row = ReplicasRow { backups, replicas: record.replicas, returns_until_ms: 0, ..row };
            transaction.store(&row)?;
            Ok(Some(record.clone()))
        })
    }

    /// Returns the recovery of a server's log, if there is one.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn recovery(&self, server: u32) -> Result<Option<RecoveryRow>, MetadataError> {
        self.read(|transaction| Ok(find(transaction, server)?))
    }

    /// Returns the server and the log's number of each log that is needed: those that are written, those that are recovered, and
    /// those of servers that own something on the disk.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn needed_logs(&self) -> Result<BTreeSet<(u32, u64)>, MetadataError> {
        let snapshot = self.snapshot()?;
        let recoveries: Vec<RecoveryRow> = self.read(|transaction| Ok(transaction.rows("")?))?;
        let is_needed = |row: &&ReplicasRow| {
            let owns = |tablets: &TabletsRow| {
                snapshot.durable.contains(&tablets.table) && !tablets.owned_by(row.server).is_empty()
            };
            snapshot.there.iter().any(|run| run.server == row.server) || snapshot.tablets.iter().any(owns)
        };
        let written = snapshot.replicas.iter().filter(is_needed);
        let recovered = recoveries.iter().map(|row| &row.replicas).filter(is_needed);
        Ok(written.chain(recovered).map(|row| (row.server, row.log)).collect())
    }

    /// Decides up to where a log that is recovered counts, unless others have decided that since this record of the recovery was read,
    /// and returns the decision. One of which backups that answer do not have everything is replaced, as long as nothing was
    /// recovered as of it.
    ///
    /// # Errors
    /// `NotFound` when it is not recovered any more, or its server was back since; or that it cannot be stored.
    pub fn recovery_decide(
        &self,
        seen: &RecoveryRow,
        found: DecidedCut,
    ) -> Result<DecidedCut, MetadataError> {
        self.write(|transaction| {
            let row = find(transaction, seen.server)?.filter(|row| row.replicas == seen.replicas);
            let row = row.ok_or(MetadataError::NotFound)?;
            if let Some(decided) = row.decided.filter(|_| row.is_in_use || row.decided != seen.decided) {
                return Ok(decided);
            }
            // As of an earlier decision its server was back since, and may have shown what it had.
            let is_in_use = row.replicas.decided == Some(found);
            transaction.store(&RecoveryRow { decided: Some(found), is_in_use, ..row })?;
            Ok(found)
        })
    }

    /// Makes the target of a recovery, which has everything of the log that this record is about up to this cut, the owner of its
    /// hashes, unless their owner is back or was since; returns the resulting record. One that has ended and was removed since, as
    /// after an answer that did not come, ended as the owner of its hashes tells.
    ///
    /// # Errors
    /// `NotFound` when nothing tells it; or that it cannot be stored.
    pub fn migration_recovered(
        &self,
        known: &MigrationRow,
        (of, cut): (&ReplicasRow, DecidedCut),
    ) -> Result<MigrationRow, MetadataError> {
        self.write(|transaction| {
            let Some(mut row) = migrations::numbered(transaction, known.id)? else {
                let tablets = tablets::find(transaction, known.tenant, known.table)?;
                let end = |row| Side::Target.end_by(&row, known.hashes, known.target.server);
                let phase = tablets.and_then(end).ok_or(MetadataError::NotFound)?;
                return Ok(MigrationRow { phase, ..known.clone() });
            };
            if row.phase != MigrationPhase::Preparing {
                return Ok(row);
            }
            let is_this = |recovery: &RecoveryRow| {
                let ReplicasRow { log, start, .. } = recovery.replicas;
                (log, start, recovery.decided) == (of.log, of.start, Some(cut))
            };
            match find(transaction, row.source.server)?.filter(is_this) {
                Some(recovery) if is_gone(transaction, row.source)? && !row.is_aborted => {
                    transaction.store(&RecoveryRow { is_in_use: true, ..recovery })?;
                    row.advance(transaction, MigrationPhase::Moving)?;
                    row.advance(transaction, MigrationPhase::Finished)?;
                }
                _ => row.advance(transaction, MigrationPhase::Ended)?,
            }
            Ok(row)
        })
    }

    /// Records a new part that a server's log will name.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn log_part_add(&self, server: u32, part: &PartRow) -> Result<(), MetadataError> {
        self.write(|transaction| Ok(transaction.store(&LogPartRow::of(server, part))?))
    }

    /// Records that a server's log names these parts and no others, in several commits if these are many.
    ///
    /// # Errors
    /// When it cannot be stored: then some may be recorded.
    pub fn log_parts_are(&self, server: u32, parts: &[PartRow]) -> Result<(), MetadataError> {
        let rows: BTreeMap<u32, LogPartRow> =
            parts.iter().map(|part| (part.id, LogPartRow::of(server, part))).collect();
        loop {
            let changed = self.write(|transaction| {
                let known = transaction.rows::<LogPartRow>(&below(server))?;
                let known: BTreeMap<u32, LogPartRow> = known.into_iter().map(|row| (row.id, row)).collect();
                let gone = known.values().filter(|row| !rows.contains_key(&row.id));
                let gone: Vec<&LogPartRow> = gone.take(LOG_PARTS_CHANGED_AT_ONCE).collect();
                let unknown = rows.values().filter(|row| known.get(&row.id) != Some(row));
                let unknown: Vec<_> = unknown.take(LOG_PARTS_CHANGED_AT_ONCE - gone.len()).collect();
                gone.iter().for_each(|row| transaction.remove_row::<LogPartRow>(&row.key()));
                unknown.iter().try_for_each(|row| transaction.store(*row))?;
                Ok(gone.len() + unknown.len())
            })?;
            if changed < LOG_PARTS_CHANGED_AT_ONCE {
                return Ok(());
            }
        }
    }

    /// Returns the parts that a server's log names, by number. What they keep is what they were made for.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn log_parts(&self, server: u32) -> Result<Vec<PartRow>, MetadataError> {
        self.read(|transaction| {
            let rows = transaction.rows::<LogPartRow>(&below(server))?.into_iter();
            let part_of = |LogPartRow { id, tenant, table, made_for, .. }: LogPartRow| PartRow {
                id,
                tenant: TenantId(tenant),
                table,
                made_for,
                kept: vec![made_for],
            };
            Ok(rows.map(part_of).collect())
        })
    }
}
