//! When something else had the core of the load thread or of the server's worker.
//!
//! A request that was under way then says something of the machine, not of the server. Such requests are counted as
//! all others; beside the figures of all stand those of the rest. What is the server's own doing is no absence: the
//! time in which its other threads ran is taken off what its worker waited, and time that the host of a virtual
//! machine takes from the worker's core cannot be told from the worker's and stays in.

use crate::machine::{self, ServerThreads, ThreadTime};
use crate::measure::{Times, Undisturbed, latencies, quantile_us};

/// Shorter ones of the worker are not noted, in nanoseconds.
pub const SHORTEST_NS: u64 = 50_000;
/// No turn of the load takes as long: then the host of a virtual machine had the core, in nanoseconds.
const TURN_NS: u64 = 1_000_000;
/// How often the worker is looked at, in nanoseconds.
const LOOK_NS: u64 = 500_000;
/// How old may be what is known of the server's other threads, in nanoseconds.
const OTHERS_NS: u64 = 10_000_000;

/// See the file's head. All times count from the start of the run, in nanoseconds.
pub struct Absences {
    /// Shorter ones of the thread are not noted.
    shortest_ns: u64,
    seen_ns: u64,
    own_cpu_ns: u64,
    server: Option<WatchedServer>,
    /// From when to when, in the order of their ends.
    spans: Vec<(u64, u64)>,
}

struct WatchedServer {
    threads: ServerThreads,
    looked_ns: u64,
    workers: ThreadTime,
    others_ran_ns: u64,
    others_looked_ns: u64,
}

impl Absences {
    /// Watches from now on: this thread, whose absences of `shortest_ns` and more count, and the workers of a server where
    /// its process is known.
    pub fn new(process: Option<u32>, shortest_ns: u64, now_ns: u64) -> Self {
        let server = process.and_then(ServerThreads::of).map(|threads| WatchedServer {
            looked_ns: now_ns,
            workers: threads.workers(),
            others_ran_ns: threads.others().ran_ns,
            others_looked_ns: now_ns,
            threads,
        });
        Self { shortest_ns, seen_ns: now_ns, own_cpu_ns: machine::own_cpu_ns(), server, spans: Vec::new() }
    }

    /// Looks at the clocks: called again and again by the thread that is watched.
    pub fn look(&mut self, now_ns: u64) {
        let cpu_ns = machine::own_cpu_ns();
        let (passed, ran) = (now_ns - self.seen_ns, cpu_ns.saturating_sub(self.own_cpu_ns));
        if passed.saturating_sub(ran) >= self.shortest_ns || passed >= TURN_NS {
            self.spans.push((self.seen_ns, now_ns));
        }
        (self.seen_ns, self.own_cpu_ns) = (now_ns, cpu_ns);
        if let Some(server) = &mut self.server
            && now_ns - server.looked_ns >= LOOK_NS
        {
            self.spans.extend(server.look(now_ns));
        }
    }

    /// The figures of those requests that were not under way at an absence.
    pub fn without(&self, times: &[Times]) -> Undisturbed {
        let mut latency_ns = latencies();
        let met = self.meetings(times);
        for (times, _) in times.iter().zip(&met).filter(|(_, met)| !**met) {
            latency_ns.saturating_record((times.answered_ns - times.due_ns).max(1));
        }
        let left_out = met.iter().filter(|met| **met).count();
        Undisturbed {
            left_out_percent: 100.0 * left_out as f64 / times.len().max(1) as f64,
            undisturbed_us_p99: quantile_us(&latency_ns, 0.99),
            undisturbed_us_p999: quantile_us(&latency_ns, 0.999),
            undisturbed_us_max: latency_ns.max() as f64 / 1000.0,
        }
    }

    fn meetings(&self, times: &[Times]) -> Vec<bool> {
        // Ends grow; a span that began much earlier than it ended may hide behind shorter ones, so all that end after
        // the request was due are looked at.
        let meets = |times: &Times| {
            let first = self.spans.partition_point(|(_, to)| *to < times.due_ns);
            self.spans[first..]
                .iter()
                .take_while(|(_, to)| *to < times.answered_ns + LONGEST_NS)
                .any(|(from, _)| *from <= times.answered_ns)
        };
        times.iter().map(meets).collect()
    }
}

/// No span is taken for longer when spans are searched, in nanoseconds.
const LONGEST_NS: u64 = 1_000_000_000;

impl WatchedServer {
    /// The time for which its workers were kept from running by others than the server. The kernel tells it when they
    /// run again.
    fn look(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let workers = self.threads.workers();
        let delayed_ns = workers.delayed_ns - self.workers.delayed_ns;
        let from_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        self.workers = workers;
        if delayed_ns < SHORTEST_NS && now_ns - self.others_looked_ns < OTHERS_NS {
            return None;
        }
        let ran_ns = self.threads.others().ran_ns;
        let own_ns = ran_ns.saturating_sub(std::mem::replace(&mut self.others_ran_ns, ran_ns));
        self.others_looked_ns = now_ns;
        let foreign_ns = delayed_ns.saturating_sub(own_ns);
        (foreign_ns >= SHORTEST_NS).then_some((from_ns.saturating_sub(foreign_ns), now_ns))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{Absences, SHORTEST_NS, Times};

    fn times(due_ns: u64, answered_ns: u64) -> Times {
        Times { due_ns, answered_ns }
    }

    #[test]
    fn requests_that_were_under_way_at_an_absence_are_left_out() {
        let mut absences = Absences::new(None, SHORTEST_NS, 0);
        absences.spans = vec![(1_000, 2_000), (1_500, 2_100), (9_000, 9_500)];
        let all = [
            times(0, 900),
            times(0, 1_000),
            times(1_800, 1_900),
            times(2_100, 2_500),
            times(2_200, 2_300),
            times(8_000, 20_000),
            times(9_600, 9_700),
        ];
        assert_eq!(absences.meetings(&all), [false, true, true, true, false, true, false]);
        let rest = absences.without(&all);
        assert!((rest.left_out_percent - 400.0 / 7.0).abs() < 0.01);
        assert!(rest.undisturbed_us_max < 1.0, "{rest:?}");
    }

    #[test]
    fn a_thread_that_sleeps_is_away_and_one_that_works_is_not() {
        let start = Instant::now();
        let now_ns = || start.elapsed().as_nanos() as u64;
        let mut absences = Absences::new(Some(std::process::id()), SHORTEST_NS, now_ns());
        std::thread::sleep(std::time::Duration::from_millis(2));
        absences.look(now_ns());
        let (from, to) = absences.spans[0];
        assert!(to - from >= 2_000_000);
    }
}
