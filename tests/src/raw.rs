//! A peer that speaks the protocol by hand, without the client library.
//!
//! For what a well-behaved client never does: damaged records, foreign tokens, replayed frames, silence.
//! Every wait ends after [`PATIENCE`].

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use wire::limits::{FRAME_BYTES_LIMIT, RECORD_HEADER_BYTES};
use wire::{Body, BodyReader, FrameReader, FrameWriter, OpenRequest, Opened, RecordHeader, Request, Status};
use wire::{VersionRange, opcode};

/// How long a test waits for an answer before it gives up: no claim about time, so that a loaded machine passes.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// After how long without an answer a request is sent again: datagrams may be lost.
const SENT_AGAIN: Duration = Duration::from_millis(500);

/// A TCP stream that carries records.
#[derive(Debug)]
pub struct RawStream {
    /// The connection, to write anything to.
    pub tcp: TcpStream,
    /// What data requests are sent under.
    pub view: u64,
}

/// A session whose frames are made by hand.
#[derive(Debug)]
pub struct RawSession {
    /// The stream that opened the session; closing it ends the session.
    pub stream: RawStream,
    /// What the server granted.
    pub opened: Opened,
    udp: UdpSocket,
}

/// One message of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The low half of the request's sequence.
    pub sequence_low: u32,
    /// How the request ended.
    pub status: Status,
    /// What came with it.
    pub body: Vec<u8>,
}

impl RawStream {
    /// Connects, and says nothing yet.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let tcp = TcpStream::connect_timeout(&address, PATIENCE)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        tcp.set_nodelay(true)?;
        Ok(Self { tcp, view: 0 })
    }

    /// Sends one record.
    pub fn send(&mut self, code: u8, sequence: u64, body: &[u8]) -> io::Result<()> {
        let header = RecordHeader { code, sequence, view: self.view, ..RecordHeader::default() };
        self.tcp.write_all(&header.encode_record(body))
    }

    /// Receives one record: its status, sequence and body. An end of the stream is an error.
    pub fn receive(&mut self) -> io::Result<(Status, u64, Vec<u8>)> {
        let mut head = [0; RECORD_HEADER_BYTES];
        self.tcp.read_exact(&mut head)?;
        let header = RecordHeader::decode(&head).map_err(io::Error::other)?;
        let mut body = vec![0; header.body_bytes as usize];
        self.tcp.read_exact(&mut body)?;
        let status = Status::from_u8(header.code).ok_or_else(|| io::Error::other("an unknown status"))?;
        Ok((status, header.sequence, body))
    }

    /// Sends a record and receives the next one.
    pub fn call(&mut self, code: u8, body: &[u8]) -> io::Result<(Status, Vec<u8>)> {
        self.send(code, 0, body)?;
        self.receive().map(|(status, _, body)| (status, body))
    }

    /// Opens the stream as the administrator or as a session.
    pub fn open(&mut self, request: &OpenRequest<'_>) -> io::Result<(Status, Vec<u8>)> {
        let (status, body) = self.call(request.opcode(), &request.encode(VersionRange::OURS))?;
        self.view = Opened::read(&mut BodyReader::new(&body)).map_or(0, |opened| opened.view);
        Ok((status, body))
    }
}

impl RawSession {
    /// Opens a session of a tenant; anything but a granted one is an error.
    pub fn open(address: SocketAddr, tenant: &str, secret: &str) -> io::Result<Self> {
        let mut stream = RawStream::connect(address)?;
        let (status, body) = stream.open(&OpenRequest::Session { tenant, secret })?;
        if status != Status::Ok {
            return Err(io::Error::other(status));
        }
        let opened = Opened::read(&mut BodyReader::new(&body)).map_err(io::Error::other)?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        udp.set_read_timeout(Some(PATIENCE))?;
        udp.connect((address.ip(), opened.core_ports[usize::from(opened.home_core)]))?;
        Ok(Self { stream, opened, udp })
    }

    /// A frame with one request of this session, which acknowledges nothing yet.
    pub fn frame(&self, sequence: u64, request: &Request<'_>) -> Vec<u8> {
        self.frame_acknowledging(1, sequence, request)
    }

    /// A frame with one request, which says that every answer below a sequence has arrived.
    pub fn frame_acknowledging(&self, first: u64, sequence: u64, request: &Request<'_>) -> Vec<u8> {
        frame((self.opened.token, self.opened.view), first, sequence, request)
    }

    /// Sends any bytes as one datagram to the tenant's home core.
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.udp.send(datagram).map(drop)
    }

    /// Waits for one datagram and takes its messages apart. A wait that ends is an error.
    pub fn receive(&self, patience: Duration) -> io::Result<Vec<Answer>> {
        self.udp.set_read_timeout(Some(patience))?;
        let mut buffer = vec![0; FRAME_BYTES_LIMIT];
        let bytes = self.udp.recv(&mut buffer)?;
        answers(&buffer[..bytes])
    }

    /// Sends a request in a frame of its own, which acknowledges all before, and waits for its answer; sends the same
    /// frame again when none comes, as every client does.
    pub fn call(&self, sequence: u64, request: &Request<'_>) -> io::Result<Answer> {
        let frame = self.frame_acknowledging(sequence, sequence, request);
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.send(&frame)?;
            let again = Instant::now() + SENT_AGAIN;
            loop {
                let now = Instant::now();
                if now >= deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let Some(left) = again.checked_duration_since(now).filter(|left| !left.is_zero()) else {
                    break;
                };
                let answers = match self.receive(left) {
                    Err(error) if is_over(&error) => break,
                    answers => answers?,
                };
                if let Some(answer) = answers.into_iter().find(|one| one.sequence_low == sequence as u32) {
                    return Ok(answer);
                }
            }
        }
    }
}

/// Whether a wait has ended without a datagram.
fn is_over(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A frame with one request under any token and view, with any acknowledgement.
pub fn frame((token, view): (u64, u64), first: u64, sequence: u64, request: &Request<'_>) -> Vec<u8> {
    let mut buffer = vec![0; FRAME_BYTES_LIMIT];
    let mut writer = FrameWriter::new();
    writer.start(&mut buffer, view);
    assert!(writer.group(&mut buffer, token, first, 0), "an empty frame has room for a group");
    let body = writer
        .message(&mut buffer, request.opcode(), 0, sequence as u32, request.body_bytes())
        .expect("the request fits a datagram");
    request.encode(body);
    let bytes = writer.finish(&mut buffer);
    buffer.truncate(bytes);
    buffer
}

/// The messages of a frame from the server.
pub fn answers(datagram: &[u8]) -> io::Result<Vec<Answer>> {
    let mut found = Vec::new();
    for group in FrameReader::new(datagram).map_err(|error| io::Error::other(format!("{error:?}")))?.groups()
    {
        let group = group.map_err(|error| io::Error::other(format!("{error:?}")))?;
        for message in group.messages() {
            let message = message.map_err(|error| io::Error::other(format!("{error:?}")))?;
            let status =
                Status::from_u8(message.code).ok_or_else(|| io::Error::other("an unknown status"))?;
            found.push(Answer { sequence_low: message.sequence_low, status, body: message.body.to_vec() });
        }
    }
    Ok(found)
}

/// The opcode of a ping, for streams.
pub const PING: u8 = opcode::PING;
