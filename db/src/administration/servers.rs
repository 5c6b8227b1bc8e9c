//! The registered servers of the cluster.

use control::ServerEntry;

use crate::control_plane::{Control, Refusal};

/// Returns the registered servers; none outside a cluster.
pub(super) fn list(control: &Control) -> Result<Vec<u8>, Refusal> {
    if !control.metadata.records().is_shared() {
        return Ok(control::encode(&Vec::<ServerEntry>::new()));
    }
    let asked = control.lease_cache.run().map(|run| run.server);
    let entry = |row: cluster::metadata::ServerRow| ServerEntry {
        id: row.id,
        is_asked: asked == Some(row.id),
        tcp: row.tcp.to_string(),
        frame_ports: row.frame_ports,
        view: row.view,
        started_ms: row.started_ms,
        version: row.version,
    };
    Ok(control::encode(&control.metadata.servers()?.into_iter().map(entry).collect::<Vec<_>>()))
}
