//! Limits of tenants: reading and changing them.
//!
//! The administrator reads and changes the limits of any tenant; a tenant reads its own. A change is durable first and
//! then copied to the tenant's account, which workers read at the next request. A refused change leaves the account's
//! limits as they were. Unless forced, a tenant gets `sandbox` = wasm only if all kept versions of its extensions have a
//! module here; other servers follow the change in any case, and an invocation that has no module says why.

use std::collections::BTreeMap;

use cluster::metadata::{LimitRow, TenantRow};
use control::{LimitChange, TenantLimitEntry};
use wire::{Status, TenantId};

use super::Role;
use crate::control_plane::{Control, Refusal};
use crate::extension::allowance::{Allowance, Sandbox};
use crate::sync::lock;
use crate::tenant::account::Account;
use crate::tenant::limit::{TenantLimit, UNLIMITED};

pub(super) fn read(control: &Control, role: &Role, name: Option<&str>) -> Result<Vec<u8>, Refusal> {
    match (role, name) {
        (Role::Tenant(session), None) => Ok(control::encode(&entries(&session.account))),
        (Role::Administrator, Some(name)) => {
            let _changing = lock(&control.changing);
            let tenant = control.tenant_number(name)?;
            Ok(control::encode(&entries(&control.accounts.of(tenant))))
        }
        (Role::Tenant(_), Some(_)) => {
            let text = "a tenant can read only its own limits: name no tenant";
            Err(Refusal::new(Status::NotPermitted, text))
        }
        (Role::Administrator, None) => {
            Err(Refusal::new(Status::NotPermitted, "the administrator has no limits: name a tenant"))
        }
    }
}

pub(super) fn change(
    control: &Control,
    name: &str,
    changes: &[LimitChange<'_>],
    force: bool,
) -> Result<Vec<u8>, Refusal> {
    let changes = changes.iter().map(checked).collect::<Result<Vec<_>, _>>()?;
    let _changing = lock(&control.changing);
    let tenant = control.tenant_number(name)?;
    let account = control.accounts.of(tenant);
    let becomes_wasm = |(limit, value): &(TenantLimit, Option<u64>)| {
        *limit == TenantLimit::Sandbox && Sandbox::of(value.unwrap_or(limit.default_value())) == Sandbox::Wasm
    };
    if !force && changes.iter().any(becomes_wasm) && Allowance::of(&account).sandbox != Sandbox::Wasm {
        check_modules(control, tenant)?;
    }
    let stored: Vec<_> = changes.iter().map(|(limit, value)| (limit.name(), limit.record(*value))).collect();
    control.metadata.limits_change(tenant, &stored)?;
    let servers = servers(control);
    for (limit, value) in changes {
        account.set_limit_among(limit, value.unwrap_or(limit.default_value()), servers);
    }
    control.share_limits();
    Ok(control::encode(&entries(&account)))
}

/// Refuses if a loaded version of the tenant's own extensions has no module. What others granted to it does not count:
/// no tenant decides about another one's form.
fn check_modules(control: &Control, tenant: TenantId) -> Result<(), Refusal> {
    for name in control.registry.names(tenant) {
        let history = control.registry.history(tenant, &name);
        for installed in history.iter().flat_map(|history| history.versions.values()) {
            let extension = &installed.extension;
            if extension.module().is_err() {
                let (version, why) = (extension.version, extension.no_module_line());
                let text = format!(
                    "`{name}@{version}` has no module to run with sandbox=wasm ({why}); --force sets it all the same"
                );
                return Err(Refusal::new(Status::Unavailable, text));
            }
        }
    }
    Ok(())
}

/// Applies the stored limits: called once, before anything else of a tenant is restored.
pub(super) fn restore(control: &Control) -> Result<(), Refusal> {
    follow(control, &control.metadata.tenants()?, &control.metadata.limits()?, |_| true);
    Ok(())
}

/// Applies the stored limits, and the values of those that are not, to the tenants that `is_meant` selects.
pub(super) fn follow(
    control: &Control,
    tenants: &[TenantRow],
    rows: &[LimitRow],
    is_meant: impl Fn(TenantId) -> bool,
) {
    let mut wanted: BTreeMap<TenantId, Vec<(TenantLimit, u64)>> = BTreeMap::new();
    for row in tenants.iter().filter(|row| is_meant(row.id)) {
        wanted.entry(row.id).or_default();
    }
    for row in rows {
        let tenant = row.tenant.0;
        let Some(limit) = TenantLimit::named(&row.name) else {
            tracing::warn!(tenant, limit = row.name, "ignored a stored limit unknown to this version");
            continue;
        };
        let (least, most) = limit.bounds();
        let value = row.value.clamp(least, most);
        if value != row.value {
            let (limit, stored) = (&row.name, row.value);
            tracing::warn!(tenant, limit, stored, value, "a stored limit is out of range");
        }
        wanted.entry(row.tenant).or_default().push((limit, value));
    }
    let (servers, mut is_changed) = (servers(control), false);
    for (tenant, values) in wanted {
        let account = control.accounts.of(tenant);
        for &limit in TenantLimit::ALL {
            let stored = values.iter().find(|(known, _)| *known == limit).map(|(_, value)| *value);
            let value = stored.unwrap_or(limit.unrecorded_value());
            if account.whole(limit) != value {
                account.set_limit_among(limit, value, servers);
                is_changed = true;
            }
        }
    }
    if is_changed {
        control.share_limits();
    }
}

/// Returns how many servers share the limits of a tenant, as far as this one knows: those that are there; at its start those that
/// are registered, and itself.
fn servers(control: &Control) -> u64 {
    if control.lease_cache.run().is_none() {
        return 1;
    }
    match control.lease_cache.there().len() {
        0 => control.metadata.servers().unwrap_or_default().len() as u64 + 1,
        there => there as u64,
    }
}

fn checked(change: &LimitChange<'_>) -> Result<(TenantLimit, Option<u64>), Refusal> {
    let Some(limit) = TenantLimit::named(change.limit) else {
        let names: Vec<&str> = TenantLimit::ALL.iter().map(|limit| limit.name()).collect();
        let text = format!("`{}` is not a limit; use {}", change.limit, names.join(", "));
        return Err(Refusal::new(Status::UnknownLimit, text));
    };
    if let Some(value) = change.value
        && !limit.allows(value)
    {
        let text = format!("{} must be {}, not {}", limit.name(), range_of(limit), amount(value));
        return Err(Refusal::new(Status::OutOfRange, text));
    }
    Ok((limit, change.value))
}

pub(super) fn entries(account: &Account) -> Vec<TenantLimitEntry> {
    let entry = |limit: &TenantLimit| {
        let (least, most) = limit.bounds();
        TenantLimitEntry {
            name: limit.name().to_owned(),
            value: account.whole(*limit),
            default: limit.default_value(),
            least,
            most,
        }
    };
    TenantLimit::ALL.iter().map(entry).collect()
}

fn range_of(limit: TenantLimit) -> String {
    if let Some(words) = control::limit_words(limit.name()) {
        return words.join(" or ");
    }
    match limit.bounds() {
        (least, UNLIMITED) => format!("at least {least}, or unlimited"),
        (least, most) => format!("{least} to {most}"),
    }
}

fn amount(value: u64) -> String {
    if value == UNLIMITED { "unlimited".to_owned() } else { value.to_string() }
}
