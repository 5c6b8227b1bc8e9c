//! Tenants: create, rotate the secret, list, drop. Only for the administrator.

use std::collections::HashMap;

use cluster::secret::{RandomnessMissing, SecretHash, generate};
use control::{TenantCreated, TenantEntry};
use wire::{Status, TenantId};

use super::grants;
use super::missing::if_missing;
use crate::control_plane::{Control, Refusal, unknown_tenant};
use crate::sync::lock;
use crate::tenant::limit::TenantLimit;
use crate::view::change::Change;

pub(super) fn create(control: &Control, name: &str) -> Result<Vec<u8>, Refusal> {
    let (secret, hash) = fresh_secret()?;
    let _changing = lock(&control.changing);
    let recorded = TenantLimit::ALL.iter().filter_map(|limit| Some((limit.name(), limit.record(None)?)));
    let limits: Vec<_> = recorded.collect();
    control.metadata.tenant_create_with(name, hash, &limits)?;
    Ok(control::encode(&TenantCreated { secret }))
}

/// Gives a tenant a new secret. The previous one opens no more sessions; open sessions continue.
pub(super) fn rotate(control: &Control, name: &str) -> Result<Vec<u8>, Refusal> {
    let (secret, hash) = fresh_secret()?;
    let _changing = lock(&control.changing);
    control.metadata.tenant_rotate(name, hash).map_err(if_missing(|| unknown_tenant(name)))?;
    Ok(control::encode(&TenantCreated { secret }))
}

fn fresh_secret() -> Result<(String, SecretHash), Refusal> {
    let missing = |error: RandomnessMissing| Refusal::new(Status::Internal, error.to_string());
    let secret = generate().map_err(missing)?;
    let hash = SecretHash::of(secret.as_bytes()).map_err(missing)?;
    Ok((secret, hash))
}

pub(super) fn list(control: &Control) -> Result<Vec<u8>, Refusal> {
    let mut sessions: HashMap<TenantId, u32> = HashMap::new();
    for open in lock(&control.sessions).values() {
        *sessions.entry(open.session.tenant).or_default() += 1;
    }
    let entries: Vec<TenantEntry> = control
        .metadata
        .tenants()?
        .into_iter()
        .map(|row| {
            let tables = control.tables_of(row.id);
            TenantEntry {
                name: row.name,
                tables: tables.len() as u32,
                extensions: control.registry.names(row.id).len() as u32,
                sessions: sessions.get(&row.id).copied().unwrap_or(0),
                objects: tables.iter().map(|entry| entry.parts.objects()).sum(),
                bytes: tables.iter().map(|entry| entry.parts.bytes()).sum(),
            }
        })
        .collect();
    Ok(control::encode(&entries))
}

pub(super) fn drop(control: &Control, name: &str) -> Result<Vec<u8>, Refusal> {
    let _changing = lock(&control.changing);
    let tenant = control.metadata.tenant_drop(name).map_err(if_missing(|| unknown_tenant(name)))?;
    forget(control, tenant)?;
    Ok(Vec::new())
}

/// Removes a tenant with everything that it has. Its metadata is gone already.
pub(super) fn forget(control: &Control, tenant: TenantId) -> Result<(), Refusal> {
    lock(&control.sessions).retain(|_, open| {
        let stays = open.session.tenant != tenant;
        if !stays {
            open.session.close();
            lock(&control.ended).note(open.session.token);
        }
        stays
    });
    let withdrawn = grants::withdraw(control, |grant| grant.row.owner == tenant || grant.row.to == tenant);
    let (tables, told) = {
        let _owning = lock(&control.owning);
        let tables = control.tables_of(tenant);
        lock(&control.tables).retain(|(owner, _), _| *owner != tenant);
        (tables, control.tell(&Change::TenantDropped(tenant)))
    };
    for entry in tables {
        control.retire(entry.parts.held());
    }
    control.registry.remove_tenant(tenant);
    control.accounts.forget(tenant);
    told.and(withdrawn)
}
