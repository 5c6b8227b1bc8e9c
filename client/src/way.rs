//! How frames get to a server's cores: over UDP, or over memory that is shared with a server on the same host.
//!
//! A server says over the stream where it lets clients of its own host in. Who is on another one, or does not get in there,
//! goes on over UDP without a word, unless it has asked for shared memory alone ([`crate::Transport::Shm`]): then a session
//! that cannot have it is not opened, and says why. A link leads to one core; what shares a port shares its links. A link that
//! ends is taken up anew, and is UDP until then.

use std::net::SocketAddr;
use std::path::PathBuf;

use net::{DoorAddress, Port, shm};
use wire::{Body, HostDoor, Knock, Opened};

use crate::{ClientConfig, Error, NoSharedMemory, Transport};

/// The links of a port, by the door and the core to which they lead.
#[derive(Debug, Default)]
pub(crate) struct Links {
    known: Vec<(PathBuf, u16, SocketAddr)>,
}

impl Links {
    /// The address of a core behind `door`, over a link that there is or a new one.
    fn reach(
        &mut self,
        port: &mut dyn Port,
        door: &HostDoor,
        knock: Knock,
    ) -> Result<SocketAddr, NoSharedMemory> {
        self.known.retain(|(_, _, address)| port.is_attached(*address));
        let path = PathBuf::from(&door.path);
        if let Some((_, _, address)) = self.known.iter().find(|it| (&it.0, it.1) == (&path, knock.core)) {
            return Ok(*address);
        }
        if !shm::machine().is_ok_and(|own| own == door.machine) {
            return Err(NoSharedMemory::OtherMachine);
        }
        let at = DoorAddress { path, user: door.user };
        let address = port.attach(&at, &knock.encode()).map_err(NoSharedMemory::AtTheDoor)?;
        self.known.push((at.path, knock.core, address));
        Ok(address)
    }
}

/// The way to the home core of one session.
#[derive(Debug)]
pub(crate) struct Way {
    door: Option<HostDoor>,
    /// A link is to be looked for before anything is sent.
    pub(crate) is_open: bool,
}

impl Way {
    pub(crate) fn of(opened: &Opened, config: &ClientConfig) -> Way {
        let is_wanted = config.transport != Transport::Udp && config.core_addresses.is_empty();
        let door = opened.door.clone().filter(|_| is_wanted);
        Way { is_open: door.is_some(), door }
    }

    /// The home is another one, or its link has ended.
    pub(crate) fn open(&mut self) {
        self.is_open = self.door.is_some();
    }

    /// The address of a core over shared memory.
    pub(crate) fn find(
        &mut self,
        links: &mut Links,
        port: &mut dyn Port,
        knock: Knock,
    ) -> Result<SocketAddr, NoSharedMemory> {
        self.is_open = false;
        let door = self.door.as_ref().ok_or(NoSharedMemory::NotOffered)?;
        links.reach(port, door, knock)
    }
}

/// What is to be done about a session that has just been opened and has found no shared memory.
pub(crate) fn insist(found: Result<(), NoSharedMemory>, config: &ClientConfig) -> Result<(), Error> {
    match found {
        Err(reason) if config.transport == Transport::Shm => {
            let given = !config.core_addresses.is_empty();
            Err(Error::NoSharedMemory { reason: if given { NoSharedMemory::AddressesGiven } else { reason } })
        }
        _ => Ok(()),
    }
}
