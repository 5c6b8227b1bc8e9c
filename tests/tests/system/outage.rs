//! Things that end at a bad moment: clients in mid-load, the server under load, the disk during an
//! installation. Nobody else is disturbed, and nothing is half there.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use client::{Condition, Request, Session, Status};
use tests::package::install_source;
use tests::raw::{PATIENCE, RawSession};
use tests::server::{Server, Settings, binary, patient};
use wire::{RecordHeader, opcode};

#[test]
fn a_client_that_vanishes_in_mid_load_disturbs_nobody() {
    let server = Server::start();
    let tenant = server.tenant("mallory");
    let table = server.client(&tenant).table_create("data").unwrap();
    let (mut acme, acme_table) = server.tenant_with_table("acme");
    for round in 0..30_u64 {
        let session = RawSession::open(server.address(), &tenant.name, &tenant.secret).unwrap();
        for sequence in 1..200_u64 {
            let value = [1; 1000];
            let condition = Condition::Always;
            let put = Request::Put { table, key: &sequence.to_le_bytes(), value: &value, condition };
            session.send(&session.frame(sequence, &put)).unwrap();
        }
        // Gone without a word, its answers on the way.
        drop(session);
        acme.put(acme_table, b"k", &round.to_le_bytes()).unwrap();
        assert_eq!(acme.get(acme_table, b"k").unwrap().unwrap().value, round.to_le_bytes());
    }
    let mut again = server.client(&tenant);
    assert_eq!(again.get(table, &5_u64.to_le_bytes()).unwrap().unwrap().value, [1; 1000]);
}

#[test]
fn half_a_record_writes_nothing() {
    let mut server = Server::start();
    let tenant = server.tenant("mallory");
    let mut client = server.client(&tenant);
    let table = client.table_create("data").unwrap();
    let value = vec![9; 500_000];
    let put = Request::Put { table, key: b"k", value: &value, condition: Condition::Always };
    let mut body = vec![0; put.body_bytes()];
    put.encode(&mut body);
    let record = RecordHeader { code: opcode::PUT, sequence: 1, ..Default::default() }.encode_record(&body);
    for bytes in [1, 4, 20, 24, 30, record.len() / 2, record.len() - 1] {
        let mut session = RawSession::open(server.address(), &tenant.name, &tenant.secret).unwrap();
        session.stream.tcp.write_all(&record[..bytes]).unwrap();
        drop(session);
        assert_eq!(client.get(table, b"k").unwrap(), None, "{bytes} bytes of the record");
    }
    assert!(server.is_running());
}

#[test]
fn a_command_that_is_killed_while_it_loads_leaves_a_store_that_works() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = client.table_create("data").unwrap();
    let mut command = Command::new(binary("splinter"));
    command
        .args(["put", "data", "large"])
        .arg("x".repeat(100_000))
        .env("SPLINTER_ADDRESS", server.address().to_string())
        .env("SPLINTER_TENANT", &tenant.name)
        .env("SPLINTER_SECRET", &tenant.secret)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for milliseconds in 0..20 {
        let mut child = command.spawn().unwrap();
        thread::sleep(Duration::from_millis(milliseconds));
        let _ = child.kill();
        let _ = child.wait();
        let found = client.get(table, b"large").unwrap();
        assert!(found.is_none_or(|object| object.value.len() == 100_000), "all of it or nothing");
    }
    assert!(command.status().unwrap().success());
}

#[test]
fn sessions_go_on_after_the_server_was_stopped_or_killed_under_load() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut table = server.client(&tenant).table_create("data").unwrap();
    let address = server.address().to_string();
    for crash in [false, true] {
        let mut session =
            Session::open(&address, &tenant.name, &tenant.secret, client::ClientConfig::default()).unwrap();
        let (mut acknowledged, mut after) = (Vec::new(), 0_u32);
        let (start, mut ended) = (Instant::now(), false);
        let mut next = 0_u64;
        while after < 1_000 {
            assert!(start.elapsed() < 3 * PATIENCE, "{} {after}", acknowledged.len());
            while session.outstanding() < 64 && session.can_submit() {
                let (key, condition) = (next.to_le_bytes(), Condition::Absent);
                // A second execution of any of them would fail its condition.
                let put = Request::Put { table, key: &key, value: &key, condition };
                session.submit(&put, next).unwrap();
                next += 1;
            }
            session
                .poll(&mut |completion| match completion.status {
                    Ok(Status::Ok) => {
                        acknowledged.push(completion.tag);
                        after += u32::from(ended);
                    }
                    status => panic!("put {} ended with {status:?}", completion.tag),
                })
                .expect("the session finds its server again");
            if !ended && acknowledged.len() > 2_000 {
                ended = true;
                if crash {
                    server.kill()
                } else {
                    assert!(server.stop().success())
                }
                server.restart();
            }
        }
        let mut client = server.client(&tenant);
        for number in acknowledged {
            let object = client.get(table, &number.to_le_bytes()).unwrap().expect("it was acknowledged");
            assert_eq!(object.value, number.to_le_bytes());
        }
        client.table_drop("data").unwrap();
        table = client.table_create("data").unwrap();
    }
}

const EXTENSION: &str = "#![no_std]\nuse sandstorm::{Args, Db, Error, Reply};\nsandstorm::extension! { read one }\n\
    /// Replies with one.\nasync fn one(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {\n\
    reply.u8(1)\n}\n";

#[test]
fn a_full_disk_while_installing_is_a_typed_refusal_and_nothing_is_half_there() {
    // The server sees a small file system where it keeps extensions. The private sysroot takes most of it.
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("extensions");
    std::fs::create_dir(&place).unwrap();
    let wrapper = |bytes: u64| {
        let bytes = bytes.to_string();
        let place = place.to_str().unwrap();
        ["bwrap", "--dev-bind", "/", "/", "--die-with-parent", "--size", &bytes, "--tmpfs", place]
            .map(str::to_owned)
            .to_vec()
    };
    let settings = Settings { wrapper: wrapper(64 << 10), ..Settings::default() };
    let mut server = Server::start_in(directory, settings).unwrap();
    let (mut acme, table) = server.tenant_with_table("acme");
    for round in 0..3 {
        let refused = install_source(&mut acme, "one", EXTENSION).expect_err("64 KiB hold no extension");
        assert_eq!(refused.status(), Some(Status::StorageFull), "{refused}");
        assert!(acme.extension_list().unwrap().is_empty());
        acme.put(table, b"k", &[round]).unwrap();
        assert_eq!(acme.get(table, b"k").unwrap().unwrap().value, [round]);
    }
    assert!(server.is_running());
    server.stop();
    // With room, the same server installs the same extension.
    server.settings.wrapper = wrapper(1 << 30);
    server.restart();
    let mut acme = server.client(&server.tenant("other"));
    assert_eq!(install_source(&mut acme, "one", EXTENSION).unwrap(), 1);
    let table = acme.table_create("data").unwrap();
    assert_eq!(acme.invoke("one.one", table, b"", b"").unwrap(), [1]);
}

#[test]
fn a_server_whose_worker_never_comes_back_says_so_and_ends_when_it_is_told_to() {
    // Without preemption an extension that loops keeps its worker for ever.
    let arguments = vec!["--isolation".to_owned(), "off".to_owned()];
    let mut server = Server::start_with(Settings { arguments, ..Settings::default() });
    let tenant = server.tenant("mallory");
    let table = server.client(&tenant).table_create("data").unwrap();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext/spin");
    let installed = server.command(&tenant).args(["ext", "install"]).arg(source).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let mut impatient = client::Client::connect_with(
        &server.address().to_string(),
        &tenant.name,
        &tenant.secret,
        client::ClientConfig { call_timeout: Duration::from_secs(2), ..patient() },
    )
    .unwrap();
    impatient.invoke("spin.endless", table, b"k", b"").expect_err("it never ends");
    assert!(server.stop().success());
    assert!(server.log().contains("worker-0"), "{}", server.log());
}
