//! The stream of a migration, while it is open: messages in both directions. An error on it ends only the stream: the
//! target opens another one, and lost messages are sent again.
//!
//! Both ends send something at least every [`PEER_ALIVE_MS`]: a stream to a server that hangs or lost power stays open
//! as long as nothing is sent, and only its silence shows the failure.

use std::io;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use cluster::migration::Message;
use net::{Duplex, Sleeper, StreamError};

use crate::limits::PEER_ALIVE_MS;

/// A stream, with the handle that ends the thread which holds its permit.
pub(super) struct AttachedStream {
    pub(super) stream: Duplex,
    /// Dropped with the stream.
    pub(super) _place: Option<Sender<()>>,
}

/// A migration's connection to the other server.
pub(super) struct Link {
    opened: Option<AttachedStream>,
    /// Time at which the other server was last heard, or its stream ended.
    heard: Instant,
    /// Time at which a message was last sent to it.
    told: Instant,
}

impl Link {
    pub(super) fn none() -> Self {
        let now = Instant::now();
        Self { opened: None, heard: now, told: now }
    }

    /// Continues over this stream; an existing one ends.
    pub(super) fn attach(&mut self, opened: AttachedStream) {
        self.opened = Some(opened);
        self.heard = Instant::now();
    }

    pub(super) fn is_up(&self) -> bool {
        self.opened.is_some()
    }

    /// Returns the time since which nothing was heard of the other server.
    pub(super) fn silent_for(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Sends a sign of life if nothing else was sent lately.
    pub(super) fn keep_up(&mut self) {
        if self.is_up() && self.told.elapsed() >= Duration::from_millis(PEER_ALIVE_MS) {
            self.send(&Message::Alive);
        }
    }

    /// Sends a message, if there is a stream.
    pub(super) fn send(&mut self, message: &Message) {
        let Some(opened) = &mut self.opened else { return };
        let (fields, objects) = message.split();
        let mut head = ((fields.len() + objects.len()) as u32).to_le_bytes().to_vec();
        head.extend(fields);
        let sent = opened.stream.send(&head, objects);
        self.told = Instant::now();
        self.end_if_broken(sent);
    }

    /// Returns the next received message, if there is one.
    pub(super) fn receive(&mut self) -> Option<Message> {
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
    pub(super) fn flush(&mut self) {
        if let Some(opened) = &mut self.opened {
            let flushed = opened.stream.flush();
            self.end_if_broken(flushed);
        }
    }

    /// Sleeps until a message arrives or the waker is used.
    pub(super) fn sleep(&self, sleeper: &Sleeper, timeout: Duration) {
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
