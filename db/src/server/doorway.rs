//! Clients on the server's own host: who of them gets a link over shared memory, and what is counted of that.
//!
//! ```text
//!   opening over the stream ── where the door is ──▶ client ── knocks: token, core ──▶ thread `door` ── link ──▶ worker
//! ```
//! Whoever has an open session may have links, as many as its user may ([`crate::limits`]); a link ends with the session
//! that it was asked for with. Workers notice nothing but frames with addresses of another kind. A server without a door, or
//! whose door breaks, serves over UDP as before.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use net::shm::{self, Admission, Door, DoorLimits, Knocker, LinkCounts, LinkPoint};
use net::{HostPort, StopHandle};
use wire::{Body, HostDoor, Knock};

use super::control::{Control, lock};
use crate::limits::{LINKS_OF_CORE, LINKS_OF_USER};

/// A door that nobody stands at yet.
#[derive(Debug)]
pub struct Doorway {
    door: Door,
    /// What clients are told of it.
    pub signs: Signs,
}

/// What is counted of the links of each core.
#[derive(Debug)]
pub struct LinkFigure {
    /// As statistics name it.
    pub name: &'static str,
    /// One sentence for people.
    pub text: &'static str,
    of: fn(&LinkCounts) -> &AtomicU64,
}

/// How many links there are.
pub const LINKS: LinkFigure =
    LinkFigure { name: "shm_links", text: "Links over shared memory that there are.", of: |it| &it.links };

/// What only grows.
pub const LINK_COUNTERS: [LinkFigure; 5] = [
    LinkFigure { name: "shm_links_made", text: "Links that were made.", of: |it| &it.links_made },
    LinkFigure {
        name: "shm_links_cut",
        text: "Links that were cut off, since their client wrote what no honest one does.",
        of: |it| &it.lies,
    },
    LinkFigure {
        name: "shm_frames_received",
        text: "Frames that arrived over links.",
        of: |it| &it.frames_received,
    },
    LinkFigure {
        name: "shm_frames_sent",
        text: "Frames that were sent over links.",
        of: |it| &it.frames_sent,
    },
    LinkFigure {
        name: "shm_frames_lost",
        text: "Frames for which a client's ring had no room, or that others held up.",
        of: |it| &it.frames_lost,
    },
];

/// What the control plane knows of a door.
#[derive(Debug)]
pub struct Signs {
    /// What clients are told.
    pub told: HostDoor,
    points: Vec<LinkPoint>,
    refused: AtomicU64,
}

impl Doorway {
    /// Opens a door at `path` to the workers of these ports.
    ///
    /// # Errors
    /// When nobody can listen there.
    pub fn open(path: &Path, ports: &[HostPort]) -> io::Result<Self> {
        let points: Vec<LinkPoint> = ports.iter().map(HostPort::link_point).collect();
        let path = std::path::absolute(path)?;
        let text = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        let told = HostDoor { machine: shm::machine()?, user: shm::own_user(), path: text.to_owned() };
        let limits = DoorLimits { of_core: LINKS_OF_CORE, of_user: LINKS_OF_USER };
        let door = Door::open(&path, points.clone(), limits)?;
        Ok(Self { door, signs: Signs { told, points, refused: AtomicU64::new(0) } })
    }
}

/// Starts the thread that stands at the door; what stops it.
///
/// # Errors
/// When the system makes no more threads.
pub fn start(control: &Arc<Control>, door: Door) -> io::Result<(StopHandle, JoinHandle<()>)> {
    let (stop, control) = (door.stop_handle(), Arc::clone(control));
    let standing = thread::Builder::new().name("door".to_owned()).spawn(move || {
        if let Err(error) = door.run(&mut Doorman { control: &control }) {
            tracing::error!(%error, "the door to shared memory broke; clients go on over UDP");
        }
    })?;
    Ok((stop, standing))
}

impl Doorway {
    /// The door, and what is known of it.
    #[must_use]
    pub fn part(self) -> (Door, Signs) {
        (self.door, self.signs)
    }
}

impl Signs {
    /// A figure of each core.
    pub fn of_cores(&self, figure: &LinkFigure) -> impl Iterator<Item = u64> {
        let of = figure.of;
        self.points.iter().map(move |point| of(point.counts()).load(Ordering::Relaxed))
    }

    /// Who knocked and was not let in.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Decides for the server.
struct Doorman<'c> {
    control: &'c Control,
}

impl Doorman<'_> {
    fn has_session(&self, token: u64) -> bool {
        lock(&self.control.sessions).get(&token).is_some_and(|open| !open.session.is_closed())
    }
}

impl Admission for Doorman<'_> {
    fn admit(&mut self, knocker: Knocker<'_>) -> Result<usize, String> {
        let Ok(Knock { token, core }) = Knock::decode(knocker.words) else {
            return Err("this is no knock of a client".to_owned());
        };
        if !self.has_session(token) {
            return Err("there is no such session".to_owned());
        }
        Ok(usize::from(core))
    }

    fn is_over(&mut self, words: &[u8]) -> bool {
        !Knock::decode(words).is_ok_and(|knock| self.has_session(knock.token))
    }

    fn note(&mut self, text: &str) {
        if let Some(signs) = &self.control.door {
            signs.refused.fetch_add(1, Ordering::Relaxed);
        }
        tracing::debug!(text, "a link over shared memory was refused");
    }
}
