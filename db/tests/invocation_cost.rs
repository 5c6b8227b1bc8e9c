//! What an invocation costs beside dispatch. Run alone, in release:
//! `cargo test -p splinter-server --release --test invocation_cost -- --ignored --nocapture`.
//!
//! With `COST_OF=noop` in the environment that function runs alone, long enough for a profiler; with `COST_IN=1` as a
//! module.
//!
//! Each figure is the median of rounds of a few hundred steps, with compiled extensions over a store of some
//! hundred thousand objects. A native lookup is a hash, an index walk and a comparison of keys. The rows of host calls are
//! invocations that make 64 of a kind, so that crossing the border, passing a key and copying a value are told apart. The
//! last rows are functions of `ext/` that compute.

#[path = "support/worker.rs"]
mod worker;

use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use builder::Package;
use db::extension::Extension;
use db::extension::allowance::Sandbox;
use db::extension::invocation::LimitOverrides;
use db::extension::registry::Registry;
use wire::Status;
use worker::{TABLE, TENANT, Worker, install, registry};

/// The steps of a measurement.
#[derive(Clone, Copy)]
struct Steps {
    rounds: u64,
    per_round: u64,
    /// Invocations started before each turn of the queue.
    batch: u64,
}

/// Steps of functions that take a microsecond, one to a turn.
const SHORT: Steps = Steps { rounds: 2_000, per_round: 256, batch: 1 };
/// Steps of functions that take up to a millisecond.
const LONG: Steps = Steps { rounds: 100, per_round: 8, batch: 1 };

const OBJECTS: u64 = 200_000;
const KEY_BYTES: usize = 30;
const KEYS: u64 = 64;
/// Rounds of a password: the fewest that `ext/auth` takes.
const AUTH_ROUNDS: u32 = 1_000;

const SOURCE: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! {
    read noop, write noop_that_may_write, read clock, read get, read gets, read misses, read get_many, write put
}

async fn noop(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    Ok(())
}

async fn noop_that_may_write(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    Ok(())
}

async fn clock(db: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut sum = 0u64;
    for _ in 0..64 {
        sum = sum.wrapping_add(db.now_ms());
    }
    reply.u64(sum)
}

async fn get(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let value = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    reply.u8(value[0])
}

async fn gets(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut sum = 0u64;
    for key in args.bytes().chunks(30) {
        let value = db.get(args.table(), key).await?.ok_or(Error::NotFound)?;
        sum += u64::from(value[0]);
    }
    reply.u64(sum)
}

async fn misses(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut found = 0u64;
    for key in args.bytes().chunks(30) {
        found += u64::from(db.get(args.table(), key).await?.is_some());
    }
    reply.u64(found)
}

async fn get_many(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut keys: [&[u8]; 64] = [&[]; 64];
    for (index, key) in args.bytes().chunks(30).enumerate() {
        keys[index] = key;
    }
    let mut records = [None; 64];
    db.get_many(args.table(), &keys, &mut records).await?;
    let mut sum = 0u64;
    for record in records {
        sum += u64::from(record.ok_or(Error::NotFound)?.value[0]);
    }
    reply.u64(sum)
}

async fn put(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), args.bytes()).await
}
"#;

fn ticks_per_ns() -> f64 {
    // SAFETY: reads the time stamp counter, as below.
    let (start, ticks) = (Instant::now(), unsafe { _rdtsc() });
    while start.elapsed() < Duration::from_millis(100) {}
    // SAFETY: as above.
    (unsafe { _rdtsc() } - ticks) as f64 / start.elapsed().as_nanos() as f64
}

/// Median nanoseconds of one of the steps of a round. `between` rounds is not measured.
fn median_ns(steps: Steps, mut round: impl FnMut(u64), mut between: impl FnMut()) -> f64 {
    let mut costs: Vec<f64> = (0..steps.rounds)
        .map(|number| {
            between();
            // SAFETY: see above.
            let before = unsafe { _rdtsc() };
            round(number);
            // SAFETY: see above.
            (unsafe { _rdtsc() } - before) as f64 / steps.per_round as f64
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2] / ticks_per_ns()
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    key[..8].copy_from_slice(&(number % OBJECTS * 7919 % OBJECTS).to_le_bytes());
    key
}

/// Median cost of one invocation.
fn invocation_ns(
    worker: &mut Worker,
    extension: &Arc<Extension>,
    function: &str,
    arguments: impl Fn(u64) -> Vec<u8>,
    steps: Steps,
) -> f64 {
    let Steps { per_round, batch, .. } = steps;
    let arguments: Vec<Vec<u8>> = (0..per_round).map(arguments).collect();
    worker.run(extension, function, &key(0), &arguments[0], &mut |status, _| assert_eq!(status, Status::Ok));
    let function = extension.function(wire::function_hash(function)).expect("a function of this name");
    let Worker { lent, invocations, .. } = worker;
    let round = |round| {
        let pin = lent.core.pin();
        let environment = lent.environment(&pin);
        for first in (0..per_round).step_by(batch as usize) {
            for number in first..first + batch {
                let (key, bytes) = (key(round * per_round + number), &arguments[number as usize]);
                let started =
                    invocations.start(&environment, extension, function, TABLE, &key, bytes, number);
                assert!(started.is_ok());
            }
            // A turn has an end by the clock as well.
            while invocations.live() > 0 {
                invocations.run(&environment, &mut |_, status: Status, body: &[u8]| {
                    assert_eq!(status, Status::Ok, "{}", String::from_utf8_lossy(body));
                    black_box(body);
                });
            }
        }
    };
    median_ns(steps, round, || while lent.core.step() {})
}

/// Median cost of a lookup without an extension, of the first `keys` keys in turn; `in_order` keeps the
/// processor from overlapping one lookup with the next, as the switch to an invocation and back does.
fn native_ns(worker: &Worker, keys: u64, in_order: bool) -> f64 {
    let round = |round| {
        let pin = worker.lent.core.pin();
        for number in 0..SHORT.per_round {
            let key = key((round * SHORT.per_round + number) % keys);
            let object = pin.get(&worker.table, store::hash(&key), &key).expect("all are there");
            black_box(object.value()[0]);
            if in_order {
                // SAFETY: a fence of loads touches nothing.
                unsafe { _mm_lfence() };
            }
        }
    };
    median_ns(SHORT, round, || {})
}

/// Prints the cost of one invocation in both forms, measured one after the other.
fn compare(
    workers: &mut [Worker; 2],
    extension: &Arc<Extension>,
    (what, function): (&str, &str),
    arguments: impl Fn(u64) -> Vec<u8>,
    steps: Steps,
) {
    let [native, module] =
        workers.each_mut().map(|worker| invocation_ns(worker, extension, function, &arguments, steps));
    let more = module - native;
    println!("{what}: native {native:.1} ns, module {module:.1} ns, {more:+.1} ns, x {:.2}", native / module);
}

#[test]
#[ignore = "measures; run alone and in release"]
fn what_an_invocation_costs() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let installed = install(&registry, "cost", SOURCE, 1, 1).unwrap_or_else(|error| panic!("{error}"));
    let extension = &installed.extension;
    let mut workers = [Sandbox::Native, Sandbox::Wasm].map(|sandbox| {
        let sandbox = Some(sandbox);
        Worker::with_budget(LimitOverrides { wall_us: u64::MAX, sandbox, ..LimitOverrides::default() })
    });
    for worker in &workers {
        for number in 0..OBJECTS {
            worker.put(&key(number), &[7; 100]);
            while worker.lent.core.step() {}
        }
    }
    if let Ok(function) = std::env::var("COST_OF") {
        let only = std::env::var("COST_IN").ok().and_then(|number| number.parse().ok()).unwrap_or(0);
        let keys = |number| (0..KEYS).flat_map(|at| key(number * KEYS + at)).collect::<Vec<u8>>();
        for _ in 0..100 {
            let cost = invocation_ns(&mut workers[only], extension, &function, keys, in_batches(64));
            println!("{function}, 64 to a turn: {cost:.1} ns");
        }
        return;
    }
    for (what, keys) in
        [("of all keys", OBJECTS), ("of many keys", SHORT.per_round * KEYS), ("of one key", 1)]
    {
        println!("native lookup {what}: {:.1} ns", native_ns(&workers[0], keys, false));
        println!("native lookup {what}, each after the other: {:.1} ns", native_ns(&workers[0], keys, true));
    }
    for batch in [1, 64, 256] {
        for function in ["noop", "noop_that_may_write", "get"] {
            let what = format!("{function}, {batch} to a turn");
            compare(&mut workers, extension, (&what, function), |_| Vec::new(), in_batches(batch));
        }
    }
    for (what, stride) in [("of many keys", 1), ("of one key", 0)] {
        let keys = |number| (0..KEYS).flat_map(|at| key((number * KEYS + at) * stride)).collect::<Vec<u8>>();
        for function in ["gets", "get_many"] {
            let what = format!("{function} {what}, {KEYS} of them");
            compare(&mut workers, extension, (&what, function), keys, SHORT);
        }
    }
    host_calls(&mut workers, extension);
    compare(&mut workers, extension, ("put", "put"), |_| vec![8; 100], SHORT);
    let checksum = load(&registry, "checksum", 2);
    let list = |number| {
        (0..KEYS)
            .flat_map(|at| [&[KEY_BYTES as u8, 0][..], &key(number * KEYS + at)].concat())
            .collect::<Vec<u8>>()
    };
    compare(&mut workers, &checksum, ("checksum of 64 objects", "checksum"), list, LONG);
    let auth = load(&registry, "auth", 3);
    let password = |_| [&AUTH_ROUNDS.to_le_bytes()[..], &[7; 16], b"correct horse"].concat();
    let what = format!("auth, a password of {AUTH_ROUNDS} rounds");
    compare(&mut workers, &auth, (&what, "set_password"), password, LONG);
}

/// Prints what 64 host calls cost: those that only cross, those that also pass a key and find nothing, and those that are
/// lent a value of some sizes.
fn host_calls(workers: &mut [Worker; 2], extension: &Arc<Extension>) {
    compare(workers, extension, ("clock, 64 calls", "clock"), |_| Vec::new(), SHORT);
    let absent = [b'a'; KEY_BYTES].repeat(KEYS as usize);
    compare(workers, extension, ("get of an absent key, 64 calls", "misses"), |_| absent.clone(), SHORT);
    let present = [b'p'; KEY_BYTES].repeat(KEYS as usize);
    for bytes in [1, 100, 1_000, 10_000] {
        workers.iter_mut().for_each(|worker| worker.put(&present[..KEY_BYTES], &vec![7; bytes]));
        let what = format!("get of {bytes} B, 64 calls");
        compare(workers, extension, (&what, "gets"), |_| present.clone(), SHORT);
    }
}

/// Steps of short functions, so many to a turn.
fn in_batches(batch: u64) -> Steps {
    Steps { batch, ..SHORT }
}

/// Installs the extension `ext/<name>`.
fn load(registry: &Registry, name: &str, id: u32) -> Arc<Extension> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext").join(name);
    let package = Package::from_directory(&folder).expect("a package");
    let files = package.files().map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect();
    let installed = registry.install::<String>(TENANT, name, files, 0, || Ok((id, 1)));
    Arc::clone(&installed.unwrap_or_else(|error| panic!("{name}: {error}")).extension)
}
