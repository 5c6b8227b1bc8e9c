//! Ordered tables through a real server: by the client, by an extension, by the command.

mod writing;

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use client::local::LocalFailure;
use client::{Client, Condition, Cursor, KeyRange, Local, PageSize, Status};
use sandstorm::{Args, Db, EntryPage, Reply};
use tests::server::{Server, Tenant};

use super::replies::{refusal, said};

fn key(number: u32) -> Vec<u8> {
    format!("user{:05}", number * 7919 % 65_536).into_bytes()
}

/// A table with 1,000 objects, some of them too large for a datagram, and what is in it.
fn filled(client: &mut Client, name: &str) -> (u32, BTreeMap<Vec<u8>, Vec<u8>>) {
    let table = client.table_create_ordered(name).expect("a fresh name");
    let value = |number: u32| vec![number as u8; if number.is_multiple_of(50) { 3_000 } else { 20 }];
    let objects: BTreeMap<_, _> = (0..1_000).map(|number| (key(number), value(number))).collect();
    for (key, value) in &objects {
        client.put(table, key, value).expect("there is room");
    }
    (table, objects)
}

fn keys_and_values(objects: Vec<client::Listed>) -> Vec<(Vec<u8>, Vec<u8>)> {
    objects.into_iter().map(|object| (object.key, object.value)).collect()
}

#[test]
fn scans_bring_what_is_in_a_range_in_order_and_either_way() {
    let server = Server::start();
    let (mut client, _) = server.tenant_with_table("acme");
    let (table, model) = filled(&mut client, "ordered");
    let ranges = [
        KeyRange::default(),
        KeyRange { from: b"user2", ..KeyRange::default() },
        KeyRange { from: b"user2", to: Some(b"user3"), ..KeyRange::default() },
        KeyRange { prefix: b"user33", ..KeyRange::default() },
        KeyRange { from: b"user3", to: Some(b"user2"), ..KeyRange::default() },
        KeyRange { to: Some(b""), ..KeyRange::default() },
        KeyRange { prefix: b"nobody", ..KeyRange::default() },
    ];
    for range in ranges.into_iter().flat_map(|range| [range, KeyRange { reverse: true, ..range }]) {
        let is_in = |key: &[u8]| {
            key >= range.from && range.to.is_none_or(|to| key < to) && key.starts_with(range.prefix)
        };
        let mut expected: Vec<_> = model
            .iter()
            .filter(|(key, _)| is_in(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if range.reverse {
            expected.reverse();
        }
        assert_eq!(keys_and_values(client.scan(table, range, usize::MAX).unwrap()), expected, "{range:?}");
        expected.truncate(7);
        assert_eq!(keys_and_values(client.scan(table, range, 7).unwrap()), expected);
        assert_eq!(client.scan(table, range, 0).unwrap(), []);
        // Pages small enough for datagrams, and the same all together.
        let (mut next, mut met) = (Some(Cursor::start()), Vec::new());
        while let Some(from) = next.filter(|_| met.len() < 7) {
            let size = PageSize { objects: 2, bytes: 1_000, ..PageSize::default() };
            let page = client.scan_page(table, range, &from, size).unwrap();
            assert!(page.objects.len() <= 2);
            met.extend(page.objects);
            next = page.next;
        }
        met.truncate(7);
        assert_eq!(keys_and_values(met), expected);
    }
    client.delete(table, &key(3)).unwrap();
    assert_eq!(client.scan(table, KeyRange { prefix: &key(3), ..KeyRange::default() }, 9).unwrap(), []);
}

#[test]
fn answers_longer_than_a_datagram_come_in_several_and_need_no_stream() {
    let server = Server::start();
    let (mut client, _) = server.tenant_with_table("acme");
    let table = client.table_create_ordered("ordered").expect("a fresh name");
    let object = |number: u32| (format!("{number:030}").into_bytes(), vec![number as u8; 100]);
    let objects: Vec<_> = (0..300).map(object).collect();
    let puts: Vec<_> = objects.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert!(client.multi_put(table, &puts).unwrap().iter().all(Result::is_ok));
    client.put(table, b"wide", &[7; 20_000]).unwrap();
    let streamed = client.session().statistics().stream_requests;
    let range = KeyRange { from: &objects[50].0, ..KeyRange::default() };
    assert_eq!(keys_and_values(client.scan(table, range, 100).unwrap()), objects[50..150]);
    assert_eq!(client.scan(table, KeyRange::default(), 1_000).unwrap().len(), 301);
    let keys: Vec<&[u8]> = objects.iter().map(|(key, _)| &key[..]).collect();
    let found = client.multi_get(table, &keys[..200]).unwrap();
    assert!(
        found
            .iter()
            .zip(&objects)
            .all(|(found, (_, value))| found.as_ref().is_some_and(|it| it.value == *value))
    );
    assert_eq!(client.get(table, b"wide").unwrap().unwrap().value, [7; 20_000]);
    assert_eq!(client.session().statistics().stream_requests, streamed);
}

#[test]
fn what_cannot_be_scanned_is_refused_with_a_reason() {
    let server = Server::start();
    let (mut client, plain) = server.tenant_with_table("acme");
    let all = KeyRange::default();
    let error = client.scan(plain, all, 1).expect_err("it is not ordered");
    assert_eq!(error.status(), Some(Status::NotOrdered));
    assert!(format!("{error:?}").contains("NotOrdered"), "{error:?}");
    let (table, _) = filled(&mut client, "ordered");
    let (other, _) = filled(&mut client, "other");
    let size = PageSize { objects: 1, ..PageSize::default() };
    let cursor = client.scan_page(table, all, &Cursor::start(), size).unwrap().next.expect("there is more");
    assert!(client.scan_page(table, all, &cursor, size).is_ok());
    assert_eq!(refusal(client.scan_page(other, all, &cursor, size)), Status::CursorInvalid);
    let narrower = KeyRange { prefix: b"user", ..all };
    assert_eq!(refusal(client.scan_page(table, narrower, &cursor, size)), Status::CursorInvalid);
    let backward = KeyRange { reverse: true, ..all };
    assert_eq!(refusal(client.scan_page(table, backward, &cursor, size)), Status::CursorInvalid);
    for made_up in [&b"x"[..], b"12345678", b"12345678user", &[0xff; 70_000]] {
        let made_up = Cursor::from_bytes(made_up);
        assert_eq!(refusal(client.scan_page(table, all, &made_up, size)), Status::CursorInvalid);
    }
    let long = vec![0; 65_536];
    let too_long = KeyRange { from: &long, ..all };
    assert_eq!(refusal(client.scan_page(table, too_long, &Cursor::start(), size)), Status::KeyTooLarge);
    client.table_drop("ordered").unwrap();
    assert_eq!(refusal(client.scan_page(table, all, &cursor, size)), Status::UnknownTable);
}

#[test]
fn ordered_tables_are_so_again_after_a_restart() {
    let mut server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    client.table_create_ordered("ordered").unwrap();
    client.table_create("plain").unwrap();
    drop(client);
    server.kill();
    server.restart();
    let mut client = server.client(&acme);
    let kinds: Vec<_> =
        client.table_list().unwrap().into_iter().map(|table| (table.name, table.ordered)).collect();
    assert_eq!(kinds, [("ordered".to_owned(), true), ("plain".to_owned(), false)]);
    let table = client.table_open("ordered").unwrap();
    client.put(table, b"k", b"v").unwrap();
    assert_eq!(client.scan(table, KeyRange::default(), 9).unwrap().len(), 1);
}

/// Replies with the keys of a range, one a line, and how long the values are in all. Arguments: backward u8.
async fn keys_of(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), sandstorm::Error> {
    let range = sandstorm::KeyRange::prefix(args.key()).from(b"user1").to(b"user4");
    let range = if args.reader().u8()? == 1 { range.reverse() } else { range };
    let (mut scan, mut value_bytes) = (db.scan(args.table(), range), 0);
    while let Some(entry) = scan.next().await? {
        value_bytes += entry.value.len() as u64;
        reply.write(entry.key)?;
        reply.write(b"\n")?;
    }
    reply.u64(value_bytes)
}

/// Replies with the keys of a table, one a line.
async fn all_keys(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), sandstorm::Error> {
    let (mut page, mut next) =
        (EntryPage::new().limit(20), Some(sandstorm::Cursor::from_bytes(args.bytes())?));
    while let Some(cursor) = next {
        next = db.enumerate(args.table(), cursor, &mut page).await?;
        for entry in &page {
            reply.write(entry.key)?;
            reply.write(b"\n")?;
        }
    }
    Ok(())
}

/// Runs the invocations of a client to their ends; what the last one came to.
fn end(local: &mut Local) -> Result<Vec<u8>, LocalFailure> {
    let mut last = None;
    while local.outstanding() > 0 {
        local.poll_waiting(&mut |ended| last = Some(ended.result.map(<[u8]>::to_vec))).expect("a session");
    }
    last.expect("something ended")
}

#[test]
fn a_function_at_the_client_scans_and_enumerates_as_at_the_server() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let (table, model) = filled(&mut client, "ordered");
    let plain = client.table_create("plain").unwrap();
    // What is written from here on is not there for long.
    client.put_for(table, b"user2-gone", b"v", 1, Condition::Always).unwrap();
    let began = Instant::now();
    while client.get(table, b"user2-gone").unwrap().is_some() {
        assert!(began.elapsed() < Duration::from_secs(60), "it expires");
    }
    let mut local = Local::new(client.into_session());
    for prefix in [&b""[..], b"user", b"user33", b"nobody"] {
        for backward in [0, 1] {
            let is_in = |key: &[u8]| key.starts_with(prefix) && (&b"user1"[..]..&b"user4"[..]).contains(&key);
            let mut keys: Vec<_> = model.keys().filter(|key| is_in(key)).collect();
            let value_bytes: usize = keys.iter().map(|key| model[*key].len()).sum();
            if backward == 1 {
                keys.reverse();
            }
            let mut expected: Vec<u8> = keys.into_iter().flat_map(|key| [&key[..], b"\n"].concat()).collect();
            expected.extend((value_bytes as u64).to_le_bytes());
            local.spawn_read(keys_of, table, prefix, &[backward]);
            assert_eq!(end(&mut local).unwrap(), expected);
        }
    }
    local.spawn_read(all_keys, table, b"", b"");
    let met = end(&mut local).unwrap();
    let mut met: Vec<_> = met.split_inclusive(|&byte| byte == b'\n').collect();
    met.sort_unstable();
    assert!(met.iter().zip(model.keys()).all(|(met, key)| met.split_last().unwrap().1 == key));
    assert_eq!(met.len(), model.len());
    let mut refused = |is_write, table, cursor: &[u8]| {
        match (is_write, cursor) {
            (true, b"") => local.spawn(keys_of, table, b"", &[0]),
            (true, _) => local.spawn(all_keys, table, b"", b""),
            (false, b"") => local.spawn_read(keys_of, table, b"", &[0]),
            (false, cursor) => local.spawn_read(all_keys, table, b"", cursor),
        };
        match end(&mut local) {
            Err(LocalFailure::Function(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(false, plain, b""), sandstorm::Error::NotOrdered);
    assert_eq!(refused(false, table, &[7; 24]), sandstorm::Error::CursorInvalid);
    assert_eq!(refused(false, 9_999, b""), sandstorm::Error::UnknownTable);
    assert_eq!(refused(true, table, b"enumerate"), sandstorm::Error::NotSerializable);
}

/// Runs the command as a tenant.
fn run(server: &Server, tenant: &Tenant, arguments: &[&str]) -> Output {
    server.command(tenant).args(arguments).output().expect("the command runs")
}

#[test]
fn the_command_and_the_extension_scan_as_the_client_does() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let splinter = |line: &str| run(&server, &acme, &line.split(' ').collect::<Vec<_>>());
    assert!(splinter("table create log --ordered").status.success());
    for (key, value) in [("b", "2"), ("a1", "1"), ("a2", "3"), ("c", "4")] {
        assert!(splinter(&format!("put log {key} {value}")).status.success());
    }
    let keys = |line: &str| {
        let output = splinter(line);
        assert!(output.status.success(), "{}", said(&output.stderr));
        let text = said(&output.stdout);
        text.lines()
            .skip(1)
            .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys("scan log"), ["a1", "a2", "b", "c"]);
    assert_eq!(keys("scan log --prefix a"), ["a1", "a2"]);
    assert_eq!(keys("scan log --from a2 --to c --reverse"), ["b", "a2"]);
    assert_eq!(keys("scan log --limit 1 --reverse")[0], "c");
    let json = said(&splinter("scan log --limit 2 --output json").stdout);
    assert!(json.contains("\"a1\"") && !json.contains("\"b\"") && json.contains("\"cursor\""), "{json}");
    let refused = splinter("table create plain");
    assert!(refused.status.success());
    let refused = splinter("scan plain");
    assert!(
        !refused.status.success() && said(&refused.stderr).contains("--ordered"),
        "{}",
        said(&refused.stderr)
    );
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../ext/scan");
    let installed = splinter(&format!("ext install {folder}"));
    assert!(installed.status.success(), "{}", said(&installed.stderr));
    let mut client = server.client(&acme);
    let table = client.table_open("log").unwrap();
    let counted = client.invoke("scan.count", table, b"a", b"").unwrap();
    assert_eq!(counted, [2_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat());
    for number in 0..3_u64 {
        assert_eq!(client.invoke("scan.push", table, b"q/", &[number as u8]).unwrap(), number.to_le_bytes());
    }
    for number in 0..3_u8 {
        assert_eq!(client.invoke("scan.pop", table, b"q/", b"").unwrap(), [number]);
    }
    assert_eq!(refusal(client.invoke("scan.pop", table, b"q/", b"")), Status::NotFound);
    let plain = client.table_open("plain").unwrap();
    assert_eq!(refusal(client.invoke("scan.count", plain, b"", b"")), Status::NotOrdered);
}

/// `ZRANGEBYLEX` over a connection of its own; the bytes of an answer.
struct Redis {
    process: std::process::Child,
    stream: std::net::TcpStream,
    answer: Vec<u8>,
}

impl Redis {
    /// A Redis on a port that was free just now; `None` where there is none on this machine.
    fn start() -> Option<Redis> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let mut command = Command::new("redis-server");
        command.args(["--save", "", "--appendonly", "no", "--port", &port.to_string()]);
        let process = command.stdout(std::process::Stdio::null()).spawn().ok()?;
        let began = Instant::now();
        loop {
            match std::net::TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => {
                    stream.set_nodelay(true).expect("a TCP stream");
                    return Some(Redis { process, stream, answer: vec![0; 1 << 20] });
                }
                Err(error) => assert!(began.elapsed().as_secs() < 60, "Redis does not come up: {error}"),
            }
            std::thread::yield_now();
        }
    }

    /// Sends one command and reads until its answer has ended in `lines` lines.
    fn ask(&mut self, words: &[&[u8]], lines: usize) -> usize {
        use std::io::{Read, Write};
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request
                .extend(format!("${}\r\n", word.len()).bytes().chain(word.iter().copied()).chain(*b"\r\n"));
        }
        self.stream.write_all(&request).expect("Redis reads");
        let mut bytes = 0;
        while self.answer[..bytes].iter().filter(|&&byte| byte == b'\n').count() < lines {
            bytes += self.stream.read(&mut self.answer[bytes..]).expect("Redis answers");
        }
        bytes
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `cargo test --release -p tests --test system figures -- --ignored --nocapture`, on a quiet machine.
#[test]
#[ignore = "prints figures"]
fn figures_of_scans_of_100_objects_beside_redis() {
    const OBJECTS: u32 = 200_000;
    const SCANS: u32 = 2_000;
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let table = client.table_create_ordered("t").unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../ext/scan");
    assert!(run(&server, &acme, &["ext", "install", folder]).status.success());
    let mut redis = Redis::start();
    let keys: Vec<_> = (0..OBJECTS).map(|number| format!("user{number:026}").into_bytes()).collect();
    for chunk in keys.chunks(500) {
        let objects: Vec<(&[u8], &[u8])> = chunk.iter().map(|key| (&key[..], &[b'v'; 100][..])).collect();
        assert!(client.multi_put(table, &objects).unwrap().iter().all(Result::is_ok));
        if let Some(redis) = &mut redis {
            let members: Vec<_> = chunk.iter().map(|key| [key, &[b'v'; 100][..]].concat()).collect();
            let mut words: Vec<&[u8]> = vec![b"ZADD", b"z"];
            members.iter().for_each(|member| words.extend([b"0", &member[..]]));
            redis.ask(&words, 1);
        }
    }
    // The first 28 letters of a key: 100 keys begin so.
    let prefix = |number: u32| &keys[(number.wrapping_mul(2_654_435_761) % OBJECTS) as usize][..28];
    let timed = |what: &str, work: &mut dyn FnMut(u32)| {
        let began = Instant::now();
        (0..SCANS).for_each(work);
        println!("{what}: {:.1} us", began.elapsed().as_secs_f64() * 1e6 / f64::from(SCANS));
    };
    for _ in 0..3 {
        timed("client, scan of 100 objects", &mut |number| {
            let range = KeyRange { prefix: prefix(number), ..KeyRange::default() };
            assert_eq!(client.scan(table, range, 100).unwrap().len(), 100);
        });
        timed("extension, sums of 100 objects", &mut |number| {
            let counted = client.invoke("scan.count", table, prefix(number), b"").unwrap();
            assert_eq!(counted[..8], 100_u64.to_le_bytes());
        });
        if let Some(redis) = &mut redis {
            timed("Redis, ZRANGEBYLEX of 100 members", &mut |number| {
                let (from, to) = ([b"[", prefix(number)].concat(), [b"(", prefix(number), b"\xff"].concat());
                assert!(redis.ask(&[b"ZRANGEBYLEX", b"z", &from, &to], 201) > 13_000);
            });
        }
    }
}
