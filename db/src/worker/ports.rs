//! All workers' ports as one worker uses them: its own, and those at which it helps.
//!
//! ```text
//!   worker 1:  own port  ◀── receives, sends, sleeps
//!              port 0, 2, 3 ... by handle: an idle worker takes frames that wait there
//!                                          and sends the answers from there
//! ```
//! An answer leaves from the port at which its request arrived: a client that speaks with only one core, as ours do,
//! ignores other addresses. So every answer, at once or when an invocation ends, names that port ([`Exits`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use net::{Batch, Outbox, Port, SharedPort};

/// A sender of frames from any worker's port.
pub trait Exits {
    /// Sends every frame of `out` from the port of worker `port`, and empties it. Returns the number of sent frames.
    ///
    /// # Errors
    /// If that port is broken.
    fn send(&mut self, port: u16, out: &mut Outbox) -> io::Result<usize>;
}

/// The workers' frame ports, for those who are told.
#[derive(Debug)]
pub struct FramePorts {
    /// The UDP port of each worker.
    pub numbers: Vec<u16>,
    /// The way in which frames find their worker: see [`Port::steering`].
    pub steering: &'static str,
}

impl FramePorts {
    /// Describes these ports.
    #[must_use]
    pub fn of<P: Port>(ports: &[P]) -> Self {
        let numbers = ports.iter().map(|port| port.local().port()).collect();
        Self { numbers, steering: ports.first().map_or("none", Port::steering) }
    }
}

/// The ports as one worker uses them.
pub struct Ports<P: SharedPort> {
    own: P,
    index: usize,
    all: Arc<[P::Handle]>,
}

impl<P: SharedPort> Ports<P> {
    /// Creates the ports of worker `index`; `all` are the handles of all workers' ports, its own included.
    #[must_use]
    pub fn new(own: P, index: usize, all: Arc<[P::Handle]>) -> Self {
        Self { own, index, all }
    }

    /// Returns the worker's own port.
    pub fn own(&mut self) -> &mut P {
        &mut self.own
    }

    /// Returns the index of the own port.
    #[must_use]
    pub fn own_index(&self) -> u16 {
        self.index as u16
    }

    /// Receives frames that wait at the port of worker `index`, of up to `messages_max` messages.
    ///
    /// # Errors
    /// If that port is broken.
    pub fn take_from(&mut self, index: usize, batch: &mut Batch, messages_max: usize) -> io::Result<usize> {
        self.own.receive_at(&self.all[index], batch, messages_max)
    }

    /// Sleeps until a frame arrives at the own port, its waker is used, or `timeout` has passed.
    ///
    /// # Errors
    /// If the own port is broken.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.own.wait(timeout)
    }
}

impl<P: SharedPort> Exits for Ports<P> {
    fn send(&mut self, port: u16, out: &mut Outbox) -> io::Result<usize> {
        if usize::from(port) == self.index {
            self.own.send(out)
        } else {
            self.own.send_at(&self.all[usize::from(port)], out)
        }
    }
}
