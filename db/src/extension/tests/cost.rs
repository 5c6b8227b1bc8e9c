//! What an invocation costs beside dispatch. Run alone, in release:
//! `cargo test -p db --release extension::tests::cost -- --ignored --nocapture`.
//!
//! Each figure is the median of rounds of a few hundred; the machine's noise is in the spread. The functions
//! are linked into the test; in an artefact the calls over the border are the same.

use std::arch::x86_64::_rdtsc;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::Pinned;
use wire::Status;

use super::world::{TABLE, World, function};
use crate::extension::{Extension, Mode};
use crate::ops::WorkerEnvironment;

const ROUNDS: usize = 2_000;
const PER_ROUND: u64 = 256;
const OBJECTS: u64 = 200_000;

function!(noop, |db, args, reply| { Ok(()) });

function!(get, |db, args, reply| {
    let value = db.get(args.table(), args.key()).await?.ok_or(sandstorm::Error::NotFound)?;
    reply.u8(value[0])
});

function!(put, |db, args, reply| { db.put(args.table(), args.key(), args.bytes()).await });

fn ticks_per_ns() -> f64 {
    // SAFETY: reads the time stamp counter, here and below.
    let (start, ticks) = (Instant::now(), unsafe { _rdtsc() });
    while start.elapsed() < Duration::from_millis(100) {}
    // SAFETY: as above.
    (unsafe { _rdtsc() } - ticks) as f64 / start.elapsed().as_nanos() as f64
}

/// Median nanoseconds of one of `PER_ROUND` steps that `round` does.
fn median_ns(mut round: impl FnMut(u64)) -> f64 {
    let mut costs: Vec<f64> = (0..ROUNDS as u64)
        .map(|number| {
            // SAFETY: see above.
            let before = unsafe { _rdtsc() };
            round(number);
            // SAFETY: see above.
            (unsafe { _rdtsc() } - before) as f64 / PER_ROUND as f64
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    costs[ROUNDS / 2] / ticks_per_ns()
}

fn key(number: u64) -> [u8; 30] {
    let mut key = [b'k'; 30];
    key[..8].copy_from_slice(&(number % OBJECTS * 7919 % OBJECTS).to_le_bytes());
    key
}

impl World {
    fn environment<'w>(&'w self, pin: &'w Pinned<'w>) -> WorkerEnvironment<'w> {
        WorkerEnvironment {
            core: &self.core,
            pin,
            tables: &self.tables,
            metrics: &self.metrics,
            now_us: 0,
            wall_ms: 0,
        }
    }

    /// Median cost of one invocation, `batch` of them started before each turn.
    fn cost_ns(&mut self, extension: &Arc<Extension>, arguments: &[u8], batch: u64) -> f64 {
        let mut invocations = std::mem::replace(
            &mut self.invocations,
            crate::extension::invocation::Invocations::new().expect("stacks"),
        );
        let median = median_ns(|round| {
            let pin = self.core.pin();
            let environment = self.environment(&pin);
            for first in (0..PER_ROUND).step_by(batch as usize) {
                for number in 0..batch {
                    let key = key(round * PER_ROUND + first + number);
                    let started =
                        invocations.start(&environment, extension, 0, TABLE, &key, arguments, number);
                    assert!(started.is_ok());
                }
                invocations.run(&environment, &mut |_, status: Status, body: &[u8]| {
                    assert_eq!(status, Status::Ok);
                    black_box(body);
                });
            }
        });
        self.invocations = invocations;
        median
    }
}

#[test]
#[ignore = "measures; run alone and in release"]
fn what_an_invocation_costs() {
    let mut world = World::new();
    for number in 0..OBJECTS {
        world.put(TABLE, &key(number), &[7; 100]);
        while world.core.step() {}
    }
    let table = world.table(TABLE);
    let native = median_ns(|round| {
        let pin = world.core.pin();
        for number in 0..PER_ROUND {
            let key = key(round * PER_ROUND + number);
            let object = pin.get(&table, store::hash(&key), &key).expect("all are there");
            black_box(object.value()[0]);
        }
    });
    println!("native lookup, one after the other: {native:.1} ns");
    for (name, extension, arguments) in [
        ("noop", World::extension(noop, Mode::Read), &[][..]),
        ("noop that may write", World::extension(noop, Mode::Write), &[]),
        ("get", World::extension(get, Mode::Read), &[]),
        ("put", World::extension(put, Mode::Write), &[8; 100]),
    ] {
        for batch in [1, 32, 256] {
            let cost = world.cost_ns(&extension, arguments, batch);
            println!("{name}, {batch} to a turn: {cost:.1} ns");
        }
    }
}
