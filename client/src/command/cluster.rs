//! `splinter cluster`: the servers that share their metadata, as the one that is asked knows them.

use super::failure::Failure;
use super::options::ClusterCommand;
use super::output::{Answer, columns, moment};
use super::settings::Settings;
use client::ServerEntry;
use serde_json::json;

/// Runs a command about the cluster.
pub fn run(settings: &Settings, command: ClusterCommand) -> Result<Answer, Failure> {
    match command {
        ClusterCommand::Servers => Ok(table(&settings.connect_admin()?.server_list()?)),
    }
}

fn table(servers: &[ServerEntry]) -> Answer {
    let value = |server: &ServerEntry| {
        json!({
            "server": server.id, "asked": server.is_asked, "address": server.tcp,
            "udp_ports": server.frame_ports, "view": server.view, "started_ms": server.started_ms,
            "version": server.version,
        })
    };
    let json = servers.iter().map(value).collect();
    if servers.is_empty() {
        return Answer::new("this server is alone, or is not registered at present", json);
    }
    let heads = ["server", "address", "cores", "view", "version", "since"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(servers.iter().map(|server| {
        let mark = if server.is_asked { "*" } else { "" };
        vec![
            format!("{}{mark}", server.id),
            server.tcp.clone(),
            server.frame_ports.len().to_string(),
            server.view.to_string(),
            server.version.clone(),
            moment(server.started_ms),
        ]
    }));
    Answer::new(columns(&rows), json)
}
