//! How soon an infinite loop ends: for its caller, and for those beside it.
//!
//! One loop after another on a server without other load, each timed from when it was sent to its typed error.
//! While it runs, its neighbour asks for an object: from the loop's start to that answer is how long it held the
//! core, two datagrams included. The question is sent when the loop has begun for sure, since a question that
//! came in the same batch would be answered before. A ping goes ahead of each loop, so that the worker is awake
//! and not what is measured.

use std::time::{Duration, Instant};

use client::{Request, Status};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::{NeighbourSettings, NeighbourStage, data};
use crate::drive::{Patience, ns_since};
use crate::fleet::Fleet;
use crate::measure::{latencies, quantile_us};
use crate::plot::{self, Curve};
use crate::report::{self, Report};
use crate::spin::Call;

/// Between a loop and the question beside it: what its datagram takes to the server, and a few microseconds.
const QUESTION_AFTER: Duration = Duration::from_micros(15);

/// Between two loops.
const PAUSE: Duration = Duration::from_millis(2);

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the loops came to.
#[derive(Serialize)]
struct LoopFigures {
    case: &'static str,
    loops: u64,
    answered_otherwise: u64,
    /// Until the caller has the error: p50, p99, max.
    error_us: [f64; 3],
    /// Until others run again.
    others_us: [f64; 3],
    traces_left: u64,
}

/// What the loops showed so far.
struct LoopsSeen {
    error_ns: Histogram<u64>,
    others_ns: Histogram<u64>,
    otherwise: u64,
}

/// Times loops, and prints the table.
pub(super) fn run(
    stage: &NeighbourStage,
    settings: &NeighbourSettings,
    report: &mut Report,
) -> Result<(), String> {
    let mut attackers = Fleet::open(&stage.attacker, 1, false)?;
    let mut victims = Fleet::open(&stage.victim, 1, false)?;
    let mut data = data(settings).dataset()?;
    let call = Call::endless(stage.extension, stage.attackers_table);
    let mut seen = LoopsSeen { error_ns: latencies(), others_ns: latencies(), otherwise: 0 };
    for number in 0..settings.loops {
        let key = data.key(number as u64 % settings.keys);
        one(&mut attackers, &mut victims, &call, &Request::Get { table: stage.table, key }, &mut seen)?;
    }
    let us = |latency_ns: &Histogram<u64>| [0.5, 0.99, 1.0].map(|at| quantile_us(latency_ns, at));
    let figures = LoopFigures {
        case: "an infinite loop",
        loops: seen.error_ns.len(),
        answered_otherwise: seen.otherwise,
        error_us: us(&seen.error_ns),
        others_us: us(&seen.others_ns),
        traces_left: traces(stage)?,
    };
    report.line(None, settings, &figures)?;
    show(&figures, settings);
    if let Some(path) = report.plot("loops.svg") {
        let curves = [
            Curve { name: "its caller has the error", latency_ns: &seen.error_ns },
            Curve { name: "others run again", latency_ns: &seen.others_ns },
        ];
        plot::percentiles(&path, "From the start of an infinite loop", &curves, &[])?;
    }
    Ok(())
}

/// One loop and the question beside it.
fn one(
    attackers: &mut Fleet,
    victims: &mut Fleet,
    call: &Call,
    question: &Request<'_>,
    seen: &mut LoopsSeen,
) -> Result<(), String> {
    std::thread::sleep(PAUSE);
    ask(victims, &Request::Ping)?;
    let start = Instant::now();
    attackers.submit(0, &call.request(), 0)?;
    attackers.poll(&mut |_, _| {})?;
    while start.elapsed() < QUESTION_AFTER {
        std::hint::spin_loop();
    }
    victims.submit(0, question, 0)?;
    let (mut ended, mut answered) = (None, None);
    let mut patience = Patience::default();
    while (ended.is_none() || answered.is_none()) && start.elapsed() < PATIENCE {
        patience.saw(0);
        victims.poll(&mut |_, completion| answered = Some((ns_since(start), completion.status)))?;
        attackers.poll(&mut |_, completion| ended = Some((ns_since(start), completion.status)))?;
    }
    match (ended, answered) {
        (Some((ended_ns, Ok(Status::ExtensionKilled))), Some((answered_ns, Ok(Status::Ok)))) => {
            seen.error_ns.saturating_record(ended_ns);
            seen.others_ns.saturating_record(answered_ns);
        }
        (ended, answered) => {
            eprintln!("a loop was answered otherwise: {ended:?}, and those beside it: {answered:?}");
            seen.otherwise += 1;
        }
    }
    Ok(())
}

/// Waits for the answer to a request.
fn ask(fleet: &mut Fleet, request: &Request<'_>) -> Result<(), String> {
    let (start, mut patience) = (Instant::now(), Patience::default());
    fleet.submit(0, request, 0)?;
    while start.elapsed() < PATIENCE {
        let answers = fleet.poll(&mut |_, _| {})?;
        if answers > 0 {
            return Ok(());
        }
        patience.saw(answers);
    }
    Err("a ping got no answer".into())
}

/// Objects that a loop has left behind: there must be none.
fn traces(stage: &NeighbourStage) -> Result<u64, String> {
    let found = stage.attacker.connect()?.table_stat(&stage.attacker.table);
    found.map(|found| found.objects).map_err(|error| format!("no trace can be looked for: {error}"))
}

fn show(figures: &LoopFigures, settings: &NeighbourSettings) {
    let row = |name: &str, us: [f64; 3]| {
        let [p50, p99, max] = us.map(|us| format!("{us:.0}"));
        vec![name.to_string(), p50, p99, max]
    };
    let rows =
        [row("its caller has the typed error", figures.error_us), row("others run again", figures.others_us)];
    let title = format!(
        "From the start of an infinite loop ({}) with a budget of {} us until ({} loops, {} answered otherwise, {} writes left behind)",
        settings.operator.sandbox,
        settings.budget_us,
        figures.loops,
        figures.answered_otherwise,
        figures.traces_left
    );
    report::print(&title, "|p50 us|p99 us|max us", &rows);
}
