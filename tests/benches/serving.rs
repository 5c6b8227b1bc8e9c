//! What a request costs inside the server, without a network: dispatch of native requests, and invocations
//! with and without the dispatcher before them.
//!
//! Frames as large as an Ethernet allows, over a million objects of 30-byte keys and 100-byte values, keys
//! drawn at random. Criterion's throughput is requests a second. Extensions are compiled from `ext/`, as an
//! installation would, and run in both forms: `cargo bench -p tests --bench serving -- wasm` measures one of them.

#[path = "serving/extensions.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod extensions;
#[path = "serving/worker.rs"]
mod worker;

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use benches::options::SandboxOption;
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

/// A function in one form.
struct Measured {
    function: &'static str,
    sandbox: SandboxOption,
    extension: Arc<Extension>,
}

impl Measured {
    /// `noop` and `get` in both forms, as extensions of their own.
    fn all() -> Vec<Self> {
        let forms =
            [SandboxOption::Native, SandboxOption::Wasm].map(|sandbox| (sandbox, Extensions::new(sandbox)));
        let functions = forms.iter().flat_map(|form| ["noop", "get"].map(|function| (form, function)));
        let load = |((sandbox, extensions), function): (&(SandboxOption, Extensions), &'static str), id| {
            Self { function, sandbox: *sandbox, extension: extensions.load(function, id) }
        };
        functions.zip(1..).map(|(function, id)| load(function, id)).collect()
    }
}

fn dispatch(criterion: &mut Criterion, load: &mut Load, functions: &[Measured]) {
    for Measured { extension, .. } in functions {
        let active = ActiveVersions::of(Arc::clone(extension));
        load.worker.catalog.apply(Change::ExtensionSettled(Arc::new(active)));
    }
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
    for Measured { function, sandbox, extension } in functions {
        let hash = function_hash(function);
        bench(&format!("invoke {function}, {sandbox}"), &|key| Call::Invoke(extension.id, hash, key));
    }
    group.finish();
}

fn invocations(criterion: &mut Criterion, load: &mut Load, functions: &[Measured]) {
    let mut group = criterion.benchmark_group("invocation");
    group.throughput(Throughput::Elements(BATCH_REQUESTS)).measurement_time(Duration::from_secs(3));
    let mut invocations = Invocations::<u64>::new().expect("stacks");
    for Measured { function, sandbox, extension } in functions {
        let index = extension.function(function_hash(function)).expect("the function is there");
        group.bench_function(format!("{function} alone, {sandbox}"), |bencher| {
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
    let functions = Measured::all();
    let mut load = Load::new();
    invocations(&mut criterion, &mut load, &functions);
    dispatch(&mut criterion, &mut load, &functions);
    criterion.final_summary();
}
