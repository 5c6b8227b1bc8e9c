//! The table of all ways, what stands under it, and the plot.

use super::seen::{ClientSummary, FIGURES};
use super::way::{Medium, TransportWay};
use super::{Played, TransportsSettings};
use crate::options::name_of;
use crate::plot::rows::{self, Column, PlotRow};
use crate::plot::series::Scale;
use crate::report::{self, Report};
use crate::workload::Workload;
use serde::Serialize;

/// What stands under the table.
const NOTE: &str = "p50 to p99.9: one request outstanding. M/s: with so many outstanding (at) that it is most; busy: part of that time in \
                    which the server's core served something, however little at once.\nB/request: frames, both directions, without headers below ours; on wire: with the \
                    42 bytes of Ethernet, IP and UDP of each frame, where there are any.\n\
                    sent/frame, answers/frame: requests of a frame sent (below 1 where some were sent again), answers of one received; servers pack \
                    answers as they see fit.\nThe client of veth-udp, af-packet and af-xdp is the kernel's, over a fresh pair of interfaces of the same kind: its end fills in \
                    checksums and sends no packet above the MTU; so does the server's in veth-udp.";

/// What a get over a medium should come to.
struct MediumTarget {
    medium: Medium,
    us_p50: f64,
    /// Requests a second: single, packed.
    rates: (f64, f64),
}

const TARGETS: [MediumTarget; 3] = [
    MediumTarget { medium: Medium::Shm, us_p50: 1.0, rates: (4e6, 4e6) },
    MediumTarget { medium: Medium::Memif, us_p50: 2.5, rates: (2e6, 3.5e6) },
    MediumTarget { medium: Medium::VirtioUser, us_p50: 2.5, rates: (2e6, 3.5e6) },
];

/// A way of which nothing was measured, as it is written.
#[derive(Serialize)]
struct Without<'a> {
    way: TransportWay,
    runs: usize,
    failure: &'a str,
}

/// Prints, writes the medians, draws.
pub fn show(settings: &TransportsSettings, played: &[Played], report: &mut Report) -> Result<(), String> {
    let summaries: Vec<Option<ClientSummary>> = played.iter().map(Played::summary).collect();
    let mut lines = Vec::new();
    for (played, summary) in played.iter().zip(&summaries) {
        match summary {
            Some(summary) => {
                report.line(None, settings, summary)?;
                lines.push(cells(summary));
            }
            None => {
                let failure = played.reason();
                report.line(None, settings, &Without { way: played.way, runs: 0, failure })?;
                lines.push(vec![played.way.to_string(), format!("not measured: {failure}")]);
            }
        }
    }
    report::print(&title(settings), &heads(), &lines);
    println!("{NOTE}");
    let summaries: Vec<ClientSummary> = summaries.into_iter().flatten().collect();
    for played in played.iter().filter(|played| !played.seen.is_empty() && !played.failures.is_empty()) {
        let (failed, way) = (played.failures.len(), played.way);
        println!("{way}: {failed} of {} runs failed: {}", failed + played.seen.len(), played.reason());
    }
    verdicts(settings.workload, &summaries).iter().for_each(|verdict| println!("{verdict}"));
    let Some(path) = report.plot("transports.svg") else { return Ok(()) };
    let columns = [
        Column { name: "p50 of one outstanding, us (logarithmic)", scale: Scale::Logarithmic },
        Column { name: "M requests/s, many outstanding", scale: Scale::Linear },
    ];
    let rows: Vec<PlotRow> = played.iter().map(Played::row).collect();
    rows::rows(&path, &title(settings), &columns, &rows)
}

fn title(settings: &TransportsSettings) -> String {
    format!(
        "{}{} ({} B key, {} B value, {} keys) by way, {} runs in turn",
        name_of(&settings.workload),
        settings.workload.extension().map_or(String::new(), |_| format!(" in {}", settings.sandbox)),
        settings.key_bytes,
        settings.value_bytes,
        settings.keys,
        settings.pair.runs
    )
}

fn heads() -> String {
    format!("|at|{}|runs|steering", report::heads(FIGURES))
}

fn cells(summary: &ClientSummary) -> Vec<String> {
    let mut cells = vec![summary.way.to_string(), summary.outstanding.to_string()];
    cells.extend(summary.figures.cells());
    cells.extend([summary.runs.to_string(), summary.steering.clone()]);
    cells
}

/// What was asked for, and whether it was reached. Ways that are compared with another one need that too.
fn verdicts(workload: Workload, summaries: &[ClientSummary]) -> Vec<String> {
    let mut verdicts = Vec::new();
    for summary in summaries {
        let (way, us_p50) = (summary.way, summary.figures.median("latency_us_p50"));
        let rate = summary.figures.median("requests_per_second");
        let target = TARGETS.iter().find(|target| target.medium == way.medium);
        if let Some(MediumTarget { us_p50: us_max, rates, .. }) = target.filter(|_| workload == Workload::Get)
        {
            let least = if way.is_packed { rates.1 } else { rates.0 };
            verdicts.push(format!(
                "target of {way}: p50 at most {us_max} us: {}; {:.1} M/s: {}",
                word(us_p50 <= *us_max),
                least / 1e6,
                word(rate >= least)
            ));
        }
        let kernel = way.medium.kernel_alike().map(|medium| TransportWay { medium, ..way });
        if let Some(kernel) = summaries.iter().find(|other| Some(other.way) == kernel) {
            let rate_times = rate / kernel.figures.median("requests_per_second");
            let p50_times = us_p50 / kernel.figures.median("latency_us_p50");
            verdicts.push(format!(
                "target of {way}: not slower than {}: {rate_times:.2} x its requests/s: {}; {p50_times:.2} x its p50: {}",
                kernel.way,
                word(rate_times >= 1.0),
                word(p50_times <= 1.0)
            ));
        }
    }
    verdicts
}

fn word(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

impl Played {
    fn summary(&self) -> Option<ClientSummary> {
        ClientSummary::of(self.way, &self.seen)
    }

    /// Why a run failed: the latest.
    fn reason(&self) -> &str {
        self.failures.last().map_or("nobody tried", String::as_str)
    }

    fn row(&self) -> PlotRow {
        let group = self.way.medium as usize;
        let figures = match self.summary() {
            Some(ClientSummary { figures, .. }) => {
                Ok(["latency_us_p50", "million_requests_per_second"].map(|name| figures.get(name)).to_vec())
            }
            // What to do about it is in the table.
            None => Err(format!("not measured: {}", shortened(self.reason()))),
        };
        PlotRow { name: self.way.to_string(), group, figures, target: None }
    }
}

/// As much of it as a row of the plot has room for.
fn shortened(reason: &str) -> String {
    const LETTERS: usize = 50;
    match reason.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{} ..", &reason[..end]),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Played, cells, heads, shortened, verdicts};
    use crate::transports::seen::tests::{seen, way};
    use crate::workload::Workload;

    fn played(name: &str, us_p50: f64, rate: f64) -> Played {
        Played { way: way(name), seen: vec![seen(us_p50, rate)], failures: Vec::new() }
    }

    #[test]
    fn every_figure_has_a_column() {
        let summary = played("udp", 12.5, 250_000.0).summary().expect("a run");
        let cells = cells(&summary);
        assert_eq!(cells.len(), heads().split('|').count());
        assert_eq!((&*cells[2], &*cells[6], &*cells[7]), ("12.50", "0.250", "0.250-0.250"));
        assert_eq!((&*cells[1], &*cells[8], &*cells[14]), ("1024", "0.50", "kernel"));
    }

    #[test]
    fn targets_are_told_as_met_or_missed() {
        let all = [
            played("shm", 0.9, 3e6),
            played("shm-packed", 1.1, 5e6),
            played("veth-udp", 20.0, 2e5),
            played("af-xdp", 10.0, 1e5),
        ];
        let summaries: Vec<_> = all.iter().filter_map(Played::summary).collect();
        let verdicts = verdicts(Workload::Get, &summaries);
        assert_eq!(verdicts.len(), 3, "{verdicts:?}");
        assert!(verdicts[0].ends_with("1 us: met; 4.0 M/s: missed"), "{}", verdicts[0]);
        assert!(verdicts[1].ends_with("1 us: missed; 4.0 M/s: met"), "{}", verdicts[1]);
        assert!(
            verdicts[2].contains("0.50 x its requests/s: missed; 0.50 x its p50: met"),
            "{}",
            verdicts[2]
        );
        // Targets are of gets; the comparison holds for whatever is asked.
        assert_eq!(super::verdicts(Workload::Tao, &summaries).len(), 1);
    }

    #[test]
    fn a_way_that_was_not_measured_says_why() {
        let failures = vec!["this was built without DPDK: cargo build".to_owned()];
        let played = Played { way: way("memif"), seen: Vec::new(), failures };
        assert!(played.summary().is_none() && played.reason().contains("cargo build"));
        assert!(played.row().figures.is_err_and(|why| why.starts_with("not measured: this was built")));
        assert_eq!(shortened(&"x".repeat(200)).len(), 53);
    }
}
