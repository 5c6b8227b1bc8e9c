//! How fast a loop makes room, and how fast its caller learns that it was killed. Run alone, in release:
//! `cargo test -p splinter-server --release --test preemption_cost -- --ignored --nocapture`.

#[path = "support/worker.rs"]
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use db::extension::Extension;
use db::extension::allowance::Sandbox;
use db::extension::invocation::LimitOverrides;
use db::metrics::Counter;
use wire::Status;
use worker::{TABLE, Worker, install, registry};

const ROUNDS: usize = 3_000;

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos() as f64 / 1000.0;
    println!("{what}: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us", at(0.5), at(0.99), at(0.999));
}

#[test]
#[ignore = "measures; run alone and in release"]
fn what_a_preemption_costs() {
    let cache = tempfile::tempdir().expect("a folder");
    let registry = registry(cache.path());
    let source = include_str!("support/overrun.rs");
    let installed = install(&registry, "overrun", source, 1, 1).unwrap_or_else(|error| panic!("{error}"));
    for sandbox in [Sandbox::Native, Sandbox::Wasm, Sandbox::Native, Sandbox::Wasm] {
        println!("{sandbox:?}");
        measure(&installed.extension, sandbox);
    }
}

fn measure(extension: &Arc<Extension>, sandbox: Sandbox) {
    let index = |name| extension.function(wire::function_hash(name)).expect("a function");
    let sandbox = Some(sandbox);
    let mut worker =
        Worker::with_budget(LimitOverrides { cpu_us: 1_000, sandbox, ..LimitOverrides::default() });
    worker.put(b"healthy", b"yes");
    for function in ["spins", "spins_with_host_calls", "spins_and_allocates"] {
        let mut times = Vec::new();
        for _ in 0..ROUNDS / 3 {
            let begin = Instant::now();
            worker.run(extension, function, b"key", b"", &mut |status, _| {
                assert_eq!(status, Status::ExtensionKilled);
            });
            times.push(begin.elapsed());
        }
        report(&format!("{function}: from its start to its kill at 1 ms"), times);
    }
    let preemptions = worker.lent.metrics.value(Counter::Preemptions);
    println!("{:.1} preemptions for each", preemptions as f64 / ROUNDS as f64);

    let Worker { lent, invocations, .. } = &mut worker;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let pin = lent.core.pin();
        let environment = lent.environment(&pin);
        for (origin, name) in [(0, "spins"), (1, "healthy")] {
            let started =
                invocations.start(&environment, extension, index(name), TABLE, b"healthy", b"", origin);
            assert!(started.is_ok());
        }
        let (begin, mut answered) = (Instant::now(), None);
        while answered.is_none() {
            invocations.run(&environment, &mut |origin, status, _: &[u8]| {
                assert_eq!((origin, status), (1, Status::Ok));
                answered = Some(begin.elapsed());
            });
        }
        times.extend(answered);
        invocations.end_all(&environment, &mut |_, _, _: &[u8]| {});
    }
    report("from the start of a loop to the answer of who waits behind it", times);
}
