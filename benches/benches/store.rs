//! What the store costs inside one thread, without network: a get alone and in prefetched batches, a put, a pin; and the
//! same batches in maps of the Rust world.
//!
//! A million objects of 30-byte keys and 100-byte values, keys drawn at random, so that nearly every
//! lookup misses the caches. Criterion's throughput is objects a second. `splinter-bench store` measures more of it,
//! at length, each map in a process of its own with huge pages; here they have the pages that the C library gives them.

use std::hint::black_box;
use std::time::Duration;

use benches::dataset::Dataset;
use benches::in_process::side::{Kind, SIDES};
use benches::in_process::{self, table};
use criterion::{BatchSize, Criterion, Throughput};
use fastrand::Rng;
use store::{Condition, Config, Store};

const OBJECTS: u64 = 1_000_000;

fn gets_and_puts(criterion: &mut Criterion) {
    let store = Store::new(Config { memory_bytes: 1 << 30, cores: 1, ..Config::default() }).unwrap();
    let core = store.core(0);
    let table = store.table(1);
    let mut data = Dataset::new(OBJECTS, 30, 100).unwrap();
    for index in 0..OBJECTS {
        let (key, value) = data.object(index);
        core.pin().put(&table, store::hash(key), key, value, Condition::Always).unwrap();
        core.step();
    }
    while core.step() {}

    let mut random = Rng::with_seed(1);
    let mut group = criterion.benchmark_group("store");
    group.measurement_time(Duration::from_secs(3));
    for batch in [1_usize, 8, 32] {
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(format!("get in batches of {batch}"), |bencher| {
            let draw = || -> Vec<(u64, Vec<u8>)> {
                let indexes = (0..batch).map(|_| random.u64(0..OBJECTS));
                indexes.map(|index| data.key(index).to_vec()).map(|key| (store::hash(&key), key)).collect()
            };
            bencher.iter_batched_ref(
                draw,
                |keys| {
                    let pinned = core.pin();
                    if batch > 1 {
                        for (hash, _) in &*keys {
                            pinned.prefetch_bucket(&table, *hash);
                        }
                        for (hash, _) in &*keys {
                            pinned.prefetch_object(&table, *hash);
                        }
                    }
                    let get =
                        |(hash, key): &(u64, Vec<u8>)| pinned.get(&table, *hash, key).unwrap().value()[0];
                    black_box(keys.iter().map(|key| u64::from(get(key))).sum::<u64>())
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("put over an existing object", |bencher| {
        let mut objects = Dataset::new(OBJECTS, 30, 100).unwrap();
        bencher.iter(|| {
            let (key, value) = objects.object(random.u64(0..OBJECTS));
            let version = core.pin().put(&table, store::hash(key), key, value, Condition::Always);
            core.step();
            black_box(version).unwrap()
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("pin and unpin", |bencher| bencher.iter(|| drop(black_box(core.pin()))));
    group.finish();
}

/// The live share of the store's log.
const UTILIZATION: f64 = 0.5;

/// Operations that are handed over together.
const BATCH: usize = 32;

fn beside_maps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("store beside maps, batches of 32");
    group.measurement_time(Duration::from_secs(2)).throughput(Throughput::Elements(BATCH as u64));
    for kind in [Kind::Objects, Kind::Counters] {
        let (read, write) = match kind {
            Kind::Objects => ("get", "put"),
            Kind::Counters => ("read of a counter", "increment"),
        };
        for name in SIDES {
            let side = in_process::open(name, kind, OBJECTS, 1, UTILIZATION).unwrap();
            table::load(&*side, OBJECTS, BATCH);
            side.touch_all().unwrap();
            let mut worker = side.worker(0);
            let mut random = Rng::with_seed(1);
            let mut draw = || -> [u64; BATCH] { std::array::from_fn(|_| random.u64(0..OBJECTS)) };
            group.bench_function(format!("{read}, {name}"), |bencher| {
                bencher.iter(|| assert_eq!(worker.read(&draw()), BATCH));
            });
            group.bench_function(format!("{write}, {name}"), |bencher| {
                bencher.iter(|| worker.write(&draw()));
            });
        }
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    gets_and_puts(&mut criterion);
    beside_maps(&mut criterion);
    criterion.final_summary();
}
