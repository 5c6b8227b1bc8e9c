//! Reasons for missing shared memory, for sessions that require it.

use std::fmt;

use net::AttachError;

/// A reason why a client and a server share no memory.
#[derive(Debug)]
pub enum NoSharedMemory {
    /// The server has no shared-memory listener.
    NotOffered,
    /// The server runs on another machine.
    OtherMachine,
    /// The caller gave the addresses of the server's cores ([`crate::ClientConfig::core_addresses`]).
    AddressesGiven,
    /// Attaching failed at the listener.
    Listener(AttachError),
}

impl fmt::Display for NoSharedMemory {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSharedMemory::NotOffered => to.write_str("the server does not offer it"),
            NoSharedMemory::OtherMachine => to.write_str("the server is on another machine"),
            NoSharedMemory::AddressesGiven => to.write_str("the caller gave the addresses of its cores"),
            NoSharedMemory::Listener(error) => write!(to, "{error}"),
        }
    }
}
