//! Extensions from source to answer, through the whole server: installed over a stream, invoked over frames.

use control::{
    AdminRequest, ExtensionDescription, ExtensionEntry, ExtensionInstalled, ExtensionResolved, PackageFile,
    Placement,
};
use wire::{CompletionError, Request, Status, function_hash, reply};

use super::client::{Client, Ended, Refused};
use super::{BAD_NETWORK, Site, file, seed};

/// Adds to a counter; reads it; replies with as much as it is asked for; fails in two ways.
pub const COUNTER: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { write add, read length, read repeat, write fails, write panics }

/// Adds the arguments, an i64, to the number under the key and replies with the sum.
async fn add(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let delta = args.reader().i64()?;
    let sum = db.increment(args.table(), args.key(), delta).await?;
    reply.i64(sum)
}

/// Replies with the length of the value under the key.
async fn length(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let bytes = db.get(args.table(), args.key()).await?.map_or(0, |value| value.len());
    reply.u64(bytes as u64)
}

/// Replies with as many bytes as the arguments, a u32, say.
async fn repeat(_: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    for _ in 0..args.reader().u32()? {
        reply.u8(7)?;
    }
    Ok(())
}

/// Writes, then answers an error of its own.
async fn fails(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"left behind").await?;
    Err(Error::Application(42))
}

/// Writes, then panics.
async fn panics(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), b"left behind").await?;
    panic!("on purpose")
}
"#;

/// The files of an extension of one source file.
pub fn package(source: &str) -> Vec<(String, Vec<u8>)> {
    let manifest = "[package]\nname = \"counter\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
                    [dependencies]\nsandstorm = { path = \"../sandstorm\" }\n";
    vec![
        ("Cargo.toml".to_owned(), manifest.as_bytes().to_vec()),
        ("src/lib.rs".to_owned(), source.as_bytes().to_vec()),
    ]
}

/// Installs a package.
pub fn install(
    client: &mut Client,
    name: &str,
    files: &[(String, Vec<u8>)],
) -> Result<ExtensionInstalled, Refused> {
    install_as(client, name, files, Placement::Current)
}

/// Installs a package and says who gets it.
pub fn install_as(
    client: &mut Client,
    name: &str,
    files: &[(String, Vec<u8>)],
    placement: Placement,
) -> Result<ExtensionInstalled, Refused> {
    let files = files.iter().map(|(path, bytes)| PackageFile { path, bytes }).collect();
    let answer = client.control.ask(&AdminRequest::ExtensionInstall { name, files, placement })?;
    Ok(control::decode::<ExtensionInstalled>(&answer).expect("an installation"))
}

pub fn invoke<'a>(extension: u32, function: &str, table: u32, arguments: &'a [u8]) -> Request<'a> {
    let function = function_hash(function);
    Request::Invoke { extension, version: 0, function, table, key: b"k", arguments }
}

/// Whether an invocation was ended for its age, as those are that wait for long on a machine whose processors others use:
/// it leaves nothing behind. Any other end is a good one.
pub fn is_outlived(status: Result<Status, CompletionError>, body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    if status == Ok(Status::ExtensionKilled) && text.contains("invocation_wall_us") {
        return true;
    }
    assert_eq!(status, Ok(Status::Ok), "{text}");
    false
}

fn refused(client: &mut Client, name: &str, source: &str) -> (Status, String) {
    let (status, text) = install(client, name, &package(source)).expect_err("not to be installed");
    (status, String::from_utf8(text).expect("text"))
}

#[test]
fn a_function_that_writes_runs_once_over_a_bad_network() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), seed(), file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    let extension = install(&mut client, "counter", &package(COUNTER)).expect("a good extension").extension;
    site.network.set_faults(BAD_NETWORK);
    let (count, mut submitted, mut done, mut executed, mut sum) = (3_000, 0, 0, 0, 0);
    let delta = 1_i64.to_le_bytes();
    let request = invoke(extension, "add", table, &delta);
    while done < count {
        while submitted < count && client.submit(submitted, &request) {
            submitted += 1;
        }
        client.step(&mut |_, (status, body): Ended| {
            done += 1;
            if !is_outlived(status, &body) {
                sum += u64::from_le_bytes(body.try_into().expect("a sum"));
                executed += 1;
            }
        });
    }
    assert!(executed > 0);
    assert_eq!(
        sum,
        executed * (executed + 1) / 2,
        "each execution answered another sum, and nothing else wrote"
    );
}

#[test]
fn every_end_of_an_invocation_has_its_status() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, mut other, table) = site.two_clients("ann");
    let extension = install(&mut client, "counter", &package(COUNTER)).expect("a good extension").extension;
    let mut call = |request: &Request<'_>| {
        let (status, body) = client.call(request);
        (status.expect("an answer"), body)
    };
    let length = call(&invoke(extension, "length", table, b""));
    assert_eq!(length, (Status::Ok, 0_u64.to_le_bytes().to_vec()));
    let (status, body) = call(&invoke(extension, "fails", table, b""));
    let failure = reply::ExtensionFailure::decode(&body).expect("a code");
    assert_eq!((status, failure.code), (Status::ExtensionError, 42));
    assert_eq!(call(&invoke(extension, "panics", table, b"")).0, Status::ExtensionPanicked);
    assert_eq!(call(&Request::Get { table, key: b"k" }).0, Status::NotFound, "no write is left behind");
    assert_eq!(call(&invoke(extension, "nothing", table, b"")).0, Status::UnknownFunction);
    assert_eq!(call(&invoke(extension + 1, "add", table, b"")).0, Status::UnknownExtension);
    assert_eq!(call(&invoke(extension, "add", table + 1, b"")).0, Status::UnknownTable);
    let large = 100_000_u32.to_le_bytes();
    assert_eq!(call(&invoke(extension, "repeat", table, &large)).0, Status::UseStream);
    let answer = other.control.request(1, &invoke(extension, "repeat", table, &large)).expect("a reply");
    assert_eq!(answer, [7; 100_000]);
    let huge = u32::MAX.to_le_bytes();
    let beyond = other.control.request(2, &invoke(extension, "repeat", table, &huge));
    assert_eq!(beyond.expect_err("beyond the limit").0, Status::ReplyTooLarge);
}

#[test]
fn a_copy_is_answered_as_the_original_even_when_its_extension_is_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, mut other, table) = site.two_clients("ann");
    let extension = install(&mut client, "counter", &package(COUNTER)).expect("a good extension").extension;
    let delta = 5_i64.to_le_bytes();
    let request = invoke(extension, "add", table, &delta);
    let first = other.control.request(1, &request).expect("a sum");
    client.control.ask(&AdminRequest::ExtensionRemove { name: "counter", version: 0 }).expect("installed");
    assert_eq!(other.control.request(1, &request).expect("the stored reply"), first);
    let fresh = other.control.request(2, &request).expect_err("removed");
    assert_eq!(fresh.0, Status::UnknownExtension);
}

#[test]
fn an_extension_belongs_to_its_tenant() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut ann, _) = site.tenant_with_table("ann");
    let (mut bob, table) = site.tenant_with_table("bob");
    let extension = install(&mut ann, "counter", &package(COUNTER)).expect("a good extension").extension;
    assert_eq!(bob.status(&invoke(extension, "length", table, b"")), Status::UnknownExtension);
    for request in [
        AdminRequest::ExtensionDescribe { name: "counter" },
        AdminRequest::ExtensionResolve { name: "counter" },
        AdminRequest::ExtensionRemove { name: "counter", version: 0 },
    ] {
        assert_eq!(bob.control.ask(&request).expect_err("ann's").0, Status::UnknownExtension);
    }
    let own = install(&mut bob, "counter", &package(COUNTER)).expect("the name is bob's own");
    assert_ne!(own.extension, extension);
    assert_eq!(own.compile_ms, 0, "the same source is compiled once");
}

#[test]
fn a_new_version_takes_over_and_survives_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let secret = site.create_tenant("ann");
    let mut client = site.client("ann", &secret);
    let table = client.create_table("t");
    let first = install(&mut client, "counter", &package(COUNTER)).expect("a good extension");
    let source = COUNTER.replace("reply.u8(7)", "reply.u8(8)");
    let second = install(&mut client, "counter", &package(&source)).expect("a good extension");
    assert_eq!((second.extension, first.version, second.version), (first.extension, 1, 2));
    let one = 1_u32.to_le_bytes();
    let request = invoke(first.extension, "repeat", table, &one);
    assert_eq!(client.call(&request), (Ok(Status::Ok), vec![8]));
    site.server.stop();

    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let mut client = site.client("ann", &secret);
    let list = client.control.ask(&AdminRequest::ExtensionList).expect("a list");
    let list = control::decode::<Vec<ExtensionEntry>>(&list).expect("extensions");
    assert_eq!((list.len(), list[0].extension, list[0].state.current), (1, first.extension, 2));
    let resolved =
        client.control.ask(&AdminRequest::ExtensionResolve { name: "counter" }).expect("installed");
    let resolved = control::decode::<ExtensionResolved>(&resolved).expect("functions");
    let names: Vec<_> = resolved.functions.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, ["add", "length", "repeat", "fails", "panics"]);
    let described =
        client.control.ask(&AdminRequest::ExtensionDescribe { name: "counter" }).expect("installed");
    let described = control::decode::<ExtensionDescription>(&described).expect("a description");
    assert!(described.functions[0].doc.contains("Adds the arguments"));
    assert_eq!(client.call(&request), (Ok(Status::Ok), vec![8]));
}

#[test]
fn source_that_may_not_run_is_refused_and_the_version_before_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start_compiling(directory.path(), 1, file(directory.path()));
    let (mut client, table) = site.tenant_with_table("ann");
    let extension = install(&mut client, "counter", &package(COUNTER)).expect("a good extension").extension;
    let hostile = COUNTER.replace("reply.u8(7)?;", "unsafe { core::hint::unreachable_unchecked() }");
    let (status, text) = refused(&mut client, "counter", &hostile);
    assert_eq!(status, Status::SourceRefused);
    assert!(text.contains("src/lib.rs:"), "{text}");
    let (status, text) = refused(&mut client, "counter", &COUNTER.replace("reply.u8(7)", "reply.nothing(7)"));
    assert_eq!(status, Status::CompileFailed);
    assert!(text.contains("nothing"), "{text}");
    assert_eq!(refused(&mut client, "counter", "this is not Rust").0, Status::SourceRefused);
    assert_eq!(refused(&mut client, "counter", "").0, Status::SourceRefused);
    let large = format!("{COUNTER}\n// {}", "x".repeat(10 << 20));
    let (status, _) = refused(&mut client, "counter", &large);
    assert!(matches!(status, Status::SourceRefused | Status::LimitExceeded), "{status:?}");
    assert_eq!(client.status(&invoke(extension, "length", table, b"")), Status::Ok);
}
