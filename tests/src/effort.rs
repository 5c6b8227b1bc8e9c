//! From which seed a random test draws, and how long it runs.
//!
//! `SPLINTER_SEED` repeats a run, `SPLINTER_FULL=1` makes it long. The seed is printed, which shows when the
//! test fails.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use fastrand::Rng;

use crate::patience::Stopping;

/// A generator from the given seed, or from a fresh one.
pub fn rng() -> Rng {
    let given = std::env::var("SPLINTER_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("SPLINTER_SEED={seed}");
    Rng::with_seed(seed)
}

/// `usual` rounds, or `full` ones where time does not matter.
pub fn rounds(usual: usize, full: usize) -> usize {
    if std::env::var_os("SPLINTER_FULL").is_some() { full } else { usual }
}

/// Runs the seeds on all cores, and returns what each of them gave, in any order. One that fails ends the others.
pub fn on_all_cores<T: Send>(seeds: &[u64], run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let _stopping = Stopping(&is_over);
        let mut given = vec![];
        while !is_over.load(Ordering::Relaxed)
            && let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed))
        {
            given.push(run(seed));
        }
        given
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a seed failed")).collect()
    })
}
