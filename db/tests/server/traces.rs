//! Traces of single invocations through the whole server: what is shown is what happened, to who owns it, while
//! somebody reads.

use control::{AdminRequest, TraceEntry, Traces};
use wire::{Status, function_hash};

use super::client::Client;
use super::extensions::{COUNTER, install, invoke, package};
use super::{Site, file};

fn read(client: &mut Client, name: &str, function: Option<&str>, after: u64) -> Result<Traces, Status> {
    let function = function.map(function_hash);
    let request = AdminRequest::ExtensionTraces { name, function, slower_than_us: 0, after };
    let answer = client.control.ask(&request).map_err(|(status, _)| status)?;
    Ok(control::decode::<Traces>(&answer).expect("traces"))
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
        // One poll, or on a machine that is busy elsewhere several.
        assert_eq!(trace.polls.len() as u64, trace.polls_made);
        let (last, before) = trace.polls.split_last().expect("a poll");
        assert!(last.end == 0 && before.iter().all(|poll| poll.end == 2), "{trace:?}");
        let mut calls =
            trace.polls.iter().flat_map(|poll| poll.calls.iter().map(move |call| (poll.ns, call)));
        let (poll_ns, call) = calls.next().expect("a host call");
        assert_eq!((call.kind.as_str(), call.count, calls.count()), ("increment", 1, 0));
        assert!(call.ns <= poll_ns && last.commit_ns > 0);
        assert!(last.at_ns + last.ns + last.commit_ns + trace.reply_ns <= trace.ns + 4, "{trace:?}");
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
    let end = AdminRequest::ExtensionTracesEnd { name: "counter" };
    bob.control.ask(&end).expect("its own ends");
    assert_eq!(read(&mut ann, "counter", Some("length"), 0), Err(Status::LimitExceeded));
    ann.control.ask(&end).expect("its own ends");
    read(&mut ann, "counter", Some("length"), 0).expect("the next one does not wait");
}

#[test]
fn what_nobody_can_invoke_is_not_traced_but_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, _) = site.tenant_with_table("ann");
    install(&mut ann, "counter", &package(COUNTER)).expect("a good extension");
    assert_eq!(read(&mut ann, "counter", Some("nosuch"), 0), Err(Status::UnknownFunction));
    assert_eq!(read(&mut ann, "nosuch", None, 0), Err(Status::UnknownExtension));
    let end = AdminRequest::ExtensionTracesEnd { name: "nosuch" };
    assert_eq!(ann.control.ask(&end).map_err(|(status, _)| status), Err(Status::UnknownExtension));
    read(&mut ann, "counter", None, 0).expect("who was refused traces nothing");
}
