//! Extensions through a real server: from source to answer, through replacement and removal, and through
//! every way in which a function can go wrong.

use client::{Client, Error, PackageFile, Status};
use tests::server::{Server, Tenant};

const MANIFEST: &str = "[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
                        [dependencies]\nsandstorm = { path = \"sandstorm\" }\n";

/// Functions that behave, and one for each way to misbehave after a write.
const SAMPLE: &str = r#"
#![no_std]
extern crate alloc;
use alloc::vec::Vec;
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { read answer, read peek, write swap, write fails, write panics, write eats, write digs, read sneaks, read talks }

/// Replies with the version of this source.
async fn answer(_: &Db<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.u32(1)
}

/// Replies with the value under the key.
async fn peek(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?)
}

/// Swaps the values under the key and under the arguments.
async fn swap(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let left = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    let right = db.get(args.table(), args.bytes()).await?.ok_or(Error::NotFound)?;
    db.put(args.table(), args.key(), right).await?;
    db.put(args.table(), args.bytes(), left).await
}

/// Writes, then answers an error of its own with a message.
async fn fails(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"left behind").await?;
    reply.write(b"because")?;
    Err(Error::Application(42))
}

/// Writes, then panics.
async fn panics(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"left behind").await?;
    let empty: &[u8] = &[];
    let beyond = args.bytes().len();
    let _ = empty[beyond];
    Ok(())
}

/// Writes, then takes all the memory there is.
async fn eats(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"left behind").await?;
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    for _ in 0..1_000_000 {
        eaten.push(alloc::vec![1; 65536]);
    }
    reply.u64(eaten.len() as u64)
}

/// Writes, then recurses until the stack is used up.
async fn digs(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"left behind").await?;
    reply.u64(deeper(args.bytes().len() as u64))
}

#[inline(never)]
fn deeper(depth: u64) -> u64 {
    let mut room = [depth; 64];
    for index in 0..64 {
        room[index] = room[(index + 1) % 64].wrapping_add(depth);
    }
    if depth == u64::MAX { 0 } else { deeper(depth + 1).wrapping_add(room[(depth % 64) as usize]) }
}

/// Writes although it is declared to read.
async fn sneaks(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"left behind").await
}

/// Replies with as many bytes as the arguments say, a u32.
async fn talks(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    for _ in 0..args.reader().u32()? {
        reply.u8(7)?;
    }
    Ok(())
}
"#;

fn install(client: &mut Client, name: &str, source: &str) -> Result<u32, Error> {
    let files = vec![
        PackageFile { path: "Cargo.toml", bytes: MANIFEST.as_bytes() },
        PackageFile { path: "src/lib.rs", bytes: source.as_bytes() },
    ];
    client.extension_install(name, files).map(|installed| installed.version)
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> (Status, String) {
    match result.expect_err("the server refuses") {
        Error::Refused { status, text } => (status, text),
        error => (error.status().expect("the server answered"), String::new()),
    }
}

struct SampleStage {
    server: Server,
    tenant: Tenant,
    client: Client,
    table: u32,
}

impl SampleStage {
    /// A server with `sample` installed.
    fn new() -> Self {
        let server = Server::start();
        let tenant = server.tenant("acme");
        let mut client = server.client(&tenant);
        let table = client.table_create("data").unwrap();
        assert_eq!(install(&mut client, "sample", SAMPLE).unwrap(), 1);
        Self { server, tenant, client, table }
    }

    fn invoke(&mut self, function: &str, key: &[u8], arguments: &[u8]) -> Result<Vec<u8>, Error> {
        self.client.invoke(function, self.table, key, arguments)
    }
}

#[test]
fn a_function_reads_and_writes_beside_the_data() {
    let mut stage = SampleStage::new();
    stage.client.put(stage.table, b"a", b"one").unwrap();
    stage.client.put(stage.table, b"b", b"two").unwrap();
    assert_eq!(stage.invoke("sample.peek", b"a", b"").unwrap(), b"one");
    stage.invoke("sample.swap", b"a", b"b").unwrap();
    assert_eq!(stage.client.get(stage.table, b"a").unwrap().unwrap().value, b"two");
    assert_eq!(stage.client.get(stage.table, b"b").unwrap().unwrap().value, b"one");
    assert_eq!(refusal(stage.invoke("sample.peek", b"nothing", b"")).0, Status::NotFound);
    assert_eq!(refusal(stage.invoke("sample.nothing", b"a", b"")).0, Status::UnknownFunction);
    assert_eq!(refusal(stage.invoke("nothing.peek", b"a", b"")).0, Status::UnknownExtension);
}

#[test]
fn every_fault_has_its_status_leaves_nothing_behind_and_the_server_healthy() {
    let mut stage = SampleStage::new();
    let (mut other, other_table) = stage.server.tenant_with_table("other");
    stage.client.put(stage.table, b"k", b"before").unwrap();
    let faults = [
        ("sample.panics", Status::ExtensionPanicked),
        ("sample.eats", Status::ExtensionOutOfMemory),
        ("sample.digs", Status::ExtensionStackOverflow),
        ("sample.sneaks", Status::ReadOnly),
    ];
    for round in 0..50_u32 {
        for (function, expected) in faults {
            let (status, _) = refusal(stage.invoke(function, b"k", b""));
            assert_eq!(status, expected, "{function} in round {round}");
            assert_eq!(stage.client.get(stage.table, b"k").unwrap().unwrap().value, b"before", "{function}");
        }
        match stage.invoke("sample.fails", b"k", b"") {
            Err(Error::ExtensionFailed { code: 42, message }) => assert_eq!(message, b"because"),
            answer => panic!("{answer:?}"),
        }
        assert_eq!(stage.client.get(stage.table, b"k").unwrap().unwrap().value, b"before");
        assert_eq!(stage.invoke("sample.peek", b"k", b"").unwrap(), b"before");
        other.put(other_table, b"k", &round.to_le_bytes()).unwrap();
    }
    assert!(stage.server.is_running());
    let log = stage.server.log();
    assert!(!log.contains("ERROR"), "a fault of an extension is no error of the server\n{log}");
}

#[test]
fn replies_and_arguments_of_every_size() {
    let mut stage = SampleStage::new();
    for bytes in [0_u32, 1, 1_400, 1_500, 100_000, 1 << 20] {
        let reply = stage.invoke("sample.talks", b"", &bytes.to_le_bytes()).unwrap();
        assert_eq!(reply.len(), bytes as usize);
    }
    let beyond = ((1_u32 << 20) + 1).to_le_bytes();
    assert_eq!(refusal(stage.invoke("sample.talks", b"", &beyond)).0, Status::ReplyTooLarge);
    let missing = stage.invoke("sample.talks", b"", b"");
    assert!(missing.is_err(), "arguments that are too short are refused");
    stage.client.put(stage.table, b"k", b"v").unwrap();
    assert_eq!(stage.invoke("sample.peek", b"k", &vec![0; 1 << 20]).unwrap(), b"v");
    let huge = vec![0; (1 << 20) + 1];
    assert_eq!(refusal(stage.invoke("sample.peek", b"k", &huge)).0, Status::ArgumentsTooLarge);
}

#[test]
fn a_replaced_extension_answers_anew_and_a_removed_one_not_at_all() {
    let mut stage = SampleStage::new();
    assert_eq!(stage.invoke("sample.answer", b"", b"").unwrap(), 1_u32.to_le_bytes());
    let newer = SAMPLE.replace("reply.u32(1)", "reply.u32(2)");
    assert_eq!(install(&mut stage.client, "sample", &newer).unwrap(), 2);
    assert_eq!(stage.invoke("sample.answer", b"", b"").unwrap(), 2_u32.to_le_bytes());
    let list = stage.client.extension_list().unwrap();
    assert_eq!(
        list.iter().map(|entry| (entry.name.as_str(), entry.state.current)).collect::<Vec<_>>(),
        [("sample", 2)]
    );
    let described = stage.client.extension_describe("sample").unwrap();
    let peek = described.functions.iter().find(|function| function.name == "peek").unwrap();
    assert!(peek.doc.contains("Replies with the value under the key."), "{}", peek.doc);
    stage.client.extension_remove("sample").unwrap();
    assert_eq!(refusal(stage.invoke("sample.answer", b"", b"")).0, Status::UnknownExtension);
    assert_eq!(refusal(stage.client.extension_remove("sample")).0, Status::UnknownExtension);
    assert!(stage.client.extension_list().unwrap().is_empty());
}

#[test]
fn an_extension_is_its_tenants_own() {
    let mut stage = SampleStage::new();
    let (mut other, other_table) = stage.server.tenant_with_table("other");
    assert!(other.extension_list().unwrap().is_empty());
    assert_eq!(refusal(other.invoke("sample.answer", other_table, b"", b"")).0, Status::UnknownExtension);
    assert_eq!(refusal(other.extension_remove("sample")).0, Status::UnknownExtension);
    let function = stage.client.resolve("sample.peek").unwrap();
    // Guessed ids lead nowhere either.
    let foreign = other.invoke_function(function, other_table, b"k", b"");
    assert_eq!(refusal(foreign).0, Status::UnknownExtension);
    install(&mut other, "sample", SAMPLE).unwrap();
    let own = other.invoke("sample.peek", stage.table, b"k", b"");
    assert_eq!(refusal(own).0, Status::UnknownTable);
}

#[test]
fn extensions_survive_a_restart_and_a_crash() {
    let mut stage = SampleStage::new();
    for crash in [false, true] {
        if crash {
            stage.server.kill();
        } else {
            stage.server.stop();
        }
        stage.server.restart();
        let mut client = stage.server.client(&stage.tenant);
        assert_eq!(client.invoke("sample.answer", stage.table, b"", b"").unwrap(), 1_u32.to_le_bytes());
        assert_eq!(client.extension_describe("sample").unwrap().state.current, 1);
    }
}

#[test]
fn what_is_no_extension_is_refused_with_a_place_and_a_reason() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let hostile =
        ["", "this is not Rust", "\u{feff}\u{202e}", "#![no_std]\nsandstorm::extension! { read missing }\n"];
    for source in hostile {
        let (status, text) = refusal(install(&mut client, "sample", source));
        assert_eq!(status, Status::SourceRefused, "{source:?}: {text}");
        assert!(!text.is_empty(), "{source:?}");
    }
    let unsafe_block = SAMPLE.replace("reply.u32(1)", "unsafe { core::hint::unreachable_unchecked() }");
    let (status, text) = refusal(install(&mut client, "sample", &unsafe_block));
    assert_eq!(status, Status::SourceRefused);
    assert!(text.contains("src/lib.rs:11:"), "line and column are named: {text}");
    let deep = format!("#![no_std]\nfn f() -> u8 {{ {}1{} }}", "(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(refusal(install(&mut client, "sample", &deep)).0, Status::SourceRefused);
    let long = format!("{SAMPLE}\n// {}", "x".repeat(10 << 20));
    assert!(install(&mut client, "sample", &long).is_err());
    client.put(table, b"k", b"v").unwrap();
    assert!(client.extension_list().unwrap().is_empty());
}

#[test]
fn names_and_paths_that_climb_are_refused() {
    let server = Server::start();
    let (mut client, _) = server.tenant_with_table("acme");
    let long = "n".repeat(10_000);
    for name in ["", "..", "../x", "a/b", "/etc/passwd", "a\0b", "-rf", "n\u{e4}me", &long] {
        assert_eq!(refusal(install(&mut client, name, SAMPLE)).0, Status::NameInvalid, "{name:.20}");
    }
    for path in ["../evil.rs", "/tmp/evil.rs", "src/../../evil.rs", "src//lib.rs", ""] {
        let files = vec![
            PackageFile { path: "Cargo.toml", bytes: MANIFEST.as_bytes() },
            PackageFile { path: "src/lib.rs", bytes: SAMPLE.as_bytes() },
            PackageFile { path, bytes: b"" },
        ];
        let (status, _) = refusal(client.extension_install("sample", files));
        assert!(matches!(status, Status::NameInvalid | Status::SourceRefused), "{path}: {status:?}");
    }
    assert!(client.extension_list().unwrap().is_empty());
}

#[test]
fn a_failed_replacement_leaves_the_old_version_serving() {
    let mut stage = SampleStage::new();
    assert!(install(&mut stage.client, "sample", "nonsense").is_err());
    let broken = SAMPLE.replace("reply.u32(1)", "reply.u32(\"one\")");
    let (status, text) = refusal(install(&mut stage.client, "sample", &broken));
    assert_eq!(status, Status::CompileFailed);
    assert!(text.contains("mismatched types"), "{text}");
    assert_eq!(stage.invoke("sample.answer", b"", b"").unwrap(), 1_u32.to_le_bytes());
    assert_eq!(stage.client.extension_describe("sample").unwrap().state.current, 1);
}

/// A function of `body` in a source that the check passes.
fn sample(body: &str) -> String {
    format!(
        "#![no_std]\nuse sandstorm::{{Args, Db, Error, Reply}};\nsandstorm::extension! {{ write run }}\n\
         async fn run(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {{\n{body}\n}}\n"
    )
}

#[test]
fn a_forgotten_await_is_refused_at_install_and_no_attribute_lets_it_pass() {
    let server = Server::start();
    let (mut client, _) = server.tenant_with_table("acme");
    let forgotten = sample("db.put(args.table(), args.key(), b\"lost\");\nreply.u8(1)");
    for attribute in ["", "#![allow(unused_must_use)]\n", "#![allow(unused)]\n", "#![allow(warnings)]\n"] {
        let (status, text) = refusal(install(&mut client, "sample", &format!("{attribute}{forgotten}")));
        assert_eq!(status, Status::CompileFailed, "{attribute}");
        assert!(
            text.contains("unused_must_use") || text.contains("unless you `.await`"),
            "{attribute}{text}"
        );
    }
    assert!(client.extension_list().unwrap().is_empty());
}

#[test]
fn what_the_compiler_warns_of_comes_with_every_installation() {
    let server = Server::start();
    let (mut client, _) = server.tenant_with_table("acme");
    let source =
        sample("let forgotten = 1;\nreply.write(args.key())?;\ndb.delete(args.table(), args.key()).await");
    let files = || {
        vec![
            PackageFile { path: "Cargo.toml", bytes: MANIFEST.as_bytes() },
            PackageFile { path: "src/lib.rs", bytes: source.as_bytes() },
        ]
    };
    let first = client.extension_install("sample", files()).unwrap();
    assert!(first.diagnostics.contains("unused variable: `forgotten`"), "{:?}", first.diagnostics);
    assert!(first.diagnostics.contains("src/lib.rs:5:"), "{:?}", first.diagnostics);
    let second = client.extension_install("sample", files()).unwrap();
    assert_eq!((second.compile_ms, second.diagnostics), (0, first.diagnostics));
}

#[test]
fn wrong_arguments_are_answered_with_what_the_function_takes() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let body = "let count = args.reader().u64()?;\ndb.increment(args.table(), args.key(), count as i64).await?;\nreply.u8(1)";
    let documented =
        sample(body).replace("async fn", "/// Adds.\n/// Arguments: count u64, no more\nasync fn");
    assert_eq!(install(&mut client, "sample", &documented).unwrap(), 1);
    let (status, text) = refusal(client.invoke("sample.run", table, b"k", b"short"));
    assert_eq!((status, text.as_str()), (Status::Malformed, "Arguments: count u64, no more"));
    assert_eq!(install(&mut client, "sample", &sample(body)).unwrap(), 2);
    let (status, text) = refusal(client.invoke("sample.run", table, b"k", b"short"));
    assert_eq!((status, text.as_str()), (Status::Malformed, ""), "there is no such line");
    let long = format!("/// Arguments: {}\nasync fn", "\u{e4}".repeat(3_000));
    let long = sample(body).replace("async fn", &long);
    assert_eq!(install(&mut client, "sample", &long).unwrap(), 3);
    let (status, text) = refusal(client.invoke("sample.run", table, b"k", b"short"));
    assert_eq!(status, Status::Malformed);
    assert!(text.starts_with("Arguments: \u{e4}") && text.len() <= 512 && text.ends_with("..."), "{text}");
}
