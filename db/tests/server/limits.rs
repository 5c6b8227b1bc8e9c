//! Limits of tenants through the whole server: who reads and changes them, and that they hold at once and last.

use wire::{Actor, AdminRequest, AuditEntry, Body, LimitChange, Status, TenantLimitEntry};

use super::Site;
use super::client::{ControlStream, Refused};

fn decoded(answer: &[u8]) -> Vec<TenantLimitEntry> {
    Vec::<TenantLimitEntry>::decode(answer).expect("limits")
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
    stream.ask(&AdminRequest::TenantLimitsSet { name, changes }).map(|answer| decoded(&answer))
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
    assert!(text.contains("weight may be 1 to 10000, not 0"), "{text}");
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
    let entries = Vec::<AuditEntry>::decode(&answer).expect("acts");
    let seen: Vec<(&str, u8)> = entries.iter().map(|entry| (entry.act.as_str(), entry.outcome)).collect();
    let expected = [
        ("tenant limits ann: weight=300 memory_bytes=default", Status::Ok as u8),
        ("tenant limits ann: memory_bytes=unlimited", Status::Ok as u8),
        ("tenant limits ann: weight=10000", Status::NotPermitted as u8),
    ];
    assert_eq!(seen, expected);
    assert_eq!(entries[0].actor, Actor::Administrator);
}
