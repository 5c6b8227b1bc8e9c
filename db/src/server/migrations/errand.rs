//! What a migration has to ask of the records or of another server, which may take seconds: each is done by a thread of its
//! own, which writes what came of it, so that the migration goes on meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use net::Duplex;

use super::link::Opened;
use super::mail::{Mail, Post};
use crate::cluster::metadata::{MetadataError, MigrationRow, Side};
use crate::cluster::migration::Standing;
use crate::cluster::peer::{self, Purpose};
use crate::limits::{CLUSTER_RETRY_MS, CONTROL_STACK_BYTES, MIGRATION_MESSAGE_BYTES_MAX, RECORD_TIMEOUT_MS};
use crate::server::control::Control;

/// Who goes, and for what.
#[derive(Clone)]
pub(super) struct Errands {
    pub(super) control: Arc<Control>,
    pub(super) row: MigrationRow,
    pub(super) post: Post,
    /// The migration is over: nothing is tried again.
    pub(super) over: Arc<AtomicBool>,
}

impl Errands {
    fn go(&self, errand: impl FnOnce(Self) + Send + 'static) {
        let own = self.clone();
        let name = format!("errand-{}", self.row.id);
        let started =
            thread::Builder::new().name(name).stack_size(CONTROL_STACK_BYTES).spawn(move || errand(own));
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for an errand of a migration; it is tried again");
            self.post.send(Mail::NoStream);
        }
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

    /// Changes the standing, if it is that.
    pub(super) fn commit(&self, from: Standing, to: Standing) {
        self.go(move |own| {
            let metadata = &own.control.metadata;
            match own.insist(|| metadata.migration_advance(own.row.id, from, to)) {
                Some(Ok(row)) => own.post.send(Mail::Committed(row.standing)),
                Some(Err(_)) => own.post.send(Mail::Gone),
                None => {}
            }
        });
    }

    /// Reads the standing.
    pub(super) fn look_up(&self) {
        self.go(move |own| match own.insist(|| own.control.metadata.migration_find(own.row.id)) {
            Some(Ok(Some(row))) => own.post.send(Mail::Standing(row.standing)),
            Some(_) => own.post.send(Mail::Gone),
            None => {}
        });
    }

    /// Notes that this side has nothing to do any more, however long that takes: the last errand.
    pub(super) fn leave(&self, side: Side) {
        self.go(move |own| {
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
        self.go(move |own| {
            let opened = own.open();
            own.post.send(opened.map_or(Mail::NoStream, Mail::Stream));
        });
    }

    fn open(&self) -> Option<Opened> {
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
        Some(Opened { stream, _place: None })
    }

    /// Looks whether the other server is gone, or was started again: see [`crate::cluster::presence`].
    pub(super) fn look_after_peer(&self, side: Side) {
        self.go(move |own| {
            let peer = match side {
                Side::Source => own.row.target,
                Side::Target => own.row.source,
            };
            let is_gone = own.control.interim.is_gone(peer);
            own.post.send(if is_gone { Mail::PeerGone } else { Mail::PeerThere });
        });
    }
}
