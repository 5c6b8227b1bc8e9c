//! Grants through the whole server: what is granted works, all else is refused, and the end of a grant is at once.

use control::{AdminRequest, ExtensionDescription, ExtensionResolved, GrantEntry, Right, Subject, TableId};
use wire::{Condition, Request, Status};

use super::client::{Client, Refused};
use super::extensions::{COUNTER, install, invoke, package};
use super::logs::{self, TALKER};
use super::{Site, file};

/// Reads and writes tables that it finds by name: the key names the table.
const REACHER: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { read look, write leave }

fn name<'a>(args: &Args<'a>) -> Result<&'a str, Error> {
    core::str::from_utf8(args.key()).map_err(|_| Error::BadArguments)
}

/// Replies with the value under `k` in the table that the key names.
async fn look(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let table = db.table(name(&args)?).await?;
    reply.write(db.get(table, b"k").await?.ok_or(Error::NotFound)?)
}

/// Writes the arguments under `k` into the table that the key names.
async fn leave(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let table = db.table(name(&args)?).await?;
    db.put(table, b"k", args.bytes()).await
}
"#;

pub fn grant(client: &mut Client, name: &str, to: &str, right: Right) -> Result<(), Refused> {
    client.control.ask(&AdminRequest::GrantCreate { name, to, right }).map(|_| ())
}

fn revoke(client: &mut Client, subject: Subject, name: &str, to: &str) -> Result<(), Refused> {
    client.control.ask(&AdminRequest::GrantRevoke { subject, name, to }).map(|_| ())
}

fn open(client: &mut Client, name: &str) -> Result<u32, Status> {
    let answer = client.control.ask(&AdminRequest::TableOpen { name });
    answer.map(|body| control::decode::<TableId>(&body).expect("an id").id).map_err(|refused| refused.0)
}

pub fn resolve(client: &mut Client, name: &str) -> Result<u32, Status> {
    let answer = client.control.ask(&AdminRequest::ExtensionResolve { name });
    let resolved = answer.map(|body| control::decode::<ExtensionResolved>(&body).expect("functions"));
    resolved.map(|found| found.extension).map_err(|refused| refused.0)
}

fn grants(client: &mut Client) -> Vec<(String, String, String, Right)> {
    let answer = client.control.ask(&AdminRequest::GrantList).expect("a list");
    let entries = control::decode::<Vec<GrantEntry>>(&answer).expect("grants");
    entries.into_iter().map(|entry| (entry.owner, entry.name, entry.to, entry.right)).collect()
}

fn put(table: u32, value: &[u8]) -> Request<'_> {
    Request::Put { table, key: b"k", value, condition: Condition::Always }
}

fn get(table: u32) -> Request<'static> {
    Request::Get { table, key: b"k" }
}

/// All requests that change something.
fn writes(table: u32) -> [Request<'static>; 5] {
    [
        Request::Put { table, key: b"k", value: b"v", condition: Condition::Always },
        Request::Delete { table, key: b"k", condition: Condition::Always },
        Request::Increment { table, key: b"n", delta: 1 },
        Request::PutFor { table, key: b"k", value: b"v", condition: Condition::Always, ttl_ms: 1_000 },
        Request::IncrementFloat { table, key: b"n", delta_bits: 1 },
    ]
}

#[test]
fn a_granted_table_is_read_or_written_as_far_as_the_right_goes() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    let (mut ann, table) = site.tenant_with_table("ann");
    let (mut bob, own) = site.tenant_with_table("bob");
    let (mut eve, _) = site.tenant_with_table("eve");
    assert_eq!(ann.status(&put(table, b"of ann")), Status::Ok);
    assert_eq!(open(&mut bob, "ann/t"), Err(Status::UnknownTable), "nothing is granted");
    grant(&mut ann, "t", "bob", Right::Read).expect("ann's");
    let read = open(&mut bob, "ann/t").expect("granted");
    assert!(read != table && read != own);
    let (status, body) = bob.call(&get(read));
    assert_eq!((status, &body[8..]), (Ok(Status::Ok), &b"of ann"[..]));
    for request in &writes(read) {
        assert_eq!(bob.status(request), Status::NotPermitted, "{request:?}");
    }
    assert_eq!(ann.call(&get(table)).1[8..], *b"of ann");
    for (client, not_his) in [(&mut bob, table), (&mut eve, read), (&mut ann, read)] {
        assert_eq!(client.status(&get(not_his)), Status::UnknownTable, "numbers are of one tenant");
    }
    assert_eq!(open(&mut eve, "ann/t"), Err(Status::UnknownTable));
    assert_eq!(open(&mut bob, "eve/t"), Err(Status::UnknownTable));
    assert_eq!(open(&mut bob, "t"), Ok(own));

    grant(&mut ann, "t", "bob", Right::Write).expect("ann's");
    assert_eq!(bob.status(&get(read)), Status::UnknownTable, "another right is another grant");
    let write = open(&mut bob, "ann/t").expect("granted");
    assert_eq!(bob.status(&put(write, b"of bob")), Status::Ok);
    assert_eq!(ann.call(&get(table)).1[8..], *b"of bob");
    let expected = ("ann".to_owned(), "t".to_owned(), "bob".to_owned(), Right::Write);
    assert_eq!((grants(&mut ann), grants(&mut bob)), (vec![expected.clone()], vec![expected]));
    assert_eq!(grants(&mut eve), []);

    revoke(&mut ann, Subject::Table, "t", "bob").expect("granted");
    for request in [get(write), put(write, b"late")] {
        assert_eq!(bob.status(&request), Status::UnknownTable, "the end is at once");
    }
    assert_eq!(open(&mut bob, "ann/t"), Err(Status::UnknownTable));
    assert_eq!((grants(&mut ann), grants(&mut bob)), (vec![], vec![]));
}

#[test]
fn a_grant_that_makes_no_sense_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, _) = site.tenant_with_table("ann");
    let (mut bob, _) = site.tenant_with_table("bob");
    grant(&mut ann, "t", "bob", Right::Read).expect("ann's");
    let mut refusal = |name: &str, to: &str, right| grant(&mut bob, name, to, right).expect_err("refused").0;
    assert_eq!(refusal("nothing", "ann", Right::Read), Status::UnknownTable);
    assert_eq!(refusal("t", "ann", Right::Invoke), Status::UnknownExtension);
    assert_eq!(refusal("t", "nobody", Right::Read), Status::UnknownTenant);
    assert_eq!(refusal("t", "bob", Right::Read), Status::NotPermitted, "it is bob's own");
    assert_eq!(refusal("ann/t", "bob", Right::Read), Status::NameInvalid, "what is granted is not passed on");
    for to in ["ann", "nobody"] {
        assert_eq!(
            refusal("nothing", to, Right::Read),
            Status::UnknownTable,
            "a guess at a name costs something"
        );
    }
    for to in ["ann", "nobody"] {
        let (status, text) = revoke(&mut bob, Subject::Table, "t", to).expect_err("not granted");
        assert_eq!((status, text), (Status::NotFound, format!("`t` is not granted to `{to}`").into_bytes()));
    }
    let refused = revoke(&mut ann, Subject::Extension, "t", "bob").expect_err("a table is no extension");
    assert_eq!(refused.0, Status::NotFound);
    for request in [AdminRequest::TableDrop { name: "ann/t" }, AdminRequest::TableStat { name: "ann/t" }] {
        assert_eq!(bob.control.ask(&request).expect_err("bob's are no others").0, Status::NameInvalid);
    }
    let administrator = site.administrator().ask(&AdminRequest::GrantList);
    assert_eq!(administrator.expect_err("grants are of tenants").0, Status::NotPermitted);
}

#[test]
fn a_grant_ends_with_the_table_and_with_either_tenant_and_survives_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 1);
    let (mut ann, table) = site.tenant_with_table("ann");
    let secret = site.create_tenant("bob");
    let mut bob = site.client("bob", &secret);
    let (mut eve, _) = site.tenant_with_table("eve");
    ann.create_table("second");
    for (client, name, to) in [(&mut ann, "t", "bob"), (&mut eve, "t", "bob")] {
        grant(client, name, to, Right::Write).expect("their own");
    }
    grant(&mut ann, "second", "bob", Right::Read).expect("ann's");
    let second = open(&mut bob, "ann/second").expect("granted");
    ann.control.ask(&AdminRequest::TableDrop { name: "second" }).expect("a table");
    assert_eq!(bob.status(&get(second)), Status::UnknownTable);
    let of_eve = open(&mut bob, "eve/t").expect("granted");
    assert_eq!(bob.status(&put(of_eve, b"v")), Status::Ok);
    site.administrator().ask(&AdminRequest::TenantDrop { name: "eve" }).expect("a tenant");
    assert_eq!(bob.status(&get(of_eve)), Status::UnknownTable);
    let granted = open(&mut bob, "ann/t").expect("granted");
    site.server.stop();

    let site = Site::start(directory.path(), 1, 2);
    let mut bob = site.client("bob", &secret);
    assert_eq!(open(&mut bob, "ann/t"), Ok(granted));
    assert_eq!(open(&mut bob, "eve/t"), Err(Status::UnknownTable));
    assert_eq!(bob.status(&put(granted, b"v")), Status::Ok);
    assert_eq!(grants(&mut bob).len(), 1);
    site.administrator().ask(&AdminRequest::TenantDrop { name: "bob" }).expect("a tenant");
    let secret = site.create_tenant("bob");
    let mut bob = site.client("bob", &secret);
    assert_eq!(open(&mut bob, "ann/t"), Err(Status::UnknownTable), "another tenant of the same name");
    assert_eq!(bob.status(&get(granted)), Status::UnknownTable);
    assert_eq!(bob.status(&get(table)), Status::UnknownTable);
}

#[test]
fn an_extension_finds_granted_tables_by_name_and_meets_the_right() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, table) = site.tenant_with_table("ann");
    let (mut bob, _) = site.tenant_with_table("bob");
    assert_eq!(ann.status(&put(table, b"of ann")), Status::Ok);
    let extension = install(&mut bob, "reacher", &package(REACHER)).expect("a good extension").extension;
    let call = |client: &mut Client, function: &str, table: &'static [u8]| {
        let Request::Invoke { extension, version, function, arguments, .. } =
            invoke(extension, function, 0, b"of bob")
        else {
            unreachable!()
        };
        let request = Request::Invoke { extension, version, function, table: 0, key: table, arguments };
        let (status, body) = client.call(&request);
        (status.expect("an answer"), body)
    };
    assert_eq!(call(&mut bob, "look", b"ann/t").0, Status::UnknownTable);
    grant(&mut ann, "t", "bob", Right::Read).expect("ann's");
    assert_eq!(call(&mut bob, "look", b"ann/t"), (Status::Ok, b"of ann".to_vec()));
    assert_eq!(call(&mut bob, "leave", b"ann/t").0, Status::NotPermitted);
    assert_eq!(call(&mut bob, "look", b"ann/t"), (Status::Ok, b"of ann".to_vec()));
    grant(&mut ann, "t", "bob", Right::Write).expect("ann's");
    assert_eq!(call(&mut bob, "leave", b"ann/t").0, Status::Ok);
    assert_eq!(ann.call(&get(table)).1[8..], *b"of bob");
    revoke(&mut ann, Subject::Table, "t", "bob").expect("granted");
    assert_eq!(call(&mut bob, "look", b"ann/t").0, Status::UnknownTable);
    assert_eq!(call(&mut bob, "leave", b"ann/t").0, Status::UnknownTable);
}

#[test]
fn a_granted_extension_reaches_what_its_caller_has_and_nothing_of_its_owner() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, of_ann) = site.tenant_with_table("ann");
    let (mut bob, of_bob) = site.tenant_with_table("bob");
    let (mut eve, of_eve) = site.tenant_with_table("eve");
    ann.create_table("private");
    let own = install(&mut ann, "reacher", &package(REACHER)).expect("a good extension").extension;
    assert_eq!(resolve(&mut bob, "ann/reacher"), Err(Status::UnknownExtension));
    grant(&mut ann, "reacher", "bob", Right::Invoke).expect("ann's");
    let granted = resolve(&mut bob, "ann/reacher").expect("granted");
    assert_ne!(granted, own);
    assert_eq!(
        (ann.status(&put(of_ann, b"of ann")), bob.status(&put(of_bob, b"of bob"))),
        (Status::Ok, Status::Ok)
    );
    let look = |client: &mut Client, extension, table, key: &'static [u8]| {
        let function = wire::function_hash("look");
        let request = Request::Invoke { extension, version: 0, function, table, key, arguments: b"" };
        let (status, body) = client.call(&request);
        (status.expect("an answer"), body)
    };
    assert_eq!(look(&mut bob, granted, 0, b"t"), (Status::Ok, b"of bob".to_vec()), "the caller's table");
    assert_eq!(look(&mut bob, granted, 0, b"private").0, Status::UnknownTable);
    assert_eq!(look(&mut bob, granted, 0, b"ann/t").0, Status::UnknownTable, "it takes a grant of the table");
    assert_eq!(look(&mut bob, granted, of_ann, b"t").0, Status::UnknownTable);
    assert_eq!(look(&mut ann, own, 0, b"t"), (Status::Ok, b"of ann".to_vec()));
    for (client, extension, table) in
        [(&mut bob, own, of_bob), (&mut eve, granted, of_eve), (&mut ann, granted, of_ann)]
    {
        assert_eq!(
            look(client, extension, table, b"t").0,
            Status::UnknownExtension,
            "numbers are of one tenant"
        );
    }
    assert_eq!(resolve(&mut eve, "ann/reacher"), Err(Status::UnknownExtension));
    let describe = |client: &mut Client, name: &str| {
        let answer =
            client.control.ask(&AdminRequest::ExtensionDescribe { name }).map_err(|(status, _)| status);
        answer.map(|body| control::decode::<ExtensionDescription>(&body).expect("a description"))
    };
    let seen = describe(&mut bob, "ann/reacher").expect("granted");
    assert_eq!((seen.extension, seen.name.as_str(), seen.versions.len()), (granted, "ann/reacher", 0));
    assert_eq!(seen.functions, describe(&mut ann, "reacher").expect("its own").functions);
    assert_eq!(describe(&mut eve, "ann/reacher"), Err(Status::UnknownExtension));

    revoke(&mut ann, Subject::Extension, "reacher", "bob").expect("granted");
    assert_eq!(look(&mut bob, granted, 0, b"t").0, Status::UnknownExtension, "the end is at once");
    assert_eq!(resolve(&mut bob, "ann/reacher"), Err(Status::UnknownExtension));
    grant(&mut ann, "reacher", "bob", Right::Invoke).expect("ann's");
    let again = resolve(&mut bob, "ann/reacher").expect("granted");
    ann.control.ask(&AdminRequest::ExtensionRemove { name: "reacher", version: 0 }).expect("installed");
    assert_eq!(look(&mut bob, again, 0, b"t").0, Status::UnknownExtension);
    assert_eq!(grants(&mut bob), []);
}

#[test]
fn a_granted_extension_follows_its_owner_over_versions_and_a_restart_and_logs_to_its_caller() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, _) = site.tenant_with_table("ann");
    let secret = site.create_tenant("bob");
    let mut bob = site.client("bob", &secret);
    let table = bob.create_table("t");
    install(&mut ann, "e", &package(TALKER)).expect("a good extension");
    grant(&mut ann, "e", "bob", Right::Invoke).expect("ann's");
    let granted = resolve(&mut bob, "ann/e").expect("granted");
    assert_eq!(bob.status(&invoke(granted, "say", table, &[1, 0])), Status::Ok);
    assert_eq!(logs::read(&mut bob, "ann/e", 3, 0).lines.len(), 1);
    assert_eq!(logs::read(&mut ann, "e", 3, 0).lines, [], "what is of the caller stays with the caller");
    install(&mut ann, "e", &package(COUNTER)).expect("a good extension");
    assert_eq!(bob.status(&invoke(granted, "say", table, &[1])), Status::UnknownFunction);
    let delta = 5_i64.to_le_bytes();
    let add = invoke(granted, "add", table, &delta);
    assert_eq!(bob.call(&add).1, 5_i64.to_le_bytes());
    ann.control.ask(&AdminRequest::ExtensionRollback { name: "e", version: 1 }).expect("kept");
    assert_eq!(bob.status(&add), Status::UnknownFunction);
    assert_eq!(bob.status(&invoke(granted, "say", table, &[1])), Status::Ok);
    site.server.stop();

    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let mut bob = site.client("bob", &secret);
    assert_eq!(resolve(&mut bob, "ann/e"), Ok(granted));
    assert_eq!(bob.status(&invoke(granted, "say", table, &[1])), Status::Ok);
    site.administrator().ask(&AdminRequest::TenantDrop { name: "ann" }).expect("a tenant");
    assert_eq!(bob.status(&invoke(granted, "say", table, &[1])), Status::UnknownExtension);
}
