//! Length-prefixed records over TCP, with limits on their size and duration.
//!
//! ```text
//! record = length u32, little-endian: the bytes that follow | bytes
//! ```
//! The caller interprets the bytes. A peer that stalls inside a record is cut off by the record deadline. A peer that
//! sends nothing causes only [`StreamError::Idle`], as long as its machine answers: the kernel probes it now and
//! then, so that a machine that lost power or network does not hold a stream forever. Used by control threads and by
//! client sessions; blocking, never on a worker.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::sys;

/// Bytes of the length at the start of a record.
pub const LENGTH_BYTES: usize = 4;
/// Bytes that are allocated before they arrive. The buffer then grows with the arriving bytes, so that a length alone
/// costs the receiver little.
const RECORD_STEP_BYTES: usize = 256 * 1024;

/// Seconds without a byte until the kernel probes the peer.
const PROBE_AFTER_S: i32 = 60;
/// Seconds between two probes.
const PROBE_EACH_S: i32 = 20;
/// Unanswered probes until the stream is broken: two minutes after the last byte.
const PROBES: i32 = 3;

/// The reason why a record was not transferred.
#[derive(Debug)]
pub enum StreamError {
    /// No byte of a record arrived within the timeout; reading may continue.
    Idle,
    /// The peer closed the stream between two records.
    Closed,
    /// The peer closed or stalled in the middle of a record; the stream is unusable afterwards.
    Broken(io::Error),
    /// The record announces more bytes than the limit; the stream is unusable afterwards.
    TooLarge {
        /// Bytes that the record announces.
        record_bytes: usize,
        /// Bytes that were allowed.
        limit: usize,
    },
    /// There is no room for a record of this size; the stream is unusable afterwards.
    NoRoom {
        /// Bytes that the record announces.
        record_bytes: usize,
    },
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Idle => write!(to, "nothing arrived in time"),
            Self::Closed => write!(to, "the peer closed the stream"),
            Self::Broken(error) => write!(to, "the stream broke: {error}"),
            Self::TooLarge { record_bytes, limit } => {
                write!(to, "a record of {record_bytes} bytes exceeds the limit of {limit}")
            }
            Self::NoRoom { record_bytes } => write!(to, "no room for a record of {record_bytes} bytes"),
        }
    }
}

impl std::error::Error for StreamError {}

/// A TCP connection that carries records.
pub struct Stream {
    socket: TcpStream,
    record_timeout: Duration,
}

/// A handle that closes a stream from another thread: its blocked reads and writes end.
pub struct StreamCloser {
    socket: TcpStream,
}

impl StreamCloser {
    /// Closes both directions.
    pub fn close(&self) {
        // A stream that is already gone is closed too.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Stream {
    /// Connects within `timeout`. A record must complete within `record_timeout` of its beginning.
    ///
    /// # Errors
    /// If nobody listens or the time is over.
    pub fn connect(peer: SocketAddr, timeout: Duration, record_timeout: Duration) -> io::Result<Self> {
        Self::over(TcpStream::connect_timeout(&peer, timeout)?, record_timeout)
    }

    /// Takes over a connected socket.
    ///
    /// # Errors
    /// If the socket refuses its options.
    pub fn over(socket: TcpStream, record_timeout: Duration) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(false)?;
        ask_whether_the_peer_is_there(&socket)?;
        let record_timeout = record_timeout.max(Duration::from_millis(1));
        socket.set_write_timeout(Some(record_timeout))?;
        Ok(Self { socket, record_timeout })
    }

    /// Limits the kernel's buffer of written but untaken bytes to about `bytes`, and as many again for its own
    /// bookkeeping. Otherwise it grows with the speed of the peer, to several MiB.
    ///
    /// # Errors
    /// If the socket refuses.
    pub fn bound_untaken(&self, bytes: usize) -> io::Result<()> {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        sys::set_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)
    }

    /// Returns the socket, for another protocol than records.
    #[must_use]
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Returns the address of the other end.
    ///
    /// # Errors
    /// If the stream is no longer connected.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Returns the address of this end.
    ///
    /// # Errors
    /// If the stream is no longer connected.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns whether the peer, or a [`StreamCloser`], has closed the stream. Not seen behind bytes that nobody has read.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self
            .socket
            .set_read_timeout(Some(Duration::from_millis(1)))
            .and_then(|()| self.socket.peek(&mut [0]))
        {
            Ok(bytes) => bytes == 0,
            Err(error) => !is_timeout(&error) && error.kind() != io::ErrorKind::Interrupted,
        }
    }

    /// Returns a handle that closes this stream from another thread.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn closer(&self) -> io::Result<StreamCloser> {
        Ok(StreamCloser { socket: self.socket.try_clone()? })
    }

    /// Writes one record, given in two parts so that a large body need not be copied after its header. `head` begins
    /// with the length of all that follows it, `body` included.
    ///
    /// # Errors
    /// [`StreamError::Broken`].
    ///
    /// # Panics
    /// If the length at the start of `head` is not that of the rest.
    pub fn write_record(&mut self, head: &[u8], body: &[u8]) -> Result<(), StreamError> {
        let length = head.first_chunk().map(|length| u32::from_le_bytes(*length) as usize + LENGTH_BYTES);
        assert_eq!(length, Some(head.len() + body.len()), "a record begins with its length");
        let deadline = Instant::now() + self.record_timeout;
        let (mut head_left, mut body_left) = (head, body);
        while !head_left.is_empty() || !body_left.is_empty() {
            let parts = [IoSlice::new(head_left), IoSlice::new(body_left)];
            match self.socket.write_vectored(&parts) {
                Ok(0) => return Err(StreamError::Broken(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    let from_head = written.min(head_left.len());
                    head_left = &head_left[from_head..];
                    body_left = &body_left[written - from_head..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StreamError::Broken(error)),
            }
            if Instant::now() > deadline {
                return Err(StreamError::Broken(io::ErrorKind::TimedOut.into()));
            }
        }
        Ok(())
    }

    /// Reads one record into `record` (emptied first), without its length. Waits at most `idle_timeout` for its first
    /// byte; a length beyond `limit` is refused before anything is allocated.
    ///
    /// # Errors
    /// See [`StreamError`]; after all but [`StreamError::Idle`] the stream is unusable.
    pub fn read_record(
        &mut self,
        record: &mut Vec<u8>,
        idle_timeout: Duration,
        limit: usize,
    ) -> Result<(), StreamError> {
        self.read_record_if(record, idle_timeout, limit, |_| true)
    }

    /// As [`Stream::read_record`], but continues after the length only if `has_room` accepts the number of bytes that
    /// follow. `has_room` may wait; the record's time begins anew then.
    ///
    /// # Errors
    /// As [`Stream::read_record`], and [`StreamError::NoRoom`].
    pub fn read_record_if(
        &mut self,
        record: &mut Vec<u8>,
        idle_timeout: Duration,
        limit: usize,
        has_room: impl FnOnce(usize) -> bool,
    ) -> Result<(), StreamError> {
        let read = self.read_over(record, idle_timeout, limit, has_room);
        if read.is_err() {
            record.clear();
        }
        read
    }

    /// As [`Stream::read_record_if`], over what `record` has; after an error that has any bytes.
    fn read_over(
        &mut self,
        record: &mut Vec<u8>,
        idle_timeout: Duration,
        limit: usize,
        has_room: impl FnOnce(usize) -> bool,
    ) -> Result<(), StreamError> {
        let mut length = [0u8; LENGTH_BYTES];
        let first = self.read_first(&mut length, idle_timeout)?;
        let deadline = Instant::now() + self.record_timeout;
        self.read_exact_by(&mut length[first..], deadline)?;
        let record_bytes = u32::from_le_bytes(length) as usize;
        if record_bytes > limit {
            return Err(StreamError::TooLarge { record_bytes, limit });
        }
        if !has_room(record_bytes) {
            return Err(StreamError::NoRoom { record_bytes });
        }
        let deadline = Instant::now() + self.record_timeout;
        let mut have = 0;
        while have < record_bytes {
            let next = record_bytes.min(have + RECORD_STEP_BYTES);
            if record.len() < next {
                record.resize(next, 0);
            }
            self.read_exact_by(&mut record[have..next], deadline)?;
            have = next;
        }
        record.truncate(record_bytes);
        Ok(())
    }

    /// Waits for the first bytes of a record; returns their number.
    fn read_first(&mut self, length: &mut [u8], idle_timeout: Duration) -> Result<usize, StreamError> {
        let deadline = Instant::now() + idle_timeout;
        loop {
            match self.read_by(length, deadline) {
                Ok(0) => return Err(StreamError::Closed),
                Ok(bytes) => return Ok(bytes),
                Err(error) if is_timeout(&error) => return Err(StreamError::Idle),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StreamError::Broken(error)),
            }
        }
    }

    fn read_exact_by(&mut self, mut to: &mut [u8], deadline: Instant) -> Result<(), StreamError> {
        while !to.is_empty() {
            match self.read_by(to, deadline) {
                Ok(0) => return Err(StreamError::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => to = &mut to[bytes..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StreamError::Broken(error)),
            }
        }
        Ok(())
    }

    fn read_by(&mut self, to: &mut [u8], deadline: Instant) -> io::Result<usize> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        self.socket.read(to)
    }
}

fn ask_whether_the_peer_is_there(socket: &TcpStream) -> io::Result<()> {
    let options = [
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, PROBE_AFTER_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, PROBE_EACH_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    ];
    options.iter().try_for_each(|(level, name, value)| sys::set_option(socket.as_fd(), *level, *name, *value))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::Stream;
    use crate::sys;

    #[test]
    fn the_kernel_looks_after_peers_of_both_ends_within_two_minutes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let (address, patience) = (listener.local_addr().expect("an address"), Duration::from_secs(60));
        let client = Stream::connect(address, patience, patience).expect("a listener");
        let (socket, _) = listener.accept().expect("a connection");
        let server = Stream::over(socket, patience).expect("a working socket");
        for socket in [client, server].map(Stream::into_socket) {
            let read = |level, name| sys::option(TcpStream::as_fd(&socket), level, name).expect("an option");
            assert_eq!(read(libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
            let tcp = |name| read(libc::IPPROTO_TCP, name);
            let noticed_s = tcp(libc::TCP_KEEPIDLE) + tcp(libc::TCP_KEEPINTVL) * tcp(libc::TCP_KEEPCNT);
            assert_eq!(noticed_s, 120);
        }
    }
}
