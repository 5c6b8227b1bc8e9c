//! Background requests of a migration to the metadata or another server, which may take seconds: each runs on its own
//! thread and reports to the inbox, so that the migration continues meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::peer;
use cluster::limits::MIGRATION_MESSAGE_BYTES_MAX;
use cluster::metadata::{MetadataError, MigrationRow, MigrationView, Side};
use cluster::migration::MigrationPhase;
use cluster::moment::Moment;
use cluster::peer::Purpose;
use net::Duplex;
use wire::TabletMap;

use crate::control_plane::Control;
use crate::control_plane::migrations::inbox::{AttachedStream, InboxSender, Notice};
use crate::control_plane::ownership::map_of;
use crate::limits::{CLUSTER_RETRY_MS, CONTROL_STACK_BYTES, RECORD_TIMEOUT_MS};

/// The context of a migration's background tasks.
#[derive(Clone)]
pub(super) struct BackgroundTasks {
    pub(super) control: Arc<Control>,
    pub(super) row: MigrationRow,
    pub(super) notices: InboxSender,
    /// Set when the migration is over: nothing is retried.
    pub(super) over: Arc<AtomicBool>,
}

impl BackgroundTasks {
    /// Starts a background thread; returns false if that failed.
    fn go(&self, task: impl FnOnce(Self) + Send + 'static) -> bool {
        let own = self.clone();
        let name = format!("background-{}", self.row.id);
        let started =
            thread::Builder::new().name(name).stack_size(CONTROL_STACK_BYTES).spawn(move || task(own));
        started.inspect_err(|error| tracing::warn!(%error, "cannot start a thread for a migration")).is_ok()
    }

    /// Retries until the metadata answers or the migration is over.
    fn insist<T>(
        &self,
        mut ask: impl FnMut() -> Result<T, MetadataError>,
    ) -> Option<Result<T, MetadataError>> {
        while !self.over.load(Ordering::Relaxed) {
            match ask() {
                Err(error) if error != MetadataError::NotFound => {
                    tracing::debug!(
                        %error,
                        migration = self.row.id,
                        "the metadata does not answer a migration; retrying"
                    );
                    thread::sleep(Duration::from_millis(CLUSTER_RETRY_MS));
                }
                answer => return Some(answer),
            }
        }
        None
    }

    /// Waits because the record is gone: the thread that follows the metadata reports the consequence.
    fn wait_for_follower(&self) {
        thread::sleep(Duration::from_millis(CLUSTER_RETRY_MS));
    }

    /// Advances the phase if it is `from`, and reports the new tablet map. If `gone` names a side, the change commits
    /// only while that side's server is gone.
    pub(super) fn commit(&self, (from, to): (MigrationPhase, MigrationPhase), gone: Option<Side>) {
        let is_sent = self.go(move |own| {
            let (metadata, id) = (&own.control.metadata, own.row.id);
            let advance = || match gone {
                Some(side) => metadata.migration_advance_without(side, id, from, to),
                None => metadata.migration_advance(id, from, to),
            };
            match own.insist(advance) {
                Some(Ok(row)) => {
                    // The thread that follows the metadata delivers it otherwise, a little later.
                    if let Ok(Some(view)) = metadata.migration_view(id) {
                        own.notices.send(Notice::Map(map_in(&view)));
                    }
                    own.notices.send(Notice::Committed(row.phase));
                }
                Some(Err(_)) => {
                    own.wait_for_follower();
                    own.notices.send(Notice::Committed(from));
                }
                None => {}
            }
        });
        if !is_sent {
            self.notices.send(Notice::Committed(from));
        }
    }

    /// Reads the phase and the tablet map, and whether this server held its lease while reading.
    pub(super) fn look_up(&self) {
        let is_sent = self.go(move |own| {
            let lease = || own.control.lease_cache.lease(Moment::now());
            let found = own.insist(|| {
                let before = lease();
                own.control.metadata.migration_view(own.row.id).map(|found| (found, before))
            });
            match found {
                Some(Ok((Some(view), before))) => {
                    let is_registered = before.is_some() && lease() == before;
                    own.notices.send(Notice::Map(map_in(&view)));
                    own.notices.send(Notice::LookedUp(view.row.phase, is_registered));
                }
                Some(_) => {
                    own.wait_for_follower();
                    own.notices.send(Notice::LookedUp(own.row.phase, false));
                }
                None => {}
            }
        });
        if !is_sent {
            self.notices.send(Notice::LookedUp(self.row.phase, false));
        }
    }

    /// Records that this side has finished, however long that takes: the last background task.
    pub(super) fn leave(&self, side: Side) {
        // If it fails, the next start of this server does it.
        let _ = self.go(move |own| {
            while own.control.metadata.migration_leave(own.row.id, side).is_err() {
                if own.control.migrations.as_ref().is_none_or(super::Migrations::is_stopping) {
                    return;
                }
                thread::sleep(Duration::from_millis(CLUSTER_RETRY_MS));
            }
        });
    }

    /// Opens a stream to the source.
    pub(super) fn connect(&self) {
        let is_sent = self.go(move |own| {
            let opened = own.open();
            own.notices.send(opened.map_or(Notice::NoStream, Notice::Stream));
        });
        if !is_sent {
            self.notices.send(Notice::NoStream);
        }
    }

    fn open(&self) -> Option<AttachedStream> {
        let migrations = self.control.migrations.as_ref()?;
        let source = self.row.source.server;
        let members = self.control.metadata.members().ok()?;
        let address = members.iter().find(|member| member.run.server == source)?.tcp;
        let purpose = Purpose::Migration(u64::from(self.row.id));
        let opened = peer::open(migrations.secret(), migrations.own(), (source, address), purpose)
            .inspect_err(|error| {
                tracing::debug!(migration = self.row.id, %error, "cannot connect to the source");
            });
        let patience = Duration::from_millis(RECORD_TIMEOUT_MS);
        let stream = Duplex::over(opened.ok()?, patience, MIGRATION_MESSAGE_BYTES_MAX).ok()?;
        Some(AttachedStream { stream, _place: None })
    }

    /// Checks whether the other server is gone or was restarted: see [`cluster::presence`].
    pub(super) fn look_after_peer(&self, side: Side) {
        let is_gone = self.control.lease_cache.is_gone(self.row.run_on(side.opposite()));
        self.notices.send(if is_gone { Notice::PeerGone } else { Notice::PeerThere });
    }
}

pub(super) fn map_in(view: &MigrationView) -> Option<TabletMap> {
    map_of(&view.tablets, view.migrations.iter(), &view.members, view.revision.0)
}
