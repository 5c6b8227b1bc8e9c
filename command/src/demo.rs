//! `splinter demo`: loads a graph and answers the same questions by three methods.
//!
//! - client gets: the functions run in the client, over plain gets;
//! - extension: the functions run in the server, one invocation per question;
//! - hybrid: plain gets read objects, the extension reads associations. An aggregate needs only objects; there the
//!   third method is one get and multi-gets.
//!
//! The demo compares every answer of every method byte by byte. It needs the server, the tenant and two extensions
//! (`tao` and `aggregate`); `scripts/demo` sets them up.

mod aggregate;
mod figures;
mod local;
mod measure;
mod question;
mod remote;

use super::failure::{Failure, FailureKind};
use super::graph::{Graph, Shape};
use super::options::DemoOptions;
use super::output::{Answer, Output, thousands};
use super::settings::Settings;
use super::tao::load::{Load, Loaded};
use client::Client;
use figures::Comparison;
use local::LocalWay;
use measure::{Measure, Plan};
use question::{Asker, FRIENDS, FRIENDS_OF_FRIENDS, Functions, Way};
use remote::RemoteWay;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Names of the methods, in the order of [`Ways::all`].
const WAYS: [&str; 3] = ["client gets", "extension", "hybrid"];

/// All three methods, each with its own session.
pub struct Ways {
    /// In the order of the report; the answers of the others are compared with those of the first.
    pub all: Vec<Box<dyn Way>>,
}

impl Ways {
    /// Opens a session for each method.
    pub fn open(settings: &Settings, mut client: Client) -> Result<Ways, Failure> {
        let functions = Functions::resolve(&mut client)?;
        let extension = RemoteWay::new(settings.connect()?.into_session(), functions.clone(), false);
        let hybrid = RemoteWay::new(settings.connect()?.into_session(), functions, true);
        let local = LocalWay::new(client.into_session());
        Ok(Ways { all: vec![Box::new(local), Box::new(extension), Box::new(hybrid)] })
    }
}

/// The results of the demo.
#[derive(Debug, Serialize)]
struct Report {
    graph: String,
    load: Loaded,
    answers_equal: bool,
    questions: Vec<Comparison>,
}

/// Runs the demo.
pub fn run(settings: &Settings, options: &DemoOptions) -> Result<Answer, Failure> {
    let text = settings.output() == Output::Text;
    let say = |line: &str| {
        if text {
            // A reader that closed the pipe is not a failure.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    };
    let (graph, name) = graph_of(options.graph.as_deref())?;
    say(&format!("graph: {name}"));
    let mut client = settings.connect()?;
    let (extension, table) = ("tao".into(), options.table.clone());
    let load = Load { table, extension, through: options.through, outstanding: 128 };
    let (load, table) = load.run(&mut client, &graph)?;
    say(&format!("{load}\n"));
    let records_table = client.table_open_or_create(&format!("{}-records", options.table))?;
    aggregate::load(&mut client, records_table)?;
    let mut report = Report { graph: name, load, answers_equal: true, questions: Vec::new() };
    let mut ways = Ways::open(settings, client)?;
    let (divisor, series_max) = match options.quick {
        true => (10, Duration::from_millis(500)),
        false => (1, Duration::from_secs(2)),
    };
    let mut asker = Asker::new(&graph, table, options.seed);
    for plan in plans(&mut asker, records_table, divisor) {
        let comparison = Measure::new(&plan, series_max).compare(&mut ways)?;
        say(&comparison.table());
        report.answers_equal &= comparison.answers_equal;
        report.questions.push(comparison);
    }
    finish(&report, options.json.as_deref())
}

fn graph_of(path: Option<&Path>) -> Result<(Graph, String), Failure> {
    let (graph, source) = match path {
        Some(path) => (Graph::read(path)?, path.display().to_string()),
        None => {
            let shape = Shape { nodes: 4_000, edges_per_node: 20, seed: 1 };
            (shape.graph(), "generated (splinter tao generate)".to_owned())
        }
    };
    let (nodes, edges) = (thousands(graph.nodes.len() as u64), thousands(graph.edges.len() as u64));
    Ok((graph, format!("{source}, {nodes} nodes, {edges} edges")))
}

/// Returns the questions, in the order of the report.
fn plans(asker: &mut Asker<'_>, records_table: u32, divisor: usize) -> Vec<Plan> {
    let count = |count: usize| count / divisor;
    let mut plans = vec![
        Plan {
            question: format!("friends of a node: the newest {FRIENDS}, with their objects"),
            names: WAYS,
            questions: asker.friends(count(10_000)),
            one_at_a_time: count(2_000),
            outstanding: 32,
        },
        Plan {
            question: format!(
                "friends of friends: the {FRIENDS_OF_FRIENDS} on most paths, with counts and objects"
            ),
            names: WAYS,
            questions: asker.friends_of_friends(count(1_000)),
            one_at_a_time: count(300),
            outstanding: 8,
        },
        Plan {
            question: "read mix after ATC'13 (assoc_range 40.9 %, obj_get 28.9 %, assoc_get 15.7 %, \
                       assoc_count 11.7 %, assoc_time_range 2.8 %)"
                .into(),
            names: WAYS,
            questions: asker.mix(count(200_000)),
            one_at_a_time: count(10_000),
            outstanding: 64,
        },
    ];
    for size in aggregate::SIZES {
        plans.push(Plan {
            question: format!("aggregate of {size} record{}", if size == 1 { "" } else { "s" }),
            names: [WAYS[0], WAYS[1], "multi-get"],
            questions: asker.aggregates(records_table, size, count(20_000)),
            one_at_a_time: count(2_000),
            outstanding: 32,
        });
    }
    plans
}

fn finish(report: &Report, path: Option<&Path>) -> Result<Answer, Failure> {
    // Cannot fail: JSON can represent all numbers and strings.
    let json = serde_json::to_value(report).unwrap_or_default();
    if let Some(path) = path {
        std::fs::write(path, format!("{json:#}\n")).map_err(|error| {
            Failure::new(FailureKind::Local, format!("cannot write {}: {error}", path.display()))
        })?;
    }
    if report.answers_equal {
        return Ok(Answer::new("all methods gave the same answers", json));
    }
    Err(Failure::new(FailureKind::Different, "the methods gave different answers")
        .next("the tables above show which questions differ; nothing else may write to the demo's tables"))
}
