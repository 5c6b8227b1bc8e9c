//! Brings a server to what the metadata says: what other servers changed, and what this one could not finish.
//!
//! All that some tenants have is compared, nothing is replayed: what is as it should be is left alone, so a change of
//! this server's own is followed without effect. What goes goes first and tablets change hands, then extensions are built
//! without any lock, then the rest comes, under the lock of changes and as of one commit. A version that cannot be built is reported and left out.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::{Arc, MutexGuard};

use wire::Status;

use super::{TenantSet, extensions, grants, limits, tables, tenants};
use crate::cluster::metadata::{Catalog, ExtensionRow, TableRow, VersionState};
use crate::cluster::records::Revision;
use crate::extension::registry::Choice;
use crate::server::control::{Control, Refusal};
use crate::server::grant::Grant;
use crate::server::migrations;
use crate::sync::lock;
use crate::tenant::TenantId;

/// A version of an extension: its number, and its own.
type Version = (u32, u32);

/// What a server that follows remembers.
#[derive(Debug, Default)]
pub struct Follower {
    /// Versions that cannot be built here.
    broken: BTreeSet<Version>,
    /// Something could not be done now and is to be tried again.
    behind: bool,
}

impl Follower {
    /// Whether something is to be tried again.
    #[must_use]
    pub const fn is_behind(&self) -> bool {
        self.behind
    }

    /// Brings the server to what the metadata says of these tenants, or of all, and gives the commit as of which.
    ///
    /// # Errors
    /// When the metadata cannot be read or workers fail: then it is to be called again, for all.
    pub fn follow(&mut self, control: &Arc<Control>, of: Option<&TenantSet>) -> Result<Revision, Refusal> {
        if of.is_none() {
            self.behind = false;
        }
        let before = {
            let changing = lock(&control.changing);
            let known = known(control);
            let catalog = tables::placed(control, of)?;
            leave(control, &known, &catalog, of)?;
            // Not behind extensions that take a second to build.
            tables_come(control, &changing, &catalog, of)?;
            catalog
        };
        tablets_move(control, &before, of);
        for row in &before.extensions {
            self.build(control, row);
        }
        let changing = lock(&control.changing);
        let known = known(control);
        let catalog = control.metadata.catalog(of)?;
        leave(control, &known, &catalog, of)?;
        tables_come(control, &changing, &catalog, of)?;
        for row in &catalog.extensions {
            self.settle(control, row)?;
        }
        come(control, &catalog)?;
        drop(changing);
        // What was begun while extensions were built: nobody tells of that again.
        tablets_move(control, &catalog, of);
        Ok(catalog.revision)
    }

    /// Builds, loads and publishes what is missing of an extension, the current version first.
    fn build(&mut self, control: &Control, row: &ExtensionRow) {
        let current = row.standing.current;
        let others = row.standing.kept.iter().copied().filter(|version| *version != current);
        for version in iter::once(current).chain(others) {
            let lineage = control.registry.lineage(row.tenant, &row.name);
            let is_loaded = lineage.is_some_and(|lineage| lineage.versions.contains_key(&version));
            if is_loaded || self.broken.contains(&(row.id, version)) {
                continue;
            }
            match extensions::take_in(control, row, version) {
                Ok(()) => {}
                // It has gone meanwhile.
                Err(refusal) if refusal.status == Status::NotFound => {}
                // Others build, or there is no toolchain, or the metadata does not answer.
                Err(refusal) if matches!(refusal.status, Status::LimitExceeded | Status::Unavailable) => {
                    self.behind = true;
                }
                Err(refusal) => {
                    let name = &row.name;
                    tracing::error!(name, version, %refusal, "an extension of the cluster is not available");
                    self.broken.insert((row.id, version));
                }
            }
        }
    }

    /// Says which versions of an extension there are, if that is news. A version that is still to be built does not
    /// take the place of one that runs.
    fn settle(&mut self, control: &Control, row: &ExtensionRow) -> Result<(), Refusal> {
        let Some(lineage) = control.registry.lineage(row.tenant, &row.name) else { return Ok(()) };
        let VersionState { current, canary, kept, .. } = row.standing.clone();
        let is_there = lineage.versions.contains_key(&current) || self.broken.contains(&(row.id, current));
        let choice = Choice { current, canary, kept };
        if lineage.choice != choice && is_there {
            return extensions::publish(control, row);
        }
        self.behind |= lineage.choice != choice;
        Ok(())
    }
}

/// Brings tenants, with their limits and tables, to what the metadata says.
fn tables_come(
    control: &Control,
    changing: &MutexGuard<'_, ()>,
    catalog: &Catalog,
    of: Option<&TenantSet>,
) -> Result<(), Refusal> {
    control.interim.see(&catalog.tenants, |tenant| is_meant(of, tenant));
    limits::follow(control, &catalog.limits, |tenant| is_meant(of, tenant));
    tables::follow(control, changing, catalog)
}

/// Brings migrations to what the metadata says.
fn tablets_move(control: &Arc<Control>, catalog: &Catalog, of: Option<&TenantSet>) {
    if let (Some(migrations), Some(own)) = (&control.migrations, control.interim.run()) {
        let rows = (&catalog.migrations[..], &catalog.tablets[..]);
        migrations::follow(control, migrations, rows, own, |row| is_meant(of, row.tenant));
    }
}

/// Puts the grants in force that are not yet.
fn come(control: &Control, catalog: &Catalog) -> Result<(), Refusal> {
    let names: BTreeMap<TenantId, &str> =
        catalog.tenants.iter().map(|row| (row.id, row.name.as_str())).collect();
    let known = grants::known(control);
    for row in &catalog.grants {
        if known.contains(&(row.right.subject() as u8, row.id)) {
            continue;
        }
        let (Some(owner), Some(to)) = (names.get(&row.owner), names.get(&row.to)) else { continue };
        let grant = Grant { row: row.clone(), owner: (*owner).to_owned(), to: (*to).to_owned() };
        grants::publish(control, grant)?;
    }
    Ok(())
}

fn is_meant(of: Option<&TenantSet>, tenant: TenantId) -> bool {
    of.is_none_or(|of| of.contains(&tenant))
}

/// The tenants that have an account here. Sessions are opened meanwhile, so that only who was known before the metadata
/// was read and is not in it has gone.
fn known(control: &Control) -> TenantSet {
    control.accounts.all().iter().map(|account| account.tenant).collect()
}

/// Takes out what the metadata does not know any more, of the tenants that were known before it was read.
fn leave(
    control: &Control,
    known: &TenantSet,
    catalog: &Catalog,
    of: Option<&TenantSet>,
) -> Result<(), Refusal> {
    let is_meant = |tenant: TenantId| is_meant(of, tenant);
    let there: BTreeSet<TenantId> = catalog.tenants.iter().map(|row| row.id).collect();
    let wanted: BTreeSet<_> = catalog.grants.iter().map(|row| (row.right.subject() as u8, row.id)).collect();
    grants::withdraw(control, |grant| {
        is_meant(grant.row.owner) && !wanted.contains(&(grant.row.right.subject() as u8, grant.row.id))
    })?;
    for tenant in known.difference(&there).filter(|tenant| is_meant(**tenant)) {
        tenants::forget(control, *tenant)?;
    }
    let ids: BTreeMap<(TenantId, &str), u32> = catalog
        .tables
        .iter()
        .map(|TableRow { id, tenant, name, .. }| ((*tenant, name.as_str()), *id))
        .collect();
    let known: Vec<_> =
        lock(&control.tables).values().filter(|entry| is_meant(entry.tenant)).cloned().collect();
    for entry in known {
        if ids.get(&(entry.tenant, &*entry.name)) != Some(&entry.id) {
            tables::forget(control, entry.tenant, &entry.name, entry.id)?;
        }
    }
    let ids: BTreeMap<(TenantId, &str), u32> =
        catalog.extensions.iter().map(|row| ((row.tenant, row.name.as_str()), row.id)).collect();
    for tenant in there.iter().filter(|tenant| is_meant(**tenant)) {
        for name in control.registry.names(*tenant) {
            let lineage = control.registry.lineage(*tenant, &name);
            let first = lineage.and_then(|lineage| lineage.versions.values().next().cloned());
            let Some(id) = first.map(|installed| installed.extension.id) else { continue };
            if ids.get(&(*tenant, name.as_str())) != Some(&id) {
                extensions::forget(control, *tenant, &name, id)?;
            }
        }
    }
    Ok(())
}
