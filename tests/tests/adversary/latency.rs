//! How long answers took: noted by whoever waits for them, printed when a test ends.

use std::time::{Duration, Instant};

/// Times of one kind of answer.
#[derive(Debug)]
pub struct Latency {
    began: Instant,
    micros: Vec<u32>,
    /// The longest, and when it had passed.
    longest: (Duration, Instant),
}

impl Default for Latency {
    fn default() -> Self {
        let began = Instant::now();
        Self { began, micros: Vec::new(), longest: (Duration::ZERO, began) }
    }
}

impl Latency {
    /// Runs something and notes how long it took.
    pub fn of<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        self.note(began.elapsed());
        result
    }

    /// Notes a time.
    pub fn note(&mut self, time: Duration) {
        if time > self.longest.0 {
            self.longest = (time, Instant::now());
        }
        self.micros.push(time.as_micros().try_into().unwrap_or(u32::MAX));
    }

    /// How many were noted.
    pub fn count(&self) -> usize {
        self.micros.len()
    }

    /// Prints count, median, 99th percentile and maximum.
    pub fn print(&mut self, who: &str) {
        self.micros.sort_unstable();
        let at = |per_mille: usize| {
            let last = self.micros.len().saturating_sub(1);
            self.micros.get(last * per_mille / 1000).copied().unwrap_or(0)
        };
        let (p50, p99, max) = (at(500), at(990), at(1000));
        let when = (self.longest.1 - self.began).as_millis();
        println!(
            "{who:<28} {:>7} answers, p50 {p50} us, p99 {p99} us, max {max} us after {when} ms",
            self.count()
        );
    }
}
