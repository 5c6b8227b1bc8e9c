//! Accepts streams until it is stopped.
//!
//! [`Listener::accept`] blocks; a [`StopHandle`] in any thread ends it, at once and permanently. The listener sleeps
//! in `poll` over its socket and an eventfd, so stopping needs no connection to the listener.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::{Stream, sys};

/// Maximum connections that wait to be accepted, the kernel's default limit. The kernel drops further ones, and their
/// clients retry after a second; in the queue a burst costs them only milliseconds.
const BACKLOG: i32 = 4096;

/// A listening TCP socket.
pub struct Listener {
    socket: Arc<TcpListener>,
    stop: Arc<OwnedFd>,
}

/// Ends a listener's accept from any thread. Until the last handle is dropped its address refuses no connection: one that is
/// refused tells that the process has ended.
#[derive(Clone)]
pub struct StopHandle {
    stop: Arc<OwnedFd>,
    _socket: Option<Arc<TcpListener>>,
}

impl StopHandle {
    /// Creates a handle that raises `stop`.
    pub(crate) fn of(stop: &Arc<OwnedFd>) -> Self {
        Self { stop: Arc::clone(stop), _socket: None }
    }

    /// Makes the current and every later accept return `None`.
    pub fn stop(&self) {
        sys::eventfd_raise(self.stop.as_fd());
    }
}

impl Listener {
    /// Listens on `address`; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        sys::set_backlog(socket.as_fd(), BACKLOG)?;
        Ok(Self { socket: Arc::new(socket), stop: Arc::new(sys::eventfd()?) })
    }

    /// Returns the address that peers connect to.
    ///
    /// # Errors
    /// If the socket cannot be queried.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns a handle that stops this listener.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { stop: Arc::clone(&self.stop), _socket: Some(Arc::clone(&self.socket)) }
    }

    /// Waits for the next stream; `None` once the listener is stopped. `record_timeout`: see [`Stream::connect`].
    ///
    /// # Errors
    /// If the process is out of descriptors or the socket is broken. A connection that vanished before it was
    /// accepted is no error.
    pub fn accept(&self, record_timeout: Duration) -> io::Result<Option<(Stream, SocketAddr)>> {
        loop {
            let (_, stopped) = sys::poll_two(self.socket.as_fd(), self.stop.as_fd())?;
            if stopped {
                return Ok(None);
            }
            match self.socket.accept() {
                Ok((socket, peer)) => match Stream::over(socket, record_timeout) {
                    Ok(stream) => return Ok(Some((stream, peer))),
                    Err(_) => continue,
                },
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted | ConnectionReset)
}
