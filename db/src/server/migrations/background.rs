//! What a migration has to ask of the records or of another server, which may take seconds: each is done by a thread of its
//! own, which writes what came of it, so that the migration goes on meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use net::Duplex;
use wire::TabletMap;

use super::inbox::{InboxSender, Notice};
use super::peer_link::AttachedStream;
use crate::clock::Moment;
use crate::cluster::metadata::{MetadataError, MigrationRow, MigrationView, Side};
use crate::cluster::migration::Phase;
use crate::cluster::peer::{self, Purpose};
use crate::limits::{CLUSTER_RETRY_MS, CONTROL_STACK_BYTES, MIGRATION_MESSAGE_BYTES_MAX, RECORD_TIMEOUT_MS};
use crate::server::control::Control;
use crate::server::ownership::map_of;

/// Who goes, and for what.
#[derive(Clone)]
pub(super) struct BackgroundTasks {
    pub(super) control: Arc<Control>,
    pub(super) row: MigrationRow,
    pub(super) post: InboxSender,
    /// The migration is over: nothing is tried again.
    pub(super) over: Arc<AtomicBool>,
}

impl BackgroundTasks {
    /// False when nobody could be sent.
    fn go(&self, errand: impl FnOnce(Self) + Send + 'static) -> bool {
        let own = self.clone();
        let name = format!("errand-{}", self.row.id);
        let started =
            thread::Builder::new().name(name).stack_size(CONTROL_STACK_BYTES).spawn(move || errand(own));
        started.inspect_err(|error| tracing::warn!(%error, "no thread for an errand of a migration")).is_ok()
    }

    /// Tries again until the records answer, or nobody wants to know any more.
    fn insist<T>(
        &self,
        mut ask: impl FnMut() -> Result<T, MetadataError>,
    ) -> Option<Result<T, MetadataError>> {
        while !self.over.load(Ordering::Relaxed) {
            match ask() {
                Err(error) if error != MetadataError::NotFound => {
                    tracing::debug!(%error, migration = self.row.id, "the records do not answer a migration");
                    thread::sleep(Duration::from_millis(CLUSTER_RETRY_MS));
                }
                answer => return Some(answer),
            }
        }
        None
    }

    /// There is no record any more: what that means is told by who follows the records.
    fn wait_for_follower(&self) {
        thread::sleep(Duration::from_millis(CLUSTER_RETRY_MS));
    }

    /// Changes the standing, if it is that, and says where the tablets are then; where a side has to be gone for it, only while it is.
    pub(super) fn commit(&self, (from, to): (Phase, Phase), gone: Option<Side>) {
        let is_sent = self.go(move |own| {
            let (metadata, id) = (&own.control.metadata, own.row.id);
            let advance = || match gone {
                Some(side) => metadata.migration_advance_without(side, id, from, to),
                None => metadata.migration_advance(id, from, to),
            };
            match own.insist(advance) {
                Some(Ok(row)) => {
                    // Others bring it otherwise, a little later.
                    if let Ok(Some(view)) = metadata.migration_view(id) {
                        own.post.send(Notice::Map(map_in(&view)));
                    }
                    own.post.send(Notice::Committed(row.standing));
                }
                Some(Err(_)) => {
                    own.wait_for_follower();
                    own.post.send(Notice::Committed(from));
                }
                None => {}
            }
        });
        if !is_sent {
            self.post.send(Notice::Committed(from));
        }
    }

    /// Reads the standing and where the tablets are, and whether it was read under the lease that this server holds.
    pub(super) fn look_up(&self) {
        let is_sent = self.go(move |own| {
            let lease = || own.control.interim.lease(Moment::now());
            let found = own.insist(|| {
                let before = lease();
                own.control.metadata.migration_view(own.row.id).map(|found| (found, before))
            });
            match found {
                Some(Ok((Some(view), before))) => {
                    let is_registered = before.is_some() && lease() == before;
                    own.post.send(Notice::Map(map_in(&view)));
                    own.post.send(Notice::LookedUp(view.row.standing, is_registered));
                }
                Some(_) => {
                    own.wait_for_follower();
                    own.post.send(Notice::LookedUp(own.row.standing, false));
                }
                None => {}
            }
        });
        if !is_sent {
            self.post.send(Notice::LookedUp(self.row.standing, false));
        }
    }

    /// Notes that this side has nothing to do any more, however long that takes: the last errand.
    pub(super) fn leave(&self, side: Side) {
        // Else somebody does when this server is started again.
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
            own.post.send(opened.map_or(Notice::NoStream, Notice::Stream));
        });
        if !is_sent {
            self.post.send(Notice::NoStream);
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
                tracing::debug!(migration = self.row.id, %error, "the source of a migration");
            });
        let patience = Duration::from_millis(RECORD_TIMEOUT_MS);
        let stream = Duplex::over(opened.ok()?, patience, MIGRATION_MESSAGE_BYTES_MAX).ok()?;
        Some(AttachedStream { stream, _place: None })
    }

    /// Looks whether the other server is gone, or was started again: see [`crate::cluster::presence`].
    pub(super) fn look_after_peer(&self, side: Side) {
        let is_gone = self.control.interim.is_gone(self.row.run_on(side.opposite()));
        self.post.send(if is_gone { Notice::PeerGone } else { Notice::PeerThere });
    }
}

fn map_in(view: &MigrationView) -> Option<TabletMap> {
    map_of(&view.tablets, view.migrations.iter(), &view.members, view.revision.0)
}
