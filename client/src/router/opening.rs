//! Background work for further servers: opening a session, and probing a silent server.
//!
//! A thread does one task and ends, within the timeouts of a connection and the opening; requests to other servers
//! continue meanwhile. If the session is dropped first, the thread continues unattended and ends the session that it
//! opens.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use net::{Stream, Waker};

use crate::config::{Identity, resolve};
use crate::session_state::SessionState;
use crate::{ClientConfig, Error};

/// Maximum time to transfer a record once it has begun; these streams carry none.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);

/// The future result of a thread.
pub(super) struct Awaited<T> {
    answer: Receiver<Result<T, Error>>,
}

impl<T: Send + 'static> Awaited<T> {
    fn begin(waker: Waker, work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Awaited<T> {
        let (sender, answer) = channel();
        thread::spawn(move || {
            // The receiver may be gone.
            let _ = sender.send(work());
            waker.wake();
        });
        Awaited { answer }
    }

    /// Returns the result, if it is there.
    pub(super) fn take(&self) -> Option<Result<T, Error>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::SessionLost)),
        }
    }
}

/// Opens a session with the server at `address`, for a port with this frame size and waker.
pub(super) fn open(
    address: String,
    (tenant, secret): (String, String),
    config: ClientConfig,
    (frame_bytes_max, waker): (usize, Waker),
) -> Awaited<SessionState> {
    Awaited::begin(waker.clone(), move || {
        let identity = Identity { server: resolve(&address)?, address, tenant, secret };
        SessionState::open(identity, config, frame_bytes_max, waker)
    })
}

/// Checks whether a server listens at `address`.
pub(super) fn probe(address: String, connect_timeout: Duration, waker: Waker) -> Awaited<()> {
    Awaited::begin(waker, move || {
        let server = resolve(&address)?;
        let reached = Stream::connect(server, connect_timeout, RECORD_TIMEOUT);
        reached.map(drop).map_err(|error| Error::Unreachable { address: server, error })
    })
}
