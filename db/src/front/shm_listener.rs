//! Shared-memory channels of local clients: which clients may attach.
//!
//! ```text
//!   opening over the stream ── path ──▶ client ── attach: token, core ──▶ thread `shm-listener` ── channel ──▶ worker
//! ```
//! A client with an open session may attach channels, up to the limit of its user ([`crate::limits`]); a channel ends
//! with the session that requested it. Workers see only frames with addresses of another kind. A server without this
//! listener, or whose listener breaks, serves over UDP.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use net::shm::{self, Admission, Attacher, ChannelPoint, ListenerLimits, ShmListener};
use net::{HostPort, StopHandle};
use wire::{Attach, Body, ShmEndpoint};

use crate::control_plane::Control;
use crate::control_plane::listener_status::ListenerStatus;
use crate::limits::{CHANNELS_PER_CORE, CHANNELS_PER_USER};
use crate::sync::lock;

/// An open shared-memory listener whose thread has not started.
#[derive(Debug)]
pub struct ShmEntrance {
    listener: ShmListener,
    /// The endpoint for clients, and the counters.
    pub status: ListenerStatus,
}

impl ShmEntrance {
    /// Opens a listener at `path` that attaches clients to the workers of these ports.
    ///
    /// # Errors
    /// If the listener cannot be opened there.
    pub fn open(path: &Path, ports: &[HostPort]) -> io::Result<Self> {
        let points: Vec<ChannelPoint> = ports.iter().map(HostPort::link_point).collect();
        let path = std::path::absolute(path)?;
        let text = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        let told = ShmEndpoint { machine: shm::machine()?, user: shm::own_user(), path: text.to_owned() };
        let limits = ListenerLimits { of_core: CHANNELS_PER_CORE, of_user: CHANNELS_PER_USER };
        let listener = ShmListener::open(&path, points.clone(), limits)?;
        Ok(Self { listener, status: ListenerStatus::new(told, points) })
    }
}

/// Starts the thread of the shared-memory listener; returns its stop handle and its join handle.
///
/// # Errors
/// If the system cannot create a thread.
pub fn start(control: &Arc<Control>, listener: ShmListener) -> io::Result<(StopHandle, JoinHandle<()>)> {
    let (stop, control) = (listener.stop_handle(), Arc::clone(control));
    let thread = thread::Builder::new().name("shm-listener".to_owned()).spawn(move || {
        if let Err(error) = listener.run(&mut Acceptor { control: &control }) {
            tracing::error!(%error, "the shared-memory listener failed; clients continue over UDP");
        }
    })?;
    Ok((stop, thread))
}

impl ShmEntrance {
    /// Splits into the listener and its status.
    #[must_use]
    pub fn part(self) -> (ShmListener, ListenerStatus) {
        (self.listener, self.status)
    }
}

/// Decides which clients may attach.
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
            return Err("this is not an attach request".to_owned());
        };
        if !self.has_session(token) {
            return Err("there is no such session".to_owned());
        }
        Ok(usize::from(core))
    }

    fn is_over(&mut self, words: &[u8]) -> bool {
        !Attach::decode(words).is_ok_and(|attach| self.has_session(attach.token))
    }

    fn note(&mut self, text: &str) {
        if let Some(status) = &self.control.shm_listener {
            status.count_refused();
        }
        tracing::debug!(text, "refused a shared-memory channel");
    }
}
