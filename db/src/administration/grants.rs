//! Grants: rights of a tenant on another tenant's table or extension.
//!
//! A granted table is a second entry of the same table, with the other tenant, the right, and its own number. A
//! granted extension is the same code with the other tenant's tables, log and limits: it gives no access to its
//! owner's tables. Both are in the catalogs of all workers before the grant is answered, and removed from all before
//! its end is. Only owners grant; a grant cannot be passed on.
//!
//! A grant's answer reveals whether the other tenant exists. To make a mere probe cost something, the granted table or
//! extension is looked up first: a name that is guessed right receives the grant, and its tenant sees from whom. A
//! revocation reveals of a tenant only that it has no such grant.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::metadata::{GrantRow, TenantRow};
use control::{GrantEntry, Right, Subject};
use wire::{Status, TenantId};

use super::missing::{if_missing, unknown, unknown_table};
use crate::control_plane::grant::Grant;
use crate::control_plane::{Control, Refusal};
use crate::session::Session;
use crate::sync::lock;
use crate::view::change::Change;

pub(super) fn create(
    control: &Control,
    session: &Session,
    (name, to, right): (&str, &str, Right),
) -> Result<Vec<u8>, Refusal> {
    let owner = session.tenant;
    let _changing = lock(&control.changing);
    if session.is_closed() {
        // The tenant may have been dropped while this waited.
        return Err(Status::BadToken.into());
    }
    if !exists(control, owner, right.subject(), name)? {
        return Err(unknown(right.subject(), name));
    }
    let other = control.tenant_number(to)?;
    if other == owner {
        return Err(Refusal::new(Status::NotPermitted, "a tenant needs no grant for what it owns"));
    }
    let now_ms = control.clock.wall_ms();
    let row = control.metadata.grant_create(owner, name, other, right, now_ms);
    let row = row.map_err(if_missing(|| unknown(right.subject(), name)))?;
    let owner_name = lock(&control.sessions).get(&session.token).map(|open| open.tenant.clone());
    let owner_name = owner_name.ok_or(Status::BadToken)?;
    // The earlier grant ends before the new right begins.
    withdraw(control, |grant| grant.is(owner, right.subject(), name) && grant.row.to == other)?;
    publish(control, Grant { row, owner: owner_name, to: to.to_owned() })?;
    Ok(Vec::new())
}

pub(super) fn list(control: &Control, tenant: TenantId) -> Vec<u8> {
    let grants = lock(&control.grants);
    let of = |grant: &&Grant| grant.row.owner == tenant || grant.row.to == tenant;
    let entry = |grant: &Grant| GrantEntry {
        owner: grant.owner.clone(),
        name: grant.row.name.clone(),
        to: grant.to.clone(),
        right: grant.row.right,
        granted_ms: grant.row.granted_ms,
    };
    let mut entries: Vec<GrantEntry> = grants.iter().filter(of).map(entry).collect();
    let key = |entry: &GrantEntry| (entry.owner.clone(), entry.name.clone(), entry.to.clone(), entry.right);
    entries.sort_by_key(key);
    control::encode(&entries)
}

pub(super) fn revoke(
    control: &Control,
    owner: TenantId,
    (subject, name, to): (Subject, &str, &str),
) -> Result<Vec<u8>, Refusal> {
    let _changing = lock(&control.changing);
    let not_granted = || Refusal::new(Status::NotFound, format!("`{name}` is not granted to `{to}`"));
    let other = control.metadata.tenant_find(to)?.ok_or_else(not_granted)?.id;
    control.metadata.grant_remove(owner, subject, name, other).map_err(if_missing(not_granted))?;
    withdraw(control, |grant| grant.is(owner, subject, name) && grant.row.to == other)?;
    Ok(Vec::new())
}

/// Applies stored grants between these tenants: called once, when the tables and extensions of the same moment exist.
pub(super) fn restore(
    control: &Control,
    tenants: &[TenantRow],
    grants: Vec<GrantRow>,
) -> Result<(), Refusal> {
    let name_of = |id: TenantId| tenants.iter().find(|row| row.id == id).map(|row| row.name.clone());
    for row in grants {
        if let (Some(owner), Some(to)) = (name_of(row.owner), name_of(row.to)) {
            publish(control, Grant { row, owner, to })?;
        }
    }
    Ok(())
}

/// Stores a grant and sends it to the workers. It is stored first: whatever ends or follows it must find it, even if
/// workers do not answer now.
pub(super) fn publish(control: &Control, grant: Grant) -> Result<(), Refusal> {
    lock(&control.grants).push(grant.clone());
    if grant.row.right.subject() == Subject::Extension {
        return publish_versions(control, &grant);
    }
    let name = &grant.row.name;
    let _owning = lock(&control.owning);
    let table = control.table(grant.row.owner, name).ok_or_else(|| unknown_table(name))?;
    control.tell(&Change::TableCreated(Arc::new(grant.entry_of(&table))))
}

/// Returns the grants in force.
pub(super) fn known(control: &Control) -> BTreeSet<(Subject, u32)> {
    lock(&control.grants).iter().map(|grant| key_of(&grant.row)).collect()
}

/// Returns what tells a grant from all others: tables and extensions are numbered separately.
pub(super) fn key_of(row: &GrantRow) -> (Subject, u32) {
    (row.right.subject(), row.id)
}

/// Sends the versions of a granted extension to the workers.
fn publish_versions(control: &Control, grant: &Grant) -> Result<(), Refusal> {
    let GrantRow { id, owner, name, to, .. } = &grant.row;
    match control.registry.grant((*owner, name), *id, *to, &grant.called()) {
        Some(active) => control.tell(&Change::ExtensionSettled(Arc::new(active))),
        None => control.tell(&Change::ExtensionRemoved(*id)),
    }
}

/// Applies a change of an extension's versions to all its grants.
pub(super) fn follow(control: &Control, owner: TenantId, name: &str) -> Result<(), Refusal> {
    let grants: Vec<Grant> = {
        let grants = lock(&control.grants);
        grants.iter().filter(|grant| grant.is(owner, Subject::Extension, name)).cloned().collect()
    };
    grants.iter().try_for_each(|grant| publish_versions(control, grant))
}

/// Removes grants from all workers. Their metadata is gone already.
pub(super) fn withdraw(control: &Control, ends: impl Fn(&Grant) -> bool) -> Result<(), Refusal> {
    let _owning = lock(&control.owning);
    let ended: Vec<Grant> = lock(&control.grants).extract_if(.., |grant| ends(grant)).collect();
    let mut told = Ok(());
    for grant in ended {
        let change = match grant.row.right.subject() {
            Subject::Table => Change::TableDropped(grant.row.id),
            Subject::Extension => Change::ExtensionRemoved(grant.row.id),
        };
        told = told.and(control.tell(&change));
        if grant.row.right == Right::Invoke {
            control.registry.revoke(grant.row.id);
        }
    }
    told
}

/// Removes all grants of a table or extension that its owner drops.
pub(super) fn withdraw_all_of(
    control: &Control,
    owner: TenantId,
    subject: Subject,
    name: &str,
) -> Result<(), Refusal> {
    withdraw(control, |grant| grant.is(owner, subject, name))
}

/// Returns the grant by which a tenant has the subject that it calls `owner/name`.
pub(super) fn find(control: &Control, to: TenantId, subject: Subject, called: &str) -> Option<Grant> {
    let (owner, name) = called.split_once('/')?;
    let grants = lock(&control.grants);
    let is = |grant: &&Grant| {
        grant.row.to == to
            && grant.owner == owner
            && grant.row.name == name
            && grant.row.right.subject() == subject
    };
    grants.iter().find(is).cloned()
}

fn exists(control: &Control, owner: TenantId, subject: Subject, name: &str) -> Result<bool, Refusal> {
    Ok(match subject {
        Subject::Table => control.table(owner, name).is_some(),
        Subject::Extension => control.metadata.extension_find(owner, name)?.is_some(),
    })
}
