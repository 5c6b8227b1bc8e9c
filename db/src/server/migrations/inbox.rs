//! The inbox of a migration's thread: a queue that wakes it.

use std::sync::mpsc::{Receiver, Sender, channel};

use cluster::migration::Phase;
use net::{Sleeper, Waker};
use wire::TabletMap;

use super::peer_link::AttachedStream;

/// A message to the thread of a migration.
pub(super) enum Notice {
    /// A slot is assigned, with this core of the store.
    Admitted(usize),
    /// The phase in the metadata.
    Standing(Phase),
    /// The table's tablet map from the metadata.
    Map(Option<TabletMap>),
    /// The migration is aborted: the hashes are to stay at the source.
    Abort,
    /// A change of the metadata was attempted: this is the phase now.
    Committed(Phase),
    /// The phase in the metadata, and whether this server has been registered since before it was read.
    LookedUp(Phase, bool),
    /// A stream to the other server.
    Stream(AttachedStream),
    /// No stream could be opened for now.
    NoStream,
    /// The other server is gone, or was restarted and has lost its objects.
    PeerGone,
    /// The other server is present, according to the metadata.
    PeerThere,
    /// The source has finished, and holds none of the moved objects.
    SourceDone,
    /// The record is gone: for this side the migration ended in this phase.
    Forgotten(Phase),
    /// The migration is gone: its table was dropped.
    Gone,
    /// The server stops.
    Stop,
}

/// The sending end of an inbox.
#[derive(Clone)]
pub struct InboxSender {
    sender: Sender<Notice>,
    waker: Waker,
}

impl InboxSender {
    /// Sends a message and wakes the reader; ignores a reader that has ended.
    pub(super) fn send(&self, mail: Notice) {
        let _ = self.sender.send(mail);
        self.waker.wake();
    }

    /// Returns the waker of the reader.
    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

/// The receiving end of an inbox.
pub(super) struct Inbox {
    receiver: Receiver<Notice>,
    pub(super) sleeper: Sleeper,
}

impl Inbox {
    /// Creates an empty inbox.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub(super) fn new() -> std::io::Result<(Self, InboxSender)> {
        let sleeper = Sleeper::alone()?;
        let (sender, receiver) = channel();
        let post = InboxSender { sender, waker: sleeper.waker() };
        Ok((Self { receiver, sleeper }, post))
    }

    /// Takes the next message, if there is one.
    pub(super) fn take(&self) -> Option<Notice> {
        self.receiver.try_recv().ok()
    }
}
