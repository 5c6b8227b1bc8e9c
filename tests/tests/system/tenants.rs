//! Tenants are apart: nobody reads, writes, lists or drops what belongs to somebody else, and what was
//! set up survives a restart.

use std::os::unix::fs::PermissionsExt;

use client::{Admin, Client, ClientConfig, Error, Request, Status};
use control::AdminRequest;
use tests::effort::rounds;
use tests::raw::{RawSession, RawStream, frame};
use tests::server::Server;
use wire::{OpenRequest, opcode};

use super::replies::refusal;

fn connect(server: &Server, tenant: &str, secret: &str) -> Result<Client, Error> {
    Client::connect(&server.address().to_string(), tenant, secret)
}

#[test]
fn the_administrators_secret_is_for_its_owner_alone() {
    let mut server = Server::start();
    let path = server.directory().join("admin.secret");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = server.admin_secret();
    assert!(secret.len() >= 32, "256 bits, however they are written");
    server.stop();
    server.restart();
    assert_eq!(server.admin_secret(), secret, "made at the first start, kept at the next");

    let wrong = Admin::connect(&server.address().to_string(), "wrong", ClientConfig::default());
    assert_eq!(refusal(wrong.map(drop)), Status::BadSecret);
    server.admin().tenant_list().expect("the right secret still opens");

    server.stop();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = server.try_restart().expect_err("a secret that others may read is none");
    assert!(refused.to_string().contains("chmod 600"), "{refused}");
    let log = server.log();
    assert!(!log.contains(&secret), "the secret is never logged");
}

#[test]
fn a_session_needs_the_tenants_own_secret() {
    let server = Server::start();
    let (acme, other) = (server.tenant("acme"), server.tenant("other"));
    assert_ne!(acme.secret, other.secret);
    assert!(connect(&server, "acme", &acme.secret).is_ok());
    assert_eq!(refusal(connect(&server, "acme", &other.secret).map(drop)), Status::BadSecret);
    assert_eq!(refusal(connect(&server, "acme", "").map(drop)), Status::BadSecret);
    assert_eq!(refusal(connect(&server, "acme", &server.admin_secret()).map(drop)), Status::BadSecret);
    let unknown = refusal(connect(&server, "nobody", &acme.secret).map(drop));
    assert_eq!(unknown, Status::BadSecret, "who is a tenant here is nobody's business");
    let stored = std::fs::read(server.directory().join("metadata.redb")).unwrap();
    let secret = acme.secret.as_bytes();
    assert!(!stored.windows(secret.len()).any(|window| window == secret), "only a hash is stored");
}

#[test]
fn the_same_key_and_table_name_are_apart_for_two_tenants() {
    let server = Server::start();
    let (mut acme, acme_table) = server.tenant_with_table("acme");
    let (mut other, other_table) = server.tenant_with_table("other");
    assert_ne!(acme_table, other_table);
    acme.put(acme_table, b"k", b"acme's").unwrap();
    assert_eq!(other.get(other_table, b"k").unwrap(), None);
    other.put(other_table, b"k", b"other's").unwrap();
    assert_eq!(acme.get(acme_table, b"k").unwrap().unwrap().value, b"acme's");
}

#[test]
fn no_request_reaches_a_table_of_another_tenant() {
    let server = Server::start();
    let (mut acme, table) = server.tenant_with_table("acme");
    acme.put(table, b"k", b"secret").unwrap();
    let (mut other, _) = server.tenant_with_table("other");
    for foreign in [table, 0, u32::MAX] {
        assert_eq!(refusal(other.get(foreign, b"k")), Status::UnknownTable);
        assert_eq!(refusal(other.put(foreign, b"k", b"x")), Status::UnknownTable);
        assert_eq!(refusal(other.delete(foreign, b"k")), Status::UnknownTable);
        assert_eq!(refusal(other.increment(foreign, b"k", 1)), Status::UnknownTable);
        assert_eq!(refusal(other.multi_get(foreign, &[b"k"])), Status::UnknownTable);
        // The same over the stream.
        assert_eq!(refusal(other.put(foreign, b"k", &[0; 100_000])), Status::UnknownTable);
    }
    assert_eq!(refusal(other.table_stat("no such table")), Status::NameInvalid);
    assert_eq!(refusal(other.table_stat("nothing")), Status::UnknownTable);
    assert_eq!(other.table_list().unwrap().len(), 1, "only its own");
    assert_eq!(acme.get(table, b"k").unwrap().unwrap().value, b"secret");
}

#[test]
fn a_dropped_table_is_gone_and_its_name_is_free() {
    let server = Server::start();
    let (mut acme, table) = server.tenant_with_table("acme");
    acme.put(table, b"k", b"v").unwrap();
    assert_eq!(refusal(acme.table_create("data")), Status::AlreadyExists);
    acme.table_drop("data").unwrap();
    assert_eq!(refusal(acme.get(table, b"k")), Status::UnknownTable);
    assert_eq!(refusal(acme.table_drop("data")), Status::UnknownTable);
    let again = acme.table_create("data").unwrap();
    assert_eq!(acme.get(again, b"k").unwrap(), None);
}

#[test]
fn a_tenant_administers_itself_and_nobody_else() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let session = RawSession::open(server.address(), &acme.name, &acme.secret).unwrap();
    let mut stream = session.stream;
    for request in [
        AdminRequest::TenantCreate { name: "mine" },
        AdminRequest::TenantList,
        AdminRequest::TenantDrop { name: "acme" },
    ] {
        let (status, _) = stream.call(opcode::ADMINISTER, &request.encode().unwrap()).unwrap();
        assert_eq!(status, Status::NotPermitted, "{request:?}");
    }
    assert_eq!(server.admin().tenant_list().unwrap().len(), 1);
}

#[test]
fn nothing_happens_on_a_stream_that_was_not_opened() {
    let server = Server::start();
    server.tenant("acme");
    for request in
        [AdminRequest::TenantList, AdminRequest::TableList, AdminRequest::Statistics { tenant: None }]
    {
        let mut stream = RawStream::connect(server.address()).unwrap();
        if let Ok((status, _)) = stream.call(opcode::ADMINISTER, &request.encode().unwrap()) {
            assert_ne!(status, Status::Ok, "{request:?}");
        }
    }
    let mut stream = RawStream::connect(server.address()).unwrap();
    if let Ok((status, _)) = stream.call(opcode::GET, &[0; 12]) {
        assert_ne!(status, Status::Ok);
    }
    let mut stream = RawStream::connect(server.address()).unwrap();
    let (status, _) = stream.open(&OpenRequest::Attach { token: 12345 }).unwrap();
    assert_eq!(status, Status::BadToken);
}

#[test]
fn a_foreign_token_opens_nothing() {
    let server = Server::start();
    let (mut acme, table) = server.tenant_with_table("acme");
    acme.put(table, b"k", b"secret").unwrap();
    let other = server.tenant("other");
    let session = RawSession::open(server.address(), &other.name, &other.secret).unwrap();
    for token in [0, 1, session.opened.token ^ 1, !session.opened.token, u64::MAX] {
        session.send(&frame((token, session.opened.view), 1, 1, &Request::Get { table, key: b"k" })).unwrap();
        let answers = session.receive(std::time::Duration::from_millis(500)).unwrap_or_default();
        assert!(answers.iter().all(|answer| answer.status == Status::BadToken), "{answers:?}");
    }
    // A sequence of its own: refusals of the first one may come late.
    let answer = session.call(2, &Request::Get { table, key: b"k" }).unwrap();
    assert_eq!(answer.status, Status::UnknownTable, "the own token opens only what is its own");
}

#[test]
fn a_revoked_session_is_over() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let session = RawSession::open(server.address(), &tenant.name, &tenant.secret).unwrap();
    assert_eq!(session.call(1, &Request::Ping).unwrap().status, Status::Ok);
    let mut admin = server.admin();
    let entry = admin.session_list().unwrap().into_iter().find(|entry| entry.tenant == "acme").unwrap();
    assert_eq!(entry.client_id, session.opened.client_id);
    admin.session_revoke(entry.client_id).unwrap();
    assert_eq!(session.call(2, &Request::Ping).unwrap().status, Status::BadToken);
}

#[test]
fn a_dropped_tenant_takes_everything_along() {
    let server = Server::start();
    let (mut acme, table) = server.tenant_with_table("acme");
    acme.put(table, b"k", b"v").unwrap();
    server.admin().tenant_drop("acme").unwrap();
    assert!(acme.get(table, b"k").is_err());
    assert_eq!(refusal(server.admin().tenant_drop("acme")), Status::UnknownTenant);
    let (mut again, table) = server.tenant_with_table("acme");
    assert_eq!(again.get(table, b"k").unwrap(), None);
    assert_eq!(again.table_list().unwrap().len(), 1);
}

#[test]
fn names_that_are_none_are_refused() {
    let server = Server::start();
    let long = "n".repeat(10_000);
    let mut admin = server.admin();
    let (mut acme, _) = server.tenant_with_table("acme");
    for name in ["", ".", "..", "../acme", "a/b", "a\0b", "-rf", "né", &long] {
        assert_eq!(refusal(admin.tenant_create(name)), Status::NameInvalid, "{name:.20}");
        assert_eq!(refusal(acme.table_create(name)), Status::NameInvalid, "{name:.20}");
    }
    assert_eq!(refusal(admin.tenant_create("acme")), Status::AlreadyExists);
}

#[test]
fn tenants_tables_and_secrets_survive_a_restart() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut acme = server.client(&tenant);
    let table = acme.table_create("data").unwrap();
    acme.table_create("dropped").unwrap();
    acme.table_drop("dropped").unwrap();
    acme.put(table, b"k", b"v").unwrap();
    for crash in [false, true] {
        if crash {
            server.kill();
        } else {
            assert!(server.stop().success(), "an end that was asked for is no failure");
        }
        server.restart();
        let mut acme = server.client(&tenant);
        let tables = acme.table_list().unwrap();
        assert_eq!(tables.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["data"]);
        assert_eq!(acme.table_open("data").unwrap(), table, "ids are kept");
        let object = acme.get(table, b"k").unwrap().expect("objects are kept");
        assert_eq!(object.value, if crash { b"w" } else { b"v" });
        acme.put(table, b"k", b"w").unwrap();
        let (mut other, other_table) = server.tenant_with_table(if crash { "third" } else { "second" });
        assert_ne!(other_table, table);
        assert_eq!(refusal(other.get(table, b"k")), Status::UnknownTable);
    }
    assert_eq!(server.admin().tenant_list().unwrap().len(), 3);
    let log = server.log();
    assert!(log.contains("restored tenants=2 tables=2 extensions=0 missing=0 grants=0"), "{log}");
}

#[test]
fn a_thousand_tenants_are_served_apart() {
    let count = rounds(100, 1_000);
    let server = Server::start();
    let mut admin = server.admin();
    let mut group = client::SessionGroup::new(ClientConfig::default()).unwrap();
    let mut tables = Vec::new();
    for index in 0..count {
        let name = format!("tenant-{index}");
        let secret = admin.tenant_create(&name).unwrap();
        tables.push(connect(&server, &name, &secret).unwrap().table_create("data").unwrap());
        group.open(&server.address().to_string(), &name, &secret).unwrap();
    }
    for (index, table) in tables.iter().enumerate() {
        let value = (index as u64).to_le_bytes();
        let condition = client::Condition::Always;
        let request = Request::Put { table: *table, key: b"k", value: &value, condition };
        group.submit(index, &request, 0).unwrap();
    }
    let mut done = 0;
    while done < count {
        done += group.poll(&mut |_, completion| assert_eq!(completion.status, Ok(Status::Ok))).unwrap();
    }
    for (index, table) in tables.iter().enumerate() {
        group.submit(index, &Request::Get { table: *table, key: b"k" }, index as u64).unwrap();
        let neighbour = tables[(index + 1) % count];
        group.submit(index, &Request::Get { table: neighbour, key: b"k" }, u64::from(u32::MAX)).unwrap();
    }
    let mut done = 0;
    while done < 2 * count {
        done += group
            .poll(&mut |member, completion| {
                if completion.tag == u64::from(u32::MAX) {
                    assert_eq!(completion.status, Ok(Status::UnknownTable));
                    return;
                }
                let object = client::reply::Object::decode(completion.body).unwrap();
                assert_eq!(object.value, (member as u64).to_le_bytes());
            })
            .unwrap();
    }
}
