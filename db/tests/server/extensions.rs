//! Extensions through the whole server, installed over a stream and invoked over frames: an invocation runs once, whatever
//! becomes of its frames and of its extension.

use control::{AdminRequest, ExtensionInstalled, PackageFile, Placement};
use wire::{CompletionError, Request, Status, function_hash};

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
