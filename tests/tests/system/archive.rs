//! Archives through the command: a tenant as of one moment while it is written to, back under another name or its own;
//! archives that were changed, and tenants who want what is another's.

mod attacks;
mod bucket;
mod cleaning;
mod cluster;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use client::{Client, Condition, Durability, LimitChange, Placement, Right, Status, TableOptions};
use serde_json::Value;
use tests::package::{install_source, install_source_as};
use tests::server::{Server, Settings, Tenant};

/// Moves an amount from the key to the key in the arguments.
const TRANSFER: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write transfer }

fn number(bytes: &[u8]) -> u64 {
    let mut digits = [0; 8];
    digits.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(digits)
}

/// Moves 1 from the key to the key in the arguments.
async fn transfer(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let from = number(db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?);
    let to = number(db.get(args.table(), args.bytes()).await?.ok_or(Error::NotFound)?);
    db.put(args.table(), args.key(), &from.wrapping_sub(1).to_le_bytes()).await?;
    db.put(args.table(), args.bytes(), &to.wrapping_add(1).to_le_bytes()).await
}
"#;

/// Accounts of the transfers.
const ACCOUNTS: u64 = 20;
/// What each has at first.
const AMOUNT: u64 = 1_000_000;

fn start() -> Server {
    Server::start_with(Settings {
        cores: 2,
        memory: "128MiB".into(),
        segment: "1MiB".into(),
        ..Settings::default()
    })
}

fn create(client: &mut Client, name: &str, durability: Durability, ordered: bool) -> u32 {
    let (durability, tagged) = (Some(durability), ordered);
    let options = TableOptions { ordered, durability, tagged, ..TableOptions::default() };
    client.table_create_with(name, options).expect("a fresh name")
}

/// Runs `splinter archive ARGUMENTS --output json`.
fn archive(mut command: Command, arguments: &[&str]) -> Result<Value, (Option<i32>, Value)> {
    let Output { status, stdout, stderr } =
        command.arg("archive").args(arguments).args(["--output", "json"]).output().expect("the command runs");
    let json = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or(Value::Null);
    if status.success() {
        return Ok(json(&stdout));
    }
    let said = String::from_utf8_lossy(&stderr);
    assert!(!said.contains("panicked"), "{said}");
    Err((status.code(), json(&stderr)))
}

/// The command as the administrator gives it.
fn administrator(server: &Server, tenant: &Tenant) -> Command {
    let mut command = server.command(tenant);
    command.env_remove("SPLINTER_SECRET").env("SPLINTER_ADMIN_SECRET", server.admin_secret());
    command
}

/// Keys, versions and values of a table.
fn all(client: &mut Client, name: &str) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    let table = client.table_open(name).expect("the table is there");
    let listed = client.enumerate(table).map(|object| object.expect("the server answers"));
    let mut all: Vec<_> =
        listed.map(|object| (object.key.clone(), object.version, object.value.clone())).collect();
    all.sort();
    all
}

/// Puts, overwrites, deletes and lets expire.
fn fill(client: &mut Client, table: u32) {
    for round in 0..3_u32 {
        for key in 0..600_u32 {
            let value = [&round.to_le_bytes()[..], &[round as u8; 200]].concat();
            client.put(table, &key.to_le_bytes(), &value).expect("there is room");
        }
    }
    for key in 0..200_u32 {
        client.delete(table, &key.to_le_bytes()).expect("a delete is taken");
    }
    client.put(table, &7_u32.to_le_bytes(), b"again").expect("there is room");
    client.put_for(table, b"soon", b"v", 50, Condition::Always).expect("there is room");
    client.put_for(table, b"late", b"v", 3_600_000, Condition::Always).expect("there is room");
    client.put(table, b"was", b"forever").expect("there is room");
    client.put_for(table, b"was", b"v", 50, Condition::Always).expect("there is room");
    thread::sleep(Duration::from_millis(100));
}

fn name_of(created: &Value) -> String {
    created[0]["archive"].as_str().expect("a name").to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// Transfers until `stop`; then the sum is what it was.
fn transfer(client: &mut Client, table: u32, stop: &AtomicBool) {
    for round in 0.. {
        let (from, to) = (round % ACCOUNTS, round * 7 % ACCOUNTS);
        if from != to {
            let (from, to) = (from.to_le_bytes(), to.to_le_bytes());
            client.invoke("transfer.transfer", table, &from, &to).expect("both accounts are there");
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn sum(client: &mut Client) -> u64 {
    let accounts = all(client, "accounts");
    assert_eq!(accounts.len() as u64, ACCOUNTS);
    accounts.iter().map(|(.., value)| u64::from_le_bytes(value[..8].try_into().expect("8 bytes"))).sum()
}

/// Both have the same objects in a table that [`fill`] filled.
fn assert_same(old: &mut Client, new: &mut Client, table: &str) {
    let objects = all(old, table);
    assert_eq!(all(new, table), objects, "{table}");
    let counted = [new, old].map(|client| client.table_stat(table).unwrap());
    assert_eq!(counted[0].objects, objects.len() as u64);
    assert_eq!(counted[0].objects, counted[1].objects);
}

/// The new tenant has tables, an order, times to live, a limit, a grant and an extension.
fn assert_metadata(server: &Server, client: &mut Client) {
    let tables = client.table_list().unwrap();
    assert_eq!(
        tables.iter().map(|table| (&*table.name, table.ordered, table.tagged)).collect::<Vec<_>>(),
        [("accounts", false, false), ("hash", false, false), ("ordered", true, true)]
    );
    for table in ["hash", "ordered"] {
        let id = client.table_open(table).unwrap();
        let left_ms = client.get(id, b"late").unwrap().expect("it lives").ttl_ms.expect("it expires");
        assert!((3_000_000..=3_600_000).contains(&left_ms));
        assert_eq!(client.get(id, b"soon").unwrap(), None);
        assert_eq!(client.get(id, b"was").unwrap(), None, "an older version does not come back");
    }
    let ordered = client.table_open("ordered").unwrap();
    let scanned = client.scan(ordered, client::KeyRange::default(), 10_000).unwrap();
    assert_eq!(scanned.len() as u64, client.table_stat("ordered").unwrap().objects);
    let limits = server.admin().tenant_limits("new").unwrap();
    assert!(limits.iter().any(|limit| limit.name == "memory_bytes" && limit.value == 64 << 20));
    let grants = client.grant_list().unwrap();
    assert!(grants.iter().any(|grant| grant.to == "bob" && grant.name == "hash" && grant.owner == "new"));
    let accounts = client.table_open("accounts").unwrap();
    let (from, to) = (0_u64.to_le_bytes(), 1_u64.to_le_bytes());
    client.invoke("transfer.transfer", accounts, &from, &to).expect("it runs");
}

#[test]
fn an_archive_made_while_writers_run_comes_back_as_of_one_moment() {
    let (mut server, place) = (start(), tempfile::tempdir().expect("a directory"));
    let ann = server.tenant("ann");
    let limit = LimitChange { limit: "memory_bytes", value: Some(64 << 20) };
    server.admin().tenant_limits_set("ann", &[limit]).expect("a limit");
    server.tenant("bob");
    let mut client = server.client(&ann);
    let accounts = create(&mut client, "accounts", Durability::Written, false);
    for account in 0..ACCOUNTS {
        client.put(accounts, &account.to_le_bytes(), &AMOUNT.to_le_bytes()).expect("there is room");
    }
    for (name, ordered) in [("hash", false), ("ordered", true)] {
        let table = create(&mut client, name, Durability::Synced, ordered);
        fill(&mut client, table);
    }
    create(&mut client, "volatile", Durability::Memory, false);
    client.grant("hash", "bob", Right::Read).expect("both are tenants");
    install_source(&mut client, "transfer", TRANSFER).expect("it is built");
    let stop = AtomicBool::new(false);
    let to = ["create", "--to", text(place.path())];
    let created = thread::scope(|scope| {
        let mut writer = server.client(&ann);
        let stop = &stop;
        scope.spawn(move || transfer(&mut writer, accounts, stop));
        let created = archive(server.command(&ann), &to).expect("the tenant archives itself");
        stop.store(true, Ordering::Relaxed);
        created
    });
    assert_eq!(created[0]["left_out"][0], "volatile");
    let name = name_of(&created);
    let from = ["--from", text(place.path())];
    let listed = archive(server.command(&ann), &[&["list"][..], &from].concat()).expect("a list");
    assert_eq!((&listed[0]["archive"], listed.as_array().map(Vec::len)), (&created[0]["archive"], Some(1)));
    archive(server.command(&ann), &[&["verify"][..], &from].concat()).expect("it is whole");

    let restore = [&["restore", &name, "--as", "new"][..], &from].concat();
    let restored = archive(administrator(&server, &ann), &restore).expect("it is restored");
    let secret = restored["secret"].as_str().expect("a secret").to_owned();
    let new = Tenant { name: "new".into(), secret };
    for is_after_a_crash in [false, true] {
        if is_after_a_crash {
            server.kill();
            server.restart();
        }
        let (mut old, mut client) = (server.client(&ann), server.client(&new));
        assert_eq!(sum(&mut client), ACCOUNTS * AMOUNT);
        ["hash", "ordered"].iter().for_each(|table| assert_same(&mut old, &mut client, table));
        assert_metadata(&server, &mut client);
    }
}

#[test]
fn a_second_archive_sends_only_what_is_new_and_a_tenant_restores_its_own_tables() {
    let (server, place) = (start(), tempfile::tempdir().expect("a directory"));
    let ann = server.tenant("ann");
    let mut client = server.client(&ann);
    let table = create(&mut client, "data", Durability::Synced, false);
    for key in 0..6_000_u32 {
        let value: Vec<u8> =
            (0..1_000_u32).map(|at| (key.wrapping_mul(2_654_435_761) >> (at % 24)) as u8).collect();
        client.put(table, &key.to_le_bytes(), &value).expect("there is room");
    }
    let to = ["create", "--to", text(place.path())];
    let first = archive(server.command(&ann), &to).expect("an archive");
    let stored = first[0]["stored_bytes"].as_u64().unwrap();
    assert_eq!(first[0]["sent_bytes"].as_u64(), Some(stored));
    client.put(table, b"new", b"v").expect("there is room");
    let second = archive(server.command(&ann), &to).expect("another");
    let sent = second[0]["sent_bytes"].as_u64().unwrap();
    assert!(sent < stored / 2, "{sent} of {stored} bytes");
    let before = all(&mut client, "data");
    let from = ["--from", text(place.path())];
    let name = name_of(&second);
    let restore = [&["restore", &name][..], &from].concat();
    let (code, said) = archive(server.command(&ann), &restore).expect_err("the table is there");
    assert_eq!((code, &said["status"]), (Some(4), &Value::from("AlreadyExists")), "{said}");
    assert_eq!(all(&mut client, "data"), before, "nothing is touched");
    client.table_drop("data").unwrap();
    archive(server.command(&ann), &restore).expect("it is restored");
    assert_eq!(all(&mut client, "data"), before);
    let (code, _) = archive(server.command(&ann), &[&restore[..], &["--as", "other"]].concat())
        .expect_err("not a tenant's to do");
    assert_eq!(code, Some(2));
    let refused = client.table_stat("nothing").expect_err("no such table");
    assert_eq!(refused.status(), Some(Status::UnknownTable));
}

/// The state of the versions of an extension, and its sources, come back as they were.
#[test]
fn a_version_that_was_rolled_back_does_not_come_back_as_the_current_one() {
    let (server, place) = (start(), tempfile::tempdir().expect("a directory"));
    let ann = server.tenant("ann");
    let mut client = server.client(&ann);
    let limits = [("memory_bytes", 32 << 20), ("sandbox", 0)];
    let limits = limits.map(|(limit, value)| LimitChange { limit, value: Some(value) });
    server.admin().tenant_limits_set("ann", &limits).expect("limits");
    for name in ["back", "pinned"] {
        install_source(&mut client, name, TRANSFER).expect("it is built");
        install_source(&mut client, name, &TRANSFER.replace("Moves 1", "Moves one")).expect("it is built");
    }
    client.extension_roll_back("back", Some(1)).expect("it is kept");
    client.extension_pin("pinned", Some(1)).expect("it is kept");
    for name in ["back", "pinned"] {
        let source = TRANSFER.replace("Moves 1", "Moves a one");
        install_source_as(&mut client, name, &source, Placement::Canary(10)).expect("it is built");
    }
    let created = archive(server.command(&ann), &["create", "--to", text(place.path())]).expect("an archive");
    let restore = ["restore", &name_of(&created), "--as", "new", "--from", text(place.path())];
    let output = administrator(&server, &ann).arg("archive").args(restore).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    for line in ["limits: memory_bytes=32MiB\n", "limits of the archive that were left out: sandbox=native\n"]
    {
        assert!(said.contains(line), "{said}");
    }
    let secret = said.lines().find_map(|line| line.strip_prefix("secret: ")).expect("a secret").to_owned();
    let mut new = server.client(&Tenant { name: "new".into(), secret });
    for name in ["back", "pinned"] {
        let state = |client: &mut Client| client.extension_describe(name).expect("it is there").state;
        assert_eq!(state(&mut new), state(&mut client), "{name}");
    }
    let sandbox = |tenant| {
        let limits = server.admin().tenant_limits(tenant).unwrap();
        limits.into_iter().find(|limit| limit.name == "sandbox").map(|limit| limit.value)
    };
    assert_eq!((sandbox("ann"), sandbox("new")), (Some(0), Some(1)));
}
