//! Open sessions: list and revoke. A tenant sees its own, the administrator all. Tokens are never shown.

use control::SessionEntry;
use wire::Status;

use super::Role;
use crate::control_plane::{Control, OpenSession, Refusal};
use crate::sync::lock;

pub(super) fn list(control: &Control, role: &Role) -> Result<Vec<u8>, Refusal> {
    let sessions = lock(&control.sessions);
    let mut entries: Vec<SessionEntry> = sessions
        .values()
        .filter(|open| may_see(role, open))
        .map(|open| SessionEntry {
            client_id: open.session.client_id,
            tenant: open.tenant.clone(),
            peer: open.peer.to_string(),
            opened_ms: open.opened_ms,
            home_core: open.session.home_core(),
        })
        .collect();
    entries.sort_unstable_by_key(|entry| entry.client_id);
    Ok(control::encode(&entries))
}

pub(super) fn revoke(control: &Control, role: &Role, client_id: u64) -> Result<Vec<u8>, Refusal> {
    let token = lock(&control.sessions)
        .values()
        .find(|open| open.session.client_id == client_id && may_see(role, open))
        .map(|open| open.session.token);
    let Some(token) = token else {
        return Err(Refusal::new(Status::NotFound, format!("there is no session of client {client_id}")));
    };
    control.close_session(token)?;
    Ok(Vec::new())
}

fn may_see(role: &Role, open: &OpenSession) -> bool {
    match role {
        Role::Administrator => true,
        Role::Tenant(session) => session.tenant == open.session.tenant,
    }
}
