//! What the command makes of modules: `splinter ext explain`, which runs functions before they are installed, and
//! `splinter invoke --at client`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use tests::package::install_source;
use tests::server::{Server, create_in_memory};

use super::install;

/// Lets a command find the compilers of whoever runs the tests.
fn with_tools(command: &mut Command) {
    command.env("PATH", env::var_os("PATH").unwrap_or_default());
    let home = PathBuf::from(env::var_os("HOME").unwrap_or_default());
    for (name, folder) in [("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")] {
        command.env(name, env::var_os(name).unwrap_or_else(|| home.join(folder).into_os_string()));
    }
    for name in ["SPLINTER_WASMC", "SPLINTER_RUSTC", "RUSTUP_TOOLCHAIN"] {
        if let Some(value) = env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// Writes a package called "nibbles".
fn package(place: &TempDir, source: &str) -> PathBuf {
    let folder = place.path().join("nibbles");
    std::fs::create_dir_all(folder.join("src")).expect("a folder");
    std::fs::write(
        folder.join("Cargo.toml"),
        "[package]\nname = \"nibbles\"\n[dependencies]\nsandstorm = { path = \"sandstorm\" }\n",
    )
    .expect("a manifest");
    std::fs::write(folder.join("src/lib.rs"), source).expect("a source");
    folder
}

#[test]
fn a_version_that_costs_more_than_allowed_is_not_installed() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let table = create_in_memory(&mut client, "data");
    for number in 0..50u8 {
        client.put(table, &[number], b"some words").expect("there is room");
    }
    let place = tempfile::tempdir().expect("a folder");
    let install = |source: &str, more: &[&str]| {
        let mut command = server.command(&acme);
        with_tools(&mut command);
        command.args(["ext", "install"]).arg(package(&place, source)).args(more);
        let output = command.output().expect("the program runs");
        let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        (output.status.success(), said)
    };
    let measured = ["--table", "data", "--sample", "40", "--max-regression"];
    let (is_well, said) = install(EXPLAINED, &[&measured[..], &["0"]].concat());
    assert!(is_well && said.contains("nibbles@1"), "there is nothing to compare with: {said}");
    // A hundred reads in place of one.
    let costly = EXPLAINED.replace(
        "let record = ",
        "for _ in 0..100 { db.get(args.table(), args.key()).await?; }\n    let record = ",
    );
    assert_ne!(costly, EXPLAINED);
    let (is_well, said) = install(&costly, &[&measured[..], &["50%", "--function", "copy"]].concat());
    assert!(!is_well && said.contains("copy would cost") && said.contains("nibbles@1"), "{said}");
    assert_eq!(client.extension_describe("nibbles").expect("it is there").state.current, 1);
    let (is_well, said) = install(&costly, &[&measured[..], &["50%", "--function", "fails"]].concat());
    assert!(is_well && said.contains("nibbles@2"), "{said}");
    let (is_well, said) = install(EXPLAINED, &[&measured[..], &["0", "--function", "copy"]].concat());
    assert!(is_well && said.contains("nibbles@3"), "it costs less: {said}");
    let (is_well, said) = install(EXPLAINED, &["--max-regression", "20%"]);
    assert!(!is_well && said.contains("--table"), "{said}");
}

#[test]
fn a_function_costs_what_it_computes_and_reads_beside_the_current_version_and_nothing_is_kept() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let table = create_in_memory(&mut client, "data");
    for number in 0..50u8 {
        client.put(table, &[number], b"some words").expect("there is room");
    }
    let place = tempfile::tempdir().expect("a folder");
    let folder = package(&place, EXPLAINED);
    let explain = |more: &[&str]| {
        let mut command = server.command(&acme);
        with_tools(&mut command);
        command.args(["ext", "explain"]).arg(&folder).args(["--table", "data", "--sample", "40"]).args(more);
        let output = command.output().expect("the program runs");
        let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        (output.status.success(), said)
    };
    let (is_well, said) = explain(&["--rate", "1000"]);
    assert!(is_well, "{said}");
    for expected in [
        "copy (write), 40 keys of data",
        "fails (read), 40 keys",
        "this source",
        "40 ok",
        "40 error 7",
        "requests and writes a second",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("current"), "{said}");
    install_source(&mut client, "nibbles", EXPLAINED).expect("it compiles");
    let (is_well, said) = explain(&["--function", "copy"]);
    assert!(is_well && said.contains("nibbles@1, current") && !said.contains("fails"), "{said}");
    let (is_well, said) = explain(&["--function", "nothing"]);
    assert!(!is_well && said.contains("no function `nothing`"), "{said}");
    assert_eq!(client.table_stat("data").expect("a table").objects, 50, "nothing is kept");
}

/// Reads, writes twice as much; or fails.
const EXPLAINED: &str = "#![no_std]
extern crate alloc;
use sandstorm::{Args, Db, Error, Reply};
sandstorm::extension! { write copy, read fails }
/// Copies a record twice.
async fn copy(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let record = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    db.put(args.table(), b\"first copy\", record).await?;
    db.put(args.table(), b\"second copy\", record).await
}
/// Fails.
async fn fails(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::Application(7))
}
";

#[test]
fn the_command_runs_a_function_itself() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let table = create_in_memory(&mut client, "data");
    client.put(table, b"key", b"value").expect("there is room");
    install(&mut client, "get");
    for at in ["server", "client", "adaptive"] {
        let mut command = server.command(&acme);
        with_tools(&mut command);
        command.args(["invoke", "get.get", "--table", "data", "--key", "key", "--at", at]);
        let output = command.output().expect("the program runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), "value", "{at}: {output:?}");
    }
}
