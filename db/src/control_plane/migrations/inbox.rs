//! What a migration's thread hears: its inbox, a queue that wakes it; and the stream to the other side, while it is
//! open, with messages in both directions.
//!
//! An error on the stream ends only the stream: the target opens another one, and lost messages are sent again. Both
//! ends send something at least every [`PEER_ALIVE_MS`]: a stream to a server that hangs or lost power stays open as
//! long as nothing is sent, and only its silence shows the failure.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use cluster::migration::{Message, MigrationPhase};
use net::{Duplex, Sleeper, StreamError, Waker};
use wire::TabletMap;

use crate::limits::PEER_ALIVE_MS;

/// A message to the thread of a migration.
pub(crate) enum Notice {
    /// A slot is assigned, with this core of the store.
    Admitted(usize),
    /// The phase in the metadata.
    Phase(MigrationPhase),
    /// The table's tablet map from the metadata.
    Map(Option<TabletMap>),
    /// The migration is aborted: the hashes are to stay at the source.
    Abort,
    /// A change of the metadata was attempted: this is the phase now.
    Committed(MigrationPhase),
    /// The phase in the metadata, and whether this server has been registered since before it was read.
    LookedUp(MigrationPhase, bool),
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
    Forgotten(MigrationPhase),
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
    pub(crate) fn send(&self, notice: Notice) {
        let _ = self.sender.send(notice);
        self.waker.wake();
    }

    /// Returns the waker of the reader.
    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

/// The receiving end of an inbox.
pub(crate) struct Inbox {
    receiver: Receiver<Notice>,
    pub(crate) sleeper: Sleeper,
}

impl Inbox {
    /// Creates an empty inbox.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub(crate) fn new() -> io::Result<(Self, InboxSender)> {
        let sleeper = Sleeper::alone()?;
        let (sender, receiver) = channel();
        let notices = InboxSender { sender, waker: sleeper.waker() };
        Ok((Self { receiver, sleeper }, notices))
    }

    /// Takes the next message, if there is one.
    pub(crate) fn take(&self) -> Option<Notice> {
        self.receiver.try_recv().ok()
    }
}

/// A stream, with the handle that ends the thread which holds its permit.
pub(crate) struct AttachedStream {
    pub(crate) stream: Duplex,
    /// Dropped with the stream.
    pub(crate) _place: Option<Sender<()>>,
}

/// A migration's connection to the other server.
pub(crate) struct Link {
    opened: Option<AttachedStream>,
    /// Time at which the other server was last heard, or its stream ended.
    heard: Instant,
    /// Time at which a message was last sent to it.
    told: Instant,
}

impl Link {
    pub(crate) fn none() -> Self {
        let now = Instant::now();
        Self { opened: None, heard: now, told: now }
    }

    /// Continues over this stream; an existing one ends.
    pub(crate) fn attach(&mut self, opened: AttachedStream) {
        self.opened = Some(opened);
        self.heard = Instant::now();
    }

    pub(crate) fn is_up(&self) -> bool {
        self.opened.is_some()
    }

    /// Returns the time since which nothing was heard of the other server.
    pub(crate) fn silent_for(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Sends a sign of life if nothing else was sent lately.
    pub(crate) fn keep_up(&mut self) {
        if self.is_up() && self.told.elapsed() >= Duration::from_millis(PEER_ALIVE_MS) {
            self.send(&Message::Alive);
        }
    }

    /// Sends a message, if there is a stream.
    pub(crate) fn send(&mut self, message: &Message) {
        let Some(opened) = &mut self.opened else { return };
        let (fields, objects) = message.split();
        let mut head = ((fields.len() + objects.len()) as u32).to_le_bytes().to_vec();
        head.extend(fields);
        let sent = opened.stream.send(&head, objects);
        self.told = Instant::now();
        self.end_if_broken(sent);
    }

    /// Returns the next received message, if there is one.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        let opened = self.opened.as_mut()?;
        let received = match opened.stream.receive() {
            Ok(record) => match record.map(Message::decode).transpose() {
                Ok(message) => Ok(message),
                Err(_) => Err(StreamError::Broken(io::ErrorKind::InvalidData.into())),
            },
            Err(error) => Err(error),
        };
        let message = self.end_if_broken(received).flatten()?;
        self.heard = Instant::now();
        Some(message)
    }

    /// Passes pending bytes to the kernel, as many as it accepts.
    pub(crate) fn flush(&mut self) {
        if let Some(opened) = &mut self.opened {
            let flushed = opened.stream.flush();
            self.end_if_broken(flushed);
        }
    }

    /// Sleeps until a message arrives or the waker is used.
    pub(crate) fn sleep(&self, sleeper: &Sleeper, timeout: Duration) {
        let stream = self.opened.as_ref().map(|opened| &opened.stream);
        if let Err(error) = Duplex::sleep_over(sleeper, stream, timeout) {
            tracing::warn!(%error, "cannot wait for the stream of a migration");
            std::thread::sleep(timeout);
        }
    }

    fn end_if_broken<T>(&mut self, result: Result<T, StreamError>) -> Option<T> {
        result
            .inspect_err(|error| {
                tracing::debug!(%error, "the stream of a migration ended");
                self.opened = None;
                self.heard = Instant::now();
            })
            .ok()
    }
}
