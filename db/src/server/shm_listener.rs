//! Clients on the server's own host: who of them gets a link over shared memory, and what is counted of that.
//!
//! ```text
//!   opening over the stream ── where the door is ──▶ client ── knocks: token, core ──▶ thread `door` ── link ──▶ worker
//! ```
//! Whoever has an open session may have links, as many as its user may ([`crate::limits`]); a link ends with the session
//! that it was asked for with. Workers notice nothing but frames with addresses of another kind. A server without a door, or
//! whose door breaks, serves over UDP as before.

mod signs;

pub use signs::{ChannelFigure, LINK_COUNTERS, LINKS, ListenerStatus};

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use net::shm::{self, Admission, Attacher, ChannelPoint, ListenerLimits, ShmListener};
use net::{HostPort, StopHandle};
use wire::{Attach, Body, ShmEndpoint};

use super::control::Control;
use crate::limits::{LINKS_OF_CORE, LINKS_OF_USER};
use crate::sync::lock;

/// A door that nobody stands at yet.
#[derive(Debug)]
pub struct ShmEntrance {
    door: ShmListener,
    /// What clients are told of it.
    pub signs: ListenerStatus,
}

impl ShmEntrance {
    /// Opens a door at `path` to the workers of these ports.
    ///
    /// # Errors
    /// When nobody can listen there.
    pub fn open(path: &Path, ports: &[HostPort]) -> io::Result<Self> {
        let points: Vec<ChannelPoint> = ports.iter().map(HostPort::link_point).collect();
        let path = std::path::absolute(path)?;
        let text = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        let told = ShmEndpoint { machine: shm::machine()?, user: shm::own_user(), path: text.to_owned() };
        let limits = ListenerLimits { of_core: LINKS_OF_CORE, of_user: LINKS_OF_USER };
        let door = ShmListener::open(&path, points.clone(), limits)?;
        Ok(Self { door, signs: ListenerStatus::new(told, points) })
    }
}

/// Starts the thread that stands at the door; what stops it.
///
/// # Errors
/// When the system makes no more threads.
pub fn start(control: &Arc<Control>, door: ShmListener) -> io::Result<(StopHandle, JoinHandle<()>)> {
    let (stop, control) = (door.stop_handle(), Arc::clone(control));
    let standing = thread::Builder::new().name("door".to_owned()).spawn(move || {
        if let Err(error) = door.run(&mut Acceptor { control: &control }) {
            tracing::error!(%error, "the door to shared memory broke; clients go on over UDP");
        }
    })?;
    Ok((stop, standing))
}

impl ShmEntrance {
    /// The door, and what is known of it.
    #[must_use]
    pub fn part(self) -> (ShmListener, ListenerStatus) {
        (self.door, self.signs)
    }
}

/// Decides for the server.
struct Acceptor<'c> {
    control: &'c Control,
}

impl Acceptor<'_> {
    fn has_session(&self, token: u64) -> bool {
        lock(&self.control.sessions).get(&token).is_some_and(|open| !open.session.is_closed())
    }
}

impl Admission for Acceptor<'_> {
    fn admit(&mut self, knocker: Attacher<'_>) -> Result<usize, String> {
        let Ok(Attach { token, core }) = Attach::decode(knocker.words) else {
            return Err("this is no knock of a client".to_owned());
        };
        if !self.has_session(token) {
            return Err("there is no such session".to_owned());
        }
        Ok(usize::from(core))
    }

    fn is_over(&mut self, words: &[u8]) -> bool {
        !Attach::decode(words).is_ok_and(|knock| self.has_session(knock.token))
    }

    fn note(&mut self, text: &str) {
        if let Some(signs) = &self.control.door {
            signs.count_refused();
        }
        tracing::debug!(text, "a link over shared memory was refused");
    }
}
