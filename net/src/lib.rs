//! Moves frames between machines, and records over streams; does not interpret them.
//!
//! A [`Port`] receives a [`Batch`] of datagrams and sends an [`Outbox`] of them: over kernel UDP ([`UdpPort`]), also
//! over memory that is shared with clients on the same host ([`HostPort`], [`ShmListener`]), or inside one process
//! with faults from a seed ([`LoopbackNetwork`]). A [`Stream`] moves length-prefixed records over TCP, a [`Duplex`]
//! does so for a thread that does not wait for them, a [`Listener`] accepts streams until it is stopped.
//!
//! Guarantees: no data from the network causes a panic; a datagram is delivered whole or not at all; every buffer has
//! a bound. Not guaranteed: delivery, order, or a single copy; the requester above provides these. Called by the
//! server's workers and by client sessions.

pub mod batch;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod duplex;
pub mod host;
pub mod idle;
pub mod listener;
mod lock;
pub mod loopback;
pub mod outbox;
pub mod packet;
pub mod port;
pub mod shm;
pub mod stream;
mod sys;
pub mod udp;
pub mod wake;

pub use batch::Batch;
pub use duplex::Duplex;
pub use host::HostPort;
pub use idle::{IdleAction, IdleStrategy};
pub use listener::{Listener, StopHandle};
pub use loopback::{Faults, LoopbackClock, LoopbackNetwork, LoopbackPort};
pub use outbox::Outbox;
pub use port::{Port, SharedPort};
pub use shm::{
    AttachError, ChannelPoint, Entry, ListenerAddress, ListenerLimits, PendingAttach, ShmListener,
};
pub use stream::{Stream, StreamCloser, StreamError};
pub use udp::{UdpConfig, UdpPort};
pub use wake::{Sleeper, Waker};
