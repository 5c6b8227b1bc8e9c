//! The edges of what may be asked, as clients see them: keys and values of every extreme length through every
//! operation, versions of the future, memory that is full or too little, tables that go while they are used.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use client::{Client, Condition, Cursor, Error, KeyRange, LimitChange, PageSize, Status, Write};
use tests::effort::rounds;
use tests::package::install_source;
use tests::server::{Server, Settings, binary};

use super::replies::refusal;

const KEY_BYTES_MAX: usize = 65_535;
const VALUE_BYTES_MAX: usize = 1 << 20;

#[test]
fn keys_and_values_of_extreme_lengths_pass_through_every_operation() {
    let server = Server::start();
    let (mut client, hash) = server.tenant_with_table("acme");
    let ordered = client.table_create_ordered("ordered").unwrap();
    let keys =
        [vec![], vec![0], vec![255; KEY_BYTES_MAX], vec![0; KEY_BYTES_MAX], vec![7; KEY_BYTES_MAX - 1]];
    let values = [vec![], vec![9; VALUE_BYTES_MAX], vec![0], vec![1; 1_400], vec![2; 65_536]];
    for table in [hash, ordered] {
        for (key, value) in keys.iter().zip(&values) {
            client.put_for(table, key, value, 3_600_000, Condition::Absent).unwrap();
            client.put_if(table, key, value, Condition::Present).unwrap();
            assert_eq!(&client.get(table, key).unwrap().expect("it was put").value, value);
            let both = client.multi_get(table, &[key, b"nothing"]);
            match both {
                Ok(both) => {
                    assert_eq!((&both[0].as_ref().expect("it is there").value, &both[1]), (value, &None))
                }
                Err(error) => assert_eq!(error.status(), Some(Status::ReplyTooLarge)),
            }
        }
        let mut listed: Vec<_> = client.enumerate(table).map(|object| object.expect("a page").key).collect();
        listed.sort_unstable();
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        assert_eq!(listed, sorted);
        if table == ordered {
            for reverse in [false, true] {
                let range = KeyRange { reverse, ..KeyRange::default() };
                let met = client.scan(table, range, 100).unwrap();
                let met: Vec<_> = met.into_iter().map(|object| object.key).collect();
                assert_eq!(met, sorted);
                sorted.reverse();
            }
        }
        let found = client.verify(table).unwrap();
        assert_eq!((found.objects, found.corrupted.len()), (keys.len() as u64, 0));
        for (key, value) in keys.iter().zip(&values) {
            assert_eq!(refusal(client.increment(table, key, 1)), Status::NotANumber);
            assert_eq!(refusal(client.increment_float(table, key, 1.0)), Status::NotANumber);
            assert_eq!(&client.get(table, key).unwrap().expect("nothing has changed").value, value);
            client.delete(table, key).unwrap().expect("it was there");
            assert_eq!(client.increment(table, key, 5).unwrap().0, 5);
        }
        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        assert!(client.multi_delete(table, &slices).unwrap().iter().all(Result::is_ok));
        assert_eq!(client.enumerate(table).count(), 0);
    }
}

#[test]
fn what_is_longer_than_an_object_may_be_is_refused_by_every_operation_and_touches_nothing() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let ordered = client.table_create_ordered("ordered").unwrap();
    let (long, large) = (vec![0; KEY_BYTES_MAX + 1], vec![0; VALUE_BYTES_MAX + 1]);
    client.put(table, b"k", b"v").unwrap();
    assert_eq!(refusal(client.get(table, &long)), Status::KeyTooLarge);
    assert_eq!(refusal(client.put(table, &long, b"")), Status::KeyTooLarge);
    assert_eq!(refusal(client.put_for(table, &long, b"", 5, Condition::Always)), Status::KeyTooLarge);
    assert_eq!(refusal(client.delete(table, &long)), Status::KeyTooLarge);
    assert_eq!(refusal(client.increment(table, &long, 1)), Status::KeyTooLarge);
    assert_eq!(refusal(client.increment_float(table, &long, 1.0)), Status::KeyTooLarge);
    assert_eq!(refusal(client.multi_get(table, &[b"k", &long])), Status::KeyTooLarge);
    assert_eq!(refusal(client.put(table, b"k", &large)), Status::ValueTooLarge);
    assert_eq!(refusal(client.put_for(table, b"k", &large, 5, Condition::Always)), Status::ValueTooLarge);
    for range in [
        KeyRange { from: &long, ..KeyRange::default() },
        KeyRange { to: Some(&long), ..KeyRange::default() },
        KeyRange { prefix: &long, ..KeyRange::default() },
    ] {
        assert_eq!(refusal(client.scan(ordered, range, 1)), Status::KeyTooLarge);
    }
    let put = |key, value| Write { key, value: Some(value), condition: Condition::Always, ttl_ms: None };
    let results =
        client.multi_write(table, &[put(&long, b""), put(b"k", &large), put(b"new", b"1")]).unwrap();
    let status = |index: usize| results[index].as_ref().err().and_then(Error::status);
    assert_eq!(
        [status(0), status(1), status(2)],
        [Some(Status::KeyTooLarge), Some(Status::ValueTooLarge), None]
    );
    assert_eq!(client.get(table, b"k").unwrap().expect("it is there").value, b"v");
    assert_eq!(client.enumerate(table).count(), 2);
}

#[test]
fn versions_of_the_future_and_of_nobody_fail_with_the_current_one() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let version = client.put(table, b"k", b"v").unwrap();
    for wrong in [version + 1, version + 1_000_000, u64::MAX, u64::MAX - 1, 1 << 48, 0] {
        let condition = Condition::Version(wrong);
        for failed in [
            client.put_if(table, b"k", b"x", condition).map(drop),
            client.put_for(table, b"k", b"x", 1_000, condition).map(drop),
            client.delete_if(table, b"k", condition).map(drop),
        ] {
            assert!(
                matches!(failed, Err(Error::ConditionFailed { current }) if current == version),
                "{failed:?}"
            );
        }
        let absent = client.put_if(table, b"absent", b"x", condition);
        assert!(matches!(absent, Err(Error::ConditionFailed { current: 0 })) || wrong == 0, "{absent:?}");
    }
    let object = client.get(table, b"k").unwrap().expect("it is there");
    assert_eq!((object.version, object.value.as_slice()), (version, &b"v"[..]));
}

#[test]
fn a_server_with_less_memory_than_a_segment_says_what_it_needs() {
    let directory = tempfile::tempdir().expect("a directory");
    for (memory, segment) in
        [("4MiB", "8MiB"), ("8MiB", "8MiB"), ("0", "8MiB"), ("64MiB", "0"), ("64MiB", "3MiB")]
    {
        let mut server = Command::new(binary("splinter-server"));
        server.args(["--listen", "127.0.0.1:0", "--memory", memory, "--segment", segment, "--data"]);
        let output = server.arg(directory.path()).output().expect("it ends");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{memory} {segment}");
        assert!(words.contains("memory") || words.contains("segment"), "{memory} {segment}: {words}");
        assert!(!words.contains("panicked"), "{words}");
    }
}

#[test]
fn a_tenant_with_less_memory_than_a_segment_keeps_within_it() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let (mut other, others) = server.tenant_with_table("other");
    client.put(table, b"k", &[1; 1_000]).unwrap();
    let mut admin = server.admin();
    admin.tenant_limits_set("acme", &[LimitChange { limit: "memory_bytes", value: Some(10_000) }]).unwrap();
    let mut stored = 0_u32;
    let refused = loop {
        match client.put(table, &stored.to_le_bytes(), &[1; 100]) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.status(), Some(Status::OverQuota));
    assert!((10..100).contains(&stored), "{stored} objects of 100 B in 9,000 B");
    assert_eq!(refusal(client.increment(table, b"number", 1)), Status::OverQuota);
    assert_eq!(client.get(table, b"k").unwrap().expect("it is there").value, [1; 1_000]);
    client.put(table, b"k", &[2; 10]).expect("who shrinks may");
    client.put(table, b"new", &[2; 100]).expect("there is room again");
    other.put(others, b"k", &[1; 100_000]).expect("others notice nothing");
}

#[test]
fn at_the_last_byte_every_write_is_refused_and_nothing_is_lost() {
    let settings = Settings { memory: "16MiB".into(), segment: "1MiB".into(), ..Settings::default() };
    let mut server = Server::start_with(settings);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = client.table_create("data").unwrap();
    let mut stored = 0_u32;
    // Large ones first, then what goes in between.
    for value in [&[1; 10_000][..], &[1; 100], &[1]] {
        loop {
            match client.put(table, &stored.to_le_bytes(), value) {
                Ok(_) => stored += 1,
                Err(error) => break assert_eq!(error.status(), Some(Status::OutOfMemory), "{error}"),
            }
        }
    }
    let large = [2; 10_000];
    assert_eq!(refusal(client.put(table, b"new", &large)), Status::OutOfMemory);
    assert_eq!(
        refusal(client.put_for(table, b"new", &large, 60_000, Condition::Always)),
        Status::OutOfMemory
    );
    let many: Vec<[u8; 2]> = (0..100_u16).map(|number| (number + 1_000).to_be_bytes()).collect();
    let objects: Vec<(&[u8], &[u8])> = many.iter().map(|key| (&key[..], &large[..])).collect();
    let results = client.multi_put(table, &objects).unwrap();
    assert!(
        results
            .iter()
            .all(|result| matches!(result, Err(error) if error.status() == Some(Status::OutOfMemory)))
    );
    for is_restarted in [false, true] {
        if is_restarted {
            server.kill();
            server.restart();
            client = server.client(&tenant);
            println!("{}", server.log());
        }
        for key in 0..stored {
            let object = client.get(table, &key.to_le_bytes()).unwrap().expect("nothing is lost");
            assert!(object.value.iter().all(|&byte| byte == 1), "object {key}");
        }
    }
    let found = client.verify(table).unwrap();
    assert_eq!((found.objects, found.corrupted.len()), (u64::from(stored), 0));
    for key in 0..stored / 2 {
        client.delete(table, &key.to_le_bytes()).unwrap().expect("a full store takes deletes");
    }
    client.put(table, b"new", &large).expect("deletes make room");
    assert_eq!(client.table_stat("data").unwrap().objects, u64::from(stored - stored / 2 + 1));
}

#[test]
fn a_table_that_goes_under_a_scan_ends_it_with_a_typed_error() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let (mut client, mut other) = (server.client(&tenant), server.client(&tenant));
    let table = client.table_create_ordered("ordered").unwrap();
    for number in 0..1_000_u32 {
        client.put(table, &number.to_be_bytes(), b"v").unwrap();
    }
    let (all, size) = (KeyRange::default(), PageSize { objects: 100, ..PageSize::default() });
    let cursor = client.scan_page(table, all, &Cursor::start(), size).unwrap().next.expect("there is more");
    other.table_drop("ordered").unwrap();
    assert_eq!(refusal(client.scan_page(table, all, &cursor, size)), Status::UnknownTable);
    let again = client.table_create_ordered("ordered").unwrap();
    assert_eq!(refusal(client.scan_page(again, all, &cursor, size)), Status::CursorInvalid);
    assert_eq!(client.scan(again, all, 10).unwrap(), []);
}

#[test]
fn a_table_of_many_objects_goes_while_it_is_written_and_others_go_on() {
    let server = Server::start_with(Settings { cores: 2, memory: "512MiB".into(), ..Settings::default() });
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let (table, kept) = (client.table_create("going").unwrap(), client.table_create("kept").unwrap());
    let keys: Vec<[u8; 4]> = (0..rounds(100_000, 1_000_000) as u32).map(u32::to_le_bytes).collect();
    let objects: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"value"[..])).collect();
    for part in objects.chunks(5_000) {
        assert!(client.multi_put(table, part).unwrap().iter().all(Result::is_ok));
        assert!(client.multi_put(kept, &part[..50]).unwrap().iter().all(Result::is_ok));
    }
    let written = client.table_stat("kept").unwrap();
    let is_gone = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (server, tenant, objects, is_gone) = (&server, &tenant, &objects, &is_gone);
                scope.spawn(move || {
                    let mut client = server.client(tenant);
                    let mut refused = 0;
                    // Until long after the drop was acknowledged: not one write is taken then.
                    for part in objects.chunks(500).cycle() {
                        let gone_before = is_gone.load(Ordering::Acquire);
                        for result in client.multi_put(table, part).expect("the session lives") {
                            match result {
                                Ok(_) => assert!(!gone_before, "a write to a table that was dropped"),
                                Err(error) => {
                                    assert_eq!(error.status(), Some(Status::UnknownTable));
                                    refused += 1;
                                }
                            }
                        }
                        if refused > 5_000 {
                            return;
                        }
                    }
                })
            })
            .collect();
        client.table_drop("going").unwrap();
        is_gone.store(true, Ordering::Release);
        writers.into_iter().for_each(|writer| writer.join().expect("every write has a typed answer"));
    });
    assert_eq!(client.table_stat("kept").unwrap(), written);
    assert_eq!(client.enumerate(kept).count() as u64, written.objects);
    let mut admin = server.admin();
    let mut objects = || {
        let statistics = admin.statistics().unwrap();
        statistics.iter().find(|statistic| statistic.name == "store_objects").expect("it is counted").value
    };
    while objects() != written.objects {
        thread::yield_now();
    }
    assert!(client.verify(kept).unwrap().corrupted.is_empty());
}

/// Functions that hold what a table lent them until an object of another table says that it is gone.
const WAITS: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Level, Reply, Table};

sandstorm::extension! { read reads, write writes }

/// Replies with what the table of the arguments lent it before, and whether that is unknown by now. What only reads
/// runs once more when it is asked for again: one that comes too late leaves the answer to those before it.
async fn reads(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let (table, gate) = (Table::from_id(args.reader().u32()?), args.table());
    let lent = loop {
        if let Ok(Some(lent)) = db.get(table, args.key()).await {
            break lent;
        }
        db.yield_now().await;
    };
    db.log(Level::Information, format_args!("reads"));
    while db.get(gate, b"open").await?.is_none() {
        db.yield_now().await;
    }
    reply.write(lent)?;
    reply.u8(u8::from(db.get(table, args.key()).await == Err(Error::UnknownTable)))
}

/// Writes to the table, then waits, then ends well.
async fn writes(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"new").await?;
    db.log(Level::Information, format_args!("writes"));
    let started = db.now_ms();
    while db.now_ms() < started + 500 {
        db.yield_now().await;
    }
    Ok(())
}
"#;

#[test]
fn a_table_that_goes_under_invocations_that_wait_is_a_typed_error_and_what_it_lent_stays() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let changes =
        ["invocation_cpu_us", "invocation_yields"].map(|limit| LimitChange { limit, value: Some(1_000_000) });
    server.admin().tenant_limits_set("acme", &changes).unwrap();
    install_source(&mut client, "waits", WAITS).unwrap();
    // An invocation lives for a second at most: on a machine that is too busy for that, once more.
    let [lent, written] = (0..30)
        .find_map(|_| {
            let (table, gate) = (client.table_create("data").unwrap(), client.table_create("gate").unwrap());
            client.put(table, b"k", &[7; 500]).unwrap();
            let lines =
                |client: &mut Client| client.extension_logs("waits", 3, 0, 1_000).unwrap().lines.len();
            let before = lines(&mut client);
            let mut callers = [server.client(&tenant), server.client(&tenant)];
            let ended = thread::scope(|scope| {
                let [reader, writer] = &mut callers;
                let reads =
                    scope.spawn(move || reader.invoke("waits.reads", gate, b"k", &table.to_le_bytes()));
                let writes = scope.spawn(move || writer.invoke("waits.writes", table, b"k", b""));
                while lines(&mut client) < before + 2 {}
                client.table_drop("data").unwrap();
                client.put(gate, b"open", b"").unwrap();
                [reads, writes].map(|call| call.join().expect("no panic"))
            });
            client.table_drop("gate").unwrap();
            let status = |at: usize| ended[at].as_ref().err().and_then(Error::status);
            let is_late = (0..2).any(|at| status(at) == Some(Status::ExtensionKilled));
            if is_late { None } else { Some(ended) }
        })
        .expect("one of them has a second");
    assert_eq!(lent.expect("it ends well").split_last(), Some((&1, &[7; 500][..])));
    assert_eq!(refusal(written), Status::UnknownTable);
}
