//! A minimal HTTP/1 server for a scraper: one request, one answer, then the connection is closed.
//!
//! `httparse` parses the head of the request, within limits of bytes, header lines and milliseconds; a body is
//! ignored. The answer is sent in chunks (HTTP/1.1) or until the end of the connection (HTTP/1.0), and the peer must
//! read it within its time. No input of a peer is a server error.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::limits::{
    METRICS_ANSWER_TIMEOUT_MS, METRICS_HEAD_BYTES_MAX, METRICS_HEAD_TIMEOUT_MS, METRICS_HEADERS_MAX,
};

/// Maximum number of bytes read from a peer that continues to send after its request: closing with unread bytes would
/// reset the connection, and the answer with it.
const REST_BYTES_MAX: usize = 64 << 10;

/// Time that a peer has to close after its answer.
const REST_TIMEOUT: Duration = Duration::from_millis(500);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The path, without a query.
    pub(super) path: String,
    /// The peer wants only the head of the answer.
    pub(super) head_only: bool,
    /// The peer understands chunks.
    pub(super) chunks: bool,
}

/// The reason why a request could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The peer is gone.
    Gone,
    /// The request is refused with this status line.
    Refused(&'static str),
}

impl Request {
    /// Reads the head of a request.
    pub(super) fn read(socket: &mut TcpStream) -> Result<Self, Fault> {
        let deadline = Instant::now() + Duration::from_millis(METRICS_HEAD_TIMEOUT_MS);
        let mut head = [0; METRICS_HEAD_BYTES_MAX];
        let mut filled = 0;
        loop {
            let read = read_by(socket, &mut head[filled..], deadline);
            let before = filled.saturating_sub(3);
            filled += match read {
                Ok(0) => return Err(Fault::Gone),
                Ok(bytes) => bytes,
                Err(error) if is_timeout(&error) => return Err(Fault::Refused("408 Request Timeout")),
                Err(_) => return Err(Fault::Gone),
            };
            // Searched first, so that a head which arrives byte by byte is parsed once.
            if has_end(&head[before..filled]) {
                return Self::parse(&head[..filled]);
            }
            if filled == head.len() {
                return Err(Fault::Refused("431 Request Header Fields Too Large"));
            }
        }
    }

    fn parse(head: &[u8]) -> Result<Self, Fault> {
        let mut headers = [httparse::EMPTY_HEADER; METRICS_HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Ok(httparse::Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => {
                return Err(Fault::Refused("431 Request Header Fields Too Large"));
            }
            Ok(httparse::Status::Partial) | Err(_) => return Err(Fault::Refused("400 Bad Request")),
        }
        let head_only = match request.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return Err(Fault::Refused("405 Method Not Allowed")),
        };
        let target = request.path.unwrap_or_default();
        let path = target.split('?').next().unwrap_or_default().to_owned();
        Ok(Self { path, head_only, chunks: request.version == Some(1) })
    }
}

/// Tells a peer that the maximum number of connections is reached. Does not wait, because others wait to be accepted.
pub(super) fn turn_away(socket: TcpStream) {
    // The answer fits the socket's buffer; a peer that is gone needs none.
    let _ = HttpResponse::refusal(socket, "503 Service Unavailable").and_then(HttpResponse::leave);
}

/// An answer being sent.
pub(super) struct HttpResponse {
    socket: TcpStream,
    deadline: Instant,
    head_only: bool,
    chunks: bool,
}

impl HttpResponse {
    /// Sends the head of an answer.
    pub(super) fn begin(
        socket: TcpStream,
        request: &Request,
        status: &str,
        content_type: &str,
    ) -> io::Result<Self> {
        let deadline = Instant::now() + Duration::from_millis(METRICS_ANSWER_TIMEOUT_MS);
        let mut answer = Self { socket, deadline, head_only: request.head_only, chunks: request.chunks };
        let encoding = if request.chunks { "Transfer-Encoding: chunked\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{encoding}\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        );
        answer.send(head.as_bytes())?;
        Ok(answer)
    }

    /// Sends a complete refusal, whose text is its status line, and closes.
    pub(super) fn refuse(socket: TcpStream, status: &str) -> io::Result<()> {
        Self::refusal(socket, status)?.close()
    }

    /// Sends a complete refusal and returns it unclosed.
    pub(super) fn refusal(socket: TcpStream, status: &str) -> io::Result<Self> {
        let deadline = Instant::now() + REST_TIMEOUT;
        let mut answer = Self { socket, deadline, head_only: false, chunks: false };
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{allow}\
             Connection: close\r\n\r\n{status}\n",
            status.len() + 1
        );
        answer.send(text.as_bytes())?;
        Ok(answer)
    }

    /// Sends a part of the body.
    pub(super) fn write(&mut self, part: &[u8]) -> io::Result<()> {
        if self.head_only || part.is_empty() {
            return Ok(());
        }
        if !self.chunks {
            return self.send(part);
        }
        self.send(format!("{:x}\r\n", part.len()).as_bytes())?;
        self.send(part)?;
        self.send(b"\r\n")
    }

    /// Ends the body; the caller must close the answer.
    pub(super) fn end(mut self) -> io::Result<Self> {
        if self.chunks && !self.head_only {
            self.send(b"0\r\n\r\n")?;
        }
        Ok(self)
    }

    /// Waits briefly until the peer has read the answer.
    pub(super) fn close(mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        let deadline = Instant::now() + REST_TIMEOUT;
        let (mut rest, mut read) = ([0; 4096], 0);
        while read < REST_BYTES_MAX {
            match read_by(&mut self.socket, &mut rest, deadline)? {
                0 => break,
                bytes => read += bytes,
            }
        }
        Ok(())
    }

    /// Closes at once, discarding what the peer has sent until now.
    fn leave(mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        self.socket.set_nonblocking(true)?;
        self.socket.read(&mut [0; METRICS_HEAD_BYTES_MAX]).map(drop)
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.socket.set_write_timeout(Some(left_until(self.deadline)?))?;
            match self.socket.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn read_by(socket: &mut TcpStream, to: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        socket.set_read_timeout(Some(left_until(deadline)?))?;
        match socket.read(to) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Returns the time until the deadline, at least a millisecond.
fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left.max(Duration::from_millis(1)))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns true if an empty line ends a head here.
fn has_end(bytes: &[u8]) -> bool {
    bytes.windows(3).any(|three| three == b"\n\r\n") || bytes.windows(2).any(|two| two == b"\n\n")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::{Fault, REST_TIMEOUT, Request, turn_away};

    #[test]
    fn who_is_turned_away_hears_it_and_does_not_hold_up_who_comes_next() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let count = 100;
        let mut peers: Vec<TcpStream> = Vec::new();
        let mut took = Duration::ZERO;
        for _ in 0..count {
            let address = listener.local_addr().expect("an address");
            let mut peer = TcpStream::connect(address).expect("a listener");
            peer.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("a working socket");
            let (socket, _) = listener.accept().expect("a connection");
            let began = Instant::now();
            turn_away(socket);
            took += began.elapsed();
            peers.push(peer);
        }
        // None of the peers has left. The bound is a third of what waiting for them takes.
        assert!(took < count / 3 * REST_TIMEOUT, "{took:?}");
        for mut peer in peers {
            let mut status = [0; 12];
            peer.read_exact(&mut status).expect("an answer");
            assert_eq!(&status, b"HTTP/1.1 503");
        }
    }

    #[test]
    fn a_request_is_a_path_of_a_get() {
        let request = Request::parse(b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n").expect("a request");
        assert_eq!(request, Request { path: "/metrics".to_owned(), head_only: false, chunks: true });
        let request = Request::parse(b"HEAD /health HTTP/1.0\r\n\r\n").expect("a request");
        assert_eq!(request, Request { path: "/health".to_owned(), head_only: true, chunks: false });
    }

    #[test]
    fn nonsense_is_refused_with_a_status() {
        let status = |head: &[u8]| match Request::parse(head) {
            Err(Fault::Refused(status)) => status.split(' ').next().expect("a number").to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(status(b"\x16\x03\x01\x02\n\n"), "400");
        assert_eq!(status(b"GET /metrics\r\n\r\n"), "400");
        assert_eq!(status(b"GET / HTTP/2.0\r\n\r\n"), "400");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "405");
        let mut many = b"GET / HTTP/1.1\r\n".to_vec();
        many.extend(b"a: b\r\n".repeat(100));
        many.extend(b"\r\n");
        assert_eq!(status(&many), "431");
    }
}
