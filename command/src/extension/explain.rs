//! `splinter ext explain`: what the functions of a package would cost, before it is installed.
//!
//! The package is compiled to a module as a server would do it, and its functions run in this program on keys of a table, within the
//! tenant's limits: they read over the network, and nothing that they write is committed. The module of the current version runs on
//! the same keys in turn with it, so that both see the same machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use builder::{BuildError, Mode, Toolchain, sha256_of};
use client::local::{Finished, LocalFailure, Usage};
use client::{
    ByteString, Client, ExtensionModule, FunctionEntry, FunctionMode, Local, Module, ModuleRuntime,
    Statistic, Status,
};
use hdrhistogram::Histogram;
use sandstorm::abi::wasm32::BORDER_VERSION;
use serde_json::{Value, json};

use super::pack;
use crate::failure::{Failure, FailureKind};
use crate::object;
use crate::options::ExplainOptions;
use crate::output::{Answer, table_of, thousands};
use crate::settings::Settings;

/// Processor time of the server for one get over shared memory, many in a frame (docs/notes.md, "Eight cores behind a card, on
/// paper"). Over UDP it is more.
const GET: Duration = Duration::from_nanos(260);

/// Longest time that is told apart from longer ones.
const COMPUTE_NS_MAX: u64 = 60_000_000_000;

/// A difference in the time of a call that a comparison does not tell from none.
const TIMING_NOISE: Duration = Duration::from_nanos(100);

/// What calls of one function used.
struct Costs {
    ends: BTreeMap<String, u64>,
    compute_ns: Histogram<u64>,
    calls: u64,
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    reply_bytes: u64,
    arena_bytes_max: u64,
}

/// One of the modules that are compared.
struct Candidate {
    name: String,
    module: Module,
}

/// What the functions of a package and of the current version used.
struct Explained {
    extension: String,
    keys: usize,
    /// The package, then the current version if there is one.
    candidates: Vec<Candidate>,
    /// Name and mode of each function, and its costs by candidate.
    functions: Vec<(String, &'static str, Vec<Option<Costs>>)>,
}

/// Runs functions, and says what they used.
pub fn explain(settings: &Settings, options: &ExplainOptions) -> Result<Answer, Failure> {
    let found = compare(settings, options)?;
    let (mut text, mut values) = (String::new(), Vec::new());
    for (function, mode, costs) in &found.functions {
        text.push_str(&format!(
            "{function} ({mode}), {} keys of {}\n{}\n",
            thousands(found.keys as u64),
            options.table,
            described(&found.candidates, costs, options.rate)
        ));
        let of = |(candidate, costs): (&Candidate, &Option<Costs>)| {
            let costs = costs.as_ref()?;
            Some(json!({ "of": candidate.name, "costs": costs.value() }))
        };
        let each: Vec<Value> = found.candidates.iter().zip(costs).filter_map(of).collect();
        values.push(json!({ "function": function, "mode": mode, "each": each }));
    }
    Ok(Answer::new(
        text.trim_end().to_owned() + "\n",
        json!({ "extension": found.extension, "functions": values }),
    ))
}

/// Refuses a package of which a function costs the server more than in the current version, by more than so many per cent in the
/// median, or of which fewer calls succeed. Higher quantiles are the machine's more often than the function's.
pub fn refuse_regression(settings: &Settings, options: &ExplainOptions, percent: f64) -> Result<(), Failure> {
    let found = compare(settings, options)?;
    let refuse = |what: String| {
        let next = "see `splinter ext explain`, or allow more with --max-regression";
        Err(Failure::new(FailureKind::Extension, what).next(next))
    };
    for (function, _, costs) in &found.functions {
        let [Some(new), Some(current)] = &costs[..] else { continue };
        let of = found.candidates[1].name.trim_end_matches(", current");
        if new.succeeded() < current.succeeded() {
            return refuse(format!(
                "{function}: {} of {} calls succeed; in {of} {} do",
                new.succeeded(),
                new.calls,
                current.succeeded()
            ));
        }
        let [new, current] = [new, current].map(Costs::server_cost);
        if new > current.mul_f64(1.0 + percent / 100.0) + TIMING_NOISE {
            let us = |time: Duration| time.as_nanos() as f64 / 1e3;
            let more = (new.as_secs_f64() / current.as_secs_f64() - 1.0) * 100.0;
            return refuse(format!(
                "{function} would cost {:.2} us a call (median), {more:.0} % more than the {:.2} us of {of}",
                us(new),
                us(current)
            ));
        }
    }
    Ok(())
}

/// Runs the functions of a package, and those of the current version beside them.
fn compare(settings: &Settings, options: &ExplainOptions) -> Result<Explained, Failure> {
    let package = pack(&options.package, options.name.as_deref())?;
    let arguments = options.arguments.read()?;
    let (bytes, functions) = compile(&options.package, &package)?;
    let (mut client, table) = object::open(settings, &options.table)?;
    let keys = sample(&mut client, table, options.sample)?;
    let unable = |error: client::ModuleError| Failure::new(FailureKind::Local, error.to_string());
    let runtime = ModuleRuntime::start().map_err(unable)?;
    let limits = client.limits()?.into_iter().map(|limit| Statistic { name: limit.name, value: limit.value });
    let own = ExtensionModule {
        extension: 0,
        version: 0,
        border: BORDER_VERSION,
        source_checked: !package.is_finished(),
        functions: functions.iter().map(entry_of).collect(),
        limits: limits.collect(),
        sha256: sha256_of(&bytes),
        all_bytes: bytes.len() as u64,
        bytes: ByteString(bytes),
    };
    let own = Candidate { name: "this source".to_owned(), module: runtime.load(&own).map_err(unable)? };
    let mut candidates = vec![own];
    match client.extension_module(package.name(), 0) {
        Ok(module) => {
            let name = format!("{}@{}, current", package.name(), module.version);
            candidates.push(Candidate { name, module: runtime.load(&module).map_err(unable)? });
        }
        Err(error) if error.status() == Some(Status::UnknownExtension) => {}
        Err(error) => return Err(error.into()),
    }
    let mut local = Local::new(client.into_session());
    local.set_dry(true);
    let mut compared = Vec::new();
    for function in &functions {
        if options.function.as_ref().is_some_and(|name| *name != function.name) {
            continue;
        }
        let costs = measure(&mut local, &candidates, (&function.name, table), (&keys, &arguments))?;
        let mode = if function.mode == Mode::Read { "read" } else { "write" };
        compared.push((function.name.clone(), mode, costs));
    }
    if compared.is_empty() {
        let name = options.function.as_deref().unwrap_or_default();
        return Err(Failure::new(FailureKind::Missing, format!("the package has no function `{name}`")));
    }
    let extension = package.name().to_owned();
    Ok(Explained { extension, keys: keys.len(), candidates, functions: compared })
}

fn compile(path: &Path, package: &builder::Package) -> Result<(Vec<u8>, Vec<builder::Function>), Failure> {
    Toolchain::module_of(package).map_err(|error| match error {
        BuildError::Refused(refusals) => super::refused(path, &refusals),
        error @ (BuildError::CompileFailed { .. } | BuildError::ImportRefused { .. }) => {
            Failure::new(FailureKind::Extension, error.to_string()).known_as(Status::CompileFailed)
        }
        error => Failure::new(FailureKind::Local, error.to_string()),
    })
}

fn entry_of(function: &builder::Function) -> FunctionEntry {
    let mode = if function.mode == Mode::Read { FunctionMode::Read } else { FunctionMode::Write };
    FunctionEntry { name: function.name.clone(), hash: function.hash(), mode, doc: function.doc.clone() }
}

/// Returns keys of a table: those that its enumeration begins with, whose order is that of their hashes.
fn sample(client: &mut Client, table: u32, count: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let mut keys = Vec::new();
    for object in client.enumerate(table).take(count) {
        keys.push(object?.key);
    }
    if keys.is_empty() {
        let what = "the table has no objects to run the functions on";
        return Err(Failure::new(FailureKind::Missing, what).next("put some, or name another table"));
    }
    Ok(keys)
}

/// Runs a function of each candidate that has it, on each key in turn.
fn measure(
    local: &mut Local,
    candidates: &[Candidate],
    (function, table): (&str, u32),
    (keys, arguments): (&[Vec<u8>], &[u8]),
) -> Result<Vec<Option<Costs>>, Failure> {
    let has = |candidate: &Candidate| candidate.module.functions().any(|name| name == function);
    let mut costs: Vec<Option<Costs>> = candidates.iter().map(|it| has(it).then(Costs::new)).collect();
    for key in keys {
        for (candidate, costs) in candidates.iter().zip(&mut costs) {
            let Some(costs) = costs else { continue };
            local.spawn_module(&candidate.module, function, table, key, arguments)?;
            let mut failure = None;
            while local.outstanding() > 0 {
                local.poll_waiting(&mut |finished: Finished<'_>| failure = costs.add(&finished))?;
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
    }
    Ok(costs)
}

impl Costs {
    fn new() -> Costs {
        Costs {
            ends: BTreeMap::new(),
            compute_ns: Histogram::new_with_bounds(1, COMPUTE_NS_MAX, 3).expect("valid bounds"),
            calls: 0,
            reads: 0,
            read_bytes: 0,
            writes: 0,
            write_bytes: 0,
            reply_bytes: 0,
            arena_bytes_max: 0,
        }
    }

    /// Adds a call. Returns the failure of one that was not answered.
    fn add(&mut self, finished: &Finished<'_>) -> Option<Failure> {
        let end = match &finished.result {
            Ok(_) => "ok".to_owned(),
            Err(LocalFailure::Server(client::Error::Refused { status, .. })) => format!("{status:?}"),
            Err(LocalFailure::Server(client::Error::ExtensionFailed { code, .. })) => format!("error {code}"),
            Err(LocalFailure::Server(client::Error::ConditionFailed { .. })) => "ConditionFailed".to_owned(),
            Err(failure) => return Some(Failure::new(FailureKind::Unreachable, failure.to_string())),
        };
        *self.ends.entry(end).or_default() += 1;
        let Usage { read_bytes, writes, write_bytes, compute, arena_bytes } = finished.usage;
        self.compute_ns.saturating_record(compute.as_nanos().max(1) as u64);
        self.calls += 1;
        self.reads += u64::from(finished.reads);
        self.read_bytes += read_bytes as u64;
        self.writes += writes as u64;
        self.write_bytes += write_bytes as u64;
        self.reply_bytes += finished.result.as_ref().map_or(0, |reply| reply.len() as u64);
        self.arena_bytes_max = self.arena_bytes_max.max(arena_bytes as u64);
        None
    }

    fn mean(&self, sum: u64) -> f64 {
        sum as f64 / self.calls.max(1) as f64
    }

    fn compute(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.compute_ns.value_at_quantile(quantile))
    }

    /// Returns what the requests of a call cost the server: its reads, and its commit if it writes.
    fn requests_cost(&self) -> Duration {
        GET.mul_f64(self.mean(self.reads) + self.mean(self.writes).min(1.0))
    }

    /// Returns the number of calls that ended without an error.
    fn succeeded(&self) -> u64 {
        self.ends.get("ok").copied().unwrap_or_default()
    }

    /// Returns what a call costs the server if it runs there: its own code, and its reads and writes.
    fn server_cost(&self) -> Duration {
        self.compute(0.5) + GET.mul_f64(self.mean(self.reads) + self.mean(self.writes))
    }

    /// Returns whether the function needs less processor time at the server than its gets and its commit would need there.
    fn belongs_to_server(&self) -> bool {
        self.compute(0.5) <= self.requests_cost()
    }

    fn value(&self) -> Value {
        json!({
            "results": self.ends, "calls": self.calls,
            "compute_ns_p50": self.compute(0.5).as_nanos() as u64, "compute_ns_p99": self.compute(0.99).as_nanos() as u64,
            "requests": self.mean(self.reads), "read_bytes": self.mean(self.read_bytes),
            "writes": self.mean(self.writes), "write_bytes": self.mean(self.write_bytes),
            "reply_bytes": self.mean(self.reply_bytes), "arena_bytes_max": self.arena_bytes_max,
            "placement": if self.belongs_to_server() { "server" } else { "client" },
        })
    }
}

/// Returns the lines about one function: a column for each candidate.
fn described(candidates: &[Candidate], costs: &[Option<Costs>], rate: Option<u64>) -> String {
    let mut heads = vec![""];
    heads.extend(candidates.iter().map(|candidate| candidate.name.as_str()));
    let us = |time: Duration| format!("{:.2}", time.as_nanos() as f64 / 1e3);
    let mean = |costs: &Costs, sum: u64| format!("{:.1}", costs.mean(sum));
    type Shown<'s> = Box<dyn Fn(&Costs) -> String + 's>;
    let mut lines: Vec<(&str, Shown<'_>)> = vec![
        (
            "results",
            Box::new(|costs| {
                let end = |(end, count): (&String, &u64)| format!("{} {end}", thousands(*count));
                costs.ends.iter().map(end).collect::<Vec<_>>().join(", ")
            }),
        ),
        ("compute us, p50", Box::new(move |costs| us(costs.compute(0.5)))),
        ("compute us, p99", Box::new(move |costs| us(costs.compute(0.99)))),
        ("requests", Box::new(move |costs| mean(costs, costs.reads))),
        ("bytes read", Box::new(move |costs| mean(costs, costs.read_bytes))),
        ("writes", Box::new(move |costs| mean(costs, costs.writes))),
        ("bytes written", Box::new(move |costs| mean(costs, costs.write_bytes))),
        ("bytes of the reply", Box::new(move |costs| mean(costs, costs.reply_bytes))),
        ("arena bytes, most", Box::new(|costs| thousands(costs.arena_bytes_max))),
        (
            "cheaper for the server",
            Box::new(|costs| match costs.belongs_to_server() {
                true => "at the server".to_owned(),
                false => "at the client".to_owned(),
            }),
        ),
    ];
    if let Some(rate) = rate {
        lines.push((
            "share of a core at that rate",
            Box::new(move |costs| {
                let each = Duration::from_nanos(costs.compute_ns.mean() as u64);
                format!("{:.1} %", each.as_secs_f64() * rate as f64 * 100.0)
            }),
        ));
        lines.push((
            "requests and writes a second",
            Box::new(move |costs| thousands((costs.mean(costs.reads + costs.writes) * rate as f64) as u64)),
        ));
    }
    let rows = lines.iter().map(|(name, shown)| {
        let cell = |costs: &Option<Costs>| costs.as_ref().map_or_else(|| "-".to_owned(), shown);
        std::iter::once((*name).to_owned()).chain(costs.iter().map(cell)).collect()
    });
    table_of(&heads, rows)
}
