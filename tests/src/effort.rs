//! From which seed a random test draws, and how long it runs.
//!
//! `SPLINTER_SEED` repeats a run, `SPLINTER_FULL=1` makes it long. The seed is printed, which shows when the
//! test fails.

use fastrand::Rng;

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
