//! The way into a server that is starting: streams come before it can serve them, and wait.
//!
//! ```text
//!   listener ──► stream ──► first record ──┬ State ──► how far the start is
//!                                          ├ of a server that recovers a log ──► its replicas here, from the beginning on
//!                                          └ any other ──► waits until the server serves, or ends
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cluster::peer::ClusterSecret;
use wire::ServerState;

use crate::control_plane::Control;
use crate::durability::recovery::ReplayProgress;
use crate::durability::replicas::backup_thread::BackupHandle;
use crate::sync::lock;

/// What becomes of a stream that waits.
pub enum Passage<'g> {
    /// The server serves it.
    Serves(&'g Arc<Control>),
    /// The server ends.
    Ended,
    /// The server is still starting.
    Waits,
}

/// What a server that starts has for others: replicas of their logs. Servers that start together may wait for them.
pub struct KeptReplicas {
    /// The number of this server.
    pub own: u32,
    /// The cluster's secret.
    pub secret: ClusterSecret,
    /// The replicas.
    pub backup: BackupHandle,
}

/// See the module's head.
#[derive(Default)]
pub struct Gate {
    /// How far the replay of the log is.
    pub replay: ReplayProgress,
    control: OnceLock<Arc<Control>>,
    replicas: OnceLock<KeptReplicas>,
    /// Whether all of the log is replayed.
    has_replayed: AtomicBool,
    has_ended: AtomicBool,
    changed: (Mutex<()>, Condvar),
}

impl Gate {
    /// Lets everybody in.
    pub fn open(&self, control: &Arc<Control>) {
        // The only call.
        let _ = self.control.set(Arc::clone(control));
        self.tell();
    }

    /// Lets servers that recover logs have their replicas from now on.
    pub fn give(&self, replicas: KeptReplicas) {
        // The only call.
        let _ = self.replicas.set(replicas);
    }

    /// Returns the replicas that others may have.
    #[must_use]
    pub fn replicas(&self) -> Option<&KeptReplicas> {
        self.replicas.get()
    }

    /// Returns whether the server ends.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Notes that all of the log is replayed.
    pub fn note_replayed(&self) {
        self.has_replayed.store(true, Ordering::Release);
    }

    /// Returns whether all of the log is replayed.
    #[must_use]
    pub fn has_replayed(&self) -> bool {
        self.has_replayed.load(Ordering::Acquire)
    }

    /// Sends everybody away who waits.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.tell();
    }

    fn tell(&self) {
        drop(lock(&self.changed.0));
        self.changed.1.notify_all();
    }

    /// Returns the control plane, if the server serves.
    #[must_use]
    pub fn control(&self) -> Option<&Arc<Control>> {
        self.control.get()
    }

    /// Waits until the server serves or ends, for this long at most. Other servers are served before everybody else: what the
    /// log has may have to be at some of them first.
    #[must_use]
    pub fn wait(&self, patience: Duration, is_server: bool) -> Passage<'_> {
        let has_ended = || self.has_ended();
        let serves = || self.control.get().filter(|control| is_server || control.has_settled());
        let waits = |(): &mut ()| serves().is_none() && !has_ended();
        let waited = self.changed.1.wait_timeout_while(lock(&self.changed.0), patience, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        match serves() {
            Some(control) => Passage::Serves(control),
            None if has_ended() => Passage::Ended,
            None => Passage::Waits,
        }
    }

    /// Returns how far the start is. Some bytes are left until all is done.
    #[must_use]
    pub fn state(&self) -> ServerState {
        let (replayed_bytes, log_bytes) = self.replay.bytes();
        let most = if self.has_replayed() { log_bytes } else { log_bytes.saturating_sub(1) };
        let replayed_bytes = replayed_bytes.min(most);
        let is_serving = self.control().is_some_and(|control| control.has_settled());
        ServerState { is_serving, replayed_bytes, log_bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::{Gate, Passage};

    #[test]
    fn who_waits_at_a_server_that_ends_is_sent_away() {
        let gate = Arc::new(Gate::default());
        let waiting = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || matches!(gate.wait(Duration::from_mins(1), false), Passage::Ended))
        };
        assert!(matches!(gate.wait(Duration::from_millis(1), false), Passage::Waits));
        gate.end();
        assert!(waiting.join().expect("it does not panic"));
        assert!(!gate.state().is_serving);
    }
}
