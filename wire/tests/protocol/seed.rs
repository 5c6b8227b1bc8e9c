//! Where randomness comes from, and how much of it.

use fastrand::Rng;

/// A generator from `SPLINTER_SEED`, else from a fresh seed; printed, so that a failure can be repeated.
pub fn rng(test: &str) -> Rng {
    let seed = match std::env::var("SPLINTER_SEED") {
        Ok(text) => text.parse().expect("SPLINTER_SEED is a decimal number"),
        Err(_) => fastrand::u64(..),
    };
    println!("{test}: SPLINTER_SEED={seed}");
    Rng::with_seed(seed)
}

/// `full` inputs under `SPLINTER_FULL=1`, else `usual`.
pub fn budget(usual: usize, full: usize) -> usize {
    if std::env::var_os("SPLINTER_FULL").is_some_and(|value| value == "1") { full } else { usual }
}
