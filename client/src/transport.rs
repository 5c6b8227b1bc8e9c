//! How frames get to a server's cores: over UDP, or over memory that is shared with a server on the same host.
//!
//! A server says over the stream where it lets clients of its own host in. Who is on another one, or does not get in there,
//! goes on over UDP without a word, unless it has asked for shared memory alone ([`crate::Transport::Shm`]): then a session
//! that cannot have it is not opened, and says why. A link leads to one core; what shares a port shares its links. A link that
//! ends is taken up anew, and is UDP until then.
//!
//! Only who opens a session waits for the server's door, and not for long: a session that is open goes by UDP while the door
//! says nothing, and looks now and then whether it has.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use net::{AttachError, Entry, ListenerAddress, PendingAttach, Port, shm};
use wire::{Attach, Body, Opened, ShmEndpoint};

use crate::{ClientConfig, Error, NoSharedMemory, Transport};

/// How long who opens a session waits for a door; a server that has nothing else to do answers in some 100 us.
const PATIENCE: Duration = Duration::from_millis(50);
/// Between two looks whether a door has answered: at first, and at most.
const LOOK_EVERY_US: (u64, u64) = (50, 100_000);

/// The links of a port, by the door and the core to which they lead.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    known: Vec<(PathBuf, u16, SocketAddr)>,
    /// Knocks that have not been answered: one for each core, whatever sessions want to go there.
    knocks: Vec<(PathBuf, Attach, PendingAttach)>,
}

impl Channels {
    /// The address of a core behind `door`, over a link that there is or a new one; `None` while the door says nothing. Who
    /// knocks waits for `patience` at most.
    fn reach(
        &mut self,
        port: &mut dyn Port,
        door: &ShmEndpoint,
        knock: Attach,
        patience: Duration,
    ) -> Result<Option<SocketAddr>, NoSharedMemory> {
        self.known.retain(|(_, _, address)| port.is_attached(*address));
        let path = PathBuf::from(&door.path);
        if let Some((_, _, address)) = self.known.iter().find(|it| (&it.0, it.1) == (&path, knock.core)) {
            return Ok(Some(*address));
        }
        if !shm::machine().is_ok_and(|own| own == door.machine) {
            return Err(NoSharedMemory::OtherMachine);
        }
        if let Some(index) = self.knocks.iter().position(|it| (&it.0, it.1.core) == (&path, knock.core)) {
            let (path, earlier, knocking) = self.knocks.swap_remove(index);
            let entry = port.enter(knocking, Duration::ZERO);
            // Another session's may have failed for what that session was.
            if entry.is_ok() || earlier.token == knock.token {
                return self.entered(path, earlier, entry);
            }
        }
        // Its home has moved since.
        self.knocks.retain(|(_, earlier, _)| earlier.token != knock.token);
        let at = ListenerAddress { path, user: door.user };
        let entry = port.knock(&at, &knock.encode()).and_then(|knocking| port.enter(knocking, patience));
        self.entered(at.path, knock, entry)
    }

    fn entered(
        &mut self,
        path: PathBuf,
        knock: Attach,
        entry: Result<Entry, AttachError>,
    ) -> Result<Option<SocketAddr>, NoSharedMemory> {
        match entry.map_err(NoSharedMemory::AtTheDoor)? {
            Entry::Attached(address) => {
                self.known.push((path, knock.core, address));
                Ok(Some(address))
            }
            Entry::Waiting(knocking) => {
                self.knocks.push((path, knock, knocking));
                Ok(None)
            }
        }
    }
}

/// The way to the home core of one session.
#[derive(Debug)]
pub(crate) struct SessionTransport {
    door: Option<ShmEndpoint>,
    /// When a link is to be looked for before anything is sent; never, where there is one or it was in vain.
    due_us: u64,
    /// Since the last look, where the door says nothing.
    gap_us: u64,
}

impl SessionTransport {
    pub(crate) fn of(opened: &Opened, config: &ClientConfig) -> SessionTransport {
        let is_wanted = config.transport != Transport::Udp && config.core_addresses.is_empty();
        let mut way =
            SessionTransport { door: opened.door.clone().filter(|_| is_wanted), due_us: u64::MAX, gap_us: 0 };
        way.open();
        way
    }

    /// The home is another one, or its link has ended.
    pub(crate) fn open(&mut self) {
        self.gap_us = 0;
        self.due_us = if self.door.is_some() { 0 } else { u64::MAX };
    }

    /// Whether a link is to be looked for.
    #[inline]
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        self.due_us <= now_us
    }

    /// The address of a core over shared memory; `None` when that may still come, and is to be looked for again.
    pub(crate) fn find(
        &mut self,
        links: &mut Channels,
        port: &mut dyn Port,
        knock: Attach,
        (now_us, patience): (u64, Duration),
    ) -> Result<Option<SocketAddr>, NoSharedMemory> {
        self.due_us = u64::MAX;
        let door = self.door.as_ref().ok_or(NoSharedMemory::NotOffered)?;
        let found = links.reach(port, door, knock, patience)?;
        if found.is_none() {
            self.gap_us = (2 * self.gap_us).clamp(LOOK_EVERY_US.0, LOOK_EVERY_US.1);
            self.due_us = now_us + self.gap_us;
        }
        Ok(found)
    }
}

/// How long who opens a session waits for a door; who cannot do without, as long as for the server itself.
pub(crate) fn patience(config: &ClientConfig) -> Duration {
    if config.transport == Transport::Shm { config.connect_timeout } else { PATIENCE }
}

/// What is to be done about a session that has just been opened and has found no shared memory, or not yet.
pub(crate) fn insist(found: Result<bool, NoSharedMemory>, config: &ClientConfig) -> Result<(), Error> {
    let found = match found {
        Ok(false) => Err(NoSharedMemory::AtTheDoor(AttachError::Unreachable(ErrorKind::TimedOut.into()))),
        found => found,
    };
    match found {
        Err(reason) if config.transport == Transport::Shm => {
            let given = !config.core_addresses.is_empty();
            Err(Error::NoSharedMemory { reason: if given { NoSharedMemory::AddressesGiven } else { reason } })
        }
        _ => Ok(()),
    }
}
