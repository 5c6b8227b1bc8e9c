//! What clients see over time, in intervals of a tenth of a second.
//!
//! A request counts where it was due, so that who had to wait is seen when the waiting began; its answer counts where it came.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::measure::{LATENCY_NS_MAX, Times};

/// Length of an interval.
pub const INTERVAL_NS: u64 = 100_000_000;

/// An interval of the timeline.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Moment {
    /// Seconds since what the timeline is about.
    pub at: f64,
    /// What was seen in it.
    #[serde(flatten)]
    pub seen: BinSeen,
}

/// Latencies and answers by interval.
#[derive(Default)]
pub struct Bins {
    latency_ns: Vec<Histogram<u32>>,
    answers: Vec<u64>,
}

/// What was seen between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BinSeen {
    /// Answers a second.
    pub answers_per_second: f64,
    /// Median latency in microseconds.
    pub latency_us_p50: f64,
    /// 99 of 100 requests were faster.
    pub latency_us_p99: f64,
    /// 999 of 1,000 requests were faster.
    pub latency_us_p999: f64,
    /// The longest that any request waited.
    pub latency_us_max: f64,
}

impl Bins {
    /// Adds a request.
    pub fn add(&mut self, times: Times) {
        let (due, answered) =
            ((times.due_ns / INTERVAL_NS) as usize, (times.answered_ns / INTERVAL_NS) as usize);
        while self.latency_ns.len() <= answered {
            let empty = Histogram::new_with_bounds(1_000, LATENCY_NS_MAX, 2).expect("the bounds are valid");
            self.latency_ns.push(empty);
            self.answers.push(0);
        }
        let latency_ns = times.answered_ns.saturating_sub(times.due_ns);
        self.latency_ns[due].saturating_record(latency_ns.max(1_000));
        self.answers[answered] += 1;
    }

    /// What was seen in the intervals that begin at `from_ns` or later and before `to_ns`.
    pub fn seen(&self, from_ns: u64, to_ns: u64) -> BinSeen {
        let last = self.answers.len();
        let from = (from_ns.div_ceil(INTERVAL_NS) as usize).min(last);
        let to = (to_ns.div_ceil(INTERVAL_NS) as usize).clamp(from, last);
        let Some(mut all) = self.latency_ns[from..to].first().cloned() else { return BinSeen::default() };
        self.latency_ns[from + 1..to].iter().for_each(|one| all.add(one).expect("the bounds are alike"));
        let answers: u64 = self.answers[from..to].iter().sum();
        let us = |ns: u64| ns as f64 / 1000.0;
        BinSeen {
            answers_per_second: answers as f64 / ((to - from) as f64 * INTERVAL_NS as f64 / 1e9),
            latency_us_p50: us(all.value_at_quantile(0.5)),
            latency_us_p99: us(all.value_at_quantile(0.99)),
            latency_us_p999: us(all.value_at_quantile(0.999)),
            latency_us_max: us(all.max()),
        }
    }

    /// Returns the median of what `figure` is in each interval between two moments; 0 if there is none.
    pub fn usual(&self, from_ns: u64, to_ns: u64, figure: impl Fn(&BinSeen) -> f64) -> f64 {
        let all = (from_ns.div_ceil(INTERVAL_NS)..to_ns.div_ceil(INTERVAL_NS)).map(|at| at * INTERVAL_NS);
        let mut figures: Vec<f64> = all.map(|at_ns| figure(&self.seen(at_ns, at_ns + INTERVAL_NS))).collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(0.0)
    }

    /// Returns each interval but the last, which is not over, at its time since `began_ns`.
    pub fn timeline(&self, began_ns: u64) -> Vec<Moment> {
        let begin = |at: usize| at as u64 * INTERVAL_NS;
        let moment = |at: usize| Moment {
            at: (begin(at) as f64 - began_ns as f64) / 1e9,
            seen: self.seen(begin(at), begin(at + 1)),
        };
        (0..self.answers.len().saturating_sub(1)).map(moment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Bins, INTERVAL_NS};
    use crate::measure::Times;

    #[test]
    fn a_request_counts_where_it_was_due_and_its_answer_where_it_came() {
        let mut bins = Bins::default();
        for at in 0..1000 {
            let due_ns = at * INTERVAL_NS / 1000;
            bins.add(Times { due_ns, answered_ns: due_ns + 20_000 });
        }
        bins.add(Times { due_ns: INTERVAL_NS / 2, answered_ns: 5 * INTERVAL_NS / 2 });
        let first = bins.seen(0, INTERVAL_NS);
        assert!((19.0..22.0).contains(&first.latency_us_p50), "{first:?}");
        assert!(first.latency_us_max > 190_000.0, "{first:?}");
        assert!((first.answers_per_second - 10_000.0).abs() < 20.0, "{first:?}");
        let third = bins.seen(2 * INTERVAL_NS, 3 * INTERVAL_NS);
        assert_eq!((third.answers_per_second, third.latency_us_max), (10.0, 0.0));
        assert_eq!(bins.timeline(0).len(), 2);
        assert_eq!(bins.seen(7 * INTERVAL_NS, 9 * INTERVAL_NS).answers_per_second, 0.0);
    }
}
