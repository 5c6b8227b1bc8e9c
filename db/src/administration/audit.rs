//! The audit log: administrative acts, their authors and outcomes.
//!
//! Every request that changes something is an act, whether it was allowed or refused; reading is not. An act is
//! recorded after it ended and before the client gets its answer; later if the metadata does not answer. Records
//! contain names and statuses, never a secret, a token or a source. See [`crate::control_plane::acts`] for acts that
//! cannot be recorded.

use control::{Actor, ExtensionInstalled};
use wire::{Status, TenantId};

use super::Role;
use crate::control_plane::acts::Act;
use crate::control_plane::{Control, Refusal};
use crate::limits::{AUDIT_ACT_BYTES_MAX, AUDIT_ENTRIES_READ_MAX};
use crate::sync::lock;

/// The author of a request, determined before it is served, because it may end the session.
pub(super) struct Author {
    tenant: Option<TenantId>,
    actor: Actor,
}

pub(super) fn author(control: &Control, role: &Role) -> Author {
    match role {
        Role::Administrator => Author { tenant: None, actor: Actor::Administrator },
        Role::Tenant(session) => {
            let open = lock(&control.sessions).get(&session.token).cloned();
            let (name, peer) = open.map(|open| (open.tenant, open.peer.to_string())).unwrap_or_default();
            let actor = Actor::Tenant { name, client_id: session.client_id, peer };
            Author { tenant: Some(session.tenant), actor }
        }
    }
}

/// Records an act and its outcome.
pub(super) fn record(control: &Control, author: Author, mut act: String, answer: &Result<Vec<u8>, Refusal>) {
    let outcome = match answer {
        Ok(body) => {
            // The version number is known only now.
            if act.starts_with("extension install")
                && let Ok(installed) = control::decode::<ExtensionInstalled>(body)
            {
                act.push_str(&format!(": version {}", installed.version));
            }
            Status::Ok
        }
        Err(refusal) => refusal.status,
    };
    append(control, author.tenant, author.actor, act, outcome);
}

/// Records an act of the server itself on a tenant's table or extension.
pub(super) fn record_own(control: &Control, tenant: TenantId, act: String, outcome: Status) {
    append(control, Some(tenant), Actor::Server, act, outcome);
}

fn append(control: &Control, tenant: Option<TenantId>, actor: Actor, mut act: String, outcome: Status) {
    act.truncate(act.floor_char_boundary(AUDIT_ACT_BYTES_MAX));
    let at_ms = control.clock.wall_ms();
    control.acts.record(&control.metadata, Act { tenant, at_ms, actor, text: act, outcome });
}

/// Returns the entries of the log that the caller may see.
pub(super) fn read(control: &Control, role: &Role, after: u64, count: u32) -> Result<Vec<u8>, Refusal> {
    let tenant = match role {
        Role::Administrator => None,
        Role::Tenant(session) => Some(session.tenant),
    };
    let count = count.min(AUDIT_ENTRIES_READ_MAX) as usize;
    Ok(control::encode(&control.metadata.audit_read(tenant, after, count)?))
}
