//! What an invocation costs a worker when every request is another tenant's.
//!
//! Each tenant has a table and an extension (`ext/get`) of its own. A frame carries 16 requests of 16 sessions, drawn at random,
//! as one of a proxy does. The number of sessions and of objects is the same for any number of tenants, so that the
//! difference is what the worker keeps for each tenant. One thread, no port.
//!
//! `cargo bench -p tests --bench tenants -- TENANTS EXTENSIONS COUNT [CACHE] [--sandbox native|wasm]` makes `COUNT` invocations
//! for `TENANTS` tenants, whose extensions are copies of `EXTENSIONS` artefacts (built in the folder `CACHE`, if given), in
//! one form, wasm by default. It prints the processor time of an invocation in nanoseconds, and what the process grew by
//! in the first invocations of all tenants: resident bytes and page tables, for each tenant. `scripts/instructions
//! --tenants` counts the cache misses of [`Worker::serve`] under callgrind.

#[expect(dead_code, reason = "other benches use more of it")]
#[path = "serving/extensions.rs"]
mod extensions;
#[expect(dead_code, reason = "other benches use more of it")]
#[path = "serving/worker.rs"]
mod worker;

use std::fs;
use std::hint::black_box;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use benches::machine::own_cpu_ns;
use benches::options::SandboxOption;
use db::extension::{ActiveVersions, Extension};
use db::tablet::Parts;
use db::view::change::Change;
use db::worker::ports::Exits;
use extensions::{Extensions, take_sandbox};
use fastrand::Rng;
use net::{Batch, Outbox};
use store::{Config, Store};
use wire::limits::FRAME_BYTES_MAX;
use wire::{Condition, FrameWriter, Request, TenantId, function_hash};
use worker::{VIEW, Worker};

/// Sessions in all, however many tenants there are.
const SESSIONS: u64 = 1_000;
/// Objects in all, however many tenants there are: some 70 MB, many times what the modelled cache holds.
const OBJECTS: u64 = 400_000;
/// Requests of one frame, each of another session.
const FRAME_REQUESTS: usize = 16;
/// Frames of one batch.
const BATCH_FRAMES: usize = 4;
/// Invocations of every session before anything is counted: what is made at the first ones is made then.
const ROUNDS_BEFORE: u64 = 20;

/// Forgets what is sent.
struct Sink;

impl Exits for Sink {
    fn send(&mut self, _: u16, out: &mut Outbox) -> io::Result<usize> {
        let frames = black_box(out.len());
        out.clear();
        Ok(frames)
    }
}

fn key(number: u64) -> [u8; 30] {
    let mut key = [b'k'; 30];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

/// The sessions of a load, and what each has asked for.
struct Load {
    worker: Worker,
    extensions: Vec<Arc<Extension>>,
    tenants: u64,
    sequences: Vec<u64>,
    random: Rng,
    batch: Batch,
}

impl Load {
    fn new(tenants: u64, artefacts: u64, cache: Option<PathBuf>, sandbox: SandboxOption) -> Load {
        let store = Store::new(Config { memory_bytes: 256 << 20, ..Config::default() }).expect("a store");
        let registry = match cache {
            Some(cache) => Extensions::within(cache, sandbox),
            None => Extensions::new(sandbox),
        };
        let (mut worker, mut extensions) = (Worker::idle(&store), Vec::new());
        let sessions = SESSIONS.max(tenants);
        for tenant in 0..tenants {
            let id = TenantId(tenant as u32 + 1);
            let loaded = registry.load_copy("get", id, id.0, tenant % artefacts);
            extensions.push(Arc::clone(&loaded));
            let account = Arc::clone(&loaded.account);
            worker.catalog.apply(Change::ExtensionSettled(Arc::new(ActiveVersions::of(loaded))));
            worker.add_table(id.0, &account, Parts::whole(store.table(id.0)), None);
            for session in (tenant..sessions).step_by(tenants as usize) {
                worker.open_session(session + 1, &account);
            }
        }
        let sequences = vec![1; sessions as usize];
        let (random, batch) = (Rng::with_seed(1), Batch::new());
        let mut load = Load { worker, extensions, tenants, sequences, random, batch };
        for object in 0..OBJECTS.max(tenants) {
            load.serve_one(object % tenants, object);
        }
        load
    }

    /// The number of a session's table, and of its extension.
    fn table(&self, session: u64) -> u32 {
        (session % self.tenants) as u32 + 1
    }

    /// Adds a frame to the batch with a request of each of these sessions.
    fn add_frame(&mut self, requests: &[(u64, Request<'_>)]) {
        let (mut writer, mut buffer) = (FrameWriter::new(), [0; FRAME_BYTES_MAX]);
        writer.start(&mut buffer, VIEW);
        for (session, request) in requests {
            let sequence = &mut self.sequences[*session as usize];
            let (code, bytes) = (request.opcode(), request.body_bytes());
            assert!(writer.group(&mut buffer, session + 1, *sequence, 0));
            let body = writer.message(&mut buffer, code, 0, *sequence as u32, bytes);
            request.encode(body.expect("a frame has room"));
            *sequence += 1;
        }
        let bytes = writer.finish(&mut buffer);
        assert!(self.batch.push(&buffer[..bytes], ([127, 0, 0, 1], 9).into()));
    }

    fn serve(&mut self) {
        self.worker.serve(&self.batch, &mut Sink);
        self.batch.clear();
    }

    /// Puts an object.
    fn serve_one(&mut self, session: u64, object: u64) {
        let (table, key) = (self.table(session), key(object));
        let put = Request::Put { table, key: &key, value: &[7; 100], condition: Condition::Always };
        self.add_frame(&[(session, put)]);
        self.serve();
    }

    /// Makes about `count` invocations.
    fn invoke(&mut self, count: u64) {
        let (sessions, objects) = (self.sequences.len() as u64, OBJECTS.max(self.tenants));
        for _ in 0..count / (FRAME_REQUESTS * BATCH_FRAMES) as u64 {
            for _ in 0..BATCH_FRAMES {
                let drawn: [(u64, [u8; 30]); FRAME_REQUESTS] = std::array::from_fn(|_| {
                    let session = self.random.u64(..sessions);
                    let tenant = session % self.tenants;
                    let object = self.random.u64(..objects / self.tenants) * self.tenants + tenant;
                    (session, key(object))
                });
                let requests = drawn.each_ref().map(|(session, key)| {
                    let table = self.table(*session);
                    let (function, arguments) = (function_hash("get"), &[][..]);
                    (
                        *session,
                        Request::Invoke { extension: table, version: 0, function, table, key, arguments },
                    )
                });
                self.add_frame(&requests);
            }
            self.serve();
        }
    }
}

/// What this process has in memory.
#[derive(Clone, Copy)]
struct Resident {
    bytes: u64,
    page_table_bytes: u64,
}

impl Resident {
    fn now() -> Resident {
        let status = fs::read_to_string("/proc/self/status").expect("the kernel tells");
        let bytes = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name));
            let kibibytes = rest.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            kibibytes.expect("a number of kibibytes") << 10
        };
        Resident { bytes: bytes("VmRSS:"), page_table_bytes: bytes("VmPTE:") }
    }

    /// Returns what it grew by since `before` for each tenant, in KiB: resident bytes and page tables.
    fn grown_kib(self, before: Resident, tenants: u64) -> [f64; 2] {
        let each = |after: u64, before: u64| (after as f64 - before as f64) / 1024.0 / tenants as f64;
        [each(self.bytes, before.bytes), each(self.page_table_bytes, before.page_table_bytes)]
    }
}

fn main() {
    builder::child_main();
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let sandbox = take_sandbox(&mut words);
    let (Some([tenants, artefacts, count]), cache) = (words.first_chunk(), words.get(3).map(PathBuf::from))
    else {
        return eprintln!("tenants: TENANTS EXTENSIONS COUNT [CACHE] [--sandbox native|wasm]");
    };
    let [tenants, artefacts, count] = [tenants, artefacts, count].map(|word| word.parse().expect("a number"));
    let mut load = Load::new(tenants, artefacts, cache, sandbox);
    let before = Resident::now();
    load.invoke(ROUNDS_BEFORE * SESSIONS.max(tenants));
    let [kib, page_table_kib] = Resident::now().grown_kib(before, tenants);
    let began_ns = own_cpu_ns();
    load.invoke(count);
    let each_ns = (own_cpu_ns() - began_ns) as f64 / count as f64;
    let failed: u64 = load.extensions.iter().map(|extension| extension.metrics.summary().errors()).sum();
    assert_eq!(failed, 0, "every object is found");
    println!(
        "{sandbox}, {tenants} tenants, {artefacts} extensions: {each_ns:.1} ns; {kib:.1} KiB a tenant, \
         {page_table_kib:.1} KiB of page tables"
    );
}
