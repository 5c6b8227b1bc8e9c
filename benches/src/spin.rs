//! The extension `ext/spin`, and loads that invoke it.
//!
//! Its source is part of this program, so that a run needs no checkout. [`source`] makes copies that differ,
//! [`rounds_per_us`] finds out how long its loop takes where the server runs it.

use std::time::Instant;

use client::Request;
use wire::function_hash;

use crate::drive::{Drive, Patience, ns_since};
use crate::fleet::Fleet;
use crate::options::Access;
use crate::report::Spread;
use crate::workload::{Expected, Source, invocation};

/// The source of the extension.
const SOURCE: &str = include_str!("../../ext/spin/src/lib.rs");

/// What [`source`] replaces.
const SALT: &str = "const SALT: u64 = 0;";

/// Rounds of the longer function of a calibration: well below a slice, and long beside what a call costs.
const ROUNDS: u64 = 10_000;

/// Calls of each half of a calibration; the fastest counts, which nothing has disturbed.
const CALLS: usize = 200;

/// How often a calibration is made; the median counts.
const CALIBRATIONS: usize = 3;

/// The source with another salt, without its unit tests.
pub fn source(salt: u64) -> String {
    let code = SOURCE.split("#[cfg(test)]").next().unwrap_or(SOURCE);
    code.replace(SALT, &format!("const SALT: u64 = {salt};"))
}

/// The same invocation again and again.
#[derive(Clone, Debug)]
pub struct Call {
    extension: u32,
    function: u32,
    table: u32,
    arguments: [u8; 8],
    expected: Expected,
}

impl Call {
    /// Computes for so many rounds.
    pub fn spin(extension: u32, table: u32, rounds: u64) -> Self {
        let expected = Expected::Value(rounds);
        Self { extension, function: function_hash("spin"), table, arguments: rounds.to_le_bytes(), expected }
    }

    /// Never ends.
    pub fn endless(extension: u32, table: u32) -> Self {
        let function = function_hash("endless");
        Self { extension, function, table, arguments: [0xee; 8], expected: Expected::Anything }
    }

    /// The key that an endless function writes to.
    pub const KEY: &'static [u8] = b"never seen";

    /// The request.
    pub fn request(&self) -> Request<'_> {
        invocation((self.extension, self.table), self.function, Self::KEY, &self.arguments)
    }
}

impl Source for Call {
    fn next<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        send(&self.request(), self.expected)
    }

    fn objects(&self) -> u64 {
        0
    }
}

/// How many rounds of `spin` the server does in a microsecond: from the least latencies of a call without rounds
/// and of one with many.
pub fn rounds_per_us(access: &Access, extension: u32, table: u32) -> Result<f64, String> {
    let mut fleet = Fleet::open(access, 1, false)?;
    let mut found = Vec::new();
    for _ in 0..CALIBRATIONS {
        let short_ns = least_ns(&mut fleet, Call::spin(extension, table, 0))?;
        let long_ns = least_ns(&mut fleet, Call::spin(extension, table, ROUNDS))?;
        found.push(ROUNDS as f64 * 1000.0 / long_ns.saturating_sub(short_ns).max(1) as f64);
    }
    Ok(Spread::of(found).median)
}

fn least_ns(fleet: &mut Fleet, call: Call) -> Result<u64, String> {
    let start = Instant::now();
    let mut drive = Drive::new(fleet, call, 1, start);
    let (mut answers, mut patience) = (0, Patience::default());
    while answers < CALLS {
        let found = drive.turn(ns_since(start))?;
        patience.saw(found);
        answers += found;
    }
    drive.drain()?;
    if drive.measure.latency_ns().is_empty() {
        return Err(format!(
            "no call of the calibration ended well: {:?}",
            drive.measure.figures(1.0).errors
        ));
    }
    Ok(drive.measure.latency_ns().min())
}

#[cfg(test)]
mod tests {
    use super::{SALT, SOURCE, source};

    #[test]
    fn copies_of_the_source_differ_by_the_salt_alone() {
        assert_eq!(SOURCE.matches(SALT).count(), 1);
        assert_eq!(source(0).replace(SALT, "const SALT: u64 = 77;"), source(77));
        assert_ne!(source(1), source(2));
        assert!(!source(1).contains("cfg(test)"));
    }
}
