//! Tenants: create, rotate the secret, list, drop. Only for the administrator.

use std::collections::HashMap;

use cluster::secret::{RandomnessMissing, SecretHash, generate};
use control::{TenantCreated, TenantEntry};
use wire::{Status, TenantId};

use super::grants;
use super::missing::if_missing;
use crate::control_plane::{Control, Refusal, unknown_tenant};
use crate::extension::allowance::Sandbox;
use crate::sync::lock;
use crate::tenant::limit::TenantLimit;
use crate::view::change::Change;

/// The form in which invocations of new tenants run. Those of existing tenants keep theirs.
const SANDBOX_OF_NEW_TENANTS: Sandbox = Sandbox::Native;

pub(super) fn create(control: &Control, name: &str) -> Result<Vec<u8>, Refusal> {
    let (secret, hash) = fresh_secret()?;
    let _changing = lock(&control.changing);
    let own = limit_for(SANDBOX_OF_NEW_TENANTS);
    let stored: Vec<_> = own.iter().map(|(limit, value)| (limit.name(), *value)).collect();
    let tenant = control.metadata.tenant_create_with(name, hash, &stored)?;
    if let Some((limit, value)) = own {
        control.accounts.of(tenant).set_limit(limit, value);
    }
    Ok(control::encode(&TenantCreated { secret }))
}

/// Returns the limit to record for a new tenant whose invocations are to run in this form; `None` if that is the
/// default, which tenants of earlier releases have.
fn limit_for(sandbox: Sandbox) -> Option<(TenantLimit, u64)> {
    let limit = TenantLimit::Sandbox;
    (sandbox.value() != limit.default_value()).then_some((limit, sandbox.value()))
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
        entry.parts.retire();
    }
    control.registry.remove_tenant(tenant);
    control.accounts.forget(tenant);
    told.and(withdrawn)
}

#[cfg(test)]
mod tests {
    use cluster::metadata::Metadata;
    use cluster::secret::SecretHash;

    use super::{SANDBOX_OF_NEW_TENANTS, limit_for};
    use crate::extension::allowance::{Allowance, Sandbox};
    use crate::tenant::account::Account;
    use crate::tenant::limit::TenantLimit;

    /// What a server that starts with the tenant's records makes of them.
    fn sandbox_of_a_tenant_created_with(sandbox: Sandbox) -> Sandbox {
        let directory = tempfile::tempdir().expect("a directory");
        let metadata = Metadata::open(&directory.path().join("metadata.redb")).expect("a fresh file");
        let secret = SecretHash { salt: [1; 16], digest: [2; 32] };
        let old = metadata.tenant_create("old", secret).expect("room");
        let limits: Vec<_> = limit_for(sandbox).iter().map(|(limit, value)| (limit.name(), *value)).collect();
        let new = metadata.tenant_create_with("new", secret, &limits).expect("room");
        let account = Account::new(new);
        let rows = metadata.limits().expect("rows");
        assert!(rows.iter().all(|row| row.tenant != old), "a tenant of before keeps the default");
        for row in rows {
            let limit = TenantLimit::named(&row.name).expect("a limit");
            account.set_limit(limit, row.value);
        }
        Allowance::of(&account).sandbox
    }

    #[test]
    fn a_new_tenant_has_the_form_that_was_chosen_for_new_ones() {
        for sandbox in [Sandbox::Native, Sandbox::Wasm, SANDBOX_OF_NEW_TENANTS] {
            assert_eq!(sandbox_of_a_tenant_created_with(sandbox), sandbox);
        }
    }
}
