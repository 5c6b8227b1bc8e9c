//! Versions of an extension through the whole server: kept, named, switched between, removed, over restarts.

use std::time::{Duration, Instant};

use control::{
    Actor, AdminRequest, AuditEntry, ExtensionDescription, ExtensionEntry, Placement, VersionState,
};
use wire::{Request, Status};

use super::client::{Client, Refused};
use super::extensions::{COUNTER, install, install_as, invoke, package};
use super::{Site, file};

/// The package of which `repeat` replies with this byte.
pub fn repeating(byte: u8) -> Vec<(String, Vec<u8>)> {
    package(&COUNTER.replace("reply.u8(7)", &format!("reply.u8({byte})")))
}

fn at<'a>(request: &Request<'a>, number: u32) -> Request<'a> {
    let Request::Invoke { extension, function, table, key, arguments, .. } = *request else { unreachable!() };
    Request::Invoke { extension, version: number, function, table, key, arguments }
}

/// Which byte an invocation of a version gives; 0 is the one that is current.
pub fn byte_of(client: &mut Client, request: &Request<'_>, version: u32) -> Result<u8, Status> {
    let (status, body) = client.call(&at(request, version));
    match status.expect("an answer") {
        Status::Ok => Ok(body[0]),
        status => Err(status),
    }
}

fn change(client: &mut Client, request: &AdminRequest<'_>) -> Result<VersionState, Refused> {
    client.control.ask(request).map(|answer| control::decode::<VersionState>(&answer).expect("a state"))
}

fn versions(client: &mut Client) -> Vec<u32> {
    let list = client.control.ask(&AdminRequest::ExtensionList).expect("a list");
    let list = control::decode::<Vec<ExtensionEntry>>(&list).expect("extensions");
    list[0].versions.iter().map(|kept| kept.version).collect()
}

#[test]
fn versions_are_kept_named_and_switched_between_over_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let secret = site.create_tenant("ann");
    let mut client = site.client("ann", &secret);
    let table = client.create_table("t");
    let name = "counter";
    let extension = install(&mut client, name, &repeating(1)).expect("a good extension").extension;
    let one = 1_u32.to_le_bytes();
    let request = invoke(extension, "repeat", table, &one);
    install(&mut client, name, &repeating(2)).expect("a good extension");
    let third = install_as(&mut client, name, &repeating(3), Placement::Pinned).expect("a good extension");
    assert_eq!((third.version, third.current), (3, 2));
    let fourth = install(&mut client, name, &repeating(1)).expect("a good extension");
    assert_eq!((fourth.version, fourth.current), (4, 2), "the current one is pinned");
    for (version, expected) in [(0, Ok(2)), (1, Ok(1)), (3, Ok(3)), (5, Err(Status::UnknownExtension))] {
        assert_eq!(byte_of(&mut client, &request, version), expected, "version {version}");
    }
    let back = change(&mut client, &AdminRequest::ExtensionRollback { name, version: 0 }).expect("1 is kept");
    assert_eq!((back.current, back.pinned, byte_of(&mut client, &request, 0)), (1, true, Ok(1)));
    let gone = AdminRequest::ExtensionRemove { name, version: 2 };
    client.control.ask(&gone).expect("nobody gets it");
    assert_eq!(byte_of(&mut client, &request, 2), Err(Status::UnknownExtension));
    site.server.stop();

    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let mut client = site.client("ann", &secret);
    assert_eq!(versions(&mut client), [1, 3, 4]);
    for (version, expected) in [(0, Ok(1)), (2, Err(Status::UnknownExtension)), (3, Ok(3)), (4, Ok(1))] {
        assert_eq!(byte_of(&mut client, &request, version), expected, "version {version}");
    }
    let pinned = change(&mut client, &AdminRequest::ExtensionPin { name, version: 3 }).expect("kept");
    assert_eq!((pinned.current, pinned.pinned, byte_of(&mut client, &request, 0)), (3, true, Ok(3)));
    let free = change(&mut client, &AdminRequest::ExtensionPin { name, version: 0 }).expect("pinned");
    assert_eq!((free.current, free.pinned), (3, false));
    let fifth = install(&mut client, name, &repeating(2)).expect("a good extension");
    assert_eq!((fifth.version, fifth.current), (5, 5), "numbers of versions are not given again");
}

#[test]
fn a_switch_that_makes_no_sense_is_refused_and_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    let (mut bob, _) = site.tenant_with_table("bob");
    let name = "counter";
    let extension = install(&mut client, name, &repeating(1)).expect("a good extension").extension;
    let rollback = |version| AdminRequest::ExtensionRollback { name, version };
    let refused = [
        (rollback(0), Status::NotFound),
        (rollback(9), Status::UnknownExtension),
        (AdminRequest::ExtensionPin { name, version: 9 }, Status::UnknownExtension),
        (AdminRequest::ExtensionPromote { name }, Status::NotFound),
        (AdminRequest::ExtensionRemove { name, version: 1 }, Status::NotPermitted),
        (AdminRequest::ExtensionRemove { name, version: 9 }, Status::UnknownExtension),
        (AdminRequest::ExtensionPromote { name: "nothing" }, Status::UnknownExtension),
    ];
    for (request, status) in &refused {
        let (refusal, text) = client.control.ask(request).expect_err("it makes no sense");
        assert_eq!(refusal, *status, "{request:?}");
        assert!(!text.is_empty());
        let stranger = bob.control.ask(request).expect_err("it is ann's");
        assert_eq!(stranger.0, Status::UnknownExtension, "{request:?}");
    }
    let one = 1_u32.to_le_bytes();
    let request = invoke(extension, "repeat", table, &one);
    assert_eq!(byte_of(&mut client, &request, 0), Ok(1));
}

#[test]
fn a_canary_gets_its_share_until_it_is_promoted_or_goes_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    let name = "counter";
    let extension = install(&mut client, name, &repeating(1)).expect("a good extension").extension;
    let one = 1_u32.to_le_bytes();
    let request = invoke(extension, "repeat", table, &one);
    let share = |client: &mut Client| (0..400).filter(|_| byte_of(client, &request, 0) == Ok(2)).count();
    let canary = install_as(&mut client, name, &repeating(2), Placement::Canary(25)).expect("a good one");
    assert_eq!((canary.version, canary.current), (2, 1));
    let shared = share(&mut client);
    assert!((50..150).contains(&shared), "{shared} of 400 at 25 percent");
    let back = change(&mut client, &AdminRequest::ExtensionRollback { name, version: 0 }).expect("a canary");
    assert_eq!((back.current, back.canary, share(&mut client)), (1, 0, 0));
    assert_eq!(byte_of(&mut client, &request, 2), Ok(2), "it is kept");
    install_as(&mut client, name, &repeating(2), Placement::Canary(1)).expect("a good extension");
    let promoted = change(&mut client, &AdminRequest::ExtensionPromote { name }).expect("a canary");
    assert_eq!((promoted.current, promoted.canary, share(&mut client)), (3, 0, 400));
}

pub fn describe(client: &mut Client, name: &str) -> ExtensionDescription {
    let answer = client.control.ask(&AdminRequest::ExtensionDescribe { name }).expect("installed");
    control::decode::<ExtensionDescription>(&answer).expect("a description")
}

#[test]
fn a_description_counts_calls_and_errors_of_each_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    let extension = install(&mut client, "counter", &repeating(1)).expect("a good extension").extension;
    install(&mut client, "counter", &repeating(2)).expect("a good extension");
    for (function, version, count) in
        [("repeat", 0, 300), ("repeat", 1, 20), ("fails", 2, 5), ("panics", 0, 3), ("nothing", 0, 2)]
    {
        for _ in 0..count {
            let request = at(&invoke(extension, function, table, &[0; 4]), version);
            let _ = client.status(&request);
        }
    }
    let described = describe(&mut client, "counter");
    assert_eq!((described.extension, described.state.current), (extension, 2));
    let limit = |described: &ExtensionDescription, name: &str| {
        described.limits.iter().find(|limit| limit.name == name).expect("a limit of this name").value
    };
    assert_eq!((limit(&described, "stack_bytes"), limit(&described, "invocation_cpu_us")), (65_536, 100_000));
    site.limit("ann", "invocation_cpu_us", Some(7_000));
    assert_eq!(limit(&describe(&mut client, "counter"), "invocation_cpu_us"), 7_000, "what is in force");
    let ends = |index: usize| -> Vec<(&str, u64)> {
        let ends = &described.versions[index].measured.ends;
        ends.iter().map(|end| (end.name.as_str(), end.value)).collect()
    };
    // A function that only reads runs again when its request is sent again, so there may be more.
    let at_least = |index: usize, wanted: &[(&str, u64)]| {
        let ends = ends(index);
        let named = ends.len() == wanted.len() && ends.iter().zip(wanted).all(|(end, want)| end.0 == want.0);
        assert!(named && ends.iter().zip(wanted).all(|(end, want)| end.1 >= want.1), "{ends:?}");
    };
    at_least(0, &[("ok", 20)]);
    at_least(1, &[("ok", 300), ("application_error", 5), ("panicked", 3), ("unknown_function", 2)]);
    let measured = &described.versions[1].measured;
    assert!(measured.timed >= 5 && measured.timed < 200, "{} timed", measured.timed);
    assert!(measured.ns_p50 > 0 && measured.ns_p50 <= measured.ns_p99 && measured.ns_p99 <= measured.ns_p999);
    assert!(measured.ns_p50 < 1_000_000_000 && measured.cpu_ns > measured.ns_p50);
}

/// Returns the latest entry of the audit log, once it is one of the server's own.
fn entry_of_server(client: &mut Client, deadline: Instant) -> AuditEntry {
    loop {
        let log = client.control.ask(&AdminRequest::AuditRead { after: 0, count: 1 }).expect("the log");
        let mut log = control::decode::<Vec<AuditEntry>>(&log).expect("entries");
        if log[0].actor == Actor::Server {
            return log.swap_remove(0);
        }
        assert!(Instant::now() < deadline, "it is recorded");
    }
}

#[test]
fn a_canary_that_fails_goes_back_by_itself_and_the_log_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    let name = "counter";
    let extension = install(&mut client, name, &repeating(1)).expect("a good extension").extension;
    let broken = COUNTER.replace("reply.u8(7)?;", "return Err(Error::Application(1));");
    install_as(&mut client, name, &package(&broken), Placement::Canary(50)).expect("it compiles");
    let one = 1_u32.to_le_bytes();
    let request = invoke(extension, "repeat", table, &one);
    let deadline = Instant::now() + Duration::from_secs(120);
    while describe(&mut client, name).state.canary != 0 {
        assert!(Instant::now() < deadline, "the canary went back");
        for _ in 0..100 {
            let _ = client.status(&request);
        }
    }
    assert!((0..100).all(|_| byte_of(&mut client, &request, 0) == Ok(1)));
    assert_eq!(byte_of(&mut client, &request, 2), Err(Status::ExtensionError), "it is kept, to be looked at");
    let entry = entry_of_server(&mut client, deadline);
    assert_eq!(entry.outcome, Status::Ok as u8);
    assert!(entry.act.starts_with("extension rollback counter: canary 2 failed"), "{}", entry.act);
}

#[test]
fn a_canary_that_costs_more_goes_back_by_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    let name = "counter";
    let extension = install(&mut client, name, &repeating(1)).expect("a good extension").extension;
    let looping = "for round in 0..100_000_u32 { core::hint::black_box(round); }\n    reply.u8(7)?;";
    let costly = COUNTER.replace("reply.u8(7)?;", looping);
    assert_ne!(costly, COUNTER);
    install_as(&mut client, name, &package(&costly), Placement::Canary(50)).expect("it compiles");
    let one = 1_u32.to_le_bytes();
    let request = invoke(extension, "repeat", table, &one);
    let deadline = Instant::now() + Duration::from_secs(300);
    while describe(&mut client, name).state.canary != 0 {
        assert!(Instant::now() < deadline, "the canary went back");
        (0..1_000).for_each(|_| assert_eq!(client.status(&request), Status::Ok));
    }
    let entry = entry_of_server(&mut client, deadline);
    assert!(entry.act.starts_with("extension rollback counter: canary 2 takes"), "{}", entry.act);
}

#[test]
fn a_canary_as_good_as_the_current_version_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    let extension = install(&mut client, "counter", &repeating(1)).expect("a good extension").extension;
    install_as(&mut client, "counter", &repeating(2), Placement::Canary(50)).expect("a good extension");
    // Both fail at every call.
    let request = invoke(extension, "fails", table, b"");
    let failed = |client: &mut Client| {
        let ends = &describe(client, "counter").versions[1].measured.ends;
        ends.first().map_or(0, |end| end.value)
    };
    // So many that it is judged; then for as long as that takes.
    while failed(&mut client) < 200 {
        (0..100).for_each(|_| assert!(client.status(&request) != Status::Ok));
    }
    let deadline = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < deadline {
        let _ = client.status(&request);
    }
    let described = describe(&mut client, "counter");
    assert_eq!((described.state.current, described.state.canary), (1, 2));
}
