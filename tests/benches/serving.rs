//! What a request costs inside the server, without a network: dispatch of native requests, and invocations
//! with and without the dispatcher before them.
//!
//! Frames as large as an Ethernet allows, over a million objects of 30-byte keys and 100-byte values, keys
//! drawn at random. Criterion's throughput is requests a second. Extensions are compiled from `ext/`, as an
//! installation would.

#[path = "serving/extensions.rs"]
mod extensions;
#[path = "serving/worker.rs"]
mod worker;

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use db::extension::ActiveVersions;
use db::extension::Extension;
use db::extension::invocation::Invocations;
use db::tablet::Parts;
use db::view::change::Change;
use db::worker::ports::Exits;
use extensions::Extensions;
use fastrand::Rng;
use net::{Batch, Outbox};
use store::{Config, Store};
use wire::limits::FRAME_BYTES_MAX;
use wire::{Condition, FrameWriter, Request, Status, function_hash};
use worker::{TABLE, VIEW, Worker, lend};

const TOKEN: u64 = 77;
const OBJECTS: u64 = 1_000_000;

/// Requests of one batch.
const BATCH_REQUESTS: u64 = 128;

/// Forgets what is sent.
struct Sink;

impl Exits for Sink {
    fn send(&mut self, _: u16, out: &mut Outbox) -> io::Result<usize> {
        let frames = black_box(out.len());
        out.clear();
        Ok(frames)
    }
}

/// A worker, and what is asked of it.
struct Load {
    worker: Worker,
    sink: Sink,
    next_sequence: u64,
    random: Rng,
}

impl Load {
    fn new() -> Self {
        let store = Store::new(Config { memory_bytes: 1 << 30, ..Config::default() }).expect("a store");
        let worker = Worker::new(&store, TOKEN, Parts::whole(store.table(TABLE)), None);
        let mut load = Self { worker, sink: Sink, next_sequence: 1, random: Rng::with_seed(1) };
        for first in (0..OBJECTS).step_by(BATCH_REQUESTS as usize) {
            let batch = load.batch(|at, _| Call::Put(key(first + at)));
            load.serve(&batch);
        }
        load
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

    fn serve(&mut self, batch: &Batch) {
        self.worker.serve(batch, &mut self.sink);
    }
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

fn dispatch(criterion: &mut Criterion, load: &mut Load, noop: &Arc<Extension>, get: &Arc<Extension>) {
    load.worker.catalog.apply(Change::ExtensionSettled(Arc::new(ActiveVersions::of(Arc::clone(noop)))));
    load.worker.catalog.apply(Change::ExtensionSettled(Arc::new(ActiveVersions::of(Arc::clone(get)))));
    let (noop_hash, get_hash) = (function_hash("noop"), function_hash("get"));
    let mut group = criterion.benchmark_group("dispatch");
    group.throughput(Throughput::Elements(BATCH_REQUESTS)).measurement_time(Duration::from_secs(3));
    let load = std::cell::RefCell::new(load);
    let mut bench = |what: &str, call: &dyn Fn([u8; 30]) -> Call| {
        group.bench_function(what, |bencher| {
            bencher.iter_batched_ref(
                || load.borrow_mut().batch(|_, random| call(key(random.u64(0..OBJECTS)))),
                |batch| load.borrow_mut().serve(batch),
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

fn invocations(criterion: &mut Criterion, load: &mut Load, extensions: [(&str, &Arc<Extension>); 2]) {
    let mut group = criterion.benchmark_group("invocation");
    group.throughput(Throughput::Elements(BATCH_REQUESTS)).measurement_time(Duration::from_secs(3));
    let mut invocations = Invocations::<u64>::new().expect("stacks");
    for (function, extension) in extensions {
        let index = extension.function(function_hash(function)).expect("the function is there");
        group.bench_function(format!("{function} alone"), |bencher| {
            let Load { worker: Worker { core, catalog, metrics, .. }, random, .. } = &mut *load;
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
    builder::child_main();
    let mut criterion = Criterion::default().configure_from_args();
    let extensions = Extensions::new();
    let (noop, get) = (extensions.load("noop", 1), extensions.load("get", 2));
    let mut load = Load::new();
    invocations(&mut criterion, &mut load, [("noop", &noop), ("get", &get)]);
    dispatch(&mut criterion, &mut load, &noop, &get);
    criterion.final_summary();
}
