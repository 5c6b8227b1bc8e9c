//! Archives: a tenant's metadata together with a cut of the log, its objects in pieces, and objects on their way back.
//!
//! A tenant archives itself, the administrator any tenant. Metadata and cut are taken under the lock of changes, so that
//! they belong together; pieces are read without it. Restored objects go to the workers in small batches, as puts would,
//! so quotas and the disk's admission hold for them; the answer waits until they are stable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::{
    AdminRequest, ArchiveBegun, ArchiveSource, ArchivedExtension, ArchivedTable, ByteString, GrantEntry,
    OwnedPositions, Restored, TableOptions, VersionState,
};
use store::{AwaitedCuts, OBJECT_HEADER_BYTES, ReplayError, WriteError, entry_bytes};
use wire::{Status, TenantId};

use super::missing::unknown_table;
use super::{Role, extensions, limits, not_permitted};
use crate::control_plane::archives::{Archive, ArchivedPart, ArchivedParts, Content};
use crate::control_plane::{Control, Refusal};
use crate::durability::log_thread::{LogHandle, NotStable};
use crate::durability::log_writer::Snapshot;
use crate::limits::{ARCHIVE_PIECE_BYTES, RESTORE_PATIENCE_MS, RESTORE_TURN_BYTES};
use crate::ops::write;
use crate::session::Session;
use crate::sync::lock;
use crate::sync::oneshot::oneshot;
use crate::tablet::{Range, unite};
use crate::view::change::{ArchivedObjects, Change, NotRestored, RestoredObjects};

pub(super) fn begin(control: &Control, role: &Role, name: Option<&str>) -> Result<Vec<u8>, Refusal> {
    let log = control.log.as_ref().ok_or_else(|| {
        let text = "tables of this server are in memory only: an archive holds those on the disk";
        Refusal::new(Status::Unavailable, text)
    })?;
    let _changing = lock(&control.changing);
    let (tenant, name) = tenant_of(control, role, name)?;
    let rows = control.metadata.catalog(Some(&[tenant].into()))?;
    let (mut tables, mut whole, mut left_out) = (Vec::new(), ArchivedParts::new(), Vec::new());
    for row in rows.tables.iter().filter(|row| row.tenant == tenant) {
        if row.durability().is_on_disk() {
            let options = TableOptions { durability: Some(row.durability()), ..row.options };
            whole.insert(row.part.unwrap_or(row.id), ArchivedPart::whole(row.id));
            let tablets = rows.tablets.iter().find(|tablets| tablets.table == row.id);
            let tablets = tablets.map_or(0, |row| row.tablets.len() as u32);
            tables.push(ArchivedTable { id: row.id, name: row.name.clone(), options, tablets });
        } else {
            left_out.push(row.name.clone());
        }
    }
    let extension = |row: &cluster::metadata::ExtensionRow| ArchivedExtension {
        name: row.name.clone(),
        versions: row.state.kept.clone(),
        state: VersionState::from(&row.state),
    };
    let own = rows.extensions.iter().filter(|row| row.tenant == tenant);
    let archived_extensions = own.map(extension).collect();
    let server = control.lease_cache.run().map_or(0, |own| own.server);
    let (parts, snapshot) = match server {
        0 => (whole, snapshot_of(log)?),
        _ => snapshot_of_owned(control, log, (tenant, &tables))?,
    };
    let (cut, clock_ms) = (snapshot.cut, snapshot.clock_ms);
    let owned = if server == 0 { Vec::new() } else { owned_positions(&parts) };
    let by_administrator = matches!(role, Role::Administrator);
    let archive = control.archives.begin((tenant, by_administrator), parts, snapshot)?;
    Ok(control::encode(&ArchiveBegun {
        id: archive.id,
        tenant: name,
        cut,
        clock_ms,
        tables,
        left_out,
        extensions: archived_extensions,
        limits: limits::entries(&control.accounts.of(tenant)),
        grants: grants_of(control, tenant),
        server,
        owned,
    }))
}

fn snapshot_of(log: &LogHandle) -> Result<Snapshot, Refusal> {
    log.snapshot().map_err(|error| {
        let why = error.map_or_else(String::new, |error| format!(": {error}"));
        Refusal::new(Status::StorageFailed, format!("the log's thread gives no cut of the log{why}"))
    })
}

/// Returns what this server owns of a tenant's tables in a cluster, with a snapshot during whose making that stayed so: all
/// of it is in the log, since hashes of durable tables are taken only when their objects are on the disk.
fn snapshot_of_owned(
    control: &Control,
    log: &LogHandle,
    (tenant, tables): (TenantId, &[ArchivedTable]),
) -> Result<(ArchivedParts, Snapshot), Refusal> {
    let owned = owned_parts(control, tenant, tables);
    let snapshot = snapshot_of(log)?;
    if owned_parts(control, tenant, tables) != owned {
        return Err(Refusal::new(Status::WrongTablets, "tablets of the tenant are moving: repeat this"));
    }
    Ok((owned, snapshot))
}

fn owned_parts(control: &Control, tenant: TenantId, tables: &[ArchivedTable]) -> ArchivedParts {
    let mut parts = ArchivedParts::new();
    for table in tables {
        // One that is not known here yet is missing in what the server says to own.
        let Some(entry) = control.table(tenant, &table.name).filter(|entry| entry.id == table.id) else {
            continue;
        };
        let is_tagged = entry.parts.is_tagged();
        for (hashes, part) in entry.parts.pieces((0, u64::MAX)) {
            let positions = part.positions();
            let owned = if is_tagged { (positions.first(), positions.last()) } else { hashes };
            let new = ArchivedPart { table: table.id, is_tagged, owned: Vec::new() };
            parts.entry(part.id()).or_insert(new).owned.push(owned);
        }
    }
    parts
}

fn owned_positions(parts: &ArchivedParts) -> Vec<OwnedPositions> {
    let mut by_table: BTreeMap<u32, Vec<Range>> = BTreeMap::new();
    for part in parts.values() {
        let owned = by_table.entry(part.table).or_default();
        *owned = unite(owned, &part.owned);
    }
    let of_table = |(table, owned): (u32, Vec<Range>)| {
        owned.into_iter().map(move |(first, last)| OwnedPositions { table, first, last })
    };
    by_table.into_iter().flat_map(of_table).collect()
}

/// Returns the tenant that is archived, and its name.
fn tenant_of(control: &Control, role: &Role, name: Option<&str>) -> Result<(TenantId, String), Refusal> {
    match (role, name) {
        (Role::Administrator, Some(name)) => Ok((control.tenant_number(name)?, name.to_owned())),
        (Role::Administrator, None) => Err(not_permitted("the administrator has no tables: name a tenant")),
        (Role::Tenant(session), name) => {
            let open = lock(&control.sessions).get(&session.token).map(|open| open.tenant.clone());
            let own = open.ok_or(Status::BadToken)?;
            if name.is_some_and(|name| name != own) {
                return Err(not_permitted("a tenant can archive only itself: name no other tenant"));
            }
            Ok((session.tenant, own))
        }
    }
}

fn grants_of(control: &Control, tenant: TenantId) -> Vec<GrantEntry> {
    let grants = lock(&control.grants);
    let given = grants.iter().filter(|grant| grant.row.owner == tenant).map(|grant| GrantEntry {
        owner: grant.owner.clone(),
        name: grant.row.name.clone(),
        to: grant.to.clone(),
        right: grant.row.right,
        granted_ms: grant.row.granted_ms,
    });
    given.collect()
}

fn find(control: &Control, role: &Role, id: u64) -> Result<Arc<Archive>, Refusal> {
    let tenant = match role {
        Role::Administrator => None,
        Role::Tenant(session) => Some(session.tenant),
    };
    control.archives.find(id, tenant)
}

pub(super) fn read(
    control: &Control,
    role: &Role,
    id: u64,
    piece: (u32, Content),
) -> Result<Vec<u8>, Refusal> {
    let piece = find(control, role, id)?.read(&control.archives, piece)?;
    Ok(control::encode(&piece))
}

pub(super) fn source(
    control: &Control,
    role: &Role,
    id: u64,
    (name, version, from): (&str, u32, u64),
) -> Result<Vec<u8>, Refusal> {
    let archive = find(control, role, id)?;
    archive.touch();
    let stored = control.metadata.extension_version(archive.tenant, name, version)?;
    let files = extensions::files_of(&stored.package)?;
    let placement = control::Placement::Current;
    let package = AdminRequest::ExtensionInstall { name, files, placement }.encode()?;
    let behind = usize::try_from(from).ok().and_then(|from| package.get(from..));
    let behind = behind.ok_or_else(|| Refusal::new(Status::OutOfRange, "the source is shorter"))?;
    let bytes = ByteString(behind[..behind.len().min(ARCHIVE_PIECE_BYTES)].to_vec());
    Ok(control::encode(&ArchiveSource { bytes, all_bytes: package.len() as u64 }))
}

pub(super) fn end(control: &Control, role: &Role, id: u64) -> Result<Vec<u8>, Refusal> {
    let archive = find(control, role, id)?;
    control.archives.end(&archive);
    Ok(Vec::new())
}

/// Stores objects in a table of the session's tenant and waits until they are stable.
pub(super) fn restore(
    control: &Control,
    session: &Session,
    name: &str,
    objects: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let entry = control.table(session.tenant, name).ok_or_else(|| unknown_table(name))?;
    let until = Instant::now() + Duration::from_millis(RESTORE_PATIENCE_MS);
    let (mut rest, mut restored, mut cuts) = (objects, Restored::default(), AwaitedCuts::default());
    while !rest.is_empty() {
        let turn = &rest[..turn_bytes(rest)?];
        let answer = store_at_a_worker(control, session.tenant, entry.id, turn)?;
        let RestoredObjects { done_bytes, counts, refused, cuts: included } = answer;
        rest = &rest[done_bytes..];
        (restored.stored, restored.late) = (restored.stored + counts.stored, restored.late + counts.late);
        cuts = cuts.and(included);
        if counts.corrupted > 0 {
            return Err(Refusal::new(Status::Malformed, "an object does not match its checksum, or is none"));
        }
        match refused {
            Some(NotRestored::NotOwned) => return Err(Status::NotOwned.into()),
            Some(NotRestored::Store(ReplayError::Refused(error))) => wait_for_room(error, until)?,
            Some(NotRestored::Store(error)) => {
                return Err(Refusal::new(Status::Malformed, error.to_string()));
            }
            None if done_bytes == 0 => return Err(unknown_table(name)),
            None => {}
        }
    }
    await_cuts(control, cuts)?;
    Ok(control::encode(&restored))
}

/// Returns the bytes of the first entries that a worker stores in one turn, one at least.
fn turn_bytes(entries: &[u8]) -> Result<usize, Refusal> {
    let mut bytes = 0;
    while bytes < RESTORE_TURN_BYTES && bytes < entries.len() {
        let length = entry_bytes(&entries[bytes..]).unwrap_or(OBJECT_HEADER_BYTES);
        bytes += length;
        if bytes > entries.len() {
            return Err(Refusal::new(Status::Malformed, "the objects end within one"));
        }
    }
    Ok(bytes)
}

fn store_at_a_worker(
    control: &Control,
    tenant: TenantId,
    table: u32,
    entries: &[u8],
) -> Result<RestoredObjects, Refusal> {
    let gone = || Refusal::new(Status::Unavailable, "a worker of the server does not answer");
    let (answer, receiver) = oneshot();
    let objects = ArchivedObjects { tenant, table, entries: entries.to_vec(), answer };
    // Restores of different tables go to different workers.
    let worker = &control.workers[table as usize % control.workers.len()];
    if !worker.send(Change::Restore(Arc::new(objects))) {
        return Err(gone());
    }
    receiver.receive_within(Duration::from_millis(RESTORE_PATIENCE_MS)).map_err(|_| gone())
}

/// Waits if cleaning brings room, not beyond `until`; returns any other refusal.
fn wait_for_room(error: WriteError, until: Instant) -> Result<(), Refusal> {
    let wait_us = match error {
        WriteError::Retry { after_us } => u64::from(after_us),
        WriteError::OutOfMemory | WriteError::StorageFull => 10_000,
        _ => 0,
    };
    if wait_us > 0 && Instant::now() < until {
        thread::sleep(Duration::from_micros(wait_us));
        return Ok(());
    }
    Err(write::refused(error).status.into())
}

fn await_cuts(control: &Control, cuts: AwaitedCuts) -> Result<(), Refusal> {
    let Some(log) = &control.log else { return Ok(()) };
    let patience = Duration::from_millis(RESTORE_PATIENCE_MS);
    log.await_cuts(&control.store, cuts, patience).map_err(|error| match error {
        NotStable::Failed => Status::StorageFailed.into(),
        NotStable::Late => Status::StorageFull.into(),
    })
}
