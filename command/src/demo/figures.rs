//! Measurements of a question by one method, and their printed form.

use crate::output::{table_of, thousands};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Maximum of the histograms, in microseconds.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Latencies of single operations, recorded in nanoseconds, reported in microseconds.
#[derive(Debug)]
pub struct Latencies {
    nanoseconds: Histogram<u64>,
}

/// One series of operations.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Series {
    /// Number of operations.
    pub operations: u64,
    /// Operations per second.
    pub per_second: f64,
    /// Median latency, microseconds.
    pub latency_us_p50: f64,
    /// 99th percentile, microseconds.
    pub latency_us_p99: f64,
}

/// The measurements of a question by one method.
#[derive(Clone, Debug, Serialize)]
pub struct WayFigures {
    /// Name of the method.
    pub way: &'static str,
    /// Average number of sequential round trips per operation.
    pub round_trips: f64,
    /// Average bytes per operation on the network, in both directions, with frame headers.
    pub bytes: f64,
    /// One operation at a time.
    pub one_at_a_time: Series,
    /// Many operations outstanding.
    pub pipelined: Series,
}

/// The measurements of a question by every method.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The question.
    pub question: String,
    /// True if all methods gave the same answers.
    pub answers_equal: bool,
    /// Number of operations whose answers were compared.
    pub answers_compared: u64,
    /// Number of outstanding operations in the pipelined series.
    pub outstanding: usize,
    /// The methods.
    pub ways: Vec<WayFigures>,
}

impl Latencies {
    /// Returns an empty histogram.
    pub fn new() -> Latencies {
        // The bounds are valid, so creating the histogram cannot fail.
        let nanoseconds = Histogram::new_with_bounds(1, LATENCY_US_MAX * 1_000, 3);
        Latencies { nanoseconds: nanoseconds.expect("the bounds of the histogram are fine") }
    }

    /// Records a latency.
    pub fn record(&mut self, latency: Duration) {
        self.nanoseconds.saturating_record(latency.as_nanos() as u64);
    }

    /// Returns the series, which took `elapsed` in total.
    pub fn series(&self, elapsed: Duration) -> Series {
        let microseconds = |quantile: f64| self.nanoseconds.value_at_quantile(quantile) as f64 / 1_000.0;
        Series {
            operations: self.nanoseconds.len(),
            per_second: self.nanoseconds.len() as f64 / elapsed.as_secs_f64().max(1e-9),
            latency_us_p50: microseconds(0.50),
            latency_us_p99: microseconds(0.99),
        }
    }
}

impl Comparison {
    /// Formats the measurements as a table.
    pub fn table(&self) -> String {
        let piped = format!("{} at once: ops/s", self.outstanding);
        let heads = ["", "round trips", "bytes/op", "ops/s", "p50 us", "p99 us", &piped, "p50 us", "p99 us"];
        let mut rows = Vec::new();
        for way in &self.ways {
            let (one, many) = (&way.one_at_a_time, &way.pipelined);
            rows.push(vec![
                way.way.to_owned(),
                format!("{:.2}", way.round_trips),
                thousands(way.bytes.round() as u64),
                thousands(one.per_second.round() as u64),
                microseconds(one.latency_us_p50),
                microseconds(one.latency_us_p99),
                thousands(many.per_second.round() as u64),
                microseconds(many.latency_us_p50),
                microseconds(many.latency_us_p99),
            ]);
        }
        let equal = if self.answers_equal { "equal" } else { "DIFFERENT" };
        let compared = thousands(self.answers_compared);
        format!("{}\n{}answers: {equal} ({compared} compared)\n", self.question, table_of(&heads, rows))
    }
}

/// Formats microseconds with the significant digits.
fn microseconds(us: f64) -> String {
    if us < 1_000.0 { format!("{us:.1}") } else { thousands(us.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Latencies, Series, WayFigures};
    use std::time::Duration;

    #[test]
    fn a_series_tells_its_quantiles_in_microseconds() {
        let mut latencies = Latencies::new();
        (1..=100).for_each(|us| latencies.record(Duration::from_micros(us)));
        let series = latencies.series(Duration::from_millis(10));
        assert_eq!(series.operations, 100);
        assert!((series.per_second - 10_000.0).abs() < 1.0);
        assert!((series.latency_us_p50 - 50.0).abs() < 1.0, "{series:?}");
        assert!((series.latency_us_p99 - 99.0).abs() < 1.0, "{series:?}");
    }

    #[test]
    fn a_table_says_when_answers_differ() {
        let series = Series { operations: 1, per_second: 1_234.6, latency_us_p50: 5.04, latency_us_p99: 7.0 };
        let way = WayFigures {
            way: "extension",
            round_trips: 1.0,
            bytes: 99.6,
            one_at_a_time: series,
            pipelined: series,
        };
        let comparison = Comparison {
            question: "friends".into(),
            answers_equal: false,
            answers_compared: 2_000,
            outstanding: 64,
            ways: vec![way],
        };
        let table = comparison.table();
        for part in ["friends\n", "64 at once", "1.00", "100", "1,235", "5.0", "DIFFERENT (2,000 compared)"] {
            assert!(table.contains(part), "{part} in\n{table}");
        }
    }
}
