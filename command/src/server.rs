//! `splinter ping | stats | server | session`: round trips to the server, its counters, its start, its sessions.
//!
//! The administrator sees the sessions of all tenants, a tenant only its own, including the one that this command
//! opened.

use super::archive;
use super::failure::{Failure, FailureKind};
use super::options::SessionCommand;
use super::output::{Answer, moment, table_of, thousands};
use super::settings::Settings;
use client::{ClientConfig, Error, ServerState, SessionEntry};
use serde_json::{Map, Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at a server that starts, and the longest wait for its answer.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// Measures some round trips.
pub fn ping(settings: &Settings, count: u32) -> Result<Answer, Failure> {
    let mut client = settings.connect()?;
    let mut times_us = Vec::new();
    for _ in 0..count {
        times_us.push(client.ping()?.as_secs_f64() * 1e6);
    }
    times_us.sort_by(f64::total_cmp);
    let (least, middle, most) = (times_us[0], times_us[times_us.len() / 2], times_us[times_us.len() - 1]);
    let address = client.address();
    let text = format!(
        "{address} answers: {least:.1} us minimum, {middle:.1} us median, {most:.1} us maximum of {}",
        times_us.len()
    );
    let value = json!({
        "address": address, "count": times_us.len(), "us_least": least, "us_median": middle, "us_most": most,
    });
    Ok(Answer::new(text, value))
}

/// Prints the counters: for the administrator those of the whole server or of the given tenant, otherwise those that
/// the tenant may see.
pub fn stats(settings: &Settings, filter: Option<&str>) -> Result<Answer, Failure> {
    let mut statistics = match settings.given_tenant() {
        _ if !settings.is_admin() => settings.connect()?.statistics()?,
        Some(tenant) => settings.connect_admin()?.tenant_statistics(tenant)?,
        None => settings.connect_admin()?.statistics()?,
    };
    statistics.retain(|statistic| filter.is_none_or(|filter| statistic.name.contains(filter)));
    if let Some(filter) = filter
        && statistics.is_empty()
    {
        let failure = Failure::new(FailureKind::Missing, format!("no counter's name contains `{filter}`"));
        return Err(failure.next(match settings.is_admin() && settings.given_tenant().is_none() {
            true => "list them with `splinter stats`",
            false => {
                "list them with `splinter stats`; to see those of the server, give the administrator's \
                 secret and no tenant"
            }
        }));
    }
    let mut rows = Vec::new();
    let mut values = Map::new();
    for statistic in statistics {
        rows.push(vec![statistic.name.clone(), thousands(statistic.value)]);
        values.insert(statistic.name, Value::from(statistic.value));
    }
    Ok(Answer::new(table_of(&["counter", "value"], rows), Value::Object(values)))
}

/// Returns how many hundredths of a log are replayed, by whatever a server says.
fn percent_of(replayed_bytes: u64, log_bytes: u64) -> u128 {
    u128::from(replayed_bytes) * 100 / u128::from(log_bytes.max(1))
}

/// Waits until all servers of the address serve, and have replayed their logs if that is asked.
pub fn wait(settings: &Settings, timeout: Duration, replayed: bool) -> Result<Answer, Failure> {
    let began = Instant::now();
    let config =
        ClientConfig { connect_timeout: LOOK_TIMEOUT, call_timeout: LOOK_TIMEOUT, ..ClientConfig::default() };
    let mut rows = Vec::new();
    for address in settings.address().split(',').map(str::trim) {
        let bar = archive::bar(0);
        bar.set_message("starting");
        loop {
            let late = match client::server_state(address, &config) {
                Ok(state) if state.is_serving && (!replayed || state.replayed_bytes == state.log_bytes) => {
                    bar.finish_and_clear();
                    rows.push((address, state));
                    break;
                }
                Ok(ServerState { is_serving, replayed_bytes, log_bytes }) => {
                    bar.set_length(log_bytes);
                    bar.set_position(replayed_bytes);
                    let percent = percent_of(replayed_bytes, log_bytes);
                    let does = if is_serving { "serves" } else { "is starting" };
                    format!("{address} {does}: {percent} % of its log is replayed")
                }
                Err(error @ Error::AddressInvalid { .. }) => return Err(error.into()),
                Err(error) => error.to_string(),
            };
            if began.elapsed() > timeout {
                bar.finish_and_clear();
                let text = format!("after {:.1} s: {late}", began.elapsed().as_secs_f64());
                return Err(Failure::new(FailureKind::Unreachable, text).next("wait longer with --timeout"));
            }
            thread::sleep(LOOK);
        }
    }
    let ms = began.elapsed().as_millis() as u64;
    let lines = rows.iter().map(|(address, state)| match (state.replayed_bytes, state.log_bytes) {
        (_, 0) => format!("{address} serves"),
        (bytes, all) if bytes == all => format!("{address} serves; it has replayed {} bytes", thousands(all)),
        (bytes, all) => {
            format!("{address} serves; {} % of its log is replayed", percent_of(bytes, all))
        }
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let shown = |(address, state): &(&str, ServerState)| json!({ "address": address, "log_bytes": state.log_bytes, "replayed_bytes": state.replayed_bytes });
    let servers: Vec<_> = rows.iter().map(shown).collect();
    Ok(Answer::new(text, json!({ "servers": servers, "ms": ms })))
}

/// Lists or ends sessions.
pub fn session(settings: &Settings, command: SessionCommand) -> Result<Answer, Failure> {
    match (command, settings.is_admin()) {
        (SessionCommand::List, true) => Ok(session_table(&settings.connect_admin()?.session_list()?)),
        (SessionCommand::List, false) => Ok(session_table(&settings.connect()?.session_list()?)),
        (SessionCommand::Revoke { client }, is_admin) => {
            match is_admin {
                true => settings.connect_admin()?.session_revoke(client)?,
                false => settings.connect()?.session_revoke(client)?,
            }
            Ok(Answer::new(format!("ended the session of client {client}"), json!({ "revoked": client })))
        }
    }
}

fn session_table(sessions: &[SessionEntry]) -> Answer {
    let heads = ["client", "tenant", "from", "home", "since"];
    let rows = sessions.iter().map(|session| {
        let since = moment(session.opened_ms);
        let (client, home) = (session.client_id.to_string(), session.home_core.to_string());
        vec![client, session.tenant.clone(), session.peer.clone(), home, since]
    });
    let value = |session: &SessionEntry| {
        json!({
            "client_id": session.client_id, "tenant": session.tenant, "peer": session.peer,
            "home_core": session.home_core, "opened_ms": session.opened_ms,
        })
    };
    Answer::new(table_of(&heads, rows), sessions.iter().map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::percent_of;

    #[test]
    fn whatever_a_server_says_of_its_start_is_shown() {
        assert_eq!((percent_of(1, 3), percent_of(7, 0)), (33, 700));
        assert_eq!(percent_of(u64::MAX, u64::MAX), 100);
    }
}
