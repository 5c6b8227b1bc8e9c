//! Cluster membership of a server: it keeps its registration, and follows the metadata changes of others.
//!
//! It uses two threads, because following may compile an extension for a second. Data traffic needs neither: while the
//! metadata does not answer, both retry.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::metadata::{MetadataError, ServerRow, ServerRun, is_followed_by_its_author, tenants_of};
use cluster::moment::Moment;
use cluster::records::{Event, Revision, Watch, WatchEnd};
use cluster::registration::{Kept, Registration};
use wire::Status;

use super::{Follower, TenantSet};
use crate::control_plane::{Control, Refusal};
use crate::limits::{CLUSTER_RETRY_MS, FOLLOWING_AGAIN_MS, FOLLOWING_LOOK_MS, REGISTRATION_KEEP_MS};

/// Registers the server in its cluster, and keeps it registered until it has ended.
///
/// # Errors
/// If the thread cannot be started.
pub fn register(
    control: &Arc<Control>,
    ended: &Arc<AtomicBool>,
    tcp: SocketAddr,
    ServerRun { server: id, start }: ServerRun,
) -> io::Result<JoinHandle<()>> {
    let row = ServerRow {
        id,
        start,
        tcp,
        frame_ports: control.ports.numbers.clone(),
        view: control.views.settled(),
        started_ms: control.clock.wall_ms(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        backup_host: control.host.backup.as_ref().map(|_| control.host.name.clone()),
    };
    let (control, ended) = (Arc::clone(control), Arc::clone(ended));
    thread::Builder::new().name("registration".to_owned()).spawn(move || {
        let mut registration = Registration::new(row.clone());
        let mut was_held = false;
        while !ended.load(Ordering::Relaxed) {
            let (begun, renewed) = (Instant::now(), |held| control.hold(Some(held)));
            let wait = match registration.keep(&control.metadata, control.views.settled(), renewed) {
                Ok(kept) => {
                    if kept == Kept::Anew {
                        tracing::info!(server = row.id, tcp = %row.tcp, "registered in the cluster");
                    }
                    // The next renewal is due a period after this one was begun.
                    Duration::from_millis(REGISTRATION_KEEP_MS).saturating_sub(begun.elapsed())
                }
                Err(error) => {
                    if error == MetadataError::NotFound {
                        control.ownership_guard.is_replaced.store(true, Ordering::Relaxed);
                    }
                    if error == MetadataError::AlreadyExists {
                        let text = "a server with this number started later: is its data directory a copy?";
                        tracing::warn!(server = row.id, text);
                    }
                    Duration::from_millis(CLUSTER_RETRY_MS)
                }
            };
            control.hold(registration.held());
            let is_held = control.lease_cache.is_held(Moment::now());
            if was_held && !is_held {
                tracing::warn!(server = row.id, "lease expired: other servers may consider this one gone");
            }
            was_held = is_held;
            thread::park_timeout(wait);
        }
        control.hold(None);
        let run = ServerRun { server: row.id, start: row.start };
        if let Err(error) = control.leave_log(run) {
            tracing::warn!(%error, "cannot record how the server ends");
        }
        if let Err(error) = registration.end(&control.metadata) {
            tracing::warn!(%error, "cannot end the registration; it expires by itself");
        }
    })
}

/// Follows metadata changes of others until the server stops.
///
/// # Errors
/// If the thread cannot be started.
pub fn follow(control: &Arc<Control>, stopping: &Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
    let (control, stopping) = (Arc::clone(control), Arc::clone(stopping));
    thread::Builder::new().name("following".to_owned()).spawn(move || {
        let mut following = Following::default();
        while !stopping.load(Ordering::Relaxed) {
            if let Err(refusal) = following.step(&control) {
                if refusal.status != Status::Unavailable {
                    tracing::error!(%refusal, "cannot apply metadata changes of other servers");
                }
                thread::park_timeout(Duration::from_millis(CLUSTER_RETRY_MS));
            }
        }
    })
}

/// State of a server that follows the metadata.
#[derive(Default)]
struct Following {
    follower: Follower,
    /// `None` if everything must be read.
    watch: Option<Watch>,
    /// The revision as of which it has last read everything.
    seen: Revision,
    /// Time of that.
    at: Option<Instant>,
}

impl Following {
    /// Waits briefly for changes, and follows them.
    fn step(&mut self, control: &Arc<Control>) -> Result<(), Refusal> {
        if control.is_unverified() {
            self.catch_up(control)?;
        }
        let Some(watch) = &self.watch else {
            self.catch_up(control)?;
            self.watch = Some(control.metadata.catalog_watch(self.seen)?);
            return Ok(());
        };
        match watch.next(Duration::from_millis(FOLLOWING_LOOK_MS)) {
            Ok(event) => {
                let mut whose = self.whose(control, &event);
                // Includes events that have arrived meanwhile.
                while let (Some(some), Ok(event)) = (&mut whose, watch.next(Duration::ZERO)) {
                    match self.whose(control, &event) {
                        Some(others) => some.extend(others),
                        None => whose = None,
                    }
                }
                match whose {
                    Some(whose) if whose.is_empty() => {}
                    Some(whose) => {
                        let followed = self.follower.follow(control, Some(&whose));
                        self.begin_anew_unless(followed)?;
                    }
                    None => self.catch_up(control)?,
                }
            }
            Err(WatchEnd::Quiet) if self.follower.is_behind() => {
                let again = Duration::from_millis(FOLLOWING_AGAIN_MS);
                if self.at.is_none_or(|at| at.elapsed() >= again) {
                    self.catch_up(control)?;
                }
            }
            Err(WatchEnd::Quiet) => {}
            Err(WatchEnd::Lost) => {
                tracing::info!("rereading all metadata: changes in between are no longer kept");
                self.watch = None;
            }
            Err(WatchEnd::Closed) => self.watch = None,
        }
        Ok(())
    }

    /// Returns the tenants that an event of another server may have changed; `None` for all.
    fn whose(&self, control: &Control, event: &Event) -> Option<TenantSet> {
        let is_done = || !event.changes.iter().any(|(key, _)| is_followed_by_its_author(key));
        if event.revision <= self.seen || control.metadata.is_own(event.revision) && is_done() {
            return Some(TenantSet::new());
        }
        tenants_of(event)
    }

    /// Applies all metadata.
    fn catch_up(&mut self, control: &Arc<Control>) -> Result<(), Refusal> {
        let lease = || control.lease_cache.lease(Moment::now());
        let before = lease();
        let followed = self.follower.follow(control, None);
        self.at = Some(Instant::now());
        self.seen = self.begin_anew_unless(followed)?;
        if let Some(held) = before.filter(|held| lease() == Some(*held)) {
            control.note_verified(held);
        }
        Ok(())
    }

    /// Restarts from the beginning after an error.
    fn begin_anew_unless<T>(&mut self, followed: Result<T, Refusal>) -> Result<T, Refusal> {
        if followed.is_err() {
            self.watch = None;
        }
        followed
    }
}
