//! The stream of a migration, while there is one: messages out and in. What goes wrong on it ends it, and nothing else: the
//! target opens another one, and what was lost is said again.
//!
//! Both ends say something at least every [`PEER_ALIVE_MS`]: a stream to a server that stands still, or lost its power, stays
//! open for as long as nothing is sent, and its silence is all that tells.

use std::io;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use net::{Duplex, Sleeper, StreamError};

use crate::cluster::migration::Message;
use crate::limits::PEER_ALIVE_MS;

/// A stream, and what to let go of with it: the thread that keeps its place.
pub(super) struct AttachedStream {
    pub(super) stream: Duplex,
    /// Dropped with the stream.
    pub(super) _place: Option<Sender<()>>,
}

/// See the file's head.
pub(super) struct Link {
    opened: Option<AttachedStream>,
    /// When the other server was heard last, or the stream to it ended.
    heard: Instant,
    /// When it was told something last.
    told: Instant,
}

impl Link {
    pub(super) fn none() -> Self {
        let now = Instant::now();
        Self { opened: None, heard: now, told: now }
    }

    /// Goes on over this stream; one that there was ends.
    pub(super) fn attach(&mut self, opened: AttachedStream) {
        self.opened = Some(opened);
        self.heard = Instant::now();
    }

    pub(super) fn is_up(&self) -> bool {
        self.opened.is_some()
    }

    /// For how long nothing was heard of the other server.
    pub(super) fn silent_for(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Shows that this server is there, where nothing else has lately.
    pub(super) fn keep_up(&mut self) {
        if self.is_up() && self.told.elapsed() >= Duration::from_millis(PEER_ALIVE_MS) {
            self.send(&Message::Alive);
        }
    }

    /// Says something, if there is a stream.
    pub(super) fn send(&mut self, message: &Message) {
        let Some(opened) = &mut self.opened else { return };
        let (fields, objects) = message.split();
        let mut head = ((fields.len() + objects.len()) as u32).to_le_bytes().to_vec();
        head.extend(fields);
        let sent = opened.stream.send(&head, objects);
        self.told = Instant::now();
        self.end_if_broken(sent);
    }

    /// What has come, if anything has.
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

    /// Gives the kernel what it takes of what waits.
    pub(super) fn flush(&mut self) {
        if let Some(opened) = &mut self.opened {
            let flushed = opened.stream.flush();
            self.end_if_broken(flushed);
        }
    }

    /// Sleeps until something comes or somebody wakes.
    pub(super) fn sleep(&self, sleeper: &Sleeper, timeout: Duration) {
        let stream = self.opened.as_ref().map(|opened| &opened.stream);
        if let Err(error) = Duplex::sleep_over(sleeper, stream, timeout) {
            tracing::warn!(%error, "a migration cannot wait for its stream");
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
