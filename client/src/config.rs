//! Settings of a client, with defaults that suit a local network.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use net::{IdleStrategy, UdpConfig};

use crate::Error;

/// How frames travel to servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Over shared memory to a server on the same host that lets the client in, else over UDP.
    #[default]
    Auto,
    /// Over UDP, whoever is on the same host.
    Udp,
    /// Over shared memory: a session that cannot have it is not opened. One whose server is started anew, or moves its
    /// tenant's home, goes by UDP until it is let in again.
    Shm,
}

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// A request without an answer is given up after this time.
    pub call_timeout: Duration,
    /// Longest wait for a connection; what opens it is answered within the longer of this and `call_timeout`.
    pub connect_timeout: Duration,
    /// Longest wait for the answer to an administrative request.
    pub admin_timeout: Duration,
    /// Longest wait for an installation, which compiles.
    pub install_timeout: Duration,
    /// For a key on the move between two servers, both of which are asked: how long the one that it leaves is waited for
    /// when the other one has said that it does not know. Some round trips; then that one alone is asked, and waited for.
    pub source_patience: Duration,
    /// How frames travel.
    pub transport: Transport,
    /// The datagram socket.
    pub udp: UdpConfig,
    /// What a blocking call does while it waits.
    pub idle: IdleStrategy,
    /// Where the server's cores take datagrams, by index; empty: at the server's address, at the ports that
    /// it names. For servers behind a translated address, and for tests. Those are reached over UDP.
    pub core_addresses: Vec<SocketAddr>,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            call_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
            admin_timeout: Duration::from_secs(30),
            install_timeout: Duration::from_secs(180),
            source_patience: Duration::from_millis(3),
            transport: Transport::Auto,
            udp: UdpConfig { receive_buffer_bytes: 4 << 20, send_buffer_bytes: 4 << 20, segmentation: true },
            idle: IdleStrategy::default(),
            core_addresses: Vec::new(),
        }
    }
}

/// Who opens a session, and where.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) server: SocketAddr,
    /// The same as it was named.
    pub(crate) address: String,
    pub(crate) tenant: String,
    pub(crate) secret: String,
}

/// The first address that a name stands for.
pub(crate) fn resolve(address: &str) -> Result<SocketAddr, Error> {
    let invalid = |error| Error::AddressInvalid { address: address.to_owned(), error };
    let mut found = address.to_socket_addrs().map_err(invalid)?;
    found.next().ok_or_else(|| invalid(std::io::ErrorKind::NotFound.into()))
}
