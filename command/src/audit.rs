//! `splinter audit`: administrative acts, their actors and outcomes.
//!
//! `--follow` polls for entries after the last one printed, so it misses none, and the server pushes nothing.

use super::failure::Failure;
use super::output::{Answer, moment, table_of};
use super::settings::Settings;
use client::{Actor, AuditEntry, Error, Status};
use serde_json::{Value, json};
use std::time::Duration;

/// Reads at most a given number of entries after a sequence number.
type ReadEntries = Box<dyn FnMut(u64, u32) -> Result<Vec<AuditEntry>, Error>>;

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(500);

/// Prints the latest acts, and with `follow` continues with new ones.
pub fn run(settings: &Settings, lines: u32, follow: bool) -> Result<Answer, Failure> {
    let mut ask: ReadEntries = if settings.is_admin() {
        let mut admin = settings.connect_admin()?;
        Box::new(move |after, count| admin.audit(after, count))
    } else {
        let mut client = settings.connect()?;
        Box::new(move |after, count| client.audit(after, count))
    };
    let mut entries = ask(0, lines)?;
    let mut last = entries.last().map_or(0, |entry| entry.sequence);
    if !follow {
        return Ok(table(&entries));
    }
    loop {
        for entry in &entries {
            last = last.max(entry.sequence);
            line(entry).print(settings.output())?;
        }
        std::thread::sleep(PAUSE);
        entries = ask(last, u32::MAX)?;
    }
}

fn table(entries: &[AuditEntry]) -> Answer {
    let heads = ["number", "time", "who", "act", "outcome"];
    Answer::new(table_of(&heads, entries.iter().map(row)), entries.iter().map(value).collect())
}

fn line(entry: &AuditEntry) -> Answer {
    Answer::new(row(entry).join("  "), value(entry))
}

fn row(entry: &AuditEntry) -> Vec<String> {
    let who = match &entry.actor {
        Actor::Server => "(server)".to_owned(),
        Actor::Administrator => "(administrator)".to_owned(),
        Actor::Tenant { name, client_id, peer } => format!("{name} (client {client_id} from {peer})"),
    };
    vec![entry.sequence.to_string(), moment(entry.at_ms), who, entry.act.clone(), outcome(entry)]
}

fn value(entry: &AuditEntry) -> Value {
    let actor = match &entry.actor {
        Actor::Server => json!({ "kind": "server" }),
        Actor::Administrator => json!({ "kind": "administrator" }),
        Actor::Tenant { name, client_id, peer } => {
            json!({ "kind": "tenant", "tenant": name, "client_id": client_id, "peer": peer })
        }
    };
    json!({
        "number": entry.sequence, "at_ms": entry.at_ms, "actor": actor, "act": entry.act,
        "outcome": outcome(entry),
    })
}

fn outcome(entry: &AuditEntry) -> String {
    Status::from_u8(entry.outcome)
        .map_or_else(|| entry.outcome.to_string(), |status| status.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{row, value};
    use client::{Actor, AuditEntry};

    #[test]
    fn an_entry_says_who_did_what_and_how_it_ended() {
        let actor = Actor::Tenant { name: "acme".into(), client_id: 7, peer: "127.0.0.1:9".into() };
        let entry =
            AuditEntry { sequence: 3, at_ms: 86_400_000, actor, act: "table drop t".into(), outcome: 11 };
        let expected = [
            "3",
            "1970-01-02 00:00:00.000",
            "acme (client 7 from 127.0.0.1:9)",
            "table drop t",
            "UnknownTable",
        ];
        assert_eq!(row(&entry), expected);
        assert_eq!(value(&entry)["actor"]["tenant"], "acme");
        let unknown = AuditEntry { actor: Actor::Server, outcome: 250, ..entry };
        assert_eq!((row(&unknown)[2].as_str(), row(&unknown)[4].as_str()), ("(server)", "250"));
    }
}
