//! Applies the metadata to a server: changes of other servers, and changes that this one could not finish.
//!
//! Everything of some tenants is compared, nothing is replayed: matching state is left alone, so a change by this
//! server itself has no further effect. Removals are applied first and migrations start, then extensions are built
//! without any lock, then the additions are applied, under the lock of changes and as of one commit. A version that
//! cannot be built is reported and left out.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::{Arc, MutexGuard};

use cluster::metadata::{Catalog, ExtensionRow, TableRow, VersionState};
use cluster::records::Revision;
use wire::{Status, TenantId};

use super::{TenantSet, extensions, grants, limits, tables, tenants};
use crate::control_plane::grant::Grant;
use crate::control_plane::{Control, Refusal};
use crate::extension::registry::Choice;
use crate::moving;
use crate::sync::lock;

/// A version of an extension: the extension's number, and the version's.
type Version = (u32, u32);

/// State of a server that follows the metadata.
#[derive(Debug, Default)]
pub struct Follower {
    /// Versions that cannot be built here.
    broken: BTreeSet<Version>,
    /// Set when something could not be done and must be retried.
    behind: bool,
}

impl Follower {
    /// Returns true if something must be retried.
    #[must_use]
    pub const fn is_behind(&self) -> bool {
        self.behind
    }

    /// Applies the metadata of these tenants, or of all, and returns the revision applied.
    ///
    /// # Errors
    /// If the metadata cannot be read, or workers fail: then call it again, for all tenants.
    pub fn follow(&mut self, control: &Arc<Control>, of: Option<&TenantSet>) -> Result<Revision, Refusal> {
        if of.is_none() {
            self.behind = false;
        }
        let before = {
            let changing = lock(&control.changing);
            let known = known(control);
            let catalog = tables::placed(control, of)?;
            leave(control, &known, &catalog, of)?;
            // Before the extensions, which take a second to build.
            self.behind |= tables_come(control, &changing, &catalog, of)?;
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
        self.behind |= tables_come(control, &changing, &catalog, of)?;
        for row in &catalog.extensions {
            self.publish_changed(control, row)?;
        }
        come(control, &catalog)?;
        drop(changing);
        // Migrations that began while extensions were built: no event announces them again.
        tablets_move(control, &catalog, of);
        Ok(catalog.revision)
    }

    /// Builds, loads and publishes the missing versions of an extension, the current version first.
    fn build(&mut self, control: &Control, row: &ExtensionRow) {
        let current = row.state.current;
        let others = row.state.kept.iter().copied().filter(|version| *version != current);
        for version in iter::once(current).chain(others) {
            let history = control.registry.history(row.tenant, &row.name);
            let is_loaded = history.is_some_and(|history| history.versions.contains_key(&version));
            if is_loaded || self.broken.contains(&(row.id, version)) {
                continue;
            }
            match extensions::take_in(control, row, version) {
                Ok(()) => {}
                // The version was removed meanwhile.
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

    /// Publishes the versions of an extension if they changed. A version that is not built yet does not replace one
    /// that runs.
    fn publish_changed(&mut self, control: &Control, row: &ExtensionRow) -> Result<(), Refusal> {
        let Some(history) = control.registry.history(row.tenant, &row.name) else { return Ok(()) };
        let VersionState { current, canary, kept, .. } = row.state.clone();
        let is_tried = history.versions.contains_key(&current) || self.broken.contains(&(row.id, current));
        let choice = Choice { current, canary, kept };
        if history.choice != choice && is_tried {
            return extensions::publish(control, row);
        }
        self.behind |= history.choice != choice;
        Ok(())
    }
}

/// Applies the metadata of tenants, with their limits and tables; returns whether something is left.
fn tables_come(
    control: &Control,
    changing: &MutexGuard<'_, ()>,
    catalog: &Catalog,
    of: Option<&TenantSet>,
) -> Result<bool, Refusal> {
    control.lease_cache.see(&catalog.tenants, |tenant| is_meant(of, tenant));
    limits::follow(control, &catalog.tenants, &catalog.limits, |tenant| is_meant(of, tenant));
    tables::follow(control, changing, catalog)
}

/// Applies the metadata of migrations.
fn tablets_move(control: &Arc<Control>, catalog: &Catalog, of: Option<&TenantSet>) {
    if let (Some(migrations), Some(own)) = (&control.migrations, control.lease_cache.run()) {
        let rows = (&catalog.migrations[..], &catalog.tablets[..]);
        moving::follow(control, migrations, rows, own, |row| is_meant(of, row.tenant));
    }
}

/// Applies grants that are not in force yet.
fn come(control: &Control, catalog: &Catalog) -> Result<(), Refusal> {
    let names: BTreeMap<TenantId, &str> =
        catalog.tenants.iter().map(|row| (row.id, row.name.as_str())).collect();
    let known = grants::known(control);
    for row in &catalog.grants {
        if known.contains(&grants::key_of(row)) {
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

/// Returns the tenants that have an account here. Sessions are opened meanwhile, so a tenant is gone only if it was
/// known before the metadata was read and is missing from it.
fn known(control: &Control) -> TenantSet {
    control.accounts.all().iter().map(|account| account.tenant).collect()
}

/// Removes tenants, tables, extensions and grants that the metadata no longer has; of the tenants, only those known
/// before it was read.
fn leave(
    control: &Control,
    known: &TenantSet,
    catalog: &Catalog,
    of: Option<&TenantSet>,
) -> Result<(), Refusal> {
    let is_meant = |tenant: TenantId| is_meant(of, tenant);
    let there: BTreeSet<TenantId> = catalog.tenants.iter().map(|row| row.id).collect();
    let wanted: BTreeSet<_> = catalog.grants.iter().map(grants::key_of).collect();
    grants::withdraw(control, |grant| {
        is_meant(grant.row.owner) && !wanted.contains(&grants::key_of(&grant.row))
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
            let history = control.registry.history(*tenant, &name);
            let first = history.and_then(|history| history.versions.values().next().cloned());
            let Some(id) = first.map(|installed| installed.extension.id) else { continue };
            if ids.get(&(*tenant, name.as_str())) != Some(&id) {
                extensions::forget(control, *tenant, &name, id)?;
            }
        }
    }
    Ok(())
}
