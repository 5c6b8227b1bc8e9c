//! A client made of the crates below: a requester over a loopback port, and a stream.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use control::{AdminRequest, TableId, TableOptions};
use net::{Batch, LoopbackPort, Outbox, Port, Stream};
use wire::{
    Body, CompletionError, FrameWriter, OpenRequest, Opened, RecordHeader, Request, Requester,
    RequesterConfig, Status, VersionRange, opcode,
};

use super::Site;

/// How long the server may take over a record: a compiler runs behind some of them.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer that was not `Ok`: its status and text.
pub type Refused = (Status, Vec<u8>);

/// A stream to the server.
pub struct ControlStream {
    stream: Stream,
    raw: TcpStream,
    /// What data requests are sent under.
    pub view: u64,
}

impl ControlStream {
    /// Connects and opens; gives the body of the answer.
    pub fn open(server: SocketAddr, request: &OpenRequest<'_>) -> Result<(Self, Vec<u8>), Refused> {
        let mut stream = Self::connect(server);
        let answer = stream.exchange(request.opcode(), 0, &request.encode(VersionRange::OURS))?;
        stream.view = Opened::decode(&answer).map_or(0, |opened| opened.view);
        Ok((stream, answer))
    }

    pub fn connect(server: SocketAddr) -> Self {
        let raw = TcpStream::connect(server).expect("a listener");
        let stream = Stream::over(raw.try_clone().expect("a descriptor"), PATIENCE);
        Self { stream: stream.expect("a working socket"), raw, view: 0 }
    }

    /// Administration.
    pub fn ask(&mut self, request: &AdminRequest<'_>) -> Result<Vec<u8>, Refused> {
        self.exchange(opcode::ADMINISTER, 0, &request.encode().expect("within the limits"))
    }

    /// A data request over the stream.
    pub fn request(&mut self, sequence: u64, request: &Request<'_>) -> Result<Vec<u8>, Refused> {
        let mut body = vec![0; request.body_bytes()];
        request.encode(&mut body);
        self.exchange(request.opcode(), sequence, &body)
    }

    pub fn exchange(&mut self, code: u8, sequence: u64, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let header = RecordHeader { code, sequence, view: self.view, ..RecordHeader::default() };
        self.write(&header.encode_record(body));
        let (header, body) = self.read().expect("an answer");
        assert_eq!(header.sequence, sequence);
        match Status::from_u8(header.code).expect("a status") {
            Status::Ok => Ok(body),
            status => Err((status, body)),
        }
    }

    pub fn write(&mut self, record: &[u8]) {
        self.stream.write_record(record, &[]).expect("the server reads");
    }

    /// Writes bytes that need not be a record.
    pub fn write_raw(&mut self, bytes: &[u8]) {
        self.raw.write_all(bytes).expect("the server reads");
    }

    /// The next record; `None` when the server closed the stream.
    pub fn read(&mut self) -> Option<(RecordHeader, Vec<u8>)> {
        let mut record = Vec::new();
        self.stream.read_record(&mut record, PATIENCE, 32 << 20).ok()?;
        let (header, body) = RecordHeader::split(&record).expect("a record");
        Some((header, body.to_vec()))
    }
}

/// A frame of one group with one message.
pub fn frame(token: u64, view: u64, code: u8, sequence: u32, body: &[u8]) -> Vec<u8> {
    let (mut buffer, mut writer) = (vec![0; 1472], FrameWriter::new());
    writer.start(&mut buffer, view);
    assert!(writer.group(&mut buffer, token, 1, 0));
    let place = writer.message(&mut buffer, code, 0, sequence, body.len()).expect("room");
    place.copy_from_slice(body);
    let bytes = writer.finish(&mut buffer);
    buffer.truncate(bytes);
    buffer
}

/// How a request ended: status or why there is none, and the body.
pub type Ended = (Result<Status, CompletionError>, Vec<u8>);

/// A session of a tenant.
pub struct Client {
    pub control: ControlStream,
    pub port: LoopbackPort,
    pub requester: Requester,
    pub opened: Opened,
    pub server: SocketAddr,
    /// Whom the frames of the latest step came from.
    pub answered_by: Vec<SocketAddr>,
    batch: Batch,
    outbox: Outbox,
    start: Instant,
}

impl Client {
    pub fn open(site: &Site, tenant: &str, secret: &str) -> Result<Self, Refused> {
        let config = RequesterConfig { call_timeout_us: 30_000_000, ..RequesterConfig::default() };
        Self::open_with(site, tenant, secret, config)
    }

    /// A client that sends each request once, on a network that loses nothing.
    pub fn open_patient(site: &Site, tenant: &str, secret: &str) -> Result<Self, Refused> {
        let never_us = 3_600_000_000;
        let config = RequesterConfig {
            call_timeout_us: 30_000_000,
            resend_initial_us: never_us,
            resend_min_us: never_us,
            resend_max_us: never_us,
            ..RequesterConfig::default()
        };
        Self::open_with(site, tenant, secret, config)
    }

    fn open_with(site: &Site, tenant: &str, secret: &str, config: RequesterConfig) -> Result<Self, Refused> {
        let request = OpenRequest::Session { tenant, secret };
        let (control, answer) = ControlStream::open(site.server.tcp(), &request)?;
        let opened = Opened::decode(&answer).expect("an opened session");
        let port = site.network.port().expect("a port");
        let server = site.cores[usize::from(opened.home_core)];
        assert_eq!(server.port(), opened.core_ports[usize::from(opened.home_core)]);
        let requester = Requester::new(opened.token, opened.next_sequence, opened.credits, config);
        let (batch, outbox) = (Batch::new(), Outbox::new(port.frame_bytes_max()));
        Ok(Self {
            control,
            port,
            requester,
            opened,
            server,
            answered_by: Vec::new(),
            batch,
            outbox,
            start: Instant::now(),
        })
    }

    pub fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    pub fn submit(&mut self, tag: u64, request: &Request<'_>) -> bool {
        self.requester.submit(self.now_us(), tag, request).is_ok()
    }

    /// Sends what is due, receives what is there, hands over what ended.
    pub fn step(&mut self, ended: &mut impl FnMut(u64, Ended)) {
        let now_us = self.now_us();
        while let Some(index) = self.outbox.open(self.server) {
            let buffer = self.outbox.buffer(index);
            let Some(bytes) = self.requester.poll_transmit(now_us, self.opened.view, buffer) else { break };
            self.outbox.set_bytes(index, bytes);
        }
        self.port.send(&mut self.outbox).expect("a working port");
        self.port.receive(&mut self.batch).expect("a working port");
        self.answered_by.clear();
        self.answered_by.extend(self.batch.frames().map(|(_, from)| from));
        let now_us = self.now_us();
        let mut complete = |completion: wire::Completion<'_>| {
            ended(completion.tag, (completion.status, completion.body.to_vec()));
        };
        for (frame, _) in self.batch.frames() {
            // Answers to frames that a test made by hand are of no interest here.
            let view = self.requester.on_frame(now_us, frame, &mut complete).expect("a good frame");
            self.opened.view = self.opened.view.max(view);
            self.control.view = self.opened.view;
        }
        self.requester.on_timer(now_us, &mut complete);
        if self.batch.is_empty() {
            self.port.wait(Duration::from_micros(200)).expect("a working port");
        }
    }

    pub fn create_table(&mut self, name: &str) -> u32 {
        self.create_table_with(name, TableOptions::default())
    }

    pub fn create_table_with(&mut self, name: &str, options: TableOptions) -> u32 {
        let answer = self.control.ask(&AdminRequest::TableCreate { name, options }).expect("a fresh name");
        control::decode::<TableId>(&answer).expect("an id").id
    }

    /// One request from start to end.
    pub fn call(&mut self, request: &Request<'_>) -> Ended {
        assert!(self.submit(0, request), "the window is open");
        let mut answer = None;
        while answer.is_none() {
            self.step(&mut |_, ended| answer = Some(ended));
        }
        answer.expect("it ended")
    }

    /// The status of one request that is answered.
    pub fn status(&mut self, request: &Request<'_>) -> Status {
        self.call(request).0.expect("an answer")
    }

    /// Sends a frame as it is.
    pub fn send_frame(&mut self, frame: &[u8]) {
        assert!(self.outbox.push(frame, self.server));
        self.port.send(&mut self.outbox).expect("a working port");
    }

    /// Sends a frame as it is, waits until something comes back, and gives all that does.
    pub fn exchange_frame(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.send_frame(frame);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let received = self.received();
            if !received.is_empty() {
                return received;
            }
            assert!(Instant::now() < deadline, "no answer");
            self.port.wait(Duration::from_millis(5)).expect("a working port");
        }
    }

    /// Sends a frame as it is, which may be answered or not, and gives all that comes back within a while.
    pub fn try_frame(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.send_frame(frame);
        let mut received = Vec::new();
        let deadline = Instant::now() + Duration::from_millis(60);
        while Instant::now() < deadline {
            received.extend(self.received());
            self.port.wait(Duration::from_millis(5)).expect("a working port");
        }
        received
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        self.port.receive(&mut self.batch).expect("a working port");
        self.batch.frames().map(|(frame, _)| frame.to_vec()).collect()
    }
}
