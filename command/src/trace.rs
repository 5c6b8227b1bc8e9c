//! `splinter trace`: traces single invocations of an extension.
//!
//! Polling keeps the server tracing; it stops when this command ends, or some seconds after the last poll. The server
//! traces one invocation per core at a time, so under load the traces are a sample.

use super::failure::Failure;
use super::options::TraceOptions;
use super::output::{Answer, moment};
use super::settings::Settings;
use client::{Status, TraceEntry, TracedPoll};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(200);

/// Prints traces as they come.
pub fn run(settings: &Settings, options: &TraceOptions) -> Result<Answer, Failure> {
    let mut client = settings.connect()?;
    let function = options.function.as_deref();
    let slower_than_us = options.slow_than.map_or(0, |duration| duration.as_micros() as u64);
    let deadline = Instant::now() + Duration::from_secs(options.seconds);
    let (mut after, mut left, mut shown) = (u64::MAX, options.count, 0_u64);
    loop {
        let found = client.extension_traces(&options.extension, function, slower_than_us, after)?;
        after = found.looked_at;
        if found.missed > 0 && options.follow {
            let text = format!("... {} traces were dropped ...", found.missed);
            Answer::new(text, json!({ "missed": found.missed })).print(settings.output())?;
        }
        for trace in &found.traces {
            if left == 0 && !options.follow {
                break;
            }
            left = left.saturating_sub(1);
            shown += 1;
            Answer::new(text_of(&options.extension, trace), value_of(trace)).print(settings.output())?;
        }
        let is_over = left == 0 || Instant::now() >= deadline;
        if is_over && !options.follow {
            client.extension_traces_end(&options.extension)?;
            let text = match shown {
                0 => format!("no such invocation in {} s", options.seconds),
                _ => String::new(),
            };
            return Ok(Answer::new(text, json!({ "traces": shown })));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Formats a trace as a tree with the duration of each step.
fn text_of(extension: &str, trace: &TraceEntry) -> String {
    let TraceEntry { version, function, .. } = trace;
    let (when, status) = (moment(trace.at_ms), status_name(trace.status));
    let mut text = format!("{when}  {extension}@{version} {function}  {status}  {} us\n", us(trace.ns));
    let mut end_ns = 0;
    for (index, poll) in trace.polls.iter().enumerate() {
        let waited = if index == 0 { "queue" } else { "wait" };
        // Writing to a `String` does not fail.
        let _ = write_poll(&mut text, waited, poll, end_ns);
        end_ns = poll.at_ns + poll.ns + poll.commit_ns;
    }
    let more = trace.polls_made.saturating_sub(trace.polls.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "  └ the last run includes {more} more");
    }
    let _ = write!(text, "  └ reply        {:>10} us", us(trace.reply_ns));
    text
}

fn write_poll(text: &mut String, waited: &str, poll: &TracedPoll, before_ns: u64) -> std::fmt::Result {
    writeln!(text, "  ├ {waited:<12} {:>10} us", us(poll.at_ns.saturating_sub(before_ns)))?;
    let end = end_name(poll.end);
    writeln!(text, "  ├ run          {:>10} us  at {} us, {end}", us(poll.ns), us(poll.at_ns))?;
    for calls in &poll.calls {
        writeln!(text, "  │   {:<10} {:>10} us  {} times", calls.kind, us(calls.ns), calls.count)?;
    }
    if poll.commit_ns > 0 {
        writeln!(text, "  ├ commit       {:>10} us", us(poll.commit_ns))?;
    }
    Ok(())
}

fn value_of(trace: &TraceEntry) -> Value {
    let polls: Vec<Value> = trace.polls.iter().map(poll_value).collect();
    json!({
        "at_ms": trace.at_ms, "version": trace.version, "function": trace.function,
        "status": status_name(trace.status), "ns": trace.ns, "queue_ns": trace.polls.first().map(|poll| poll.at_ns),
        "reply_ns": trace.reply_ns, "polls_made": trace.polls_made, "polls": polls,
    })
}

fn poll_value(poll: &TracedPoll) -> Value {
    let calls =
        poll.calls.iter().map(|calls| (calls.kind.clone(), json!({ "count": calls.count, "ns": calls.ns })));
    json!({
        "at_ns": poll.at_ns, "ns": poll.ns, "end": end_name(poll.end), "commit_ns": poll.commit_ns,
        "calls": calls.collect::<serde_json::Map<String, Value>>(),
    })
}

fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

fn end_name(end: u8) -> &'static str {
    ["ended", "yielded", "preempted", "conflict"].get(usize::from(end)).copied().unwrap_or("unknown")
}

fn status_name(status: u8) -> &'static str {
    Status::from_u8(status).map_or("unknown", Status::name)
}

#[cfg(test)]
mod tests {
    use super::{text_of, value_of};
    use client::{TraceEntry, TracedCalls, TracedPoll};

    #[test]
    fn a_trace_is_a_tree_of_what_took_how_long() {
        let calls = vec![TracedCalls { kind: "get".into(), count: 12, ns: 4_100 }];
        let first = TracedPoll { at_ns: 1_300, ns: 8_900, end: 1, commit_ns: 0, calls };
        let second = TracedPoll { at_ns: 20_200, ns: 500, end: 0, commit_ns: 900, calls: Vec::new() };
        let trace = TraceEntry {
            at_ms: 0,
            version: 3,
            function: "pull".into(),
            status: 0,
            ns: 22_000,
            reply_ns: 250,
            polls_made: 2,
            polls: vec![first, second],
        };
        let expected = "\
1970-01-01 00:00:00.000  bank@3 pull  Ok  22.000 us
  ├ queue             1.300 us
  ├ run               8.900 us  at 1.300 us, yielded
  │   get             4.100 us  12 times
  ├ wait             10.000 us
  ├ run               0.500 us  at 20.200 us, ended
  ├ commit            0.900 us
  └ reply             0.250 us";
        assert_eq!(text_of("bank", &trace), expected);
        assert_eq!(value_of(&trace)["polls"][0]["calls"]["get"]["count"], 12);
    }
}
