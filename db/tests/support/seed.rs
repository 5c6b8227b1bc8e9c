//! The seed of random tests.

/// That of `SPLINTER_SEED` or a fresh one, printed.
pub fn seed() -> u64 {
    let given = std::env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("SPLINTER_SEED={seed}");
    seed
}
