//! A stream for a thread with several tasks: records in both directions, without a wait for the peer.
//!
//! The bytes are those of a [`Stream`]. Bytes that the peer does not take yet are kept, so a sender has to watch
//! [`Duplex::untaken_bytes`] and hold back whatever can wait. A record that has begun must complete within a time, in
//! either direction; a silent peer is no error. [`Duplex::sleep_over`] waits for the peer, for a [`crate::Waker`], or
//! for some time. Used by the threads that move tablets and read at other servers; never by a worker.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::stream::{LENGTH_BYTES, Stream, StreamError};
use crate::wake::Sleeper;

/// Bytes requested from the kernel at a time.
const READ_BYTES: usize = 256 * 1024;

/// A non-blocking stream of records.
pub struct Duplex {
    socket: TcpStream,
    record_timeout: Duration,
    record_bytes_max: usize,
    /// Above this number of untaken bytes it receives nothing.
    untaken_bytes_max: usize,
    /// Received bytes; those between `taken` and `filled` were not returned yet.
    inbound: Vec<u8>,
    taken: usize,
    filled: usize,
    /// Whether the kernel had no more when it was last asked.
    is_drained: bool,
    /// The time by which the record that has begun to arrive must be complete.
    inbound_due: Option<Instant>,
    /// Bytes that the kernel has not taken yet, from `sent` on.
    outbound: Vec<u8>,
    sent: usize,
    /// The time by which the kernel must take more.
    outbound_due: Option<Instant>,
}

impl Duplex {
    /// Takes over a stream between records. Records longer than `record_bytes_max` are refused.
    ///
    /// # Errors
    /// If the socket refuses.
    pub fn over(stream: Stream, record_timeout: Duration, record_bytes_max: usize) -> io::Result<Self> {
        let socket = stream.into_socket();
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            record_timeout,
            record_bytes_max,
            untaken_bytes_max: usize::MAX,
            inbound: Vec::new(),
            taken: 0,
            filled: 0,
            is_drained: false,
            inbound_due: None,
            outbound: Vec::new(),
            sent: 0,
            outbound_due: None,
        })
    }

    /// Stops receiving while more than `untaken_bytes_max` bytes are untaken.
    ///
    /// For the replying end, so that a peer which asks without taking the replies cannot make them grow without
    /// bound. Only one end of a stream may do so.
    #[must_use]
    pub fn held_back_above(self, untaken_bytes_max: usize) -> Self {
        Self { untaken_bytes_max, ..self }
    }

    /// Returns the next arrived record, without its length.
    ///
    /// # Errors
    /// See [`StreamError`]; never `Idle`. The stream is unusable afterwards.
    pub fn receive(&mut self) -> Result<Option<&[u8]>, StreamError> {
        if self.is_held_back() {
            return Ok(None);
        }
        loop {
            if let Some(record_bytes) = self.record_bytes()? {
                let from = self.taken + LENGTH_BYTES;
                self.taken = from + record_bytes;
                self.inbound_due = None;
                return Ok(Some(&self.inbound[from..self.taken]));
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Sends a record, given in two parts.
    ///
    /// `head` begins with the length of all that follows it, `body` included. [`Duplex::flush`] sends the bytes that
    /// the kernel does not take now.
    ///
    /// # Errors
    /// As [`Duplex::flush`].
    ///
    /// # Panics
    /// If the length at the start of `head` is not that of the rest.
    pub fn send(&mut self, head: &[u8], body: &[u8]) -> Result<(), StreamError> {
        let length = head.first_chunk().map(|length| u32::from_le_bytes(*length) as usize + LENGTH_BYTES);
        assert_eq!(length, Some(head.len() + body.len()), "a record begins with its length");
        let mut written = 0;
        if self.untaken_bytes() == 0 {
            written = match self.socket.write_vectored(&[IoSlice::new(head), IoSlice::new(body)]) {
                Ok(0) => return Err(StreamError::Broken(io::ErrorKind::WriteZero.into())),
                Ok(written) => written,
                Err(error) if is_passing(&error) => 0,
                Err(error) => return Err(StreamError::Broken(error)),
            };
        }
        let from_head = written.min(head.len());
        self.outbound.extend_from_slice(&head[from_head..]);
        self.outbound.extend_from_slice(&body[written - from_head..]);
        self.flush()
    }

    /// Keeps a record for the next [`Duplex::flush`]: several short ones leave together.
    ///
    /// # Panics
    /// As [`Duplex::send`].
    pub fn queue(&mut self, head: &[u8], body: &[u8]) {
        let length = head.first_chunk().map(|length| u32::from_le_bytes(*length) as usize + LENGTH_BYTES);
        assert_eq!(length, Some(head.len() + body.len()), "a record begins with its length");
        self.outbound.extend_from_slice(head);
        self.outbound.extend_from_slice(body);
    }

    /// Passes waiting bytes to the kernel, as many as it takes.
    ///
    /// # Errors
    /// [`StreamError::Broken`], also if the peer takes nothing for too long.
    pub fn flush(&mut self) -> Result<(), StreamError> {
        while self.untaken_bytes() > 0 {
            match self.socket.write(&self.outbound[self.sent..]) {
                Ok(0) => return Err(StreamError::Broken(io::ErrorKind::WriteZero.into())),
                Ok(bytes) => {
                    self.sent += bytes;
                    self.outbound_due = None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return in_time(&mut self.outbound_due, self.record_timeout);
                }
                Err(error) => return Err(StreamError::Broken(error)),
            }
        }
        self.outbound.clear();
        self.sent = 0;
        self.outbound_due = None;
        Ok(())
    }

    /// Returns the number of bytes that the kernel has not taken yet.
    #[must_use]
    pub fn untaken_bytes(&self) -> usize {
        self.outbound.len() - self.sent
    }

    /// Sleeps until one of these streams is readable, one takes more waiting bytes, the sleeper is woken or `timeout`
    /// has passed.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn sleep_over<'s>(
        sleeper: &Sleeper,
        streams: impl IntoIterator<Item = &'s Duplex>,
        timeout: Duration,
    ) -> io::Result<()> {
        let wanted = |stream: &Duplex| (!stream.is_held_back(), stream.untaken_bytes() > 0);
        let sockets = streams.into_iter().map(|stream| (stream.socket(), wanted(stream)));
        sleeper.sleep_beside(sockets, timeout)
    }

    fn is_held_back(&self) -> bool {
        self.untaken_bytes() > self.untaken_bytes_max
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the bytes of the next record, if it has arrived completely.
    fn record_bytes(&self) -> Result<Option<usize>, StreamError> {
        let waiting = &self.inbound[self.taken..self.filled];
        let Some(length) = waiting.first_chunk() else { return Ok(None) };
        let record_bytes = u32::from_le_bytes(*length) as usize;
        if record_bytes > self.record_bytes_max {
            return Err(StreamError::TooLarge { record_bytes, limit: self.record_bytes_max });
        }
        Ok((waiting.len() >= LENGTH_BYTES + record_bytes).then_some(record_bytes))
    }

    /// Reads arrived bytes; returns false if there are none.
    fn read(&mut self) -> Result<bool, StreamError> {
        if std::mem::take(&mut self.is_drained) {
            // What has come since wakes whoever sleeps over the stream.
            if self.filled > self.taken {
                in_time(&mut self.inbound_due, self.record_timeout)?;
            }
            return Ok(false);
        }
        if self.taken > 0 {
            self.inbound.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        if self.inbound.len() < self.filled + READ_BYTES {
            // Grows with the arriving bytes, so that a large length alone costs little.
            self.inbound.resize(self.filled + READ_BYTES, 0);
        }
        match self.socket.read(&mut self.inbound[self.filled..]) {
            Ok(0) if self.filled == 0 => Err(StreamError::Closed),
            Ok(0) => Err(StreamError::Broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(bytes) => {
                self.filled += bytes;
                self.is_drained = self.filled < self.inbound.len();
                Ok(true)
            }
            Err(error) if is_passing(&error) => {
                if self.filled > 0 {
                    in_time(&mut self.inbound_due, self.record_timeout)?;
                }
                Ok(false)
            }
            Err(error) => Err(StreamError::Broken(error)),
        }
    }
}

/// Sets the deadline if there is none, and fails if it has passed.
fn in_time(due: &mut Option<Instant>, timeout: Duration) -> Result<(), StreamError> {
    let now = Instant::now();
    if now > *due.get_or_insert(now + timeout) {
        return Err(StreamError::Broken(io::ErrorKind::TimedOut.into()));
    }
    Ok(())
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::Duplex;
    use crate::{Sleeper, Stream, StreamError};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn pair() -> (Duplex, Duplex) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let one = TcpStream::connect(listener.local_addr().expect("an address")).expect("a listener");
        let other = listener.accept().expect("a connection").0;
        let duplex = |socket| {
            let stream = Stream::over(socket, PATIENCE).expect("a working socket");
            Duplex::over(stream, PATIENCE, 4 << 20).expect("a working socket")
        };
        (duplex(one), duplex(other))
    }

    /// Calls `look` until it finds something; fails the test if it never does.
    fn comes<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "nothing comes");
        }
    }

    /// Sleeps until woken; fails the test if the sleep lasts its full time.
    fn is_woken(sleeper: &Sleeper, stream: Option<&Duplex>) {
        let began = Instant::now();
        Duplex::sleep_over(sleeper, stream, PATIENCE).expect("a poll");
        assert!(began.elapsed() < PATIENCE, "nobody woke it");
    }

    fn send(duplex: &mut Duplex, body: &[u8]) {
        duplex.send(&(body.len() as u32).to_le_bytes(), body).expect("a peer");
    }

    #[test]
    fn records_come_whole_and_in_order_whatever_the_kernel_takes_at_once() {
        let (mut one, mut other) = pair();
        let bodies: Vec<Vec<u8>> =
            [3, 0, 4 << 20, 1, 70_000, 4 << 20].iter().map(|&bytes| vec![bytes as u8 ^ 5; bytes]).collect();
        bodies.iter().for_each(|body| send(&mut one, body));
        assert!(one.untaken_bytes() > 0, "more than any kernel keeps");
        let sleeper = Sleeper::alone().expect("descriptors");
        for body in &bodies {
            comes(|| {
                one.flush().expect("a peer");
                if let Some(record) = other.receive().expect("a peer") {
                    assert!(record == body, "{} bytes", body.len());
                    return Some(());
                }
                Duplex::sleep_over(&sleeper, Some(&other), Duration::from_millis(1)).expect("a poll");
                None
            });
        }
        assert_eq!(one.untaken_bytes(), 0);
        assert!(other.receive().expect("a peer").is_none());
    }

    #[test]
    fn who_is_held_back_receives_when_what_waits_was_taken() {
        let (mut one, other) = pair();
        let mut other = other.held_back_above(1 << 20);
        send(&mut one, b"x");
        while other.untaken_bytes() <= 1 << 20 {
            send(&mut other, &[7; 1 << 20]);
        }
        let sleeper = Sleeper::alone().expect("descriptors");
        assert_eq!(other.receive().expect("a peer"), None);
        comes(|| {
            while one.receive().expect("a peer").is_some() {}
            other.flush().expect("a peer");
            (other.untaken_bytes() == 0).then_some(())
        });
        is_woken(&sleeper, Some(&other));
        assert_eq!(other.receive().expect("a peer"), Some(&b"x"[..]));
    }

    #[test]
    fn a_record_that_is_too_long_and_one_that_is_cut_off_are_errors() {
        let (mut one, mut other) = pair();
        one.send(&8u32.to_le_bytes(), b"12345678").expect("a peer");
        one.outbound.extend(100u32.to_le_bytes());
        one.flush().expect("a peer");
        drop(one);
        let sleeper = Sleeper::alone().expect("descriptors");
        is_woken(&sleeper, Some(&other));
        assert_eq!(other.receive().expect("a record"), Some(&b"12345678"[..]));
        let broken = comes(|| match other.receive() {
            Ok(record) => {
                assert_eq!(record, None);
                None
            }
            Err(error) => Some(error),
        });
        assert!(matches!(broken, StreamError::Broken(_)), "{broken}");
        let (mut one, mut other) = pair();
        one.outbound.extend((5u32 << 20).to_le_bytes());
        one.flush().expect("a peer");
        is_woken(&sleeper, Some(&other));
        assert!(matches!(other.receive(), Err(StreamError::TooLarge { .. })));
    }

    #[test]
    fn a_sleep_over_a_stream_ends_when_something_comes_or_somebody_wakes() {
        let (mut one, other) = pair();
        let sleeper = Sleeper::alone().expect("descriptors");
        let waker = sleeper.waker();
        waker.wake();
        is_woken(&sleeper, Some(&other));
        let (began, a_little) = (Instant::now(), Duration::from_millis(1));
        Duplex::sleep_over(&sleeper, Some(&other), a_little).expect("a poll");
        assert!(began.elapsed() >= a_little, "one wake ends one sleep");
        send(&mut one, b"x");
        is_woken(&sleeper, Some(&other));
        let waking = std::thread::spawn(move || waker.wake());
        is_woken(&sleeper, None);
        waking.join().expect("a thread");
    }
}
