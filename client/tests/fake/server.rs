//! An in-process server for tests of the client: the whole protocol over a `BTreeMap`.
//!
//! Datagrams come over a port of an in-process network, streams over TCP on 127.0.0.1. It keeps
//! exactly-once records as the real server does and counts executions, so that a test can tell a
//! retransmission from a second execution. It can forget all sessions (a restart), cut all streams, and put
//! requests off.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::{Batch, Listener, Outbox, Port, StopHandle, Stream, StreamCloser};
use wire::limits::{INSTALL_BODY_BYTES_MAX, RECORD_HEADER_BYTES};
use wire::{
    Body, FrameReader, FrameWriter, OpenRequest, Opened, RecordHeader, SessionLimits, Status, opcode,
};

use super::world::World;

pub const TENANT: &str = "acme";
pub const SECRET: &str = "open sesame";
pub const ADMIN_SECRET: &str = "root sesame";
/// Largest body of a reply in a datagram.
const REPLY_BODY_BYTES_MAX: usize = 1472 - 16 - 24 - 8;

pub struct FakeServer {
    pub address: String,
    pub core: SocketAddr,
    shared: Arc<Shared>,
    stop: StopHandle,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    world: Mutex<World>,
    streams: Mutex<Vec<StreamCloser>>,
    stopping: AtomicBool,
    core_ports: Vec<u16>,
}

impl FakeServer {
    /// Starts a server whose only core listens at `port`.
    pub fn start(port: impl Port + 'static) -> FakeServer {
        FakeServer::start_cores(vec![port])
    }

    /// Starts a server with a core at each of these ports.
    pub fn start_cores(ports: Vec<impl Port + 'static>) -> FakeServer {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local().unwrap().to_string();
        let core = ports[0].local();
        let shared = Arc::new(Shared {
            world: Mutex::new(World::new()),
            streams: Mutex::default(),
            stopping: AtomicBool::new(false),
            core_ports: ports.iter().map(|port| port.local().port()).collect(),
        });
        let stop = listener.stop_handle();
        let for_streams = Arc::clone(&shared);
        let mut threads = vec![thread::spawn(move || {
            while let Some((stream, _)) = listener.accept(Duration::from_secs(5)).unwrap() {
                for_streams.streams.lock().unwrap().push(stream.closer().unwrap());
                let shared = Arc::clone(&for_streams);
                thread::spawn(move || shared.serve_stream(stream));
            }
        })];
        for (core, port) in ports.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || shared.serve_core(core as u16, port)));
        }
        FakeServer { address, core, shared, stop, threads }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock().unwrap()
    }

    /// How many streams it has taken.
    #[allow(dead_code, reason = "where one server is all, nothing is opened behind the client's back")]
    pub fn streams(&self) -> usize {
        self.shared.streams.lock().unwrap().len()
    }

    /// Closes every stream that is open.
    pub fn cut_streams(&self) {
        self.shared.streams.lock().unwrap().drain(..).for_each(|stream| stream.close());
    }

    /// Forgets all sessions and closes all streams, as a restart does. Objects stay, so that a test can see
    /// what was executed.
    pub fn restart(&self) {
        self.world().forget_sessions();
        self.cut_streams();
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.stop.stop();
        self.cut_streams();
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl Shared {
    fn serve_core(&self, core: u16, mut port: impl Port) {
        let mut batch = Batch::new();
        let mut out = Outbox::with_frames(256, port.frame_bytes_max());
        while !self.stopping.load(Ordering::SeqCst) {
            if port.receive(&mut batch).unwrap() == 0 {
                port.wait(Duration::from_millis(2)).unwrap();
                continue;
            }
            for (frame, peer) in batch.frames() {
                let mut world = self.world.lock().unwrap();
                *world.frames.entry(core).or_default() += 1;
                if !world.is_deaf {
                    answer_frame(&mut world, frame, peer, &mut out);
                }
            }
            if self.world.lock().unwrap().is_mute {
                out.clear();
            }
            port.send(&mut out).unwrap();
        }
    }

    fn serve_stream(&self, mut stream: Stream) {
        let mut record = Vec::new();
        let limit = INSTALL_BODY_BYTES_MAX + RECORD_HEADER_BYTES;
        let mut token = 0;
        while stream.read_record(&mut record, Duration::from_secs(60), limit).is_ok() {
            let Ok((header, body)) = RecordHeader::split(&record) else { return };
            let (status, reply) = match header.code {
                opcode::OPEN_SESSION..=opcode::OPEN_ADMIN | opcode::RESUME | opcode::REPLIES => {
                    self.open(header.code, body, &mut token)
                }
                code if code < opcode::OPEN_SESSION => {
                    let mut world = self.world.lock().unwrap();
                    world.acknowledge(token, header.first_unacknowledged);
                    world.execute_once((token, header.sequence), header.view, code, body)
                }
                opcode::ADMINISTER => self.world.lock().unwrap().administer(body),
                _ => (Status::UnknownOpcode, vec![]),
            };
            let view = self.world.lock().unwrap().view;
            let head = RecordHeader {
                body_bytes: reply.len() as u32,
                code: status as u8,
                sequence: header.sequence,
                view,
                ..RecordHeader::default()
            };
            if stream.write_record(&head.encode(), &reply).is_err() {
                return;
            }
        }
    }

    fn open(&self, code: u8, body: &[u8], token: &mut u64) -> (Status, Vec<u8>) {
        let mut world = self.world.lock().unwrap();
        *token = match OpenRequest::decode(code, body) {
            Ok((_, OpenRequest::Session { tenant: TENANT, secret: SECRET })) => world.open_session(),
            Ok((_, OpenRequest::Session { .. })) => return (Status::BadSecret, vec![]),
            Ok((_, OpenRequest::Attach { token })) if world.knows(token) => token,
            Ok((_, OpenRequest::Attach { .. })) => return (Status::BadToken, vec![]),
            Ok((_, OpenRequest::Admin { secret: ADMIN_SECRET })) => return (Status::Ok, vec![]),
            Ok((_, OpenRequest::Admin { .. })) => return (Status::BadSecret, vec![]),
            Ok((_, OpenRequest::Resume { client_id, first_unacknowledged, proof, .. })) => {
                assert_eq!(proof, [client_id as u8; 32]);
                match world.resume_session(client_id, first_unacknowledged) {
                    Some(token) => token,
                    None => return (Status::BadToken, vec![]),
                }
            }
            Ok((_, OpenRequest::Replies { client_id, first_unacknowledged, proof, .. })) => {
                assert_eq!(proof, [client_id as u8; 32]);
                let replies = world.replies_of(client_id, first_unacknowledged);
                return replies
                    .map_or((Status::Unavailable, vec![]), |replies| (Status::Ok, replies.encode()));
            }
            Ok((_, OpenRequest::Peer { .. } | OpenRequest::State)) => return (Status::UnknownOpcode, vec![]),
            Err(status) => return (status, vec![]),
        };
        let client_id = world.client_id(*token);
        let opened = Opened {
            version: 2,
            token: *token,
            client_id,
            home_core: world.home,
            core_ports: self.core_ports.clone(),
            limits: SessionLimits {
                key_bytes_max: 65_535,
                value_bytes_max: 1 << 20,
                reply_bytes_max: 1 << 20,
                arguments_bytes_max: 1 << 20,
            },
            credits: world.credits,
            view: world.view,
            next_sequence: 1,
            shm: world.shm.clone(),
            proof: world.is_resumable.then_some([client_id as u8; 32]),
        };
        (Status::Ok, opened.encode())
    }
}

/// Executes the requests of a frame and puts the answers into frames for its sender.
fn answer_frame(world: &mut World, frame: &[u8], peer: SocketAddr, out: &mut Outbox) {
    let Ok(reader) = FrameReader::new(frame) else { return };
    for group in reader.groups() {
        let Ok(group) = group else { return };
        world.acknowledge(group.token, group.first_unacknowledged);
        let mut writer = FrameWriter::new();
        let mut index = out.open(peer).unwrap();
        writer.start(out.buffer(index), world.view);
        writer.group(out.buffer(index), group.token, 0, world.home);
        for message in group.messages() {
            let Ok(message) = message else { break };
            let sequence = group.sequence(message.sequence_low);
            let (mut status, mut body) =
                world.execute_once((group.token, sequence), reader.view(), message.code, message.body);
            if body.len() > REPLY_BODY_BYTES_MAX {
                (status, body) = (Status::UseStream, vec![]);
            }
            loop {
                let buffer = out.buffer(index);
                if let Some(place) = writer.message(buffer, status as u8, 0, message.sequence_low, body.len())
                {
                    place.copy_from_slice(&body);
                    break;
                }
                let bytes = writer.finish(buffer);
                out.set_bytes(index, bytes);
                index = out.open_next(index).unwrap();
                writer.start(out.buffer(index), world.view);
                writer.group(out.buffer(index), group.token, 0, world.home);
            }
        }
        let bytes = writer.finish(out.buffer(index));
        out.set_bytes(index, bytes);
    }
}
