//! The thread of a coordinator, at each server of a cluster: whichever was elected takes the steps that are due, the others
//! look whether there is still one.
//!
//! Elected is who writes its number first, under the lease of its registration; when that is over another one is. What is
//! to be done is decided by [`crate::cluster::coordinator`] from the records and from who is there. While the metadata does not answer
//! nothing is decided, and data traffic goes on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::control::Control;
use crate::clock::Moment;
use crate::cluster::coordinator::steps;
use crate::cluster::metadata::{Coordinator, MetadataError, ServerRun, Snapshot};
use crate::limits::COORDINATION_LOOK_MS;

/// Starts the thread, which ends when the server stops.
///
/// # Errors
/// When no thread can be started.
pub fn start(
    control: &Arc<Control>,
    stopping: &Arc<AtomicBool>,
    own: ServerRun,
) -> io::Result<JoinHandle<()>> {
    let (control, stopping) = (Arc::clone(control), Arc::clone(stopping));
    thread::Builder::new().name("coordination".to_owned()).spawn(move || {
        let mut elected = None;
        while !stopping.load(Ordering::Relaxed) {
            // What goes wrong is tried again at the next look; others may coordinate by then.
            match look(&control, own, elected) {
                Ok(now) => elected = now,
                Err(MetadataError::Conflict | MetadataError::Records(_)) => {}
                Err(error) => tracing::error!(%error, "the cluster is not coordinated"),
            }
            thread::park_timeout(Duration::from_millis(COORDINATION_LOOK_MS));
        }
    })
}

/// Takes the steps that are due if it is for this server to do; says who coordinates.
fn look(
    control: &Control,
    own: ServerRun,
    before: Option<Coordinator>,
) -> Result<Option<Coordinator>, MetadataError> {
    control.interim.look(&control.metadata)?;
    let Some(lease) = control.interim.lease(Moment::now()) else { return Ok(None) };
    let elected = control.metadata.coordinator_elect(own.server, lease)?;
    if elected.server == own.server {
        if before != Some(elected) {
            tracing::info!(server = own.server, term = elected.term, "this server coordinates the cluster");
        }
        let snapshot = Snapshot { there: control.interim.there(), ..control.metadata.snapshot()? };
        for step in steps(&snapshot) {
            tracing::debug!(?step, "a step of the coordinator");
            control.metadata.coordinate(elected.term, &step, control.clock.wall_ms())?;
        }
    }
    Ok(Some(elected))
}
