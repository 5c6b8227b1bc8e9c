//! Compiled extensions that use up their slices: parked and resumed with every result right, or ended with a
//! text that says why, and the worker serves on.

#[path = "support/worker.rs"]
#[macro_use]
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use db::extension::Extension;
use db::extension::allowance::Sandbox;
use db::extension::invocation::LimitOverrides;
use db::extension::registry::{Installed, Registry};
use db::metrics::Counter;
use wire::Status;
use worker::{TABLE, Worker, install, registry};

const OVERRUNNING: &str = include_str!("support/overrun.rs");

/// Seeds of the computations whose results are known.
const SEEDS: u64 = 8;
const COMPUTATIONS: [&str; 3] = ["computes", "allocates", "looks_up"];
/// Accounts of the transfers, and what is on each at first.
const ACCOUNTS: u8 = 8;
const BALANCE: i64 = 1_000;

struct Setting {
    _cache: tempfile::TempDir,
    _registry: Registry,
    installed: Arc<Installed>,
}

impl Setting {
    fn new() -> Self {
        let cache = tempfile::tempdir().expect("a folder");
        let registry = registry(cache.path());
        let installed = install(&registry, "overrun", OVERRUNNING, 1, 3).unwrap_or_else(|e| panic!("{e}"));
        Self { _cache: cache, _registry: registry, installed }
    }

    fn extension(&self) -> &Arc<Extension> {
        &self.installed.extension
    }
}

fn filled(sandbox: Sandbox, budget: LimitOverrides) -> Worker {
    let worker = Worker::with_budget(LimitOverrides { sandbox: Some(sandbox), ..budget });
    worker.put(b"healthy", b"yes");
    for number in 0..10 {
        worker.put(&[b'k', number], &[number; 100]);
    }
    for number in 0..ACCOUNTS {
        worker.put(&[b'a', number], &BALANCE.to_le_bytes());
    }
    worker
}

fn call(
    worker: &mut Worker,
    extension: &Arc<Extension>,
    function: &str,
    arguments: &[u8],
) -> (Status, Vec<u8>) {
    let mut answer = None;
    worker.run(extension, function, b"healthy", arguments, &mut |status, body| {
        answer = Some((status, body.to_vec()));
    });
    answer.expect("an invocation that started ends")
}

fn assert_healthy(worker: &mut Worker, extension: &Arc<Extension>) {
    loop {
        match call(worker, extension, "healthy", b"") {
            (Status::Ok, body) => return assert_eq!(body, b"yes"),
            // Its thread lost the core in the one poll that it has.
            (status, _) => assert_eq!(status, Status::ExtensionKilled),
        }
    }
}

/// What the computations answer when nothing disturbs them, by function and seed.
fn undisturbed(sandbox: Sandbox, extension: &Arc<Extension>) -> Vec<Vec<Vec<u8>>> {
    let mut worker = filled(
        sandbox,
        LimitOverrides { slice_us: 60_000_000, cpu_us: u64::MAX, ..LimitOverrides::default() },
    );
    let mut answer = |function, seed: u64| {
        let (status, body) = call(&mut worker, extension, function, &seed.to_le_bytes());
        assert_eq!(status, Status::Ok);
        body
    };
    COMPUTATIONS.iter().map(|function| (0..SEEDS).map(|seed| answer(function, seed)).collect()).collect()
}

fn whoever_never_ends_is_killed_with_the_limit_it_hit_and_the_worker_serves_on(sandbox: Sandbox) {
    let setting = Setting::new();
    let extension = setting.extension();
    let cpu =
        LimitOverrides { cpu_us: 2_000, wall_us: 60_000_000, yields: u32::MAX, ..LimitOverrides::default() };
    let wall =
        LimitOverrides { wall_us: 20_000, cpu_us: u64::MAX, yields: u32::MAX, ..LimitOverrides::default() };
    let yields =
        LimitOverrides { wall_us: 60_000_000, cpu_us: u64::MAX, yields: 500, ..LimitOverrides::default() };
    let on_cpu = "the limit invocation_cpu_us = 2000 was reached";
    let too_old = "the limit invocation_wall_us = 20000 was reached";
    let cases = [
        ("spins", cpu, on_cpu, Counter::KilledCpu),
        ("spins_with_host_calls", cpu, on_cpu, Counter::KilledCpu),
        ("spins_and_allocates", cpu, on_cpu, Counter::KilledCpu),
        ("spins_and_yields", cpu, on_cpu, Counter::KilledCpu),
        ("spins", wall, too_old, Counter::KilledWall),
        ("spins_and_yields", wall, too_old, Counter::KilledWall),
        ("yields", yields, "the limit invocation_yields = 500 was reached: 501 used", Counter::KilledYields),
    ];
    for (function, budget, limit, counter) in cases {
        let mut worker = filled(sandbox, budget);
        for round in 1..=10 {
            let (status, body) = call(&mut worker, extension, function, b"");
            let text = String::from_utf8(body).expect("text");
            assert_eq!(status, Status::ExtensionKilled, "{function}: {text}");
            assert!(text.contains(limit), "{function}: {text}");
            assert!(text.contains(&format!("in overrun@3 {function}")), "{text}");
            assert_eq!(worker.lent.metrics.value(counter), round);
            assert_healthy(&mut worker, extension);
        }
        assert_eq!(worker.lent.core.held_pins(), 0);
        let pin = worker.lent.core.pin();
        assert!(pin.get(&worker.table, store::hash(b"mark"), b"mark").is_none(), "{function} wrote");
    }
}

fn others_are_answered_while_loops_run_and_those_that_overrun_get_their_share(sandbox: Sandbox) {
    let setting = Setting::new();
    let extension = setting.extension();
    let mut worker = filled(
        sandbox,
        LimitOverrides { cpu_us: u64::MAX, wall_us: 60_000_000, ..LimitOverrides::default() },
    );
    let index = |name| extension.function(wire::function_hash(name)).expect("a function");
    let (spins, healthy, computes) = (index("spins"), index("healthy"), index("computes"));
    let Worker { lent, invocations, .. } = &mut worker;
    let start = |invocations: &mut db::extension::invocation::Invocations<u64>, function, origin| {
        let (pin, arguments) = (lent.core.pin(), 5_u64.to_le_bytes());
        let environment = lent.environment(&pin);
        let started =
            invocations.start(&environment, extension, function, TABLE, b"healthy", &arguments, origin);
        assert!(started.is_ok());
    };
    for origin in 0..5 {
        start(invocations, spins, origin);
    }
    start(invocations, computes, 100);
    let (mut answered, mut computed, begin) = (0, false, Instant::now());
    while !(computed && answered >= 500) {
        assert!(begin.elapsed() < Duration::from_secs(30), "{answered} answered, computed {computed}");
        start(invocations, healthy, 200);
        let pin = lent.core.pin();
        invocations.run(&lent.environment(&pin), &mut |origin, status, _: &[u8]| {
            assert_eq!(status, Status::Ok, "of {origin}");
            computed |= origin == 100;
            answered += usize::from(origin == 200);
        });
    }
    let mut ended = 0;
    let pin = lent.core.pin();
    invocations.end_all(&lent.environment(&pin), &mut |_, status, _: &[u8]| {
        assert_eq!(status, Status::Unavailable);
        ended += 1;
    });
    assert!(ended >= 5 && invocations.live() == 0);
}

fn the_newest_of_too_many_overrunners_is_killed(sandbox: Sandbox) {
    let setting = Setting::new();
    let budget =
        LimitOverrides { parked: 3, cpu_us: u64::MAX, wall_us: 60_000_000, ..LimitOverrides::default() };
    let mut worker = filled(sandbox, budget);
    let spins = setting.extension().function(wire::function_hash("spins")).expect("a function");
    let Worker { lent, invocations, .. } = &mut worker;
    let pin = lent.core.pin();
    let environment = lent.environment(&pin);
    let mut killed = Vec::new();
    for origin in 0..6 {
        let extension = setting.extension();
        assert!(invocations.start(&environment, extension, spins, TABLE, b"", b"", origin).is_ok());
        let preemptions = lent.metrics.value(Counter::Preemptions) + 1;
        // An older one may have its slice first.
        while lent.metrics.value(Counter::Preemptions) < preemptions || invocations.live() > 3 {
            invocations.run(&environment, &mut |origin, status, body: &[u8]| {
                assert_eq!(status, Status::ExtensionKilled);
                assert!(
                    String::from_utf8_lossy(body).contains("the limit preempted_invocations_of_a_core = 3")
                );
                killed.push(origin);
            });
        }
    }
    assert_eq!(killed, [3, 4, 5]);
    assert_eq!(lent.metrics.value(Counter::KilledParked), 3);
    invocations.end_all(&environment, &mut |_, _, _: &[u8]| {});
}

fn stack_and_panic_are_caught_after_preemptions(sandbox: Sandbox) {
    let setting = Setting::new();
    let extension = setting.extension();
    let mut worker =
        filled(sandbox, LimitOverrides { slice_us: 20, cpu_us: u64::MAX, ..LimitOverrides::default() });
    for seed in 0..100_u64 {
        let arguments = seed.to_le_bytes();
        assert_eq!(call(&mut worker, extension, "recurses", &arguments).0, Status::ExtensionStackOverflow);
        let (status, body) = call(&mut worker, extension, "panics", &arguments);
        assert_eq!(status, Status::ExtensionPanicked);
        assert!(String::from_utf8_lossy(&body).contains("after "), "{body:?}");
        assert_healthy(&mut worker, extension);
    }
    assert!(worker.lent.metrics.value(Counter::Preemptions) > 200);
}

/// Sends the preemption signal to a thread and to the process until it is told to stop.
fn storm(thread: libc::pid_t, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        // SAFETY: the signal has a handler; the thread outlives the scope of the storm.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGURG) };
        // SAFETY: as above, to whichever thread takes it.
        unsafe { libc::kill(libc::getpid(), libc::SIGURG) };
        thread::sleep(Duration::from_micros(20));
    }
}

/// Results, and invocations without one, that make a test.
const WANTED: u64 = 100;

/// Runs a changing mix until there were so many preemptions, and checks every result. Few may be parked, so
/// that many are killed at their first preemption.
fn stress(sandbox: Sandbox, extension: &Arc<Extension>, seed: u64, preemptions: u64) -> (u64, u64, u64) {
    let expected = undisturbed(sandbox, extension);
    let budget = LimitOverrides {
        slice_us: 20,
        parked: 6,
        cpu_us: 10_000,
        wall_us: 60_000_000,
        ..LimitOverrides::default()
    };
    let (mut worker, mut random) = (filled(sandbox, budget), fastrand::Rng::with_seed(seed));
    let functions = ["computes", "allocates", "looks_up", "transfers", "recurses", "panics", "spins"]
        .map(|name| extension.function(wire::function_hash(name)).expect("a function"));
    let Worker { lent, invocations, .. } = &mut worker;
    let (mut right, mut abandoned) = (0, 0);
    let preempted = || lent.metrics.value(Counter::Preemptions);
    // On a machine that others keep busy most use up their time, and few get to a result.
    while preempted() < preemptions || (right <= WANTED && preempted() < 20 * preemptions) {
        while lent.core.step() {}
        let pin = lent.core.pin();
        let environment = lent.environment(&pin);
        while invocations.live() < 7 && random.u32(..4) == 0 {
            let last = functions.len() - usize::from(random.u32(..100) != 0);
            let kind = random.usize(..last);
            let seed = random.u64(..SEEDS);
            // A transfer's accounts are in its seed.
            let seed = if kind == 3 { random.u64(..64) } else { seed };
            let origin = kind as u64 * 100 + seed;
            let (function, arguments) = (functions[kind], seed.to_le_bytes());
            let started =
                invocations.start(&environment, extension, function, TABLE, b"key", &arguments, origin);
            assert!(started.is_ok());
        }
        invocations.run(&environment, &mut |origin, status, body: &[u8]| {
            let (kind, seed) = ((origin / 100) as usize, (origin % 100) as usize);
            match (kind, status) {
                (_, Status::ExtensionKilled) => abandoned += 1,
                (0..3, Status::Ok) => assert_eq!(body, expected[kind][seed], "{} {seed}", COMPUTATIONS[kind]),
                (3, Status::Ok | Status::Conflict)
                | (4, Status::ExtensionStackOverflow)
                | (5, Status::ExtensionPanicked) => {}
                (kind, status) => panic!("{kind} ended with {status}"),
            }
            right += u64::from(status == Status::Ok);
        });
    }
    let pin = worker.lent.core.pin();
    worker.invocations.end_all(&worker.lent.environment(&pin), &mut |_, _, _: &[u8]| abandoned += 1);
    let balance = |number| {
        let key = [b'a', number];
        let object = pin.get(&worker.table, store::hash(&key), &key).expect("an account");
        i64::from_le_bytes(object.value().try_into().expect("a number"))
    };
    assert_eq!((0..ACCOUNTS).map(balance).sum::<i64>(), i64::from(ACCOUNTS) * BALANCE);
    assert!(pin.get(&worker.table, store::hash(b"mark"), b"mark").is_none());
    assert_eq!(worker.lent.core.held_pins(), 0);
    (worker.lent.metrics.value(Counter::Preemptions), abandoned, right)
}

fn thousands_of_preemptions_and_abandonments_disturb_no_result(sandbox: Sandbox) {
    let setting = Setting::new();
    let seed = std::env::var("SPLINTER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_120);
    let full = std::env::var("SPLINTER_FULL").is_ok_and(|value| value == "1");
    let preemptions = if full { 150_000 } else { 6_000 };
    println!("SPLINTER_SEED={seed}");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads = [false, true].map(|stormy| {
            let (extension, stop) = (setting.extension(), &stop);
            scope.spawn(move || {
                // SAFETY: asks for the number of this thread.
                let id = unsafe { libc::gettid() };
                thread::scope(|scope| {
                    if stormy {
                        scope.spawn(|| storm(id, stop));
                    }
                    let result = stress(sandbox, extension, seed + u64::from(stormy), preemptions);
                    if stormy {
                        stop.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
        });
        for thread in threads {
            let (preemptions, abandoned, right) = thread.join().expect("every result is right");
            println!("{preemptions} preemptions, {abandoned} abandoned, {right} results, all of them right");
            assert!(abandoned > WANTED && right > WANTED);
        }
    });
}

in_both_forms! {
    whoever_never_ends_is_killed_with_the_limit_it_hit_and_the_worker_serves_on,
    others_are_answered_while_loops_run_and_those_that_overrun_get_their_share,
    the_newest_of_too_many_overrunners_is_killed,
    stack_and_panic_are_caught_after_preemptions,
    thousands_of_preemptions_and_abandonments_disturb_no_result,
}
