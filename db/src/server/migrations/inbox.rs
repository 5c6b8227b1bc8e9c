//! What the thread of a migration hears from others: a queue that wakes it.

use std::sync::mpsc::{Receiver, Sender, channel};

use net::{Sleeper, Waker};
use wire::TabletMap;

use super::peer_link::AttachedStream;
use crate::cluster::migration::Phase;

/// See the file's head.
pub(super) enum Notice {
    /// There is a slot, with this core of the store.
    Admitted(usize),
    /// What the records say.
    Standing(Phase),
    /// Where the tablets of the table are, by the records.
    Map(Option<TabletMap>),
    /// Somebody wants the hashes to stay at the source.
    Abort,
    /// A change of the records was tried: they say this now.
    Committed(Phase),
    /// The records say this, and whether this server has been registered since before they were read.
    LookedUp(Phase, bool),
    /// A stream to the other server.
    Stream(AttachedStream),
    /// There is no stream for now.
    NoStream,
    /// The other server is gone, or was started again and has lost what it had.
    PeerGone,
    /// It is still there, as far as the records say.
    PeerThere,
    /// The source has nothing to do any more, and nothing of what moved.
    SourceDone,
    /// There is no record of it any more: as far as this side is concerned it has ended so.
    Forgotten(Phase),
    /// There is no such migration any more: its table was dropped.
    Gone,
    /// The server stops.
    Stop,
}

/// Who may write.
#[derive(Clone)]
pub struct InboxSender {
    sender: Sender<Notice>,
    waker: Waker,
}

impl InboxSender {
    /// Writes. Whoever has ended needs no mail.
    pub(super) fn send(&self, mail: Notice) {
        let _ = self.sender.send(mail);
        self.waker.wake();
    }

    /// What wakes the reader.
    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

/// The reader's end.
pub(super) struct Inbox {
    receiver: Receiver<Notice>,
    pub(super) sleeper: Sleeper,
}

impl Inbox {
    /// An empty one.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub(super) fn new() -> std::io::Result<(Self, InboxSender)> {
        let sleeper = Sleeper::alone()?;
        let (sender, receiver) = channel();
        let post = InboxSender { sender, waker: sleeper.waker() };
        Ok((Self { receiver, sleeper }, post))
    }

    /// The next, if there is one.
    pub(super) fn take(&self) -> Option<Notice> {
        self.receiver.try_recv().ok()
    }
}
