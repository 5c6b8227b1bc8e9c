//! The transport of frames to a server's cores: UDP, or shared memory with a server on the same host.
//!
//! A server announces its shared-memory listener over the stream. A client on another host, or one that fails to
//! attach, silently uses UDP, unless it requires shared memory ([`crate::Transport::Shm`]): then its session does not
//! open, and the error states the reason. A channel leads to one core; sessions on one port share its channels. When a
//! channel ends, the session attaches again, and uses UDP until then.
//!
//! Only the opening of a session waits for the listener, and only briefly. An open session uses UDP until the listener
//! replies, and checks for the reply from time to time.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use net::{AttachError, Entry, HostPort, ListenerAddress, PendingAttach, Port, shm};
use wire::{Attach, Body, Opened, ShmEndpoint};

use crate::config::resolve;
use crate::{ClientConfig, Error, NoSharedMemory, Transport};

/// Time that an opening session waits for a listener. That of an idle server replies in some 100 us.
const PATIENCE: Duration = Duration::from_millis(50);
/// First and longest interval between checks for the listener's reply, in microseconds.
const LOOK_EVERY_US: (u64, u64) = (50, 100_000);

/// The shared-memory channels of a port, by listener and core.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    known: Vec<(PathBuf, u16, SocketAddr)>,
    /// Pending attach requests, one per core, for all sessions that need it.
    pending: Vec<(PathBuf, Attach, PendingAttach)>,
}

impl Channels {
    /// Returns the address of a core over a channel; `None` before the listener's reply.
    /// A new attach request waits for at most `patience`.
    fn reach(
        &mut self,
        port: &mut dyn Port,
        shm: &ShmEndpoint,
        attach: Attach,
        patience: Duration,
    ) -> Result<Option<SocketAddr>, NoSharedMemory> {
        self.known.retain(|(_, _, address)| port.is_attached(*address));
        let path = PathBuf::from(&shm.path);
        if let Some((_, _, address)) = self.known.iter().find(|it| (&it.0, it.1) == (&path, attach.core)) {
            return Ok(Some(*address));
        }
        if !shm::machine().is_ok_and(|own| own == shm.machine) {
            return Err(NoSharedMemory::OtherMachine);
        }
        if let Some(index) = self.pending.iter().position(|it| (&it.0, it.1.core) == (&path, attach.core)) {
            let (path, earlier, pending) = self.pending.swap_remove(index);
            let entry = port.enter(pending, Duration::ZERO);
            // Another session's request may have failed because of that session.
            if entry.is_ok() || earlier.token == attach.token {
                return self.entered(path, earlier, entry);
            }
        }
        // The session's home core has changed since then.
        self.pending.retain(|(_, earlier, _)| earlier.token != attach.token);
        let at = ListenerAddress { path, user: shm.user };
        let entry = port.attach(&at, &attach.encode()).and_then(|pending| port.enter(pending, patience));
        self.entered(at.path, attach, entry)
    }

    fn entered(
        &mut self,
        path: PathBuf,
        attach: Attach,
        entry: Result<Entry, AttachError>,
    ) -> Result<Option<SocketAddr>, NoSharedMemory> {
        match entry.map_err(NoSharedMemory::Listener)? {
            Entry::Attached(address) => {
                self.known.push((path, attach.core, address));
                Ok(Some(address))
            }
            Entry::Waiting(pending) => {
                self.pending.push((path, attach, pending));
                Ok(None)
            }
        }
    }
}

/// The transport to the home core of one session.
#[derive(Debug)]
pub(crate) struct SessionTransport {
    shm: Option<ShmEndpoint>,
    /// Time of the next attempt to attach before sending. Never, if attached or refused.
    due_us: u64,
    /// Interval since the last attempt, while the listener has not replied.
    gap_us: u64,
}

impl SessionTransport {
    pub(crate) fn of(opened: &Opened, config: &ClientConfig) -> SessionTransport {
        let is_wanted = config.transport != Transport::Udp && config.core_addresses.is_empty();
        let mut transport =
            SessionTransport { shm: opened.shm.clone().filter(|_| is_wanted), due_us: u64::MAX, gap_us: 0 };
        transport.open();
        transport
    }

    /// Schedules an attempt to attach, after a change of home core or channel.
    pub(crate) fn open(&mut self) {
        self.gap_us = 0;
        self.due_us = if self.shm.is_some() { 0 } else { u64::MAX };
    }

    /// Returns whether an attempt to attach is due.
    #[inline]
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        self.due_us <= now_us
    }

    /// Returns the address of a core over shared memory. `None` if it is pending and must be asked for again.
    pub(crate) fn find(
        &mut self,
        links: &mut Channels,
        port: &mut dyn Port,
        attach: Attach,
        (now_us, patience): (u64, Duration),
    ) -> Result<Option<SocketAddr>, NoSharedMemory> {
        self.due_us = u64::MAX;
        let shm = self.shm.as_ref().ok_or(NoSharedMemory::NotOffered)?;
        let found = links.reach(port, shm, attach, patience)?;
        if found.is_none() {
            self.gap_us = (2 * self.gap_us).clamp(LOOK_EVERY_US.0, LOOK_EVERY_US.1);
            self.due_us = now_us + self.gap_us;
        }
        Ok(found)
    }
}

/// Opens a port at a local address.
pub(crate) fn bind(address: &str, config: &ClientConfig) -> Result<Box<dyn Port>, Error> {
    let port = HostPort::bind(resolve(address)?, config.udp).map_err(|error| Error::Port { error })?;
    Ok(Box::new(port))
}

/// Returns the time that an opening session waits for a listener. If it requires shared memory, it waits as long as
/// for the server.
pub(crate) fn patience(config: &ClientConfig) -> Duration {
    if config.transport == Transport::Shm { config.connect_timeout } else { PATIENCE }
}

/// Fails a new session that requires shared memory and has none.
pub(crate) fn insist(found: Result<bool, NoSharedMemory>, config: &ClientConfig) -> Result<(), Error> {
    if config.transport != Transport::Shm || matches!(found, Ok(true)) {
        return Ok(());
    }
    let reason = match found {
        _ if !config.core_addresses.is_empty() => NoSharedMemory::AddressesGiven,
        Err(reason) => reason,
        Ok(_) => NoSharedMemory::Listener(AttachError::Unreachable(ErrorKind::TimedOut.into())),
    };
    Err(Error::NoSharedMemory { reason })
}
