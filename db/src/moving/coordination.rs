//! The coordination thread of each server in a cluster: the elected one executes due steps, the others check that one
//! is elected.
//!
//! The first server that writes its number under its registration's lease is elected; when that lease ends another one
//! is. [`cluster::coordinator`] derives the steps from the metadata and the present servers. While the metadata
//! does not answer nothing is decided, and data traffic continues.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

use cluster::coordinator::steps;
use cluster::metadata::{Coordinator, MetadataError, ServerRun, Snapshot};
use cluster::moment::Moment;

use crate::control_plane::Control;
use crate::limits::COORDINATION_LOOK_MS;
use crate::process;

/// Starts the thread, which ends when the server stops.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(
    control: &Arc<Control>,
    stopping: &Arc<AtomicBool>,
    own: ServerRun,
) -> io::Result<JoinHandle<()>> {
    let (control, mut elected) = (Arc::clone(control), None);
    process::repeat("coordination", stopping, Duration::from_millis(COORDINATION_LOOK_MS), move || {
        // An error is retried at the next look; another server may coordinate by then.
        match look(&control, own, elected) {
            Ok(now) => elected = now,
            Err(MetadataError::Conflict | MetadataError::Records(_)) => {}
            Err(error) => tracing::error!(%error, "cannot coordinate the cluster"),
        }
    })
}

/// Executes the due steps if this server is the coordinator; returns the coordinator.
fn look(
    control: &Control,
    own: ServerRun,
    before: Option<Coordinator>,
) -> Result<Option<Coordinator>, MetadataError> {
    control.lease_cache.look(&control.metadata)?;
    let Some(lease) = control.lease_cache.lease(Moment::now()) else { return Ok(None) };
    let elected = control.metadata.coordinator_elect(own.server, lease)?;
    if elected.server == own.server {
        if before != Some(elected) {
            tracing::info!(server = own.server, term = elected.term, "this server coordinates the cluster");
        }
        let snapshot = Snapshot { there: control.lease_cache.there(), ..control.metadata.snapshot()? };
        for step in steps(&snapshot) {
            tracing::debug!(?step, "a step of the coordinator");
            match control.metadata.coordinate(elected.term, &step, control.clock.wall_ms()) {
                // One table keeps nobody from recovering the others.
                Err(error @ (MetadataError::LimitExceeded | MetadataError::Tablets(_))) => {
                    tracing::warn!(?step, %error, "the coordinator cannot make a step");
                }
                made => made?,
            }
        }
    }
    Ok(Some(elected))
}
