//! Prints figures of lookups, writes and memory. Run on a quiet machine:
//! `cargo test --release -p splinter-store speed -- --ignored --nocapture --test-threads 1`

use std::hint::black_box;
use std::time::Instant;

use crate::{Condition, Config, Core, Cursor, PageLimits, Store, Table, WriteError, hash};

const OBJECTS: u64 = 1_000_000;
const BATCH: usize = 32;

fn key_of(number: u64) -> [u8; 30] {
    let mut key = *b"user-0000000000000000-abcdefgh";
    key[5..13].copy_from_slice(&number.to_le_bytes());
    key
}

fn big_store() -> std::sync::Arc<Store> {
    let config = Config { memory_bytes: 1 << 30, ..Config::default() };
    Store::new(config).expect("1 GiB can be reserved")
}

fn report(what: &str, count: u64, since: Instant) {
    let ns = since.elapsed().as_nanos() as f64 / count as f64;
    println!("{what}: {ns:.1} ns, {:.2} M/s", 1e3 / ns);
}

/// Returns the resident bytes of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("/proc is there");
    let pages = status.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("statm has numbers") * 4096
}

fn put_batches(core: &Core, table: &Table, numbers: impl Iterator<Item = u64>) -> u64 {
    let value = [7; 100];
    let (mut done, mut retries) = (0, 0);
    let mut batch = Vec::with_capacity(BATCH);
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() {
        batch.clear();
        batch.extend(numbers.by_ref().take(BATCH).map(|number| {
            let key = key_of(number);
            (hash(&key), key)
        }));
        let pinned = core.pin();
        batch.iter().for_each(|(hash, _)| pinned.prefetch_bucket(table, *hash));
        batch.iter().for_each(|(hash, _)| pinned.prefetch_object(table, *hash));
        for (hash, key) in &batch {
            match pinned.put(table, *hash, key, &value, Condition::Always) {
                Ok(_) => done += 1,
                Err(WriteError::Retry { .. }) => retries += 1,
                Err(error) => panic!("{error}"),
            }
        }
        drop(pinned);
        core.step();
    }
    if retries > 0 {
        println!("  ({retries} puts were told to retry)");
    }
    done
}

#[test]
#[ignore = "prints figures"]
fn speed_of_gets_and_puts() {
    let store = big_store();
    let (core, table) = (store.core(0), store.table(1));
    let start = Instant::now();
    report("insert, batches of 32", put_batches(&core, &table, 0..OBJECTS), start);
    let start = Instant::now();
    let mut random = fastrand::Rng::with_seed(1);
    let numbers = (0..4 * OBJECTS).map(|_| random.u64(0..OBJECTS));
    report("overwrite, batches of 32", put_batches(&core, &table, numbers), start);

    let mut lookups = Vec::with_capacity(4 << 20);
    lookups.extend((0..4 << 20).map(|_| {
        let key = key_of(random.u64(0..OBJECTS));
        (hash(&key), key)
    }));
    let mut sum = 0;
    let start = Instant::now();
    for batch in lookups.chunks(BATCH) {
        let pinned = core.pin();
        batch.iter().for_each(|(hash, _)| pinned.prefetch_bucket(&table, *hash));
        batch.iter().for_each(|(hash, _)| pinned.prefetch_object(&table, *hash));
        for (hash, key) in batch {
            let object = pinned.get(&table, *hash, key).expect("it was put");
            sum += u64::from(object.value()[50]) + object.version();
        }
    }
    report("get, batches of 32", lookups.len() as u64, start);
    let start = Instant::now();
    for (hash, key) in &lookups[..1 << 20] {
        let pinned = core.pin();
        sum += pinned.get(&table, *hash, key).expect("it was put").version();
    }
    report("get, one at a time", 1 << 20, start);
    let start = Instant::now();
    let hot: Vec<_> = lookups[..64].to_vec();
    for _ in 0..1 << 16 {
        let pinned = core.pin();
        for (hash, key) in &hot {
            sum += pinned.get(&table, *hash, key).expect("it was put").version();
        }
    }
    report("get, all in the cache", 64 << 16, start);
    black_box(sum);
    let start = Instant::now();
    for _ in 0..10_000_000 {
        black_box(core.pin());
    }
    report("pin and unpin", 10_000_000, start);
}

/// Overwrites after all memory has been touched; the figure includes the cleaner's share.
#[test]
#[ignore = "prints figures"]
fn speed_of_overwrites_when_memory_is_used_up() {
    for memory_mib in [512, 320, 256, 216] {
        let config = Config { memory_bytes: memory_mib << 20, ..Config::default() };
        let store = Store::new(config).expect("memory can be reserved");
        let (core, table) = (store.core(0), store.table(1));
        let mut random = fastrand::Rng::with_seed(1);
        put_batches(&core, &table, 0..OBJECTS);
        put_batches(&core, &table, (0..4 * OBJECTS).map(|_| random.u64(0..OBJECTS)));
        let (start, before) = (Instant::now(), store.statistics().bytes_relocated);
        let done = put_batches(&core, &table, (0..2 * OBJECTS).map(|_| random.u64(0..OBJECTS)));
        report(&format!("overwrite of 168 MB in {memory_mib} MiB"), done, start);
        let copied = store.statistics().bytes_relocated - before;
        println!("  ({:.2} bytes copied per byte written)", copied as f64 / (done * 152) as f64);
    }
}

#[test]
#[ignore = "prints figures"]
fn speed_memory_per_object() {
    let before = resident_bytes();
    let store = big_store();
    let (core, table) = (store.core(0), store.table(1));
    let mut worst = (0, 0.0);
    for number in 0..1_300_000 {
        let key = key_of(number);
        core.pin().put(&table, hash(&key), &key, &[7; 100], Condition::Always).expect("there is memory");
        if number % 20 == 0 {
            core.step();
        }
        let objects = number + 1;
        if objects >= 900_000 && objects % 10_000 == 0 {
            let bytes = (resident_bytes() - before) as f64 / objects as f64;
            if bytes > worst.1 {
                worst = (objects, bytes);
            }
            if objects == OBJECTS {
                println!("resident at a million: {bytes:.1} B per object, {:?}", store.statistics());
            }
        }
    }
    println!("worst from 0.9 to 1.3 million objects: {:.1} B at {}", worst.1, worst.0);
}

/// Returns the nanoseconds for which this thread has had a core, so that other processes do not count.
fn on_core_ns() -> u64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("/proc is there");
    times.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("schedstat has numbers")
}

fn report_on_core(what: &str, count: u64, since_ns: u64) {
    let ns = (on_core_ns() - since_ns) as f64 / count as f64;
    println!("{what}: {ns:.1} ns on the core, {:.2} M/s", 1e3 / ns);
}

/// Runs background steps until none is due; prints their number, their mean and the slowest one.
fn settle_timed(what: &str, core: &Core, count: u64) {
    let (since_ns, mut steps, mut slowest) = (on_core_ns(), 0, std::time::Duration::ZERO);
    loop {
        let step = Instant::now();
        let worked = core.step();
        slowest = slowest.max(step.elapsed());
        if !worked {
            break;
        }
        steps += 1;
    }
    report_on_core(what, count, since_ns);
    println!("  ({steps} steps, the slowest {:.1} us)", slowest.as_secs_f64() * 1e6);
}

#[test]
#[ignore = "prints figures; for a release build on a quiet machine"]
fn speed_of_whole_tables() {
    let store = big_store();
    let (core, table) = (store.core(0), store.table(1));
    put_batches(&core, &table, 0..OBJECTS);
    let since_ns = on_core_ns();
    let (mut from, mut met) = (Cursor::START, 0);
    loop {
        let (pinned, mut page) = (core.pin(), [None; 512]);
        let limits = PageLimits { objects: 512, bytes: 64 << 10, keys_only: false };
        let answer = pinned.enumerate(&table, from, limits, &mut page).expect("the table is there");
        met += black_box(answer.count) as u64;
        let Some(next) = answer.next else { break };
        from = next;
    }
    assert_eq!(met, OBJECTS);
    report_on_core("enumerate, each held against its checksum", OBJECTS, since_ns);
    let since_ns = on_core_ns();
    let mut from = Cursor::START;
    while let Some(next) = core.pin().verify(&table, from, |_| panic!("corrupted")).expect("it is there").next
    {
        from = next;
    }
    report_on_core("verify", OBJECTS, since_ns);
    table.retire();
    settle_timed("drop the table", &core, OBJECTS);

    let table = store.table(2);
    let since_ns = on_core_ns();
    for number in 0..OBJECTS {
        let key = key_of(number);
        let put = core.pin().put_until(&table, hash(&key), &key, &[7; 100], 1_000, Condition::Always);
        put.expect("there is memory");
        core.step();
    }
    report_on_core("put with an expiry, one by one", OBJECTS, since_ns);
    while core.step() {}
    store.advance_clock(20_000);
    settle_timed("remove what has expired", &core, OBJECTS);
    assert_eq!(table.objects(), 0);
}

/// Scans of 100 objects from random places of ordered tables in both directions, and the tree's cost for inserts.
#[test]
#[ignore = "prints figures"]
fn speed_of_scans() {
    const SCANS: u64 = 20_000;
    let store = big_store();
    let quota = std::sync::Arc::new(crate::Quota::new(store.config.cores, u64::MAX));
    let (core, table) = (store.core(0), store.table_of_kind(1, crate::TableKind::Ordered, &quota));
    let key_of = |number: u64| format!("user{number:026}").into_bytes();
    let mut numbers: Vec<u64> = (0..OBJECTS).collect();
    fastrand::Rng::with_seed(2).shuffle(&mut numbers);
    let since_ns = on_core_ns();
    for number in &numbers {
        let key = key_of(*number);
        core.pin().put(&table, hash(&key), &key, &[7; 100], Condition::Always).expect("there is memory");
        core.step();
    }
    report_on_core("insert in random order, one at a time", OBJECTS, since_ns);
    let tree_bytes = quota.bytes() - table.bytes();
    println!("  (the tree takes {:.1} B a key of 30 B)", tree_bytes as f64 / OBJECTS as f64);
    let mut random = fastrand::Rng::with_seed(3);
    for reverse in [false, true] {
        let froms: Vec<_> = (0..SCANS).map(|_| key_of(random.u64(200..OBJECTS - 200))).collect();
        let (mut met, mut sum) = (0, 0);
        let since_ns = on_core_ns();
        for from in &froms {
            let pinned = core.pin();
            let bounds = if reverse { (&[][..], Some(&from[..])) } else { (&from[..], None) };
            let range =
                crate::KeyRange { from: bounds.0, to: bounds.1, reverse, ..crate::KeyRange::default() };
            let mut left = 100;
            let scanned = pinned.scan(&table, range, left, |_, _, object| {
                sum += object.map_or(0, |object| u64::from(object.value()[50]) + object.version());
                (met, left) = (met + 1, left - 1);
                if left > 0 { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
            });
            scanned.expect("the table is ordered");
        }
        black_box(sum);
        assert_eq!(met, SCANS * 100);
        let way = if reverse { "backward" } else { "forward" };
        report_on_core(&format!("scan of 100 objects, {way}"), SCANS, since_ns);
    }
}
