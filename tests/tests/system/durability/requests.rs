//! Requests that ask for another durability than their table's.

use std::process::Output;
use std::time::Duration;

use client::{
    Client, ClientConfig, Condition, Durability, Error, Request, RequestDurability, Session, Status,
};
use tests::package::install_source;
use tests::server::{Server, patient};

use super::{crash, create, start};

/// Bytes of a value that travels over the stream.
const LARGE: usize = 100_000;

const PUT: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write put, write both }

async fn put(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), args.bytes()).await
}

async fn both(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let other = db.table("durable").await?;
    if args.bytes().is_empty() {
        let found = db.get(args.table(), args.key()).await?;
        return reply.u32(found.is_some().into());
    }
    db.put(other, args.key(), args.bytes()).await?;
    db.put(args.table(), args.key(), args.bytes()).await
}
"#;

/// A server that writes in a while what nobody waits for.
fn slow() -> Server {
    start("64MiB", &["--flush-interval", "10000"])
}

fn ask(client: &mut Client, durability: RequestDurability) {
    client.session().set_durability(durability);
}

fn put(client: &mut Client, table: u32, key: &str) {
    client.put(table, key.as_bytes(), b"value").expect("there is room");
}

fn is_there(client: &mut Client, table: u32, key: &str) -> bool {
    client.get(table, key.as_bytes()).expect("the server answers").is_some()
}

#[test]
fn an_answer_that_asked_for_the_disk_survives_a_crash_in_a_written_table_and_others_need_not() {
    let mut server = slow();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Written, false);
    install_source(&mut client, "sample", PUT).expect("it is built");
    put(&mut client, table, "before");
    ask(&mut client, RequestDurability::Synced);
    put(&mut client, table, "synced");
    ask(&mut client, RequestDurability::OfTable);
    put(&mut client, table, "after");
    crash(&mut server);
    client = server.client(&tenant);
    assert!(is_there(&mut client, table, "before"), "a cut includes all that was written before");
    assert!(is_there(&mut client, table, "synced"));
    assert!(!is_there(&mut client, table, "after"), "nothing waited for it");

    // Over the stream, by a function, and by a read of what another wrote.
    ask(&mut client, RequestDurability::Synced);
    client.put(table, b"large", &vec![7; LARGE]).expect("there is room");
    crash(&mut server);
    client = server.client(&tenant);
    assert_eq!(client.get(table, b"large").unwrap().expect("it was answered").value.len(), LARGE);
    ask(&mut client, RequestDurability::Synced);
    client.invoke("sample.put", table, b"function", b"value").expect("it ends well");
    crash(&mut server);
    client = server.client(&tenant);
    assert!(is_there(&mut client, table, "function"));
    put(&mut client, table, "read");
    ask(&mut client, RequestDurability::Synced);
    assert!(is_there(&mut client, table, "read"));
    crash(&mut server);
    assert!(is_there(&mut server.client(&tenant), table, "read"), "the read has told of it");
}

#[test]
fn a_write_to_a_synced_table_that_waits_for_nothing_may_be_lost_until_another_is_told_of_it() {
    let mut server = slow();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    put(&mut client, table, "table");
    ask(&mut client, RequestDurability::Written);
    put(&mut client, table, "lost");
    assert!(is_there(&mut client, table, "lost"));
    crash(&mut server);
    client = server.client(&tenant);
    assert!(is_there(&mut client, table, "table") && !is_there(&mut client, table, "lost"));
    ask(&mut client, RequestDurability::Written);
    put(&mut client, table, "told");
    ask(&mut client, RequestDurability::OfTable);
    assert!(is_there(&mut client, table, "told"), "the answer waits for the disk");
    crash(&mut server);
    assert!(is_there(&mut server.client(&tenant), table, "told"));
}

#[test]
fn who_stays_when_others_have_left_waits_for_nobody() {
    let server = slow();
    let tenant = server.tenant("acme");
    let table = create(&mut server.client(&tenant), "data", Durability::Synced, false);
    let config = ClientConfig { call_timeout: Duration::from_secs(5), ..patient() };
    let address = server.address().to_string();
    let mut session = Session::open(&address, &tenant.name, &tenant.secret, config).expect("it is let in");
    for group in [1, 64, 1, 1, 30, 2, 64, 63, 1] {
        for key in 0..group {
            let request = Request::Put { table, key: &[key], value: b"value", condition: Condition::Always };
            session.submit(&request, 0).expect("there is room");
        }
        // Without being woken the log would be written after the time that the client waits.
        while session.outstanding() > 0 {
            session.wait(Duration::from_millis(1)).expect("a socket");
            let answered = session.poll(&mut |completion| assert_eq!(completion.status, Ok(Status::Ok)));
            answered.expect("a server");
        }
    }
}

#[test]
fn a_function_that_asked_for_the_disk_writes_nothing_if_one_of_its_tables_is_in_memory() {
    let server = slow();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let durable = create(&mut client, "durable", Durability::Written, false);
    let memory = create(&mut client, "memory", Durability::Memory, false);
    install_source(&mut client, "sample", PUT).expect("it is built");
    ask(&mut client, RequestDurability::Synced);
    // In a frame, and over the stream.
    for value in [vec![1], vec![1; LARGE]] {
        for function in ["sample.put", "sample.both"] {
            let refused = client.invoke(function, memory, b"key", &value).expect_err("it writes to memory");
            assert_eq!(refused.status(), Some(Status::NotDurable), "{function}");
        }
    }
    assert!(!is_there(&mut client, memory, "key") && !is_there(&mut client, durable, "key"));
    put(&mut client, durable, "key");
    client.invoke("sample.put", durable, b"key", b"value").expect("it writes to the disk");
    client.invoke("sample.both", memory, b"key", b"").expect("it only reads what is in memory");
    ask(&mut client, RequestDurability::OfTable);
    client.invoke("sample.both", memory, b"key", b"value").expect("it asks for nothing");
    assert!(is_there(&mut client, memory, "key"));
}

#[test]
fn a_table_in_memory_refuses_a_write_that_asks_for_the_disk_and_answers_reads() {
    let server = slow();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Memory, false);
    put(&mut client, table, "key");
    ask(&mut client, RequestDurability::Synced);
    for value in [vec![1], vec![1; LARGE]] {
        let refused = client.put(table, b"key", &value).expect_err("it is in memory");
        assert!(matches!(refused, Error::Refused { status: Status::NotDurable, .. }), "{refused}");
    }
    let refused = client.increment(table, b"number", 1).expect_err("it is in memory");
    assert_eq!(refused.status(), Some(Status::NotDurable));
    assert!(is_there(&mut client, table, "key"));
    let command =
        |arguments: &[&str]| -> Output { server.command(&tenant).args(arguments).output().expect("it runs") };
    let refused = command(&["put", "data", "key", "new", "--durability", "synced"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("in memory"), "{said}");
    assert!(command(&["get", "data", "key", "--durability", "synced"]).status.success());
    assert!(command(&["put", "data", "key", "new", "--durability", "written"]).status.success());
}
