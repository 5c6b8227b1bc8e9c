//! Native requests through the dispatcher, without a network: they allocate nothing, and what they cost.

#[path = "support/counting.rs"]
mod counting;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use counting::allocated;
use db::extension::invocation::Invocations;
use db::metrics::WorkerMetrics;
use db::ops::WorkerEnvironment;
use db::session::{Origin, Session};
use db::tablet::{Parts, TableEntry};
use db::tenant::account::Account;
use db::view::RoundView;
use db::view::catalog::WorkerCatalog;
use db::view::change::Change;
use db::worker::batch_admission::BatchAdmission;
use db::worker::dispatch::Dispatch;
use db::worker::outgoing::Outgoing;
use db::worker::pending_requests::PendingRequests;
use db::worker::ports::Exits;
use db::worker::response_limiter::{ResponseLimiter, ResponseRate};
use net::{Batch, Outbox};
use store::{Config, Core, Store};
use wire::{
    Changes, CommitRead, CommitWrite, Condition, FrameReader, FrameWriter, Request, Status, TenantId,
};

/// Counts the messages of what is sent and forgets it.
struct Sink {
    messages: u64,
    refused: u64,
}

impl Exits for Sink {
    fn send(&mut self, _: u16, out: &mut Outbox) -> io::Result<usize> {
        let frames = out.len();
        for index in 0..frames {
            let reader = FrameReader::new(out.frame(index).0).expect("a good frame");
            for message in reader.groups().flat_map(|group| group.expect("a good group").messages()) {
                self.messages += 1;
                self.refused += u64::from(message.expect("a good message").code != Status::Ok as u8);
            }
        }
        out.clear();
        Ok(frames)
    }
}

const TENANT: TenantId = TenantId(1);
const TABLE: u32 = 1;
const TOKEN: u64 = 77;

/// A dispatcher with all it needs, and frames for it.
struct Bench {
    core: Core,
    catalog: WorkerCatalog,
    metrics: WorkerMetrics,
    sink: Sink,
    outgoing: Outgoing,
    admission: BatchAdmission,
    refusals: ResponseLimiter,
    invocations: Invocations<Origin>,
    pending: PendingRequests,
    batch: Batch,
    next_sequence: u64,
}

impl Bench {
    fn new(memory_bytes: usize) -> Self {
        let config = Config {
            memory_bytes,
            segment_bytes: 1 << 20,
            cores: 1,
            huge_pages: true,
            durable: false,
            recovery_cores: 0,
        };
        let store = Store::new(config).expect("a store");
        let mut catalog = WorkerCatalog::default();
        let entry = TableEntry {
            id: TABLE,
            tenant: TENANT,
            name: "t".into(),
            writable: true,
            durability: control::Durability::Memory,
            owner: Arc::new(Account::new(TENANT)),
            parts: Parts::whole(store.table(TABLE)),
            map: None,
        };
        catalog.apply(Change::TableCreated(Arc::new(entry)));
        catalog.apply(Change::SessionOpened(Arc::new(Session::new(
            TOKEN,
            1,
            Arc::new(Account::new(TENANT)),
            0,
        ))));
        Self {
            core: store.core(0),
            catalog,
            metrics: WorkerMetrics::new(),
            sink: Sink { messages: 0, refused: 0 },
            outgoing: Outgoing::new(1472, 1),
            admission: BatchAdmission::new(0),
            refusals: ResponseLimiter::new(ResponseRate { burst: 1, per_second: 1 }),
            invocations: Invocations::new().expect("stacks"),
            pending: PendingRequests::default(),
            batch: Batch::new(),
            next_sequence: 1,
        }
    }

    /// Fills the batch with frames of `count` requests.
    fn fill<'k>(&mut self, count: usize, mut request: impl FnMut(u64) -> Request<'k>) {
        self.batch.clear();
        let (mut buffer, mut writer) = ([0; 1472], FrameWriter::new());
        let peer = ([127, 0, 0, 1], 9).into();
        let acknowledged = self.next_sequence;
        let mut open = false;
        for _ in 0..count {
            let request = request(self.next_sequence);
            loop {
                if !open {
                    writer.start(&mut buffer, 1);
                    assert!(writer.group(&mut buffer, TOKEN, acknowledged, 0));
                    open = true;
                }
                let (code, bytes) = (request.opcode(), request.body_bytes());
                if let Some(body) = writer.message(&mut buffer, code, 0, self.next_sequence as u32, bytes) {
                    request.encode(body);
                    break;
                }
                let bytes = writer.finish(&mut buffer);
                assert!(self.batch.push(&buffer[..bytes], peer));
                open = false;
            }
            self.next_sequence += 1;
        }
        let bytes = writer.finish(&mut buffer);
        assert!(self.batch.push(&buffer[..bytes], peer));
    }

    fn serve(&mut self) {
        let pin = self.core.pin();
        let environment = WorkerEnvironment {
            core: &self.core,
            pin: &pin,
            tables: &self.catalog.tables,
            metrics: &self.metrics,
            remote: None,
            now_us: 1,
            wall_ms: 1,
        };
        let mut dispatch = Dispatch {
            environment,
            catalog: &self.catalog,
            port: &mut self.sink,
            arrived_at: 0,
            outgoing: &mut self.outgoing,
            admission: &mut self.admission,
            refusals: &mut self.refusals,
            invocations: &mut self.invocations,
            pending: &mut self.pending,
            view: RoundView::settled(1),
            run_at: 64,
        };
        dispatch.batch(&self.batch);
        self.outgoing.send(&mut self.sink, &self.metrics).expect("a port that works");
        drop(pin);
        self.core.step();
    }

    /// Serves `rounds` batches of 256 requests: allocations, and nanoseconds per request of the median batch.
    fn measure(&mut self, rounds: u64, what: &str, objects: u64) -> (u64, f64) {
        let keys: Vec<[u8; 30]> = (0..objects).map(key).collect();
        let write = |key| CommitWrite { table: TABLE, key, value: Some(&[7; 100][..]), ttl_ms: None };
        let pairs: Vec<[CommitWrite<'_>; 2]> =
            keys.iter().zip(keys.iter().rev()).map(|(one, other)| [write(one), write(other)]).collect();
        let absent = [b"a", b"b", b"c", b"d"].map(|key| CommitRead { table: TABLE, key, version: 0 });
        let mut random = fastrand::Rng::with_seed(3);
        let (mut allocations, mut spent) = (0, Vec::with_capacity(rounds as usize));
        for _ in 0..rounds {
            self.fill(256, |_| {
                let key = &keys[random.usize(..keys.len())];
                match what {
                    "get" => Request::Get { table: TABLE, key },
                    "commit" => {
                        let pair = &pairs[random.usize(..pairs.len())];
                        Request::Commit { changes: Changes::listed(&absent, &[], pair) }
                    }
                    "increment" => Request::Increment { table: TABLE, key: b"n", delta: 1 },
                    _ => Request::Put { table: TABLE, key, value: &[7; 100], condition: Condition::Always },
                }
            });
            let (before, start) = (allocated(), Instant::now());
            self.serve();
            spent.push(start.elapsed());
            allocations += allocated() - before;
        }
        assert_eq!((self.sink.messages, self.sink.refused), (self.next_sequence - 1, 0));
        spent.sort_unstable();
        (allocations, spent[spent.len() / 2].as_nanos() as f64 / 256.0)
    }
}

fn key(number: u64) -> [u8; 30] {
    let mut key = [b'k'; 30];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

fn load(bench: &mut Bench, objects: u64) {
    let keys: Vec<[u8; 30]> = (0..objects).map(key).collect();
    for chunk in keys.chunks(256) {
        let mut keys = chunk.iter();
        bench.fill(chunk.len(), |_| {
            let key = keys.next().expect("as many as asked for");
            Request::Put { table: TABLE, key, value: &[7; 100], condition: Condition::Always }
        });
        bench.serve();
    }
}

#[test]
fn a_native_request_allocates_nothing() {
    let mut bench = Bench::new(64 << 20);
    load(&mut bench, 10_000);
    for what in ["get", "put", "increment", "commit"] {
        bench.measure(400, what, 10_000);
        let (allocations, _) = bench.measure(400, what, 10_000);
        assert_eq!(allocations, 0, "{what}");
    }
}

#[test]
#[ignore = "prints times; run it alone on a quiet machine, in release"]
fn what_a_native_request_costs() {
    let mut bench = Bench::new(1 << 30);
    let objects = 1_000_000;
    load(&mut bench, objects);
    for what in ["get", "put", "increment", "commit"] {
        bench.measure(4_000, what, objects);
        let (_, nanoseconds) = bench.measure(4_000, what, objects);
        println!("{what}: {nanoseconds:.0} ns");
    }
}
