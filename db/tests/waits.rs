//! Workers wait for nobody: other threads are stopped wherever they are, and workers get on.

#[path = "support/seed.rs"]
mod seed;
#[path = "support/stopper.rs"]
mod stopper;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;

use db::sync::oneshot::oneshot;
use db::view::change::{Change, change_queue};
use net::{Faults, LoopbackClock, LoopbackNetwork, Port};
use store::{
    AtomicBox, Condition, Config, Core, Cursor, Eviction, HashRange, KeyRange, NEVER_MS, PageLimits, Quota,
    Replayed, Store, Table, TableKind, TableOptions, Write,
};

use seed::seed;
use stopper::{Bump, Stopper, own_thread};

#[global_allocator]
static ALLOCATOR: Bump = Bump;

/// Waits until a thread has told its number.
fn told(thread: &AtomicI32) -> i32 {
    while thread.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    thread.load(Ordering::Relaxed)
}

#[test]
fn a_worker_waits_for_no_control_thread_that_loses_its_core_while_it_tells_a_change() {
    let stopper = Stopper::new();
    let network = LoopbackNetwork::new(1, Faults::default(), LoopbackClock::Real);
    let (sender, mut changes) = change_queue(network.port().expect("a port").waker());
    let (is_over, first, second) = (AtomicBool::new(false), AtomicI32::new(0), AtomicI32::new(0));
    let (looks, told_of, heard_of) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for own in [&first, &second] {
            let (sender, is_over, told_of, heard_of) = (sender.clone(), &is_over, &told_of, &heard_of);
            scope.spawn(move || {
                own.store(own_thread(), Ordering::Relaxed);
                while !is_over.load(Ordering::Relaxed) {
                    if told_of.load(Ordering::Relaxed) < heard_of.load(Ordering::Relaxed) + 1_000 {
                        let is_told = sender.send(Change::SessionClosed(1));
                        assert!(is_told || is_over.load(Ordering::Relaxed));
                        told_of.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let (ended, looks_of, heard_of) = (&is_over, &looks, &heard_of);
        scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                if !changes.is_empty() && changes.take(|_| ()) {
                    heard_of.fetch_add(1, Ordering::Relaxed);
                }
                looks_of.fetch_add(1, Ordering::Relaxed);
            }
        });
        let first = told(&first);
        let stuck = (0..400).find(|_| !stopper.others_get_on(first, &looks, 2_000));
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(stuck, None, "the worker waited for a thread that was stopped");
    });
    assert!(told_of.into_inner() > 0 && heard_of.into_inner() > 0);
}

#[test]
fn a_worker_waits_for_no_stream_thread_that_loses_its_core_while_it_waits_for_an_answer() {
    let stopper = Stopper::new();
    let (is_over, waiting, looks) = (AtomicBool::new(false), AtomicI32::new(0), AtomicU64::new(0));
    let (asked, answered) = (AtomicBox::empty(), AtomicU64::new(0));
    thread::scope(|scope| {
        let control = scope.spawn(|| {
            waiting.store(own_thread(), Ordering::Relaxed);
            while !is_over.load(Ordering::Relaxed) {
                let (sender, receiver) = oneshot();
                assert!(asked.put(Box::new(sender)).is_none(), "the worker takes one at a time");
                answered.fetch_add(receiver.receive().unwrap_or_default(), Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if let Some(sender) = asked.take() {
                    sender.send(1);
                }
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        let waiting = told(&waiting);
        let stuck = (0..20_000).find(|_| !stopper.others_get_on(waiting, &looks, 200));
        is_over.store(true, Ordering::Relaxed);
        // The worker may end before it has answered the last one.
        while !control.is_finished() {
            drop(asked.take());
        }
        assert_eq!(stuck, None, "the worker waited for a thread that was stopped");
    });
    assert!(answered.into_inner() > 0);
}

/// Keys so few that they meet in buckets and leaves.
const KEYS: u64 = 48;

fn key(number: u64) -> Vec<u8> {
    // Ordered tables have leaves of up to 64 keys, which are split and joined.
    format!("{:0>16}", number * 7_919 % 1_000).into_bytes()
}

/// A table of each kind, two of which objects are brought to while it is used.
struct Tables {
    store: Arc<Store>,
    all: Vec<Arc<Table>>,
    ordered: Arc<Table>,
    /// Bytes that replay as objects of every key.
    pull: Vec<u8>,
}

impl Tables {
    fn new() -> Self {
        let config = |memory_bytes, cores| Config {
            memory_bytes,
            segment_bytes: 32 << 10,
            cores,
            huge_pages: false,
            durable: false,
            recovery_cores: 0,
        };
        let source = Store::new(config(1 << 20, 1)).expect("a store");
        let (core, from) = (source.core(0), source.table(1));
        for number in 0..4 * KEYS {
            let (pin, key) = (core.pin(), key(number));
            pin.put(&from, store::hash(&key), &key, &[7; 100], Condition::Always).expect("room");
        }
        let mut pull = Vec::new();
        core.pin().gather(&from, Cursor::START, u64::MAX, 1 << 20, &mut pull).expect("it is there");
        let store = Store::new(config(1 << 20, 2)).expect("a store");
        let quota = Arc::new(Quota::new(2, u64::MAX));
        let ordered = TableOptions { kind: TableKind::Ordered, ..TableOptions::default() };
        let eviction = Eviction::S3Fifo { budget_bytes: 8 << 10 };
        let evicting = TableOptions { eviction, ..TableOptions::default() };
        let all = [TableOptions::default(), ordered, evicting, TableOptions::default()];
        let all: Vec<_> = (1..).zip(all).map(|(id, options)| store.table_with(id, options, &quota)).collect();
        all[3].expect_arrivals(8, 1 << 20);
        Self { ordered: Arc::clone(&all[1]), store, all, pull }
    }

    /// What a migration does, which brings objects to a core of its own.
    fn migrate(&self, core: &Core, random: &mut fastrand::Rng) {
        let table = &self.all[random.usize(..self.all.len())];
        let (mut rest, mut replayed) = (&self.pull[..], Replayed::default());
        // Refused where there is no room; the rest does not matter.
        let _ = match table.is_arrival() {
            true => core.pin().replay(table, HashRange::ALL, &mut rest, &mut replayed),
            false => core.pin().copy(table, HashRange::ALL, &mut rest, &mut replayed),
        };
        if random.u8(..4) == 0 {
            let mut gathered = Vec::new();
            core.pin().gather(table, Cursor::START, u64::MAX, 8 << 10, &mut gathered).expect("it is there");
            core.pin().discard(table, Cursor::START, u64::MAX).expect("it is there");
        }
        let _steps = (0..4).take_while(|_| core.step()).count();
    }

    /// One operation of a worker; whether it was done.
    fn serve(&self, core: &Core, random: &mut fastrand::Rng) -> bool {
        let (pin, table) = (core.pin(), &self.all[random.usize(..self.all.len())]);
        let key = key(random.u64(..KEYS));
        let hash = store::hash(&key);
        match random.u8(..12) {
            0 | 1 => pin.put(table, hash, &key, &[1; 60], Condition::Always).is_ok(),
            2 => pin.put(table, hash, &key, &[1; 60], Condition::Absent).is_ok(),
            3 | 4 => pin.delete(table, hash, &key, Condition::Always).is_ok(),
            5 => pin.get(table, hash, &key).is_some(),
            6 => {
                let write = |table, value| Write { table, hash, key: &key, value, expires_ms: NEVER_MS };
                let other = &self.all[random.usize(..self.all.len())];
                pin.commit(&[], &[write(table, Some(&[2; 80])), write(other, None)]).is_ok()
            }
            7 => {
                let range = KeyRange { reverse: random.bool(), ..KeyRange::default() };
                let mut left = 20;
                let scanned = pin.scan(&self.ordered, range, 20, |_, _, _| {
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                scanned.is_ok()
            }
            8 => {
                let mut page = [const { None }; 512];
                let limits = PageLimits { objects: 20, bytes: 1 << 20, keys_only: true };
                pin.enumerate(table, Cursor::START, limits, &mut page).is_ok()
            }
            9 => {
                let other = self::key(random.u64(..KEYS));
                let lookups = [(hash, &key[..]), (store::hash(&other), &other)];
                pin.get_many(table, &lookups, &mut [None; 2]).is_ok()
            }
            10 => pin.increment(table, hash, &key, 1).is_ok(),
            _ => {
                drop(pin);
                core.step()
            }
        }
    }
}

impl Tables {
    /// When nobody uses them any more: the tree has the keys that the index has, and every object is as it was written.
    fn hold_together(&self) {
        let core = self.store.core(0);
        while core.step() {}
        let (pin, mut in_tree, mut in_index) = (core.pin(), Vec::new(), Vec::new());
        let scanned = pin.scan(&self.ordered, KeyRange::default(), 1_000, |key, _, object| {
            assert!(object.is_some_and(|object| object.verify()), "a key of the tree has an object");
            in_tree.push(key.to_vec());
            ControlFlow::Continue(())
        });
        scanned.expect("an ordered table");
        let (mut page, mut next) = ([const { None }; 1_024], Some(Cursor::START));
        while let Some(from) = next {
            let limits = PageLimits { objects: 512, bytes: 1 << 20, keys_only: true };
            let listed = pin.enumerate(&self.ordered, from, limits, &mut page).expect("it is there");
            let objects = page[..listed.count].iter().flatten().map(|listed| listed.object.expect("sound"));
            in_index.extend(objects.map(|object| object.key().to_vec()));
            next = listed.next;
        }
        in_index.sort_unstable();
        assert_eq!(in_tree, in_index);
    }
}

#[test]
fn a_worker_waits_for_no_migration_that_loses_its_core() {
    let stopper = Stopper::new();
    let seed = seed();
    let tables = Tables::new();
    let (is_over, migrating) = (AtomicBool::new(false), AtomicI32::new(0));
    let (served, done) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            migrating.store(own_thread(), Ordering::Relaxed);
            let (core, mut random) = (tables.store.core(1), fastrand::Rng::with_seed(seed));
            while !is_over.load(Ordering::Relaxed) {
                tables.migrate(&core, &mut random);
            }
        });
        scope.spawn(|| {
            let (core, mut random) = (tables.store.core(0), fastrand::Rng::with_seed(!seed));
            while !is_over.load(Ordering::Relaxed) {
                let is_done = tables.serve(&core, &mut random);
                served.fetch_add(1, Ordering::Relaxed);
                done.fetch_add(is_done.into(), Ordering::Relaxed);
            }
        });
        let migrating = told(&migrating);
        let stuck = (0..400).find(|_| !stopper.others_get_on(migrating, &served, 500));
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(stuck, None, "the worker waited for a thread that was stopped");
    });
    let (served, done) = (served.into_inner(), done.into_inner());
    assert!(done > served / 4, "of {served} operations {done} were done");
    tables.hold_together();
}
