//! Nobody reaches what is not his: wrong secrets, tokens, tenants, tables, roles.

use control::{AdminRequest, Durability, Right, SessionEntry, Statistic, TableOptions, TenantCreated};
use wire::{Condition, OpenRequest, Request, Status, opcode};

use super::client::{Client, ControlStream, Refused};
use super::exposition::patient_tenant;
use super::extensions::{install, invoke, package};
use super::{Site, file};

fn refused_opening(site: &Site, request: &OpenRequest<'_>) -> Status {
    answer_to_opening(site, request).0
}

fn answer_to_opening(site: &Site, request: &OpenRequest<'_>) -> Refused {
    match ControlStream::open(site.server.tcp(), request) {
        Ok(_) => (Status::Ok, Vec::new()),
        Err(refused) => refused,
    }
}

#[test]
fn an_opening_does_not_tell_who_is_a_tenant() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let secret = site.create_tenant("ann");
    let answer = |tenant, secret| answer_to_opening(&site, &OpenRequest::Session { tenant, secret });
    let guessed = answer("ann", "guessed");
    assert_eq!(guessed.0, Status::BadSecret);
    for (tenant, secret) in [("carl", "guessed"), ("carl", ""), ("carl", secret.as_str()), ("ann", "")] {
        assert_eq!(answer(tenant, secret), guessed, "{tenant} {secret}");
    }
    site.administrator().ask(&AdminRequest::TenantDrop { name: "ann" }).expect("a tenant");
    assert_eq!(answer("ann", &secret), guessed, "nor who was one");
}

#[test]
fn whoever_guesses_is_slowed_down_and_the_right_secret_still_opens() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let secret = site.create_tenant("ann");
    let guess = OpenRequest::Session { tenant: "ann", secret: "0123" };
    assert_eq!(refused_opening(&site, &guess), Status::BadSecret);
    // As many as it takes where guessing is slow by itself.
    assert!((0..10_000).any(|_| refused_opening(&site, &guess) == Status::Retry));
    let right = OpenRequest::Session { tenant: "ann", secret: &secret };
    assert_eq!(refused_opening(&site, &right), Status::Ok);
}

#[test]
fn a_table_of_another_tenant_is_unknown() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, table) = site.tenant_with_table("ann");
    let (mut bob, own) = site.tenant_with_table("bob");
    let put = Request::Put { table, key: b"k", value: b"v", condition: Condition::Always };
    assert_eq!(ann.status(&put), Status::Ok);
    let keys: [&[u8]; 1] = [b"k"];
    let requests = [
        Request::Get { table, key: b"k" },
        put,
        Request::Delete { table, key: b"k", condition: Condition::Always },
        Request::Increment { table, key: b"k", delta: 1 },
        Request::MultiGet { table, keys: wire::Keys::from_slices(&keys) },
        Request::PutFor { table, key: b"k", value: b"v", condition: Condition::Always, ttl_ms: 1_000 },
        Request::IncrementFloat { table, key: b"k", delta_bits: 1 },
        Request::Enumerate { table, cursor: &[], keys_only: true, objects_max: 9, bytes_max: 900 },
        Request::Verify { table, cursor: &[] },
        Request::Get { table: 0, key: b"k" },
        Request::Get { table: u32::MAX, key: b"k" },
    ];
    for request in &requests {
        assert_eq!(bob.status(request), Status::UnknownTable, "{request:?}");
        let sequence = bob.requester.reserve_sequence().expect("a sequence");
        let answer = bob.control.request(sequence, request);
        assert_eq!(answer.expect_err("not over a stream either").0, Status::UnknownTable);
        bob.requester.release(sequence);
    }
    assert_eq!(bob.status(&Request::Get { table: own, key: b"k" }), Status::NotFound);
    assert_eq!(ann.status(&Request::Get { table, key: b"k" }), Status::Ok);
}

#[test]
fn the_durability_of_a_table_is_its_owners_to_change() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, _) = site.tenant_with_table("ann");
    let secret = site.create_tenant("bob");
    let mut bob = site.client("bob", &secret);
    let grant = AdminRequest::GrantCreate { name: "t", to: "bob", right: Right::Write };
    ann.control.ask(&grant).expect("both are tenants");
    for (name, status) in [("t", Status::UnknownTable), ("ann/t", Status::NameInvalid)] {
        let alter = AdminRequest::TableAlter { name, durability: Durability::Written };
        assert_eq!(bob.control.ask(&alter).expect_err("not bob's").0, status, "{name}");
    }
    let alter = AdminRequest::TableAlter { name: "t", durability: Durability::Written };
    ann.control.ask(&alter).expect("one's own");
}

#[test]
fn tenants_do_not_administer_tenants_nor_the_administrator_tables() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let secret = site.create_tenant("ann");
    let mut ann = site.client("ann", &secret);
    for request in [
        AdminRequest::TenantCreate { name: "eve" },
        AdminRequest::TenantList,
        AdminRequest::TenantDrop { name: "ann" },
        AdminRequest::TenantRotate { name: "ann" },
        AdminRequest::ArchiveBegin { tenant: Some("bob") },
    ] {
        assert_eq!(ann.control.ask(&request).expect_err("a tenant asked").0, Status::NotPermitted);
    }
    let mut administrator = site.administrator();
    let refused =
        administrator.ask(&AdminRequest::TableCreate { name: "t", options: TableOptions::default() });
    assert_eq!(refused.expect_err("no tenant").0, Status::NotPermitted);
    let alter = AdminRequest::TableAlter { name: "t", durability: Durability::Memory };
    assert_eq!(administrator.ask(&alter).expect_err("no tenant").0, Status::NotPermitted);
    let refused = administrator.exchange(opcode::PING, 1, &[]);
    assert_eq!(refused.expect_err("no session").0, Status::UnknownOpcode);
}

#[test]
fn a_revoked_session_is_over_everywhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    let secret = site.create_tenant("ann");
    let mut first = site.client("ann", &secret);
    let mut second = site.client("ann", &secret);
    let table = first.create_table("t");
    let list =
        control::decode::<Vec<SessionEntry>>(&first.control.ask(&AdminRequest::SessionList).expect("a list"));
    assert_eq!(list.expect("entries").len(), 2);
    let client_id = second.opened.client_id;
    first.control.ask(&AdminRequest::SessionRevoke { client_id }).expect("one's own tenant's");
    assert_eq!(second.status(&Request::Get { table, key: b"k" }), Status::BadToken);
    let over = second.control.exchange(opcode::PING, 1, &[]);
    assert_eq!(over.expect_err("the stream too").0, Status::BadToken);
    assert_eq!(first.status(&Request::Get { table, key: b"k" }), Status::NotFound);
    assert_eq!(refused_opening(&site, &OpenRequest::Attach { token: second.opened.token }), Status::BadToken);
}

#[test]
fn what_comes_late_of_a_session_that_has_ended_counts_as_such_and_not_as_a_guess() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let secret = site.create_tenant("ann");
    let (first, mut second) = (site.client("ann", &secret), site.client("ann", &secret));
    let mut administrator = site.administrator();
    let client_id = second.opened.client_id;
    administrator.ask(&AdminRequest::SessionRevoke { client_id }).expect("an open session");
    let mut counted = |name: &str| {
        let answer = administrator.ask(&AdminRequest::Statistics { tenant: None }).expect("statistics");
        let all = control::decode::<Vec<Statistic>>(&answer).expect("statistics");
        all.iter().find(|one| one.name == name).map_or(0, |one| one.value)
    };
    assert_eq!(second.status(&Request::Ping), Status::BadToken);
    let late = counted("groups_of_ended_sessions");
    assert!(late > 0 && counted("groups_unauthenticated") == 0, "{late}");
    // Nor does a stream that comes late use up what guesses its source has.
    let attach = OpenRequest::Attach { token: second.opened.token };
    assert!((0..200).all(|_| refused_opening(&site, &attach) == Status::BadToken));
    let guess = OpenRequest::Attach { token: first.opened.token ^ 1 };
    assert_eq!(refused_opening(&site, &guess), Status::BadToken);
}

/// Writes, then goes on until it is ended: one yields, one does not.
const ENDLESS: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write yields, write loops }

/// Yields for ever.
async fn yields(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"left behind").await?;
    loop {
        db.yield_now().await;
    }
}

/// Loops for ever.
async fn loops(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"left behind").await?;
    loop {
        core::hint::spin_loop();
    }
}
"#;

#[test]
fn what_a_session_runs_ends_with_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let secret = site.create_tenant("ann");
    let mut first = site.client("ann", &secret);
    let table = first.create_table("t");
    let extension = install(&mut first, "counter", &package(ENDLESS)).expect("a good extension").extension;
    site.limit("ann", "invocation_yields", Some(u32::MAX.into()));
    site.limit("ann", "invocation_cpu_us", Some(1_000_000));
    for function in ["yields", "loops"] {
        // They end by themselves after a second: on a machine that was busy for so long, once more.
        loop {
            let mut second = site.client("ann", &secret);
            let begun = site.counter("invocations");
            assert!(second.submit(0, &invoke(extension, function, table, b"")));
            while site.counter("invocations") == begun {
                second.step(&mut |_, ended| panic!("{function} ended with {ended:?}"));
            }
            let client_id = second.opened.client_id;
            first.control.ask(&AdminRequest::SessionRevoke { client_id }).expect("one's own tenant's");
            let mut answer = None;
            while answer.is_none() {
                second.step(&mut |_, (status, _)| answer = Some(status.expect("an answer")));
            }
            assert_eq!(first.status(&Request::Get { table, key: b"k" }), Status::NotFound);
            match answer.expect("it ended") {
                Status::BadToken => break,
                status => assert_eq!(status, Status::ExtensionKilled, "{function}"),
            }
        }
    }
}

#[test]
fn a_tenant_sees_and_revokes_no_session_of_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (ann, _) = site.tenant_with_table("ann");
    let (mut bob, _) = site.tenant_with_table("bob");
    let list =
        control::decode::<Vec<SessionEntry>>(&bob.control.ask(&AdminRequest::SessionList).expect("a list"));
    assert!(list.expect("entries").iter().all(|entry| entry.tenant == "bob"));
    let request = AdminRequest::SessionRevoke { client_id: ann.opened.client_id };
    assert_eq!(bob.control.ask(&request).expect_err("not bob's").0, Status::NotFound);
}

#[test]
fn a_tenant_that_lost_its_secret_gets_another_one_and_keeps_what_it_has() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let lost = site.create_tenant("ann");
    let mut ann = site.client("ann", &lost);
    let table = ann.create_table("t");
    let put = Request::Put { table, key: b"k", value: b"v", condition: Condition::Always };
    assert_eq!(ann.status(&put), Status::Ok);
    let mut administrator = site.administrator();
    let nobody = administrator.ask(&AdminRequest::TenantRotate { name: "eve" });
    assert_eq!(nobody.expect_err("there is none").0, Status::UnknownTenant);
    let answer = administrator.ask(&AdminRequest::TenantRotate { name: "ann" }).expect("a tenant");
    let fresh = control::decode::<TenantCreated>(&answer).expect("a secret").secret;
    assert_ne!(fresh, lost);
    let session = |secret| OpenRequest::Session { tenant: "ann", secret };
    assert_eq!(refused_opening(&site, &session(&lost)), Status::BadSecret);
    let mut again = site.client("ann", &fresh);
    assert_eq!(again.status(&Request::Get { table, key: b"k" }), Status::Ok);
    assert_eq!(ann.status(&Request::Get { table, key: b"k" }), Status::Ok, "an open session goes on");
    drop((ann, again, administrator));
    site.server.stop();
    let site = Site::start(directory.path(), 1, 1);
    assert_eq!(refused_opening(&site, &session(&lost)), Status::BadSecret);
    assert_eq!(refused_opening(&site, &session(&fresh)), Status::Ok);
}

#[test]
fn a_dropped_tenant_is_gone_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, table) = site.tenant_with_table("ann");
    let (mut bob, bobs) = site.tenant_with_table("bob");
    site.administrator().ask(&AdminRequest::TenantDrop { name: "ann" }).expect("a tenant");
    assert_eq!(ann.status(&Request::Get { table, key: b"k" }), Status::BadToken);
    assert_eq!(bob.status(&Request::Get { table: bobs, key: b"k" }), Status::NotFound);
    let secret = site.create_tenant("ann");
    let mut ann = site.client("ann", &secret);
    assert_eq!(ann.status(&Request::Get { table, key: b"k" }), Status::UnknownTable);
    assert_ne!(ann.create_table("t"), table);
}

#[test]
fn statistics_show_a_tenant_its_own_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    // It sends nothing twice: all that it reads is of one time.
    let (mut ann, table) = patient_tenant(&site, "ann");
    assert_eq!(ann.status(&Request::Get { table, key: b"k" }), Status::NotFound);
    let read = |answer: Vec<u8>| control::decode::<Vec<Statistic>>(&answer).expect("statistics");
    let value = |list: &[Statistic], name: &str| {
        list.iter().find(|statistic| statistic.name == name).map(|statistic| statistic.value)
    };
    let own = read(ann.control.ask(&AdminRequest::Statistics { tenant: None }).expect("statistics"));
    assert_eq!((value(&own, "tables"), value(&own, "puts")), (Some(1), Some(0)));
    assert_eq!(value(&own, "answers_ok"), None);
    assert!(value(&own, "gets") >= Some(1) && value(&own, "gets") == value(&own, "answers_not_found"));
    let all = read(site.administrator().ask(&AdminRequest::Statistics { tenant: None }).expect("statistics"));
    assert_eq!((value(&all, "gets"), value(&all, "store_tables")), (value(&own, "gets"), Some(1)));
    let (_bob, _) = site.tenant_with_table("bob");
    let of = |tenant| AdminRequest::Statistics { tenant: Some(tenant) };
    assert_eq!(read(site.administrator().ask(&of("ann")).expect("statistics")), own);
    assert_eq!(read(ann.control.ask(&of("ann")).expect("its own")), own);
    assert_eq!(site.administrator().ask(&of("eve")).expect_err("nobody").0, Status::UnknownTenant);
    for other in ["bob", "eve"] {
        assert_eq!(ann.control.ask(&of(other)).expect_err("not its own").0, Status::NotPermitted);
    }
}

#[test]
fn a_secret_opens_the_tenant_from_many_clients() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    let secret = site.create_tenant("ann");
    let mut clients: Vec<Client> = (0..20).map(|_| site.client("ann", &secret)).collect();
    let table = clients[0].create_table("t");
    for client in &mut clients {
        assert_eq!(client.status(&Request::Increment { table, key: b"k", delta: 1 }), Status::Ok);
    }
    let mut tokens: Vec<u64> = clients.iter().map(|client| client.opened.token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 20);
}
