//! What one client saw in one run, as it crosses from its process to the bench, and what comes of several runs.

use serde::{Deserialize, Serialize};

use super::way::TransportWay;
use crate::report::{Figure, Spread, Spreads, hidden, median, range};

/// Bytes of the headers of Ethernet, IPv4 and UDP.
const HEADER_BYTES: f64 = 42.0;

/// What one client saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientSeen {
    /// With one request outstanding, in microseconds.
    pub latency_us_p50: f64,
    /// 99 of 100 were faster.
    pub latency_us_p99: f64,
    /// 999 of 1,000 were faster.
    pub latency_us_p999: f64,
    /// With many outstanding, in the order in which they were asked for.
    pub loads: Vec<ClosedLoop>,
    /// Largest frame that the client sent.
    pub frame_bytes_max: usize,
    /// How the server's frames find their worker.
    pub steering: String,
}

impl ClientSeen {
    /// The most requests a second.
    pub fn most(&self) -> f64 {
        self.loads.iter().map(|load| load.requests_per_second).fold(0.0, f64::max)
    }
}

/// A closed loop of many requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClosedLoop {
    /// Requests outstanding.
    pub outstanding: usize,
    /// Those answered a second.
    pub requests_per_second: f64,
    /// The part of the time in which the server's worker served something: 1 where it is what limits.
    pub server_busy: f64,
    /// What the sessions moved meanwhile.
    pub moved: Moved,
}

/// Frames of some requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Requests that were made.
    pub requests: u64,
    /// Those that went over the stream instead, being too large for a frame.
    pub stream_requests: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Bytes of both, without headers below ours.
    pub frame_bytes: u64,
}

impl Moved {
    /// Bytes of frames for each request.
    pub fn bytes_per_request(&self) -> f64 {
        self.frame_bytes as f64 / self.requests.max(1) as f64
    }

    /// The same with the headers that datagrams have on the wire.
    pub fn wire_bytes_per_request(&self, way: TransportWay) -> f64 {
        let headers = if way.medium.has_headers() { HEADER_BYTES } else { 0.0 };
        let frames = (self.frames_sent + self.frames_received) as f64;
        self.bytes_per_request() + headers * frames / self.requests.max(1) as f64
    }

    /// Requests of each frame sent.
    pub fn requests_per_frame_sent(&self) -> f64 {
        self.requests as f64 / self.frames_sent.max(1) as f64
    }

    /// Answers of each frame received.
    pub fn requests_per_frame_received(&self) -> f64 {
        self.requests as f64 / self.frames_received.max(1) as f64
    }
}

/// A run, with the load under which most requests were answered in the median of all runs.
#[derive(Debug)]
pub struct BusiestRun {
    way: TransportWay,
    seen: ClientSeen,
    load: ClosedLoop,
}

/// The figures of a way. The first are with one request outstanding, those of frames with as many as are best.
pub const FIGURES: &[Figure<BusiestRun>] = &[
    range("latency_us_p50", "p50 us", 2, |run| run.seen.latency_us_p50),
    median("latency_us_p99", "p99 us", 1, |run| run.seen.latency_us_p99),
    median("latency_us_p999", "p99.9 us", 1, |run| run.seen.latency_us_p999),
    hidden("requests_per_second", |run| run.load.requests_per_second),
    range("million_requests_per_second", "M/s", 3, |run| run.load.requests_per_second / 1e6),
    median("server_busy", "busy", 2, |run| run.load.server_busy),
    median("bytes_per_request", "B/request", 0, |run| run.load.moved.bytes_per_request()),
    median("wire_bytes_per_request", "on wire", 0, |run| run.load.moved.wire_bytes_per_request(run.way)),
    median("requests_per_frame_sent", "sent/frame", 1, |run| run.load.moved.requests_per_frame_sent()),
    median("requests_per_frame_received", "answers/frame", 1, |run| {
        run.load.moved.requests_per_frame_received()
    }),
];

/// Medians of the runs of a way.
#[derive(Serialize)]
pub struct ClientSummary {
    /// The way.
    pub way: TransportWay,
    /// Runs that were measured to their end.
    pub runs: usize,
    /// Requests outstanding where most were answered.
    pub outstanding: usize,
    /// How the server's frames find their worker.
    pub steering: String,
    /// The figures.
    #[serde(flatten)]
    pub figures: Spreads,
}

impl ClientSummary {
    /// Of the runs that were measured; nothing where there are none.
    pub fn of(way: TransportWay, runs: &[ClientSeen]) -> Option<Self> {
        let rate = |index: &usize| {
            let loads = runs.iter().filter_map(|seen| seen.loads.get(*index));
            Spread::of(loads.map(|load| load.requests_per_second)).median
        };
        let latest = runs.last()?;
        let best = (0..latest.loads.len()).max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
        let busiest = |seen: &ClientSeen| {
            let load = seen.loads.get(best)?.clone();
            Some(BusiestRun { way, seen: seen.clone(), load })
        };
        let rows: Vec<BusiestRun> = runs.iter().filter_map(busiest).collect();
        Some(Self {
            way,
            runs: runs.len(),
            outstanding: latest.loads[best].outstanding,
            steering: latest.steering.clone(),
            figures: Spreads::of(FIGURES, &rows),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{ClientSeen, ClientSummary, ClosedLoop, Moved};
    use crate::report::Spread;
    use crate::transports::way::TransportWay;

    pub fn way(name: &str) -> TransportWay {
        name.parse().expect("a way")
    }

    pub fn seen(latency_us_p50: f64, requests_per_second: f64) -> ClientSeen {
        ClientSeen {
            latency_us_p50,
            latency_us_p99: 2.0 * latency_us_p50,
            latency_us_p999: 3.0 * latency_us_p50,
            loads: vec![load(256, requests_per_second / 2.0), load(1_024, requests_per_second)],
            frame_bytes_max: 90,
            steering: "kernel".into(),
        }
    }

    fn load(outstanding: usize, requests_per_second: f64) -> ClosedLoop {
        let moved = Moved {
            requests: 1_000,
            stream_requests: 0,
            frames_sent: 1_000,
            frames_received: 100,
            frame_bytes: 200_000,
        };
        ClosedLoop { outstanding, requests_per_second, server_busy: 0.5, moved }
    }

    #[test]
    fn a_line_of_a_client_is_read_back() {
        let seen = seen(1.5, 4e6);
        let line = serde_json::to_string(&seen).expect("it is written");
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<ClientSeen>(&line).expect("it is read"), seen);
    }

    #[test]
    fn headers_count_on_the_wire_and_not_in_memory() {
        let moved = seen(1.0, 1.0).loads[0].moved;
        assert_eq!(moved.bytes_per_request(), 200.0);
        assert_eq!(moved.wire_bytes_per_request(way("shm")), 200.0);
        assert_eq!(moved.wire_bytes_per_request(way("memif")), 200.0 + 1.1 * 42.0);
        assert_eq!((moved.requests_per_frame_sent(), moved.requests_per_frame_received()), (1.0, 10.0));
        assert_eq!(Moved::default().wire_bytes_per_request(way("udp")), 0.0);
    }

    #[test]
    fn medians_are_of_the_runs_that_were_measured() {
        let summary = ClientSummary::of(way("udp"), &[seen(3.0, 1e6), seen(1.0, 3e6), seen(2.0, 2e6)]);
        let summary = summary.expect("there are runs");
        assert_eq!(summary.figures.get("latency_us_p50"), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(summary.figures.get("requests_per_second"), Spread { median: 2e6, least: 1e6, most: 3e6 });
        assert_eq!((summary.runs, summary.outstanding), (3, 1_024), "where most were answered");
        assert!(ClientSummary::of(way("udp"), &[]).is_none());
    }
}
