//! Why there is no shared memory between a client and a server: for who insists on it.

use std::fmt;

use net::AttachError;

/// Why there is no shared memory between a client and a server.
#[derive(Debug)]
pub enum NoSharedMemory {
    /// The server has no door for clients of its host.
    NotOffered,
    /// The server runs on another machine.
    OtherMachine,
    /// The addresses of the server's cores are given ([`crate::ClientConfig::core_addresses`]).
    AddressesGiven,
    /// The way there ends at the door.
    AtTheDoor(AttachError),
}

impl fmt::Display for NoSharedMemory {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSharedMemory::NotOffered => to.write_str("the server does not offer it"),
            NoSharedMemory::OtherMachine => to.write_str("the server is on another machine"),
            NoSharedMemory::AddressesGiven => to.write_str("the addresses of its cores are given"),
            NoSharedMemory::AtTheDoor(error) => write!(to, "{error}"),
        }
    }
}
