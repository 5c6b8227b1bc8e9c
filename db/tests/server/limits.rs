//! Limits of tenants through the whole server: who reads and changes them, that they hold at once and last;
//! what a tenant meets that has used up its memory.

use control::{
    Actor, AdminRequest, AuditEntry, LimitChange, Right, TableId, TableStatistics, TenantLimitEntry,
};
use wire::{Condition, Request, Status};

use super::client::{Client, ControlStream, Refused};
use super::extensions::{COUNTER, install, invoke, package};
use super::{Site, file};

fn decoded(answer: &[u8]) -> Vec<TenantLimitEntry> {
    control::decode::<Vec<TenantLimitEntry>>(answer).expect("limits")
}

fn read(stream: &mut ControlStream, name: Option<&str>) -> Result<Vec<TenantLimitEntry>, Refused> {
    stream.ask(&AdminRequest::TenantLimits { name }).map(|answer| decoded(&answer))
}

fn change(
    stream: &mut ControlStream,
    name: &str,
    changes: &[(&str, Option<u64>)],
) -> Result<Vec<TenantLimitEntry>, Refused> {
    let changes = changes.iter().map(|&(limit, value)| LimitChange { limit, value }).collect();
    stream.ask(&AdminRequest::TenantLimitsSet { name, changes, force: false }).map(|answer| decoded(&answer))
}

fn value(limits: &[TenantLimitEntry], name: &str) -> u64 {
    limits.iter().find(|limit| limit.name == name).expect("there is one of this name").value
}

#[test]
fn the_administrator_changes_limits_and_the_tenant_sees_them_in_an_open_session() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    let (mut ann, _) = site.tenant_with_table("ann");
    let (mut bob, _) = site.tenant_with_table("bob");
    let mut administrator = site.administrator();
    let before = read(&mut ann.control, None).expect("its own");
    assert!(before.iter().all(|limit| limit.value == limit.default), "{before:?}");
    let changes =
        [("weight", Some(300)), ("operations_per_second", Some(u64::MAX)), ("invocations", Some(5))];
    let answer = change(&mut administrator, "ann", &changes).expect("ann is a tenant");
    assert_eq!((value(&answer, "weight"), value(&answer, "invocations")), (300, 5));
    assert_eq!(read(&mut ann.control, None), Ok(answer.clone()));
    assert_eq!(read(&mut administrator, Some("ann")), Ok(answer));
    assert_eq!(read(&mut bob.control, None), Ok(before.clone()), "bob's are bob's");
    let answer = change(&mut administrator, "ann", &[("weight", None), ("invocations", None)]);
    assert_eq!(answer.expect("ann is a tenant"), before, "the defaults again");
}

#[test]
fn a_change_that_makes_no_sense_says_what_would_and_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, _) = site.tenant_with_table("ann");
    let mut administrator = site.administrator();
    let before = read(&mut ann.control, None).expect("its own");
    let mut refused = |changes: &[(&str, Option<u64>)]| {
        let (status, text) = change(&mut administrator, "ann", changes).expect_err("it makes no sense");
        (status, String::from_utf8(text).expect("text"))
    };
    let (status, text) = refused(&[("weight", Some(7)), ("speed", Some(1))]);
    assert_eq!(status, Status::UnknownLimit);
    assert!(text.contains("`speed`") && text.contains("weight, operations_per_second"), "{text}");
    let (status, text) = refused(&[("invocations", Some(7)), ("weight", Some(0))]);
    assert_eq!(status, Status::OutOfRange);
    assert!(text.contains("weight must be 1 to 10000, not 0"), "{text}");
    let (status, text) = refused(&[("weight", Some(u64::MAX))]);
    assert_eq!(status, Status::OutOfRange);
    assert!(text.contains("not unlimited"), "{text}");
    assert_eq!(refused(&[("speed", None)]).0, Status::UnknownLimit);
    let nobody = change(&mut administrator, "nobody", &[("weight", Some(7))]);
    assert_eq!(nobody.expect_err("there is no such tenant").0, Status::UnknownTenant);
    assert_eq!(read(&mut ann.control, None), Ok(before));
}

#[test]
fn a_tenant_changes_nothing_and_sees_nothing_of_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, _) = site.tenant_with_table("ann");
    site.tenant_with_table("bob");
    for name in ["ann", "bob", "nobody"] {
        let refused = change(&mut ann.control, name, &[("weight", Some(10_000))]);
        assert_eq!(refused.expect_err("ann is no administrator").0, Status::NotPermitted);
        let refused = read(&mut ann.control, Some(name)).expect_err("ann is no administrator");
        assert_eq!(refused.0, Status::NotPermitted, "whether there is such a tenant or not");
    }
    let refused = read(&mut site.administrator(), None).expect_err("the administrator is no tenant");
    assert_eq!(refused.0, Status::NotPermitted);
}

#[test]
fn limits_last_over_restarts_and_end_with_their_tenant() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let secret = site.create_tenant("ann");
    site.create_tenant("bob");
    for name in ["ann", "bob"] {
        change(&mut site.administrator(), name, &[("weight", Some(300))]).expect("a tenant");
    }
    site.server.stop();

    let site = Site::start(directory.path(), 1, 2);
    let mut ann = site.client("ann", &secret);
    assert_eq!(value(&read(&mut ann.control, None).expect("its own"), "weight"), 300);
    let mut administrator = site.administrator();
    administrator.ask(&AdminRequest::TenantDrop { name: "bob" }).expect("a tenant");
    site.create_tenant("bob");
    let limits = read(&mut administrator, Some("bob")).expect("a tenant");
    assert!(limits.iter().all(|limit| limit.value == limit.default), "another tenant of the same name");
}

#[test]
fn changes_of_limits_stand_in_the_audit_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, _) = site.tenant_with_table("ann");
    let mut administrator = site.administrator();
    change(&mut administrator, "ann", &[("weight", Some(300)), ("memory_bytes", None)]).expect("a tenant");
    change(&mut administrator, "ann", &[("memory_bytes", Some(u64::MAX))]).expect("a tenant");
    change(&mut ann.control, "ann", &[("weight", Some(10_000))]).expect_err("ann is no administrator");
    let answer = administrator.ask(&AdminRequest::AuditRead { after: 0, count: 3 }).expect("a list");
    let entries = control::decode::<Vec<AuditEntry>>(&answer).expect("acts");
    let seen: Vec<(&str, u8)> = entries.iter().map(|entry| (entry.act.as_str(), entry.outcome)).collect();
    let expected = [
        ("tenant limits ann: weight=300 memory_bytes=default", Status::Ok as u8),
        ("tenant limits ann: memory_bytes=unlimited", Status::Ok as u8),
        ("tenant limits ann: weight=10000", Status::NotPermitted as u8),
    ];
    assert_eq!(seen, expected);
    assert_eq!(entries[0].actor, Actor::Administrator);
}

fn put<'a>(table: u32, key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request::Put { table, key, value, condition: Condition::Always }
}

/// Bytes that the tenant's table `t` has.
fn bytes(client: &mut Client) -> u64 {
    let answer = client.control.ask(&AdminRequest::TableStat { name: "t" }).expect("a table");
    control::decode::<TableStatistics>(&answer).expect("figures").bytes
}

fn limit_memory(site: &Site, name: &str, bytes: u64) {
    site.limit(name, "memory_bytes", Some(bytes));
}

#[test]
fn a_tenant_that_is_full_is_told_the_limit_and_reads_deletes_and_shrinks_while_others_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    let (mut ann, table) = site.tenant_with_table("ann");
    let (mut bob, bobs) = site.tenant_with_table("bob");
    assert_eq!(ann.status(&put(table, b"a", &[1; 1000])), Status::Ok);
    assert_eq!(ann.status(&Request::Increment { table, key: b"n", delta: 1 }), Status::Ok);
    let full = bytes(&mut ann);
    limit_memory(&site, "ann", full);
    let second = ann.create_table("second");
    let refused = (Ok(Status::OverQuota), b"memory_bytes".to_vec());
    assert_eq!(ann.call(&put(table, b"b", b"")), refused);
    assert_eq!(ann.call(&put(second, b"b", b"")), refused, "all tables together");
    assert_eq!(ann.call(&put(table, b"a", &[2; 1200])), refused);
    let sequence = ann.opened.next_sequence + 200;
    let over_stream = ann.control.request(sequence, &put(table, b"a", &[2; 100_000]));
    assert_eq!(over_stream, Err((Status::OverQuota, b"memory_bytes".to_vec())));
    assert_eq!(ann.call(&Request::Increment { table, key: b"m", delta: 1 }), refused);
    assert_eq!(bob.status(&put(bobs, b"b", &[3; 1000])), Status::Ok);
    assert_eq!(ann.call(&Request::Get { table, key: b"a" }).1[8..], [1; 1000]);
    assert_eq!(ann.status(&put(table, b"a", &[4; 1000])), Status::Ok, "it does not grow");
    assert_eq!(ann.status(&Request::Increment { table, key: b"n", delta: 1 }), Status::Ok);
    assert_eq!(bytes(&mut ann), full);
    let delete = Request::Delete { table, key: b"a", condition: Condition::Always };
    assert_eq!(ann.status(&delete), Status::Ok);
    assert_eq!(ann.status(&put(second, b"b", &[5; 900])), Status::Ok, "there is room again");
    limit_memory(&site, "ann", u64::MAX);
    assert_eq!(ann.status(&put(table, b"a", &[6; 1000])), Status::Ok, "the change holds at once");
}

#[test]
fn who_writes_to_a_granted_table_meets_the_limit_of_its_owner() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, table) = site.tenant_with_table("ann");
    let (mut bob, own) = site.tenant_with_table("bob");
    ann.control
        .ask(&AdminRequest::GrantCreate { name: "t", to: "bob", right: Right::Write })
        .expect("it is ann's");
    let answer = bob.control.ask(&AdminRequest::TableOpen { name: "ann/t" }).expect("granted");
    let granted = control::decode::<TableId>(&answer).expect("an id").id;
    limit_memory(&site, "ann", 0);
    assert_eq!(bob.status(&put(granted, b"k", b"v")), Status::OverQuota);
    assert_eq!(bob.status(&put(own, b"k", b"v")), Status::Ok);
    limit_memory(&site, "ann", 1000);
    limit_memory(&site, "bob", 0);
    assert_eq!(bob.status(&put(granted, b"k", b"v")), Status::Ok);
    assert_eq!(bob.status(&put(own, b"k", b"a longer value")), Status::OverQuota);
    assert_eq!(ann.call(&Request::Get { table, key: b"k" }).1[8..], *b"v");
}

#[test]
fn a_copy_of_a_write_that_was_refused_is_refused_though_there_is_room_by_then() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, table) = site.tenant_with_table("ann");
    limit_memory(&site, "ann", 0);
    let sequence = ann.opened.next_sequence + 200;
    let refused = (Status::OverQuota, b"memory_bytes".to_vec());
    assert_eq!(ann.control.request(sequence, &put(table, b"k", b"v")), Err(refused.clone()));
    limit_memory(&site, "ann", u64::MAX);
    assert_eq!(ann.control.request(sequence, &put(table, b"k", b"v")), Err(refused));
    assert!(ann.control.request(sequence + 1, &put(table, b"k", b"v")).is_ok());
}

#[test]
fn a_commit_that_would_go_over_leaves_nothing_and_names_the_limit() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, table) = site.tenant_with_table("ann");
    let extension = install(&mut ann, "counter", &package(COUNTER)).expect("a good extension").extension;
    limit_memory(&site, "ann", 0);
    let one = 1_i64.to_le_bytes();
    let (status, body) = ann.call(&invoke(extension, "add", table, &one));
    assert_eq!((status, body.as_slice()), (Ok(Status::OverQuota), &b"memory_bytes"[..]));
    assert_eq!(ann.status(&Request::Get { table, key: b"k" }), Status::NotFound);
    limit_memory(&site, "ann", u64::MAX);
    assert_eq!(ann.status(&invoke(extension, "add", table, &one)), Status::Ok);
}
