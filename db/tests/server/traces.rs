//! Traces of single invocations through the whole server: what is shown is what happened, to who owns it, while
//! somebody reads.

use wire::{AdminRequest, Body, Status, TraceEntry, Traces, function_hash};

use super::client::Client;
use super::extensions::{COUNTER, install, invoke, package};
use super::{Site, file};

fn read(client: &mut Client, name: &str, function: Option<&str>, after: u64) -> Result<Traces, Status> {
    let function = function.map(function_hash);
    let request = AdminRequest::ExtensionTraces { name, function, slower_than_us: 0, after };
    let answer = client.control.ask(&request).map_err(|(status, _)| status)?;
    Ok(Traces::decode(&answer).expect("traces"))
}

/// Invokes until something was traced: a worker rests after each trace.
fn traced(client: &mut Client, function: &str, extension: u32, table: u32, after: u64) -> Vec<TraceEntry> {
    loop {
        let delta = 5_i64.to_le_bytes();
        assert_eq!(client.status(&invoke(extension, function, table, &delta)), Status::Ok);
        let found = read(client, "counter", Some("add"), after).expect("leased");
        if !found.traces.is_empty() {
            return found.traces;
        }
    }
}

#[test]
fn a_trace_shows_what_an_invocation_did_and_how_long_that_took() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, table) = site.tenant_with_table("ann");
    let counter = install(&mut ann, "counter", &package(COUNTER)).expect("a good extension").extension;
    let start = read(&mut ann, "counter", Some("add"), u64::MAX).expect("leased").looked_at;
    assert_eq!(ann.status(&invoke(counter, "length", table, &[])), Status::Ok);
    let traces = traced(&mut ann, "add", counter, table, start);
    for trace in &traces {
        assert_eq!((trace.function.as_str(), trace.version, trace.status), ("add", 1, Status::Ok as u8));
        assert_eq!((trace.polls.len(), trace.polls_made), (1, 1));
        let poll = &trace.polls[0];
        assert_eq!((poll.end, poll.calls.len()), (0, 1));
        assert_eq!((poll.calls[0].kind.as_str(), poll.calls[0].count), ("increment", 1));
        assert!(poll.calls[0].ns <= poll.ns && poll.commit_ns > 0);
        assert!(poll.at_ns + poll.ns + poll.commit_ns + trace.reply_ns <= trace.ns + 4, "{trace:?}");
    }
    let last = read(&mut ann, "counter", Some("add"), u64::MAX).expect("leased").looked_at;
    assert_eq!(read(&mut ann, "counter", Some("add"), last).expect("leased").traces, []);
}

#[test]
fn a_tenant_traces_its_own_and_one_thing_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, table) = site.tenant_with_table("ann");
    let (mut bob, _) = site.tenant_with_table("bob");
    let counter = install(&mut ann, "counter", &package(COUNTER)).expect("a good extension").extension;
    install(&mut bob, "counter", &package(COUNTER)).expect("a good extension");
    read(&mut ann, "counter", Some("add"), 0).expect("leased");
    read(&mut bob, "counter", None, 0).expect("another tenant has a lease of its own");
    assert_eq!(read(&mut ann, "counter", Some("length"), 0), Err(Status::LimitExceeded));
    assert_eq!(read(&mut bob, "other", None, 0), Err(Status::UnknownExtension));
    assert!(!traced(&mut ann, "add", counter, table, 0).is_empty());
    assert_eq!(read(&mut bob, "counter", None, 0).expect("leased").traces, []);
}
