//! The audit log through the whole server: what was done or refused stands there, and no secret does.

use control::{Actor, AdminRequest, AuditEntry};
use wire::Status;

use super::Site;
use super::client::ControlStream;

fn read(stream: &mut ControlStream, after: u64) -> Vec<AuditEntry> {
    let answer = stream.ask(&AdminRequest::AuditRead { after, count: 100 }).expect("the log");
    control::decode(&answer).expect("entries")
}

#[test]
fn acts_are_recorded_with_author_and_outcome_and_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, _) = site.tenant_with_table("ann");
    let secret = site.create_tenant("bob");
    let mut bob = site.client("bob", &secret);
    bob.control.ask(&AdminRequest::TableDrop { name: "t" }).expect_err("bob has none");
    bob.control.ask(&AdminRequest::TenantDrop { name: "ann" }).expect_err("bob is no administrator");
    bob.control.ask(&AdminRequest::TableList).expect("looking is no act");
    let all = read(&mut site.administrator(), 0);
    let seen: Vec<_> = all.iter().map(|entry| (entry.act.as_str(), entry.outcome)).collect();
    let expected = [
        ("tenant create ann", Status::Ok as u8),
        ("table create t", Status::Ok as u8),
        ("tenant create bob", Status::Ok as u8),
        ("table drop t", Status::UnknownTable as u8),
        ("tenant drop ann", Status::NotPermitted as u8),
    ];
    assert_eq!(seen, expected);
    assert_eq!(all[0].actor, Actor::Administrator);
    let Actor::Tenant { name, client_id, peer } = &all[4].actor else { panic!("bob tried it") };
    assert_eq!((name.as_str(), *client_id), ("bob", bob.opened.client_id));
    assert!(peer.starts_with("127.0.0.1:") && all[4].at_ms >= all[0].at_ms && all[0].at_ms > 0);
    assert!(!format!("{all:?}").contains(&secret));
    assert_eq!(read(&mut ann.control, 0), all[1..2], "a tenant sees its own");
    assert_eq!(read(&mut site.administrator(), all[2].sequence), all[3..], "what is behind an entry");
    site.server.stop();

    let site = Site::start(directory.path(), 1, 1);
    assert_eq!(read(&mut site.administrator(), 0), all);
    site.create_tenant("carl");
    let newest = read(&mut site.administrator(), all[4].sequence);
    assert_eq!((newest.len(), newest[0].sequence), (1, all[4].sequence + 1));
    site.administrator().ask(&AdminRequest::TenantRotate { name: "carl" }).expect("a tenant");
    let newest = read(&mut site.administrator(), newest[0].sequence);
    assert_eq!((newest[0].act.as_str(), newest[0].outcome), ("tenant rotate carl", Status::Ok as u8));
}
