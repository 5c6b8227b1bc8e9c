//! Opening a session with a further server, and asking whether a silent one is there: in the background, since the other
//! servers' requests go on meanwhile.
//!
//! A thread does one thing and ends; it is bounded by the time that a connection and the opening may take. Nobody waits
//! for one whose session is dropped before; what it opens then, it ends.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use net::{Stream, Waker};

use crate::config::{Identity, resolve};
use crate::session_state::SessionState;
use crate::{ClientConfig, Error};

/// Time that a begun record of a stream may take, which nobody reads here.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);

/// An answer that a thread will give.
pub(super) struct Awaited<T> {
    answer: Receiver<Result<T, Error>>,
}

impl<T: Send + 'static> Awaited<T> {
    fn begin(waker: Waker, work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Awaited<T> {
        let (sender, answer) = channel();
        thread::spawn(move || {
            // Nobody receives what nobody needs any more.
            let _ = sender.send(work());
            waker.wake();
        });
        Awaited { answer }
    }

    /// The answer, if it has come.
    pub(super) fn take(&self) -> Option<Result<T, Error>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::SessionLost)),
        }
    }
}

/// Opens a session with the server at `address`, for a port of such frames and with such a waker.
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

/// Asks whether anybody listens at `address`.
pub(super) fn probe(address: String, connect_timeout: Duration, waker: Waker) -> Awaited<()> {
    Awaited::begin(waker, move || {
        let server = resolve(&address)?;
        let reached = Stream::connect(server, connect_timeout, RECORD_TIMEOUT);
        reached.map(drop).map_err(|error| Error::Unreachable { address: server, error })
    })
}
