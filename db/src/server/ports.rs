//! The ports of all workers as one of them uses them: its own, and those at which it helps out.
//!
//! ```text
//!   worker 1:  own port  ◀── receives, sends, sleeps
//!              port 0, 2, 3 ... by handle: takes frames that wait there when it has none itself,
//!                                          and answers them from there
//! ```
//! An answer leaves from the port to which its request came: a client that speaks with one core only, as
//! ours do, hears nothing from another address. So whoever answers, at once or when an invocation ends,
//! names that port ([`Exits`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use net::{Batch, Outbox, Port, SharedPort};

/// Where frames leave.
pub trait Exits {
    /// Sends every frame of `out` from the port of worker `port`, and empties it. Returns how many left.
    ///
    /// # Errors
    /// When that port is broken.
    fn send(&mut self, port: u16, out: &mut Outbox) -> io::Result<usize>;
}

/// Where the workers of a server take frames, for whoever is told.
#[derive(Debug)]
pub struct FramePorts {
    /// The UDP port of each.
    pub numbers: Vec<u16>,
    /// How frames find their worker: see [`Port::steering`].
    pub steering: &'static str,
}

impl FramePorts {
    /// Those of these ports.
    #[must_use]
    pub fn of<P: Port>(ports: &[P]) -> Self {
        let numbers = ports.iter().map(|port| port.local().port()).collect();
        Self { numbers, steering: ports.first().map_or("none", Port::steering) }
    }
}

/// See the file's head.
pub struct Ports<P: SharedPort> {
    own: P,
    index: usize,
    all: Arc<[P::Handle]>,
}

impl<P: SharedPort> Ports<P> {
    /// The ports of worker `index`; `all` are the handles of all workers' ports, its own included.
    #[must_use]
    pub fn new(own: P, index: usize, all: Arc<[P::Handle]>) -> Self {
        Self { own, index, all }
    }

    /// The worker's own port.
    pub fn own(&mut self) -> &mut P {
        &mut self.own
    }

    /// The number of the own port.
    #[must_use]
    pub fn own_index(&self) -> u16 {
        self.index as u16
    }

    /// Takes frames that wait at the port of worker `index`, of up to `messages_max` messages.
    ///
    /// # Errors
    /// When that port is broken.
    pub fn take_from(&mut self, index: usize, batch: &mut Batch, messages_max: usize) -> io::Result<usize> {
        self.own.receive_at(&self.all[index], batch, messages_max)
    }

    /// Sleeps until a frame is at the own port, its waker is used, or `timeout` has passed.
    ///
    /// # Errors
    /// When the own port is broken.
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
