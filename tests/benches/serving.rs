//! What a request costs inside the server, without a network: dispatch of native requests, and invocations
//! with and without the dispatcher before them.
//!
//! Frames as large as an Ethernet allows, over a million objects of 30-byte keys and 100-byte values, keys
//! drawn at random. Criterion's throughput is requests a second. Extensions are compiled from `ext/`, as an
//! installation would.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use builder::{Package, Toolchain};
use criterion::{BatchSize, Criterion, Throughput};
use db::extension::Extension;
use db::extension::invocation::Invocations;
use db::extension::lineup::Lineup;
use db::extension::registry::Registry;
use db::metrics::WorkerMetrics;
use db::ops::WorkerEnvironment;
use db::server::catalog::Catalog;
use db::server::change::Change;
use db::server::crowd::Crowd;
use db::server::dispatch::Dispatch;
use db::server::invocation;
use db::server::outgoing::Outgoing;
use db::server::parking::Parking;
use db::server::ports::Exits;
use db::server::refusal::{Rate, RefusalLimit};
use db::server::view::RoundView;
use db::session::{Origin, Session};
use db::tablet::{Parts, TableEntry};
use db::tenant::TenantId;
use db::tenant::account::{Account, Accounts};
use fastrand::Rng;
use net::{Batch, Outbox};
use store::{Config, Core, Store};
use tests::server::binary;
use wire::limits::FRAME_BYTES_MAX;
use wire::{Condition, FrameWriter, Request, Status, function_hash};

const TENANT: TenantId = TenantId(1);
const TABLE: u32 = 1;
const TOKEN: u64 = 77;
const VIEW: u64 = 1;
const OBJECTS: u64 = 1_000_000;

/// Requests of one batch.
const BATCH_REQUESTS: u64 = 128;

/// Invocations of one batch that may wait before they are run.
const RUN_AT: usize = 64;

/// Forgets what is sent.
struct Sink;

impl Exits for Sink {
    fn send(&mut self, _: u16, out: &mut Outbox) -> io::Result<usize> {
        let frames = black_box(out.len());
        out.clear();
        Ok(frames)
    }
}

/// A worker's parts, to be moved by hand.
struct Worker {
    core: Core,
    catalog: Catalog,
    metrics: WorkerMetrics,
    sink: Sink,
    outgoing: Outgoing,
    crowd: Crowd,
    refusals: RefusalLimit,
    invocations: Invocations<Origin>,
    parking: Parking,
    next_sequence: u64,
    random: Rng,
}

impl Worker {
    fn new() -> Self {
        let config = Config { memory_bytes: 1 << 30, ..Config::default() };
        let store = Store::new(config).expect("a store");
        let mut catalog = Catalog::default();
        let entry = TableEntry {
            id: TABLE,
            tenant: TENANT,
            name: "t".into(),
            writable: true,
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
        let mut worker = Self {
            core: store.core(0),
            catalog,
            metrics: WorkerMetrics::new(),
            sink: Sink,
            outgoing: Outgoing::new(FRAME_BYTES_MAX, VIEW),
            crowd: Crowd::new(0),
            refusals: RefusalLimit::new(Rate { burst: 1, per_second: 1 }),
            invocations: Invocations::new().expect("stacks"),
            parking: Parking::default(),
            next_sequence: 1,
            random: Rng::with_seed(1),
        };
        for first in (0..OBJECTS).step_by(BATCH_REQUESTS as usize) {
            let batch = worker.batch(|at, _| Call::Put(key(first + at)));
            worker.serve(&batch);
        }
        worker
    }

    /// Frames of [`BATCH_REQUESTS`] requests, which acknowledge all before.
    fn batch(&mut self, mut call: impl FnMut(u64, &mut Rng) -> Call) -> Batch {
        let (mut batch, mut writer) = (Batch::new(), FrameWriter::new());
        let mut buffer = [0; FRAME_BYTES_MAX];
        let peer = ([127, 0, 0, 1], 9).into();
        let acknowledged = self.next_sequence;
        let start = |writer: &mut FrameWriter, buffer: &mut [u8]| {
            writer.start(buffer, VIEW);
            assert!(writer.group(buffer, TOKEN, acknowledged, 0));
        };
        start(&mut writer, &mut buffer);
        for at in 0..BATCH_REQUESTS {
            let call = call(at, &mut self.random);
            let request = call.request();
            let sequence = self.next_sequence as u32;
            let (code, bytes) = (request.opcode(), request.body_bytes());
            if writer
                .message(&mut buffer, code, 0, sequence, bytes)
                .map(|body| request.encode(body))
                .is_none()
            {
                let frame_bytes = writer.finish(&mut buffer);
                assert!(batch.push(&buffer[..frame_bytes], peer));
                start(&mut writer, &mut buffer);
                let body = writer.message(&mut buffer, code, 0, sequence, bytes);
                request.encode(body.expect("an empty frame has room"));
            }
            self.next_sequence += 1;
        }
        let frame_bytes = writer.finish(&mut buffer);
        assert!(batch.push(&buffer[..frame_bytes], peer));
        batch
    }

    /// One round of the loop of `db::server::worker`.
    fn serve(&mut self, batch: &Batch) {
        let pin = self.core.pin();
        let environment = lend(&self.core, &pin, &self.catalog, &self.metrics);
        let mut dispatch = Dispatch {
            environment,
            catalog: &self.catalog,
            port: &mut self.sink,
            arrived_at: 0,
            outgoing: &mut self.outgoing,
            crowd: &mut self.crowd,
            refusals: &mut self.refusals,
            invocations: &mut self.invocations,
            parking: &mut self.parking,
            view: RoundView::settled(VIEW),
            run_at: RUN_AT,
        };
        dispatch.batch(batch);
        let environment = lend(&self.core, &pin, &self.catalog, &self.metrics);
        while self.invocations.live() > 0 {
            invocation::run(&environment, &mut self.invocations, &mut self.sink, &mut self.outgoing);
        }
        self.outgoing.send(&mut self.sink, &self.metrics).expect("a sink");
        drop(pin);
        self.core.step();
    }
}

fn lend<'w>(
    core: &'w Core,
    pin: &'w store::Pinned<'w>,
    catalog: &'w Catalog,
    metrics: &'w WorkerMetrics,
) -> WorkerEnvironment<'w> {
    let tables = &catalog.tables;
    WorkerEnvironment { core, pin, tables, metrics, remote: None, now_us: 1, wall_ms: 1 }
}

/// A request with the key it borrows.
enum Call {
    Get([u8; 30]),
    Put([u8; 30]),
    Invoke(u32, u32, [u8; 30]),
}

impl Call {
    fn request(&self) -> Request<'_> {
        match self {
            Call::Get(key) => Request::Get { table: TABLE, key },
            Call::Put(key) => {
                Request::Put { table: TABLE, key, value: &[7; 100], condition: Condition::Always }
            }
            Call::Invoke(extension, function, key) => Request::Invoke {
                extension: *extension,
                version: 0,
                function: *function,
                table: TABLE,
                key,
                arguments: &[],
            },
        }
    }
}

fn key(number: u64) -> [u8; 30] {
    let mut key = [b'k'; 30];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

/// The extension `ext/<name>`, compiled and loaded.
fn extension(registry: &Registry, name: &str, id: u32) -> Arc<Extension> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root");
    let package = Package::from_directory(&root.join("ext").join(name)).expect("a package");
    let files = package.files().map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).collect();
    let installed = registry.install::<String>(TENANT, name, files, 0, || Ok((id, 1)));
    Arc::clone(&installed.unwrap_or_else(|error| panic!("{name}: {error}")).extension)
}

fn dispatch(criterion: &mut Criterion, worker: &mut Worker, noop: &Arc<Extension>, get: &Arc<Extension>) {
    worker.catalog.apply(Change::ExtensionSettled(Arc::new(Lineup::of(Arc::clone(noop)))));
    worker.catalog.apply(Change::ExtensionSettled(Arc::new(Lineup::of(Arc::clone(get)))));
    let (noop_hash, get_hash) = (function_hash("noop"), function_hash("get"));
    let mut group = criterion.benchmark_group("dispatch");
    group.throughput(Throughput::Elements(BATCH_REQUESTS)).measurement_time(Duration::from_secs(3));
    let worker = std::cell::RefCell::new(worker);
    let mut bench = |what: &str, call: &dyn Fn([u8; 30]) -> Call| {
        group.bench_function(what, |bencher| {
            bencher.iter_batched_ref(
                || worker.borrow_mut().batch(|_, random| call(key(random.u64(0..OBJECTS)))),
                |batch| worker.borrow_mut().serve(batch),
                BatchSize::PerIteration,
            );
        });
    };
    bench("get", &Call::Get);
    bench("put", &Call::Put);
    bench("invoke noop", &|key| Call::Invoke(1, noop_hash, key));
    bench("invoke get", &|key| Call::Invoke(2, get_hash, key));
    group.finish();
}

fn invocations(criterion: &mut Criterion, worker: &mut Worker, extensions: [(&str, &Arc<Extension>); 2]) {
    let mut group = criterion.benchmark_group("invocation");
    group.throughput(Throughput::Elements(BATCH_REQUESTS)).measurement_time(Duration::from_secs(3));
    let mut invocations = Invocations::<u64>::new().expect("stacks");
    for (function, extension) in extensions {
        let index = extension.function(function_hash(function)).expect("the function is there");
        group.bench_function(format!("{function} alone"), |bencher| {
            let Worker { core, catalog, metrics, random, .. } = &mut *worker;
            let draw = || (0..BATCH_REQUESTS).map(|_| key(random.u64(0..OBJECTS))).collect::<Vec<_>>();
            bencher.iter_batched_ref(
                draw,
                |keys| {
                    let pin = core.pin();
                    let environment = lend(core, &pin, catalog, metrics);
                    for key in keys {
                        let started = invocations.start(&environment, extension, index, TABLE, key, &[], 1);
                        assert!(started.is_ok());
                    }
                    let mut on_end = |_, status, reply: &[u8]| {
                        assert_eq!(status, Status::Ok);
                        black_box(reply);
                    };
                    while invocations.live() > 0 {
                        invocations.run(&environment, &mut on_end);
                    }
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let folder = tempfile::tempdir().expect("a folder");
    let (cache, checker) = (folder.path().to_owned(), binary("splinter-server"));
    let prepare = move || Toolchain::prepare_with_checker(&cache, &checker);
    let registry = Registry::open_with(Box::new(prepare), Accounts::default()).expect("a registry");
    let (noop, get) = (extension(&registry, "noop", 1), extension(&registry, "get", 2));
    let mut worker = Worker::new();
    invocations(&mut criterion, &mut worker, [("noop", &noop), ("get", &get)]);
    dispatch(&mut criterion, &mut worker, &noop, &get);
    criterion.final_summary();
}
