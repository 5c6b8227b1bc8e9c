//! Settings of a client, with defaults that suit a local network.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use net::{IdleStrategy, UdpConfig, Waker};

use crate::Error;

/// The transport of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory if the server is on this host and admits it, else UDP.
    #[default]
    Auto,
    /// UDP, even with a server on the same host.
    Udp,
    /// Shared memory; a session without it does not open. If its server restarts or moves the tenant's home core, an
    /// open session uses UDP until it attaches again.
    Shm,
}

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Time after which a request without a reply fails.
    pub call_timeout: Duration,
    /// Maximum time to connect. The opening is answered within the longer of this and `call_timeout`.
    pub connect_timeout: Duration,
    /// Maximum time to wait for the reply to an administrative request.
    pub admin_timeout: Duration,
    /// Maximum time to wait for an installation, which compiles.
    pub install_timeout: Duration,
    /// Maximum time of a change of a table's durability, which may rewrite all of its objects. The server goes on with it
    /// after that.
    pub alter_timeout: Duration,
    /// Time to wait for the source of a migration after the target's reply. Applies to reads that ask both servers, if
    /// the target lacks the object. A few round trips; then only the target is asked, and waited for.
    pub source_patience: Duration,
    /// Transport of frames.
    pub transport: Transport,
    /// Settings of the datagram socket.
    pub udp: UdpConfig,
    /// Strategy of a blocking call while it waits.
    pub idle: IdleStrategy,
    /// Addresses of the server's cores for datagrams, by index. If empty, the server's address and the ports that it
    /// reports. For servers behind address translation and for tests. These are reached over UDP.
    pub core_addresses: Vec<SocketAddr>,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            call_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
            admin_timeout: Duration::from_secs(30),
            install_timeout: Duration::from_secs(180),
            alter_timeout: Duration::from_secs(3_600),
            source_patience: Duration::from_millis(3),
            transport: Transport::Auto,
            udp: UdpConfig { receive_buffer_bytes: 4 << 20, send_buffer_bytes: 4 << 20, segmentation: true },
            idle: IdleStrategy::default(),
            core_addresses: Vec::new(),
        }
    }
}

/// The server and the tenant of a session.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) server: SocketAddr,
    /// The server's address as the caller gave it.
    pub(crate) address: String,
    /// Addresses of other servers that the caller gave.
    pub(crate) others: Vec<String>,
    pub(crate) tenant: String,
    pub(crate) secret: String,
}

/// The settings that open a session with a server.
#[derive(Clone)]
pub(crate) struct SessionSettings {
    pub(crate) identity: Identity,
    pub(crate) config: ClientConfig,
    /// Size of the largest frame of the session's port.
    pub(crate) frame_bytes_max: usize,
    /// Waker of that port.
    pub(crate) waker: Waker,
}

/// Returns the first address that a name resolves to.
pub(crate) fn resolve(address: &str) -> Result<SocketAddr, Error> {
    let invalid = |error| Error::AddressInvalid { address: address.to_owned(), error };
    let mut found = address.to_socket_addrs().map_err(invalid)?;
    found.next().ok_or_else(|| invalid(std::io::ErrorKind::NotFound.into()))
}
