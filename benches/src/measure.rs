//! Counts and times the answers of a run.
//!
//! Latencies go to a histogram of nanoseconds with three significant digits. Answers of the warm-up and
//! those after the end are not counted. Errors are counted by status and never timed as if they were
//! answers: a server that refuses quickly is not fast.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest latency that is told apart: a minute.
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// What was seen in a run so far.
#[derive(Debug)]
pub struct Measure {
    latency_ns: Histogram<u64>,
    objects: u64,
    /// Requests that succeeded and were not timed.
    untimed: u64,
    errors: BTreeMap<String, u64>,
}

/// The figures of a finished run.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Seconds that were measured.
    pub seconds: f64,
    /// Requests that were answered with success.
    pub requests: u64,
    /// Such requests a second.
    pub requests_per_second: f64,
    /// Objects read or written a second, where a request touches several.
    pub objects_per_second: f64,
    /// Mean latency in microseconds.
    pub latency_us_mean: f64,
    /// Median latency in microseconds.
    pub latency_us_p50: f64,
    /// 99 of 100 requests were faster.
    pub latency_us_p99: f64,
    /// 999 of 1,000 requests were faster.
    pub latency_us_p999: f64,
    /// The slowest request.
    pub latency_us_max: f64,
    /// Refusals and failures by status.
    pub errors: BTreeMap<String, u64>,
    /// Memory of the server for each object that was loaded, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_object: Option<f64>,
    /// Those of requests that were not disturbed, where they were asked for.
    #[serde(flatten)]
    pub undisturbed: Option<Undisturbed>,
}

/// Latencies of the requests that met no absence.
#[derive(Clone, Debug, Serialize)]
pub struct Undisturbed {
    /// The others, of all.
    pub left_out_percent: f64,
    /// 99 of 100 were faster.
    pub undisturbed_us_p99: f64,
    /// 999 of 1,000 were faster.
    pub undisturbed_us_p999: f64,
    /// The slowest.
    pub undisturbed_us_max: f64,
}

/// When a request was due and when it was answered, in nanoseconds since the start.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When it was due.
    pub due_ns: u64,
    /// When its answer was taken.
    pub answered_ns: u64,
}

/// An empty histogram of latencies in nanoseconds.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are valid")
}

/// A quantile of latencies, in microseconds.
pub fn quantile_us(latency_ns: &Histogram<u64>, quantile: f64) -> f64 {
    latency_ns.value_at_quantile(quantile) as f64 / 1000.0
}

impl Measure {
    /// Counts a request that succeeded, and the objects it touched.
    pub fn answered(&mut self, latency_ns: u64, objects: u64) {
        self.latency_ns.saturating_record(latency_ns.max(1));
        self.objects += objects;
    }

    /// Counts a request that succeeded, without its time, and the objects it touched.
    pub fn answered_untimed(&mut self, objects: u64) {
        self.untimed += 1;
        self.objects += objects;
    }

    /// Counts a request that failed, by the name of its status.
    pub fn failed(&mut self, status: &str) {
        match self.errors.get_mut(status) {
            Some(count) => *count += 1,
            None => {
                self.errors.insert(status.to_string(), 1);
            }
        }
    }

    /// Forgets everything: the end of the warm-up.
    pub fn clear(&mut self) {
        self.latency_ns.reset();
        (self.objects, self.untimed) = (0, 0);
        self.errors.clear();
    }

    /// The latencies, in nanoseconds.
    pub fn latency_ns(&self) -> &Histogram<u64> {
        &self.latency_ns
    }

    /// The figures of the `seconds` since the start or the last `clear`.
    pub fn figures(&self, seconds: f64) -> Figures {
        let us = |quantile| quantile_us(&self.latency_ns, quantile);
        Figures {
            seconds,
            requests: self.latency_ns.len() + self.untimed,
            requests_per_second: (self.latency_ns.len() + self.untimed) as f64 / seconds,
            objects_per_second: self.objects as f64 / seconds,
            latency_us_mean: self.latency_ns.mean() / 1000.0,
            latency_us_p50: us(0.5),
            latency_us_p99: us(0.99),
            latency_us_p999: us(0.999),
            latency_us_max: self.latency_ns.max() as f64 / 1000.0,
            errors: self.errors.clone(),
            bytes_per_object: None,
            undisturbed: None,
        }
    }
}

impl Default for Measure {
    fn default() -> Self {
        Self { latency_ns: latencies(), objects: 0, untimed: 0, errors: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::Measure;

    #[test]
    fn figures_count_answers_objects_and_errors_apart() {
        let mut measure = Measure::default();
        measure.failed("Malformed");
        measure.answered(5, 1);
        measure.clear();
        for microseconds in 1..=1000 {
            measure.answered(microseconds * 1000, 2);
        }
        measure.failed("OutOfMemory");
        measure.failed("OutOfMemory");
        let figures = measure.figures(2.0);
        assert_eq!((figures.requests, figures.requests_per_second), (1000, 500.0));
        assert_eq!(figures.objects_per_second, 1000.0);
        assert!((figures.latency_us_p50 - 500.0).abs() < 2.0);
        assert!((figures.latency_us_p99 - 990.0).abs() < 2.0);
        assert_eq!(figures.errors.into_iter().collect::<Vec<_>>(), [("OutOfMemory".to_string(), 2)]);
    }
}
