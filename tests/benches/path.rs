//! What a request costs on its whole way but the kernel's: client library, frames, dispatch, store, and back.
//!
//! A session of the client library over a port behind which workers are moved by hand, all in one thread, so that
//! `scripts/instructions` can count instructions under callgrind: those of the client between submit and completion, those of the
//! servers in [`Worker::serve`]. The ways:
//!
//! ```text
//!   single   a server with metadata of its own, of which clients hear that it is alone
//!   member   a server of a cluster that has all of the table
//!   cluster  three servers with a third of the hashes each: a frame to each of them where there was one
//! ```
//! `cargo bench -p tests --bench path -- WAY REQUEST OUTSTANDING COUNT [--sandbox native|wasm]` makes `COUNT` requests with
//! 30-byte keys and 100-byte values, `OUTSTANDING` of them at a time, and prints the nanoseconds of one. `REQUEST` is `get`,
//! `put`, `invoke` (`ext/noop`) or `invoke-get` (`ext/get`, which gets the value that the native get does). Invocations run
//! in the form of `--sandbox`, wasm by default.

#[path = "serving/extensions.rs"]
mod extensions;
#[path = "serving/worker.rs"]
mod worker;

use std::cell::RefCell;
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::options::SandboxOption;
use client::{ClientConfig, Session};
use db::extension::ActiveVersions;
use db::tablet::Parts;
use db::view::change::Change;
use db::worker::ports::Exits;
use extensions::{Extensions, take_sandbox};
use net::{Batch, Listener, LoopbackClock, LoopbackNetwork, Outbox, Port, Waker};
use store::{Config, HashRange, Quota, Store, TableOptions};
use wire::limits::FRAME_BYTES_MAX;
use wire::{
    Body, Condition, Opened, RecordHeader, Request, ServerPlace, SessionLimits, Tablet, TabletMap,
    function_hash,
};
use worker::{TABLE, VIEW, Worker};

const OBJECTS: u64 = 4_096;
/// Requests that a session may have outstanding.
const CREDITS: u16 = 64;

/// Sessions are opened within this time of each other, also under valgrind on a busy machine.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(300);

/// Keeps what a worker sends for the client, as if its port had received it.
struct Inbox(Batch);

impl Exits for Inbox {
    fn send(&mut self, _: u16, out: &mut Outbox) -> io::Result<usize> {
        let frames = out.len();
        for index in 0..frames {
            let (frame, peer) = out.frame(index);
            assert!(frame.is_empty() || self.0.push(frame, peer), "a batch has room for what is outstanding");
        }
        out.clear();
        Ok(frames)
    }
}

thread_local! {
    /// The workers behind the port, which may move to other threads, as they may not.
    static WORKERS: RefCell<Vec<Worker>> = const { RefCell::new(Vec::new()) };
}

/// The client's port: what is sent is served at once.
struct Served {
    /// What goes to the worker that is next.
    arriving: Batch,
    inbox: Inbox,
    waker: Waker,
}

/// Where the worker of a server receives.
fn core_address(server: usize) -> SocketAddr {
    ([127, 0, 0, 1], 1_000 + server as u16).into()
}

impl Port for Served {
    #[inline(never)]
    fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        batch.clear();
        std::mem::swap(batch, &mut self.inbox.0);
        Ok(batch.len())
    }

    #[inline(never)]
    fn send(&mut self, out: &mut Outbox) -> io::Result<usize> {
        let peer = self.local();
        let Served { arriving, inbox, .. } = self;
        WORKERS.with_borrow_mut(|workers| {
            for (server, worker) in workers.iter_mut().enumerate() {
                arriving.clear();
                for at in 0..out.len() {
                    let (frame, to) = out.frame(at);
                    if to == core_address(server) && !frame.is_empty() {
                        assert!(arriving.push(frame, peer), "an outbox fits a batch");
                    }
                }
                if !arriving.is_empty() {
                    worker.serve(arriving, inbox);
                }
            }
        });
        out.clear();
        Ok(1)
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    fn local(&self) -> SocketAddr {
        ([127, 0, 0, 1], 9).into()
    }

    fn drops(&self) -> u64 {
        0
    }
}

/// Opens sessions of a server as `db` does; returns where.
fn listen(server: usize) -> String {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a port on loopback");
    let address = listener.local().expect("a bound listener has an address").to_string();
    std::thread::spawn(move || {
        let mut streams = Vec::new();
        while let Ok(Some((mut stream, _))) = listener.accept(ACCEPT_TIMEOUT) {
            let mut record = Vec::new();
            if stream.read_record(&mut record, Duration::from_secs(5), 4_096).is_err() {
                continue;
            }
            let (key_bytes_max, value_bytes_max) = (65_535, 1 << 20);
            let (reply_bytes_max, arguments_bytes_max) = (1 << 20, 1 << 20);
            let opened = Opened {
                version: 1,
                token: token(server),
                client_id: 1,
                home_core: 0,
                core_ports: vec![core_address(server).port()],
                limits: SessionLimits {
                    key_bytes_max,
                    value_bytes_max,
                    reply_bytes_max,
                    arguments_bytes_max,
                },
                credits: CREDITS,
                view: VIEW,
                next_sequence: 1,
                shm: None,
                proof: None,
            };
            let body = opened.encode();
            let head = RecordHeader { body_bytes: body.len() as u32, ..RecordHeader::default() };
            if stream.write_record(&head.encode(), &body).is_ok() {
                streams.push(stream);
            }
        }
    });
    address
}

fn token(server: usize) -> u64 {
    70 + server as u64
}

/// So many servers which share the hashes of the table; clients are told a map unless it is one `alone`.
fn session(servers: usize, alone: bool) -> Session {
    let addresses: Vec<String> = (0..servers).map(listen).collect();
    let ranges = HashRange::ALL.split(servers);
    let tablets = ranges.iter().zip(0..).map(|(range, server)| Tablet { last: range.last(), server });
    let places = (1..).zip(&addresses);
    let places = places.map(|(number, address)| ServerPlace { number, address: address.clone() }).collect();
    let map = TabletMap::new(1, places, tablets.collect()).expect("every hash has a server");
    let told = (!alone).then(|| Arc::from(map.encode()));
    let workers: Vec<Worker> = ranges
        .iter()
        .enumerate()
        .map(|(server, &hashes)| {
            let store = Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).expect("a store");
            let options = TableOptions { hashes, ..TableOptions::default() };
            let part = store.table_with(TABLE, options, &Arc::new(Quota::new(1, u64::MAX)));
            let parts = Parts::new(options, vec![part], &[hashes]).expect("the part has its hashes");
            Worker::new(&store, token(server), parts, told.clone())
        })
        .collect();
    WORKERS.set(workers);
    let port = LoopbackNetwork::new(1, net::Faults::default(), LoopbackClock::Real).port().expect("a port");
    let port = Served { arriving: Batch::new(), inbox: Inbox(Batch::new()), waker: port.waker() };
    let config = ClientConfig::default();
    Session::open_over(Box::new(port), &addresses[0], "tenant", "secret", config).expect("a session")
}

fn key(number: u64) -> [u8; 30] {
    let mut key = [b'k'; 30];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

/// Makes `count` requests, of which at most so many are outstanding; returns the bytes of their answers.
#[inline(never)]
fn make(
    session: &mut Session,
    count: u64,
    outstanding: u64,
    request: impl Fn(&[u8]) -> Request<'_>,
) -> usize {
    let (mut submitted, mut completed, mut bytes) = (0, 0, 0);
    while completed < count {
        while submitted < count && submitted - completed < outstanding {
            let key = key(submitted * 0x9e37_79b9 % OBJECTS);
            session.submit(&request(&key), submitted).expect("there is room");
            submitted += 1;
        }
        let polled = session.poll(&mut |completion| {
            assert_eq!(completion.status, Ok(wire::Status::Ok));
            bytes += completion.body.len();
        });
        completed += polled.expect("the port does not break") as u64;
    }
    bytes
}

fn put(key: &[u8]) -> Request<'_> {
    Request::Put { table: TABLE, key, value: &[7; 100], condition: Condition::Always }
}

fn get(key: &[u8]) -> Request<'_> {
    Request::Get { table: TABLE, key }
}

fn invoke(extension: u32, function: u32, key: &[u8]) -> Request<'_> {
    Request::Invoke { extension, version: 0, function, table: TABLE, key, arguments: &[] }
}

/// Makes requests of one kind; a name for callgrind.
#[inline(never)]
fn requests(session: &mut Session, kind: &str, count: u64, outstanding: u64) -> usize {
    let (noop, getting) = (function_hash("noop"), function_hash("get"));
    match kind {
        "get" => make(session, count, outstanding, get),
        "put" => make(session, count, outstanding, put),
        "invoke" => make(session, count, outstanding, |key| invoke(1, noop, key)),
        "invoke-get" => make(session, count, outstanding, |key| invoke(2, getting, key)),
        other => panic!("there is no request {other}"),
    }
}

/// Makes the extensions known to all workers.
fn install(sandbox: SandboxOption) {
    let extensions = Extensions::new(sandbox);
    for (name, id) in [("noop", 1), ("get", 2)] {
        let active = Arc::new(ActiveVersions::of(extensions.load(name, id)));
        WORKERS.with_borrow_mut(|workers| {
            for worker in workers {
                worker.catalog.apply(Change::ExtensionSettled(Arc::clone(&active)));
            }
        });
    }
}

fn main() {
    builder::child_main();
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let sandbox = take_sandbox(&mut words);
    let [way, kind, outstanding, count] = &words[..] else {
        return eprintln!("path: WAY REQUEST OUTSTANDING COUNT, where WAY is single, member or cluster");
    };
    let (outstanding, count) = (outstanding.parse().expect("a number"), count.parse().expect("a number"));
    let mut session = match way.as_str() {
        "single" => session(1, true),
        "member" => session(1, false),
        "cluster" => session(3, false),
        other => panic!("there is no way {other}"),
    };
    if kind.starts_with("invoke") {
        install(sandbox);
    }
    make(&mut session, OBJECTS, 1, put);
    requests(&mut session, kind, OBJECTS, outstanding);
    let began = Instant::now();
    black_box(requests(&mut session, kind, count, outstanding));
    println!("{:.1}", began.elapsed().as_nanos() as f64 / count as f64);
}
