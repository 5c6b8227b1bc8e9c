//! `splinter grant`: what other tenants may do with the tenant's tables and extensions.

use super::failure::Failure;
use super::options::{GrantCommand, RevokeCommand};
use super::output::{Answer, moment, table_of};
use super::settings::Settings;
use client::{Client, Right, Subject};
use serde_json::{Value, json};

/// Runs a command about grants.
pub fn run(settings: &Settings, command: GrantCommand) -> Result<Answer, Failure> {
    let mut client = settings.connect()?;
    match command {
        GrantCommand::Table { name, to, right } => {
            let right = if right.write { Right::Write } else { Right::Read };
            grant(settings, &mut client, &name, &to, right)
        }
        GrantCommand::Ext { name, to, .. } => grant(settings, &mut client, &name, &to, Right::Invoke),
        GrantCommand::List => list(&mut client),
        GrantCommand::Revoke(RevokeCommand::Table { name, to }) => {
            revoke(&mut client, Subject::Table, &name, &to)
        }
        GrantCommand::Revoke(RevokeCommand::Ext { name, to }) => {
            revoke(&mut client, Subject::Extension, &name, &to)
        }
    }
}

fn grant(
    settings: &Settings,
    client: &mut Client,
    name: &str,
    to: &str,
    right: Right,
) -> Result<Answer, Failure> {
    client.grant(name, to, right)?;
    let (owner, right) = (settings.tenant()?.0, word_of(right));
    let text = format!("{to} may {right} {owner}/{name}");
    Ok(Answer::new(text, json!({ "owner": owner, "name": name, "to": to, "right": right })))
}

fn list(client: &mut Client) -> Result<Answer, Failure> {
    let heads = ["owner", "kind", "name", "to", "right", "since"];
    let mut rows = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    for entry in client.grant_list()? {
        let kind = kind_of(entry.right.subject());
        values.push(json!({
            "owner": entry.owner, "kind": kind, "name": entry.name, "to": entry.to,
            "right": word_of(entry.right), "granted_ms": entry.granted_ms,
        }));
        let right = word_of(entry.right).to_owned();
        rows.push(vec![entry.owner, kind.to_owned(), entry.name, entry.to, right, moment(entry.granted_ms)]);
    }
    Ok(Answer::new(table_of(&heads, rows), json!(values)))
}

fn revoke(client: &mut Client, subject: Subject, name: &str, to: &str) -> Result<Answer, Failure> {
    client.grant_revoke(subject, name, to)?;
    let text = format!("revoked {} {name} from {to}", kind_of(subject));
    Ok(Answer::new(text, json!({ "revoked": name, "kind": kind_of(subject), "to": to })))
}

fn word_of(right: Right) -> &'static str {
    match right {
        Right::Read => "read",
        Right::Write => "write",
        Right::Invoke => "invoke",
    }
}

fn kind_of(subject: Subject) -> &'static str {
    match subject {
        Subject::Table => "table",
        Subject::Extension => "extension",
    }
}
