//! `splinter session`: lists and ends sessions.
//!
//! The administrator sees the sessions of all tenants, a tenant only its own, including the one that this command
//! opened.

use super::failure::Failure;
use super::options::SessionCommand;
use super::output::{Answer, columns, moment};
use super::settings::Settings;
use client::SessionEntry;
use serde_json::json;

/// Runs a command about sessions.
pub fn run(settings: &Settings, command: SessionCommand) -> Result<Answer, Failure> {
    match (command, settings.is_admin()) {
        (SessionCommand::List, true) => Ok(table(&settings.connect_admin()?.session_list()?)),
        (SessionCommand::List, false) => Ok(table(&settings.connect()?.session_list()?)),
        (SessionCommand::Revoke { client }, is_admin) => {
            match is_admin {
                true => settings.connect_admin()?.session_revoke(client)?,
                false => settings.connect()?.session_revoke(client)?,
            }
            Ok(Answer::new(format!("ended the session of client {client}"), json!({ "revoked": client })))
        }
    }
}

fn table(sessions: &[SessionEntry]) -> Answer {
    let heads = ["client", "tenant", "from", "home", "since"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(sessions.iter().map(|session| {
        let since = moment(session.opened_ms);
        let (client, home) = (session.client_id.to_string(), session.home_core.to_string());
        vec![client, session.tenant.clone(), session.peer.clone(), home, since]
    }));
    let value = |session: &SessionEntry| {
        json!({
            "client_id": session.client_id, "tenant": session.tenant, "peer": session.peer,
            "home_core": session.home_core, "opened_ms": session.opened_ms,
        })
    };
    Answer::new(columns(&rows), sessions.iter().map(value).collect())
}
